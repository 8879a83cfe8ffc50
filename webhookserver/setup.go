package webhookserver

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
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

	// MaxInFlightWrites is the number of writes to the API server at a time.
	MaxInFlightWrites int

	// EnableHTTP2 allows HTTP/2 over TLS.
	EnableHTTP2 bool

	// TracerProvider makes the spans of requests and writes. Nil: there are none.
	TracerProvider trace.TracerProvider

	// Mappings remembers compiled mappings. Nil: the server has one of its own.
	Mappings *mapping.Cache

	// ShutdownDelay is how long to go on serving after the order to stop.
	ShutdownDelay time.Duration
}

func (o Options) withDefaults() Options {
	o.BindAddress = cmp.Or(o.BindAddress, DefaultBindAddress)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, DefaultMaxBodyBytes)
	o.MaxPendingEvents = cmp.Or(o.MaxPendingEvents, DefaultMaxPendingEvents)
	o.MaxInFlightWrites = cmp.Or(o.MaxInFlightWrites, DefaultMaxInFlightWrites)
	o.ShutdownDelay = cmp.Or(o.ShutdownDelay, DefaultShutdownDelay)
	if o.Mappings == nil {
		o.Mappings = &mapping.Cache{}
	}
	return o
}

// SetupWithManager makes the server, has the manager's cache feed it, and adds it to the manager.
func SetupWithManager(mgr ctrl.Manager, options Options) (*Server, error) {
	options = options.withDefaults()
	log := mgr.GetLogger().WithName("webhookserver")
	tokens, pending := newTokenIndex(), &pendingCounter{}
	tokensSynced, err := feed(mgr.GetCache(), &v1alpha1.WebhookIntegration{}, tokens.handler())
	if err != nil {
		return nil, err
	}
	pendingSynced, err := feed(mgr.GetCache(), &v1alpha1.AlertEvent{}, pending.handler())
	if err != nil {
		return nil, err
	}
	store, err := newRESTStore(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	ratio := func() float64 { return pending.ratio(options.MaxPendingEvents) }
	backlog.Store(&ratio)
	committer := newGroupCommitter(&writer{store: store, metrics: observeWrite}, options.MaxInFlightWrites)
	spans := newTracing(options.TracerProvider)
	committer.tracing = spans
	reports := newRejectionReporter(mgr.GetClient(), mgr.GetEventRecorder("tocsin"), log)
	server := &Server{
		options:   options,
		committer: committer,
		store:     store,
		reports:   reports,
		log:       log,
		handler: &handler{
			maxBodyBytes:     options.MaxBodyBytes,
			maxPendingEvents: options.MaxPendingEvents,
			synced:           func() bool { return tokensSynced() && pendingSynced() },
			tokens:           tokens,
			pending:          pending,
			bodies:           newMemoryBudget(bodyShares),
			decoded:          newMemoryBudget(decodedShares),
			mappings:         options.Mappings,
			evaluation:       maxEvaluation,
			admits:           committer.admits,
			committer:        committer,
			rejections:       reports,
			tracing:          spans,
			now:              now,
			log:              log,
		},
	}
	if err := mgr.Add(server); err != nil {
		return nil, fmt.Errorf("adding the webhook server to the manager: %w", err)
	}
	return server, nil
}

// now is the time, which clockSkew may put wrong.
func now() time.Time { return time.Now().Add(clockSkew()) }

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
