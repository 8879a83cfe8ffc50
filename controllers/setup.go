package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/integration"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/leader"
)

// incidentNameIndex is the index of the cache that finds AlertEvents by the names of the Incidents that their alerts belong to.
const incidentNameIndex = "tocsin.incidentName"

// Options are the settings of the controllers.
type Options struct {
	// Namespaces are the namespaces that the manager's cache watches. Empty: all.
	Namespaces []string

	// CheckMapping returns the error of an integration's mapping, in a line that does not change.
	CheckMapping func(*v1alpha1.WebhookIntegration) error

	// PresetLateFiringWindow returns the window of a preset, for integrations without spec.lateFiringWindow.
	PresetLateFiringWindow func(preset string) (window time.Duration, ok bool)

	// Health is the process's. Its maker adds it to the manager.
	Health *replica.IngestHealth

	// Memory is the process's memory of AlertEvents. Its maker calls Listed when they are listed.
	Memory *EventMemory

	// IngestBacklog returns how many requests wait in this process to be stored; the more, the fewer folds write at a
	// time.
	IngestBacklog func() int

	// RestartWatch has the manager's cache watch AlertEvents again, from where it was, or list them anew.
	RestartWatch func(listAnew bool)

	// MaxIncidents is how many Incidents there may be that are not Resolved, and how many Resolved ones are kept.
	MaxIncidents int

	// NamespaceShare is the part of MaxIncidents that one namespace may use.
	NamespaceShare float64

	// Silences tells which silences in Alertmanager cover Incidents. Nil: Incidents are not forwarded.
	Silences Silences

	// Unavailable returns the reason of the condition Ready for which posts to a namespace get 503, empty when they do not.
	Unavailable func(namespace string) string

	// Forwarding is the forwarding of Incidents to Alertmanager. Default: Incidents are not forwarded.
	Forwarding integration.ConditionSource

	// ArchiveRequired says that Incidents are kept until their archiver notes that the archive has them.
	ArchiveRequired bool

	// Follower is told of Resolved Incidents. Default: nobody is.
	Follower sweep.Follower

	// Metrics is where the metrics of the objects in the store are registered while the manager runs. Default: nowhere.
	Metrics prometheus.Registerer

	// TracerProvider makes the spans of folds. Nil: there are none.
	TracerProvider trace.TracerProvider

	// Clock tells the time.
	Clock replica.Clock
}

func (o Options) incidentLimit() fair.Limit {
	return fair.Limit{All: int64(o.MaxIncidents), Share: o.NamespaceShare}
}

// noFollower is a Follower that does nothing.
type noFollower struct{}

func (noFollower) Resolved(*v1alpha1.Incident) {}
func (noFollower) Swept()                      {}

// Replica is the part of the controllers that every replica runs, the leader or not.
type Replica struct {
	options Options
	counts  *replica.Counts
}

// NewReplica prepares the manager's cache and the metrics of the objects in it, before the manager starts.
func NewReplica(mgr ctrl.Manager, options Options) (*Replica, error) {
	if len(options.Namespaces) == 0 {
		options.Namespaces = []string{""}
	}
	if options.Follower == nil {
		options.Follower = noFollower{}
	}
	if err := addIndex(mgr); err != nil {
		return nil, err
	}
	counts, err := replica.NewCounts(mgr, options.Clock, options.incidentLimit(), options.Metrics)
	if err != nil {
		return nil, err
	}
	return &Replica{options, counts}, remember(mgr, options)
}

// Lead adds the controllers to the manager of a leader's term, which has the replica's cache. All memory but that of the
// AlertEvents begins anew: that of an earlier term is worth nothing after another leader has folded.
func (r *Replica) Lead(mgr ctrl.Manager) error {
	options := r.options
	live, err := newLiveClient(mgr)
	if err != nil {
		return err
	}
	if live, err = leader.TrackCalls(mgr, live); err != nil {
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
	blocked := newBlockedIncidents(options.Clock)
	sweeper := sweep.New(sweep.Options{
		Live: live, Namespaces: options.Namespaces, Limit: options.incidentLimit(), Counts: r.counts, Follower: options.Follower,
		Clock: options.Clock, ArchiveRequired: options.ArchiveRequired,
	})
	incidents := &incidentReconciler{
		cache:    mgr.GetCache(),
		live:     live,
		lists:    lag.lists,
		memory:   memory,
		loads:    newEventLoads(),
		releases: releases,
		writes:   newWriteMemory(options.Clock),
		recorder: mgr.GetEventRecorder("tocsin"),
		notices:  flowcontrol.NewTokenBucketRateLimiter(maxNoticeRate, maxNoticeBurst),
		gate:     newWriteGate(writeConcurrency, options.IngestBacklog),
		clock:    options.Clock,
		tracing:  newFoldTracing(options.TracerProvider),
		blocked:  blocked,
		counts:   r.counts,
		resolved: sweeper,

		health:          options.Health,
		presetWindow:    options.PresetLateFiringWindow,
		silences:        options.Silences,
		archiveRequired: options.ArchiveRequired,
		foldAlerts:      fold.Decide,
	}
	if err := addIncidents(mgr, incidents, sweeper); err != nil {
		return fmt.Errorf("adding the fold of Incidents: %w", err)
	}
	status := integration.Options{
		CheckMapping: options.CheckMapping, Unavailable: options.Unavailable, Folded: blocked, Changed: blocked.changed,
		Forwarded: options.Forwarding, Now: options.Clock.Now,
	}
	if options.ArchiveRequired {
		status.Archived = sweeper
	}
	return integration.Add(mgr, live, status)
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
	options := requests.Options(mgr, "release", "alertevent", func(ref eventRef) types.NamespacedName { return ref.NamespacedName })
	options.Reconciler, options.MaxConcurrentReconciles = releases, releaseConcurrency
	options.NewQueue = fair.NewQueue(func(ref eventRef) string { return ref.Namespace }, namespaceWorkers(releaseConcurrency))
	c, err := controller.NewTyped("release", mgr, options)
	if err != nil {
		return err
	}
	return c.Watch(source.TypedFunc[eventRef](releases.start))
}

func addIncidents(mgr ctrl.Manager, incidents *incidentReconciler, sweeper *sweep.Sweeper) error {
	options := requests.Options(mgr, "incident", "incident", requests.NameOf)
	options.MaxConcurrentReconciles, options.RecoverPanic = foldConcurrency, new(true)
	options.NewQueue = fair.NewQueue(requestNamespace, namespaceWorkers(foldConcurrency))
	return ctrl.NewControllerManagedBy(mgr).
		Named("incident").
		Watches(&v1alpha1.AlertEvent{}, incidents.foldEvents()).
		Watches(&v1alpha1.WebhookIntegration{}, incidents.foldPolicies()).
		WatchesRawSource(watchIncidents(mgr.GetCache(), incidents.gone)).
		WatchesRawSource(source.Func(func(ctx context.Context, queue requests.Queue) error {
			sweeper.Start(ctx, queue, incidents)
			return nil
		})).
		WatchesRawSource(source.Func(incidents.watchSilences)).
		WithOptions(options).
		Complete(incidents)
}

func requestNamespace(request reconcile.Request) string { return request.Namespace }

// namespaceWorkers is how many of a controller's workers one namespace may have: four of five.
func namespaceWorkers(workers int) int { return workers - workers/5 }
