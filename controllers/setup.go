package controllers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// incidentNameIndex is the index of the cache that finds AlertEvents by the names of the Incidents that their alerts belong to.
const incidentNameIndex = "tocsin.incidentName"

// Options are the settings of the controllers.
type Options struct {
	// Namespaces are the namespaces that the manager's cache watches. Empty: all.
	Namespaces []string

	// CheckMapping returns the error of an integration's mapping, in a line that does not change.
	// Default: no mapping has one.
	CheckMapping func(*v1alpha1.WebhookIntegration) error

	// PresetLateFiringWindow returns the window of a preset, for integrations without spec.lateFiringWindow. Default: no
	// preset has one.
	PresetLateFiringWindow func(preset string) (window time.Duration, ok bool)

	// Listening is the process's. Its maker adds it to the manager. Default: NewReplica makes and adds one.
	Listening *Listening

	// Memory is the process's memory of AlertEvents. Its maker calls Listed when they are listed. Default: NewReplica makes
	// one that never learns of that.
	Memory *EventMemory

	// IngestBacklog returns how many requests wait in this process to be stored; the more, the fewer folds write at a
	// time. Default: none ever do.
	IngestBacklog func() int

	// RestartWatch has the manager's cache watch AlertEvents again, from where it was, or list them anew. Default: it cannot.
	RestartWatch func(listAnew bool)

	// MaxIncidents is how many Incidents there may be that are not Resolved, and how many Resolved ones are kept. Default: 50,000.
	MaxIncidents int

	// NamespaceShare is the part of MaxIncidents that one namespace may use. Default: a quarter.
	NamespaceShare float64

	// Silences tells which silences in Alertmanager cover Incidents. Nil: Incidents are not forwarded.
	Silences Silences

	// Refusals returns the reason of the condition Ready for which posts to a namespace are refused, empty when
	// they are not. Default: they never are.
	Refusals func(namespace string) string

	// Forwarding is the forwarding of Incidents to Alertmanager. Default: Incidents are not forwarded.
	Forwarding conditionSource

	// ArchiveRequired says that Incidents are kept until their archiver notes that the archive has them.
	ArchiveRequired bool

	// Follower is told of Resolved Incidents. Default: nobody is.
	Follower Follower

	// Metrics is where the metrics of the objects in the store are registered while the manager runs. Default: nowhere.
	Metrics prometheus.Registerer

	// TracerProvider makes the spans of folds. Nil: there are none.
	TracerProvider trace.TracerProvider

	// Clock tells the time. Default: the real one.
	Clock Clock
}

func (o Options) withDefaults() Options {
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{""}
	}
	o.MaxIncidents = cmp.Or(o.MaxIncidents, defaultMaxIncidents)
	o.NamespaceShare = cmp.Or(o.NamespaceShare, fair.DefaultShare)
	if o.Refusals == nil {
		o.Refusals = func(string) string { return "" }
	}
	if o.CheckMapping == nil {
		o.CheckMapping = func(*v1alpha1.WebhookIntegration) error { return nil }
	}
	if o.PresetLateFiringWindow == nil {
		o.PresetLateFiringWindow = noPresetWindow
	}
	if o.Follower == nil {
		o.Follower = noFollower{}
	}
	if o.IngestBacklog == nil {
		o.IngestBacklog = func() int { return 0 }
	}
	if o.RestartWatch == nil {
		o.RestartWatch = func(bool) {}
	}
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	if o.Memory == nil {
		o.Memory = NewEventMemory(o.Clock)
	}
	return o
}

// noPresetWindow stands for presets without a window for late firings.
func noPresetWindow(string) (window time.Duration, ok bool) { return 0, false }

// noFollower is a Follower that does nothing.
type noFollower struct{}

func (noFollower) Resolved(*v1alpha1.Incident) {}
func (noFollower) Swept()                      {}

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// systemClock is the real clock.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

// Replica is the part of the controllers that every replica runs, the leader or not.
type Replica struct {
	options Options
	counts  *storeCounts
}

