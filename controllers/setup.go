package controllers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Indexes of the cache.
const (
	// incidentNameIndex finds AlertEvents by the names of the Incidents that their alerts belong to.
	incidentNameIndex = "tocsin.incidentName"
	// integrationNameIndex finds Incidents by spec.integrationName.
	integrationNameIndex = "spec.integrationName"
	// tokenHashIndex finds WebhookIntegrations by the hashes of their tokens.
	tokenHashIndex = "tocsin.tokenHash"
)

// Options are the settings of the controllers.
type Options struct {
	// Namespaces are those that the manager's cache watches. Empty: all.
	Namespaces []string

	// MaxConcurrentReconciles is how many Incidents are folded at a time. Default: 128.
	MaxConcurrentReconciles int

	// CheckMapping says what is wrong with an integration's mapping, in a line that does not change.
	// Default: nothing ever is.
	CheckMapping func(*v1alpha1.WebhookIntegration) error

	// IngestCrowd says how many requests wait in this process to be stored; the more, the fewer folds write at a
	// time. Default: that none ever do.
	IngestCrowd func() int

	// TracerProvider makes the spans of folds. Nil: there are none.
	TracerProvider trace.TracerProvider

	// Clock tells the time. Default: the real one.
	Clock Clock
}

func (o Options) withDefaults() Options {
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{""}
	}
	o.MaxConcurrentReconciles = cmp.Or(o.MaxConcurrentReconciles, defaultConcurrency)
	if o.CheckMapping == nil {
		o.CheckMapping = func(*v1alpha1.WebhookIntegration) error { return nil }
	}
	if o.IngestCrowd == nil {
		o.IngestCrowd = func() int { return 0 }
	}
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	return o
}

// Clock tells the time.
type Clock interface {
	Now() time.Time
	Since(t time.Time) time.Duration
}

// systemClock is the real clock, which clockSkew may put wrong.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now().Add(clockSkew()) }

