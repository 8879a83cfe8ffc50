package incident

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/release"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// Options are the settings of the folds.
type Options struct {
	// Namespaces are the namespaces that the manager's cache watches, one of which may be empty for all.
	Namespaces []string

	// EventNamespaces are the namespaces of which the cache has the AlertEvents: also that of the canaries. Default: Namespaces.
	EventNamespaces []string

	// Memory is the process's memory of AlertEvents. Its maker calls Listed when they are listed.
	Memory *queue.Memory

	// Health is the process's *replica.IngestHealth. Its maker adds it to the manager.
	Health replica.Health

	// Ingest has priority over folding.
	Ingest Ingest

	// Features add to the policies of integrations.
	Features []Feature

	// KeptTypes are types of alerts that Incidents keep without their content.
	KeptTypes []string

	// Presets have windows for integrations without spec.lateFiringWindow.
	Presets fold.Presets

	// Forwarder forwards Incidents. Nil: they are not forwarded.
	Forwarder Forwarder

	// Rules are added to those of the folds, in their order.
	Rules []RuleSource

	// ArchiveRequired says that Incidents are kept until their archiver notes that the archive has them.
	ArchiveRequired bool

	// TracerProvider makes the spans of folds. Nil: there are none.
	TracerProvider trace.TracerProvider

	Clock replica.Clock
}

// Feature is what a feature adds to the folds, beside its rule.
type Feature interface {
	// AddTo adds to the policy of an integration.
	AddTo(ctx context.Context, policy *fold.Policy, integration *v1alpha1.WebhookIntegration) error

	// Source has Incidents folded when that changes. Each term of a leader has one, which may follow the term's cache.
	Source(objects cache.Cache) source.Source
}

// Add adds the controller to the manager of a leader's term. It returns the Incidents that cannot be written.
func Add(
	mgr ctrl.Manager, live client.Client, o Options, counts *capacity.Counts, releaser *release.Releaser, sweeper *sweep.Sweeper,
) (*Blocked, error) {
	if o.EventNamespaces == nil {
		o.EventNamespaces = o.Namespaces
	}
	isHidden := func(event client.Object) bool {
		return counts.Hides(event.GetNamespace()) && !o.Memory.IsShown(event.GetUID())
	}
	list := func(namespaces ...string) lister { return listEvents(live, isHidden, namespaces...) }
	lists := newQuorumLists(list, o.EventNamespaces)
	if err := mgr.Add(lists); err != nil {
		return nil, fmt.Errorf("adding the quorum lists: %w", err)
	}
	r := newReconciler(mgr.GetCache(), live, lists, o)
	r.recorder, r.notices = mgr.GetEventRecorder("tocsin"), flowcontrol.NewTokenBucketRateLimiter(maxNoticeRate, maxNoticeBurst)
	r.counts, r.releases, r.sweeper = counts, releaser, sweeper
	options := requests.Options(mgr, "incident", "incident", foldConcurrency, requests.NameOf)
	options.NewQueue = requests.NewQueue(foldConcurrency, func(request ctrl.Request) types.NamespacedName {
		return o.Memory.Turn(request.NamespacedName)
	})
	options.RecoverPanic = new(true)
	builder := ctrl.NewControllerManagedBy(mgr).
		Named("incident").
		Watches(&v1alpha1.AlertEvent{}, r.onEvent()).
		Watches(&v1alpha1.Incident{}, r.onIncident()).
		Watches(&v1alpha1.WebhookIntegration{}, r.onIntegration()).
		WatchesRawSource(requests.Source("sweeps", func(ctx context.Context, queue requests.Queue) error {
			sweeper.Start(ctx, queue, r)
			return nil
		})).
		WatchesRawSource(requests.Source("blocked", r.watchBlocked)).
		WatchesRawSource(requests.Source("forwarding", r.watchForwarding)).
		WithOptions(options)
	for _, feature := range o.Features {
		builder.WatchesRawSource(feature.Source(mgr.GetCache()))
	}
	return r.blocked, requests.Complete("the fold of Incidents", builder, r)
}

// newReconciler returns a reconciler. The caller sets the other fields.
func newReconciler(cache client.Reader, live client.Client, lists *quorumLists, o Options) *reconciler {
	return &reconciler{
		Options: o, cache: cache, live: live, lists: lists,
		writes:  &writeMemory{expirecache.NewLRUExpireCacheWithClock(maxRememberedWrites, o.Clock)},
		loading: fair.NewPlaces(loadingFolds), loaded: lru.New(keptLoads),
		gate: newWriteGate(writeConcurrency, o.Ingest), blocked: newBlocked(o.Clock), decideFold: fold.Decide,
		retentions: expirecache.NewLRUExpireCache(maxRetentions), wake: func(types.NamespacedName) {},
		vanished: expirecache.NewLRUExpireCacheWithClock(maxVanished, o.Clock),
	}
}