// NewReplica prepares the manager's cache and the metrics of the objects in it, before the manager starts.
func NewReplica(mgr ctrl.Manager, options Options) (*Replica, error) {
	options = options.withDefaults()
	if err := addIndex(mgr); err != nil {
		return nil, err
	}
	counts, err := countStore(mgr, options)
	if err != nil {
		return nil, err
	}
	if options.Listening == nil {
		if options.Listening, err = AddListening(mgr, options.Namespaces, options.Clock); err != nil {
			return nil, err
		}
	}
	return &Replica{options, counts}, remember(mgr, options)
}

// Lead adds the controllers to the manager of a leader's term, which has the replica's cache. All memory but that of the
// AlertEvents begins anew: that of an earlier term is worth nothing after another leader has folded.
func (r *Replica) Lead(mgr ctrl.Manager) error {
	options := r.options
	live, err := newObservedClient(mgr)
	if err != nil {
		return err
	}
	memory := options.Memory
	releases := newReleaser(mgr.GetCache(), live, memory, options.Clock)
	if err := addReleaser(mgr, releases); err != nil {
		return fmt.Errorf("adding the release of AlertEvents: %w", err)
	}
	lists := func(namespaces ...string) lister { return listEvents(live, namespaces...) }
	lag := newLagDetector(mgr.GetCache(), lists, options.Namespaces, options.RestartWatch)
	if err := mgr.Add(lag); err != nil {
		return fmt.Errorf("adding the detector of a watch that has stalled: %w", err)
	}
	blocked := newBlockedIncidents()
	gate := newWriteGate(writeConcurrency, options.IngestBacklog)
	deletions := &incidentDeleter{cache: mgr.GetCache(), live: live, gate: gate, releases: releases}
	resolved := newResolvedIncidents(live, deletions, lag.lists, r.counts, options)
	deletions.resolved = resolved
	incidents := &incidentReconciler{
		cache:     mgr.GetCache(),
		live:      live,
		lists:     lag.lists,
		memory:    memory,
		loads:     newEventLoads(),
		releases:  releases,
		deletions: deletions,
		writes:    newWriteMemory(options.Clock),
		recorder:  mgr.GetEventRecorder("tocsin"),
		notices:   flowcontrol.NewTokenBucketRateLimiter(maxNoticeRate, maxNoticeBurst),
		gate:      gate,
		clock:     options.Clock,
		tracing:   newFoldTracing(options.TracerProvider),
		blocked:   blocked,
		counts:    r.counts,
		resolved:  resolved,

		listening:       options.Listening,
		presetWindow:    options.PresetLateFiringWindow,
		silences:        options.Silences,
		archiveRequired: options.ArchiveRequired,
		foldAlerts:      fold.Decide,
	}
	resolved.isDue = incidents.isDue
	if err := addIncidents(mgr, incidents); err != nil {
		return fmt.Errorf("adding the fold of Incidents: %w", err)
	}
	return setupStatus(mgr, options, live, blocked, resolved)
}

// setupStatus adds the controller of the integrations' status.
func setupStatus(
	mgr ctrl.Manager, options Options, live client.Client, blocked *blockedIncidents, resolved *resolvedIncidents,
) error {
	integrations := &integrationReconciler{
		cache:      mgr.GetCache(),
		blocked:    blocked,
		stuck:      newStuckEvents(),
		refusals:   options.Refusals,
		forwarding: options.Forwarding,
		live:       live,
		received:   newReceivedTimes(),
		recorder:   mgr.GetEventRecorder("tocsin"),
		clock:      options.Clock,

		checkMapping: options.CheckMapping,
	}
	if options.ArchiveRequired {
		integrations.archive = resolved
	}
	if err := addIntegrations(mgr, integrations); err != nil {
		return fmt.Errorf("adding the status of WebhookIntegrations: %w", err)
	}
	return nil
}

// newObservedClient makes the client of the fold, with a detector of a fold that is stuck.
func newObservedClient(mgr ctrl.Manager) (client.Client, error) {
	stuck := newStuckDetector()
	if err := mgr.Add(stuck); err != nil {
		return nil, fmt.Errorf("adding the detector of a stuck leader: %w", err)
	}
	live, err := newLiveClient(mgr)
	if err != nil {
		return nil, err
	}
	return &observedClient{Client: live, detector: stuck}, nil
}

