package webhookserver

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
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

	// Metrics is where the server registers the metrics of its capacity while it runs. Nil: nowhere.
	Metrics prometheus.Registerer

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
	tokens := newTokenIndex()
	pending := commit.NewPendingEvents(options.MaxPendingEvents, options.NamespaceShare)
	incidents := commit.NewIncidents(options.MaxIncidents, options.NamespaceShare)
	synced, err := feed(mgr.GetCache(), tokens, pending, incidents)
	if err != nil {
		return nil, err
	}
	client, err := commit.NewClient(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	committer := commit.New(client, options.MaxInFlightWrites, options.TracerProvider)
	reports := newRejectionReporter(mgr.GetClient(), mgr.GetEventRecorder("tocsin"), log)
	return &Server{
		options:   options,
		committer: committer,
		client:    client,
		capacity:  &commit.CapacityMetrics{Pending: pending, Incidents: incidents},
		reports:   reports,
		log:       log,
		handler: &handler{
			maxBodyBytes: options.MaxBodyBytes,
			synced:       func() bool { return synced() && options.check() == nil },
			tokens:       tokens,
			pending:      pending,
			incidents:    incidents,
			bodies:       newMemoryBudget(bodyShares),
			decoded:      newMemoryBudget(decodedShares),
			mappings:     options.Mappings,
			evaluation:   maxEvaluation,
			committer:    committer,
			rejections:   reports,
			refused:      options.Refused,
			tracing:      newTracing(options.TracerProvider),
			now:          time.Now,
			log:          log,
		},
	}, nil
}

// feed has the cache feed what the server has to know. The result says whether it knows everything that existed at first.
func feed(
	objects cache.Cache, tokens *tokenIndex, pending *commit.PendingEvents, incidents *commit.Incidents,
) (synced func() bool, err error) {
	ctx := context.Background()
	integrationsSynced, err := informers.Feed(ctx, objects, &v1alpha1.WebhookIntegration{},
		func(w *v1alpha1.WebhookIntegration, initial bool) {
			tokens.registry.Set(w, initial)
			pending.SetIntegration(w)
		},
		func(w *v1alpha1.WebhookIntegration) {
			tokens.registry.Remove(client.ObjectKeyFromObject(w), w.UID)
			pending.RemoveIntegration(w)
			forgetIntegration(w.Namespace, w.Name)
		})
	if err != nil {
		return nil, err
	}
	eventsSynced, err := informers.Feed(ctx, objects, &v1alpha1.AlertEvent{},
		func(event *v1alpha1.AlertEvent, _ bool) { pending.Set(event) }, pending.Remove)
	if err != nil {
		return nil, err
	}
	incidentsSynced, err := informers.Feed(ctx, objects, &v1alpha1.Incident{},
		func(incident *v1alpha1.Incident, _ bool) { incidents.Set(incident) }, incidents.Remove)
	if err != nil {
		return nil, err
	}
	return func() bool { return integrationsSynced() && eventsSynced() && incidentsSynced() }, nil
}
