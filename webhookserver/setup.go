package webhookserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// Options are the settings of the webhook server. Zero values stand for the defaults in limits.go.
type Options struct {
	// BindAddress is where to listen, as host:port.
	BindAddress string

	// TLSCertPath is a folder with tls.crt and tls.key, read again when they change. Empty: no TLS.
	TLSCertPath string

	// MaxBodyBytes is the most bytes of a body, as sent and after decompression.
	MaxBodyBytes int64

	// MaxPendingEvents is the number of AlertEvents in the cluster from which on requests are refused.
	MaxPendingEvents int

	// MaxIncidents is the number of Incidents from which on alerts that need new ones are refused.
	MaxIncidents int

	// NamespaceShare is the part of MaxPendingEvents and MaxIncidents that one namespace may use.
	NamespaceShare float64

	// MaxInFlightWrites is the number of writes to the API server at a time.
	MaxInFlightWrites int

	// EnableHTTP2 allows HTTP/2 over TLS.
	EnableHTTP2 bool

	// TracerProvider makes the spans of requests and writes. Nil: there are none.
	TracerProvider trace.TracerProvider

	// Refused is called for every request of an integration that is answered 5xx, so that nobody takes the sender for
	// silent. It must not block. Nil: nobody wants to know.
	Refused func(integration types.NamespacedName)

	// Check returns why no alert may be accepted, nil when all is well. It must not block. Default: all is well.
	Check func() error

	// Mappings remembers compiled mappings. Nil: the server has one of its own.
	Mappings *mapping.Cache

	// ShutdownDelay is how long to go on serving after the order to stop.
	ShutdownDelay time.Duration
}

func (o Options) check() error {
	if o.Check == nil {
		return nil
	}
	return o.Check()
}

func (o Options) withDefaults() Options {
	o.BindAddress = cmp.Or(o.BindAddress, DefaultBindAddress)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, DefaultMaxBodyBytes)
	o.MaxPendingEvents = cmp.Or(o.MaxPendingEvents, DefaultMaxPendingEvents)
	o.MaxIncidents = cmp.Or(o.MaxIncidents, DefaultMaxIncidents)
	o.NamespaceShare = cmp.Or(o.NamespaceShare, v1alpha1.DefaultNamespaceShare)
	o.MaxInFlightWrites = cmp.Or(o.MaxInFlightWrites, DefaultMaxInFlightWrites)
	o.ShutdownDelay = cmp.Or(o.ShutdownDelay, DefaultShutdownDelay)
	if o.Mappings == nil {
		o.Mappings = &mapping.Cache{}
	}
	return o
}

// New makes the server and has the manager's cache feed it. It is for the caller to start, and may be started before
// the manager: until the cache has synced, requests are answered 503.
func New(mgr ctrl.Manager, options Options) (*Server, error) {
	options = options.withDefaults()
	log := mgr.GetLogger().WithName("webhookserver")
	tokens, pending := newTokenIndex(), newPendingCounter(options.MaxPendingEvents, options.NamespaceShare)
	incidents := newIncidentIndex(v1alpha1.Capacity{Limit: int64(options.MaxIncidents), Share: options.NamespaceShare})
	var synced []func() bool
	for _, fed := range []struct {
		kind    client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&v1alpha1.WebhookIntegration{}, tokens.handler()},
		{&v1alpha1.WebhookIntegration{}, pending.integrations()},
		{&v1alpha1.AlertEvent{}, pending.handler()},
		{&v1alpha1.Incident{}, incidents.handler()},
	} {
		fedSynced, err := feed(mgr.GetCache(), fed.kind, fed.handler)
		if err != nil {
			return nil, err
		}
		synced = append(synced, fedSynced)
	}
	store, err := newRESTStore(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	capacities.Store(&capacity{pending, incidents})
	committer := newGroupCommitter(&writer{store: store, metrics: observeWrite}, options.MaxInFlightWrites)
	spans := newTracing(options.TracerProvider)
	committer.tracing = spans
	reports := newRejectionReporter(mgr.GetClient(), mgr.GetEventRecorder("tocsin"), log)
	return &Server{
		options:   options,
		committer: committer,
		store:     store,
		reports:   reports,
		log:       log,
		handler: &handler{
			maxBodyBytes: options.MaxBodyBytes,
			synced: func() bool {
				return !slices.ContainsFunc(synced, func(is func() bool) bool { return !is() }) && options.check() == nil
			},
			tokens:     tokens,
			pending:    pending,
			incidents:  incidents,
			bodies:     newMemoryBudget(bodyShares),
			decoded:    newMemoryBudget(decodedShares),
			mappings:   options.Mappings,
			evaluation: maxEvaluation,
			admits:     committer.admits,
			committer:  committer,
			rejections: reports,
			refused:    options.Refused,
			tracing:    spans,
			now:        time.Now,
			log:        log,
		},
	}, nil
}

// feed has the cache call the handler for every object of a kind. The result tells whether the handler has
// been called for all that there were at first: that the cache has synced does not say so.
func feed(objects cache.Cache, kind client.Object, handler toolscache.ResourceEventHandler) (func() bool, error) {
	informer, err := objects.GetInformer(context.Background(), kind)
	if err != nil {
		return nil, fmt.Errorf("getting the informer of %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("listening to the informer of %T: %w", kind, err)
	}
	return registration.HasSynced, nil
}