// newLiveClient makes a client of the fold's own: it reads from the quorum, and no rate limit on this side
// holds it up; the number of folds at a time bounds it.
func newLiveClient(mgr ctrl.Manager) (client.Client, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1
	live, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making the client of the fold: %w", err)
	}
	// What is written is made of typed structs, so the API server need not look for unknown fields.
	return client.WithFieldValidation(live, metav1.FieldValidationIgnore), nil
}

func addIndex(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.AlertEvent{}, incidentNameIndex, indexIncidentNames)
	if err != nil {
		return fmt.Errorf("indexing by %s: %w", incidentNameIndex, err)
	}
	return nil
}

func indexIncidentNames(object client.Object) []string {
	event, ok := object.(*v1alpha1.AlertEvent)
	if !ok {
		return nil
	}
	var names []string
	for name := range incidentNames(event) {
		names = append(names, name)
	}
	return names
}

func addReleaser(mgr ctrl.Manager, releases *releaser) error {
	c, err := controller.NewTyped("release", mgr, controller.TypedOptions[eventRef]{
		Reconciler:              releases,
		MaxConcurrentReconciles: releaseConcurrency,
		RateLimiter:             backoff[eventRef](),
		NewQueue: fair.NewQueue(func(ref eventRef) string { return ref.Namespace },
			namespaceWorkers(releaseConcurrency)),
		ReconciliationTimeout: foldTimeout,
		LogConstructor: logConstructor(mgr, "release", func(ref eventRef) []any {
			return []any{"namespace", ref.Namespace, "alertevent", ref.Name}
		}),
	})
	if err != nil {
		return err
	}
	return c.Watch(source.TypedFunc[eventRef](releases.start))
}

func addIncidents(mgr ctrl.Manager, incidents *incidentReconciler) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("incident").
		Watches(&v1alpha1.AlertEvent{}, incidents.foldEvents()).
		Watches(&v1alpha1.WebhookIntegration{}, incidents.foldPolicies()).
		WatchesRawSource(watchIncidents(mgr.GetCache(), incidents.gone)).
		WatchesRawSource(source.Func(incidents.resolved.start)).
		WatchesRawSource(source.Func(incidents.watchSilences)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: foldConcurrency,
			RateLimiter:             backoff[reconcile.Request](),
			NewQueue:                fair.NewQueue(requestNamespace, namespaceWorkers(foldConcurrency)),
			RecoverPanic:            new(true),
			ReconciliationTimeout:   foldTimeout,
		}).
		WithLogConstructor(logConstructor(mgr, "incident", func(request reconcile.Request) []any {
			return []any{"namespace", request.Namespace, "incident", request.Name}
		})).
		Complete(incidents)
}

func addIntegrations(mgr ctrl.Manager, integrations *integrationReconciler) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("webhookintegration").
		Watches(&v1alpha1.WebhookIntegration{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.AlertEvent{}, watchReceived(integrations.received, integrations.clock)).
		Watches(&v1alpha1.AlertEvent{}, watchStuck(integrations.stuck)).
		WatchesRawSource(source.Func(integrations.watchCapacity)).
		WithOptions(controller.Options{
			RateLimiter:           backoff[reconcile.Request](),
			ReconciliationTimeout: foldTimeout,
		}).
		WithLogConstructor(logConstructor(mgr, "integration", func(request reconcile.Request) []any {
			return []any{"namespace", request.Namespace, "integration", request.Name}
		})).
		Complete(integrations)
}

func requestNamespace(request reconcile.Request) string { return request.Namespace }

// namespaceWorkers is how many of a controller's workers one namespace may have: four of five.
func namespaceWorkers(workers int) int { return workers - workers/5 }

// backoff retries failed requests with increasing delays, each for itself: one that failed repeatedly delays no other.
func backoff[request comparable]() workqueue.TypedRateLimiter[request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[request](minBackoff, maxBackoff)
}

// logConstructor adds the name of a controller and the values of a request to its logs.
func logConstructor[request comparable](mgr ctrl.Manager, name string, values func(request) []any) func(*request) logr.Logger {
	return func(of *request) logr.Logger {
		log := mgr.GetLogger().WithName(name)
		if of != nil {
			log = log.WithValues(values(*of)...)
		}
		return log
	}
}