func (c systemClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// SetupWithManager adds to the manager what turns AlertEvents into Incidents and keeps the integrations'
// status. All of it runs on the leader only; the indexes are kept on every replica.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	options = options.withDefaults()
	if err := addIndexes(mgr); err != nil {
		return err
	}
	live, err := newLiveClient(mgr)
	if err != nil {
		return err
	}
	releases := newReleaser(mgr.GetCache(), live, options.Clock)
	if err := addReleaser(mgr, releases); err != nil {
		return fmt.Errorf("adding the release of AlertEvents: %w", err)
	}
	incidents := &incidentReconciler{
		cache:    mgr.GetCache(),
		live:     live,
		lists:    &quorumList{list: listEvents(live, options.Namespaces)},
		releases: releases,
		aside:    newAsideBook(),
		writes:   newWriteMemory(),
		recorder: mgr.GetEventRecorder("tocsin"),
		notices:  flowcontrol.NewTokenBucketRateLimiter(maxNoticeRate, maxNoticeBurst),
		gate:     newWriteGate(writeConcurrency, options.IngestCrowd),
		clock:    options.Clock,
		tracing:  newFoldTracing(options.TracerProvider),
	}
	if err := addIncidents(mgr, incidents, options.MaxConcurrentReconciles); err != nil {
		return fmt.Errorf("adding the fold of Incidents: %w", err)
	}
	integrations := &integrationReconciler{
		cache:    mgr.GetCache(),
		live:     live,
		received: newReceivedTimes(),
		recorder: mgr.GetEventRecorder("tocsin"),
		clock:    options.Clock,

		checkMapping: options.CheckMapping,
	}
	if err := addIntegrations(mgr, integrations); err != nil {
		return fmt.Errorf("adding the status of WebhookIntegrations: %w", err)
	}
	return observeStore(mgr, options.Clock)
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

func addIndexes(mgr ctrl.Manager) error {
	indexes := []struct {
		object client.Object
		name   string
		keys   client.IndexerFunc
	}{
		{&v1alpha1.AlertEvent{}, incidentNameIndex, indexIncidentNames},
		{&v1alpha1.Incident{}, integrationNameIndex, indexIntegrationName},
		{&v1alpha1.WebhookIntegration{}, tokenHashIndex, indexTokenHashes},
	}
	for _, index := range indexes {
		err := mgr.GetFieldIndexer().IndexField(context.Background(), index.object, index.name, index.keys)
		if err != nil {
			return fmt.Errorf("indexing by %s: %w", index.name, err)
		}
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

func indexIntegrationName(object client.Object) []string {
	if incident, ok := object.(*v1alpha1.Incident); ok {
		return []string{incident.Spec.IntegrationName}
	}
	return nil
}

func indexTokenHashes(object client.Object) []string {
	if integration, ok := object.(*v1alpha1.WebhookIntegration); ok {
		return tokenHashes(integration)
	}
	return nil
}

func addReleaser(mgr ctrl.Manager, releases *releaser) error {
	c, err := controller.NewTyped("release", mgr, controller.TypedOptions[eventRef]{
		Reconciler:              releases,
		MaxConcurrentReconciles: releaseConcurrency,
		RateLimiter:             backoff[eventRef](),
		ReconciliationTimeout:   foldTimeout,
		LogConstructor: func(ref *eventRef) logr.Logger {
			log := mgr.GetLogger().WithName("release")
			if ref != nil {
				log = log.WithValues("namespace", ref.Namespace, "alertevent", ref.Name)
			}
			return log
		},
	})
	if err != nil {
		return err
	}
	return c.Watch(source.TypedFunc[eventRef](releases.start))
}

func addIncidents(mgr ctrl.Manager, incidents *incidentReconciler, concurrency int) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("incident").
		For(&v1alpha1.Incident{}).
		Watches(&v1alpha1.Incident{}, forgetIncidents(incidents.writes)).
		Watches(&v1alpha1.AlertEvent{}, foldEvents(incidents.releases, incidents.reportUnreadable)).
		Watches(&v1alpha1.WebhookIntegration{}, foldPolicies(mgr.GetCache())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrency,
			RateLimiter:             backoff[reconcile.Request](),
			RecoverPanic:            new(true),
			ReconciliationTimeout:   foldTimeout,
		}).
		WithLogConstructor(logConstructor(mgr, "incident")).
		Complete(incidents)
}

func addIntegrations(mgr ctrl.Manager, integrations *integrationReconciler) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("webhookintegration").
		Watches(&v1alpha1.WebhookIntegration{}, watchIntegrations(mgr.GetCache())).
		Watches(&v1alpha1.AlertEvent{}, watchReceived(integrations.received, integrations.clock)).
		WithOptions(controller.Options{
			RateLimiter:           backoff[reconcile.Request](),
			ReconciliationTimeout: foldTimeout,
		}).
		WithLogConstructor(logConstructor(mgr, "integration")).
		Complete(integrations)
}

// backoff tries what failed again, ever later, each request for itself: one that fails again and again
// holds up no other.
func backoff[request comparable]() workqueue.TypedRateLimiter[request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[request](minBackoff, maxBackoff)
}

// logConstructor names the object of a request in all that is logged for it.
func logConstructor(mgr ctrl.Manager, kind string) func(*reconcile.Request) logr.Logger {
	return func(request *reconcile.Request) logr.Logger {
		log := mgr.GetLogger().WithName(kind)
		if request != nil {
			log = log.WithValues("namespace", request.Namespace, kind, request.Name)
		}
		return log
	}
}

// observeStore lets the metrics count what the cache holds, once it is filled.
func observeStore(mgr ctrl.Manager, clock Clock) error {
	var synced []func() bool
	for _, object := range []client.Object{&v1alpha1.AlertEvent{}, &v1alpha1.Incident{}} {
		informer, err := mgr.GetCache().GetInformer(context.Background(), object)
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
		synced = append(synced, informer.HasSynced)
	}
	stored.source.Store(&storeSource{
		reader: mgr.GetCache(),
		synced: func() bool { return synced[0]() && synced[1]() },
		now:    func() time.Time { return clock.Now() },
	})
	return nil
}
