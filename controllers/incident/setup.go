package incident

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/release"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// Options are the settings of the folds; controllers.Options explain them.
type Options struct {
	Namespaces             []string
	Memory                 *replica.Memory
	Releaser               *release.Releaser
	Sweeper                *sweep.Sweeper
	Counts                 *replica.Counts
	Health                 *replica.IngestHealth
	IngestBacklog          func() int
	RestartWatch           func(listAnew bool)
	PresetLateFiringWindow func(preset string) (window time.Duration, ok bool)
	Silences               Silences
	ArchiveRequired        bool
	TracerProvider         trace.TracerProvider
	Clock                  replica.Clock
}

// Add adds the controller to the manager of a leader's term. It returns the Incidents that cannot be written.
func Add(mgr ctrl.Manager, live client.Client, o Options) (*Blocked, error) {
	lists := func(namespaces ...string) lister { return listEvents(live, namespaces...) }
	lag := newLagDetector(mgr.GetCache(), lists, o.Namespaces, o.RestartWatch)
	if err := mgr.Add(lag); err != nil {
		return nil, fmt.Errorf("adding the detector of a watch that has stalled: %w", err)
	}
	r := &reconciler{
		cache:    mgr.GetCache(),
		live:     live,
		lists:    lag.lists,
		memory:   o.Memory,
		loads:    newEventLoads(),
		releases: o.Releaser,
		writes:   newWriteMemory(o.Clock),
		recorder: mgr.GetEventRecorder("tocsin"),
		notices:  flowcontrol.NewTokenBucketRateLimiter(maxNoticeRate, maxNoticeBurst),
		gate:     newWriteGate(writeConcurrency, o.IngestBacklog),
		clock:    o.Clock,
		tracing:  newFoldTracing(o.TracerProvider),
		blocked:  newBlocked(o.Clock),
		counts:   o.Counts,
		resolved: o.Sweeper,

		health:          o.Health,
		presetWindow:    o.PresetLateFiringWindow,
		silences:        o.Silences,
		archiveRequired: o.ArchiveRequired,
		foldAlerts:      fold.Decide,
	}
	options := requests.Options(mgr, "incident", "incident", requests.NameOf)
	options.MaxConcurrentReconciles, options.RecoverPanic = foldConcurrency, new(true)
	options.NewQueue = fair.NewQueue(namespaceOf, requests.NamespaceWorkers(foldConcurrency))
	err := ctrl.NewControllerManagedBy(mgr).
		Named("incident").
		Watches(&v1alpha1.AlertEvent{}, r.foldEvents()).
		Watches(&v1alpha1.WebhookIntegration{}, r.foldPolicies()).
		WatchesRawSource(watchIncidents(mgr.GetCache(), r.gone)).
		WatchesRawSource(source.Func(func(ctx context.Context, queue requests.Queue) error {
			o.Sweeper.Start(ctx, queue, r)
			return nil
		})).
		WatchesRawSource(source.Func(r.watchSilences)).
		WithOptions(options).
		Complete(r)
	if err != nil {
		return nil, fmt.Errorf("adding the fold of Incidents: %w", err)
	}
	return r.blocked, nil
}

func namespaceOf(request reconcile.Request) string { return request.Namespace }
