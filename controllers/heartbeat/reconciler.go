// Package heartbeat has the leader open an Incident when a Heartbeat is missed, and resolve it when it is heard again. It does so
// by AlertEvents, like every sender. Meanwhile no Incident of the integration ends for want of alerts (feature.go). Package
// webhookserver/heartbeat hears the signals.
//
// What is known is in the status of the Heartbeat. Every replica writes the signals there, and a ping that reports a failure
// before its answer. Only the leader stores alerts, in three steps:
//
//  1. Write to the status that the heartbeat is missed or is heard again, on condition that the status still is what the decision
//     was made of.
//  2. Store the alert that the status calls for, under a name that follows from the status.
//  3. Write to the status that it is stored.
//
// So after a crash, the next leader finds in the status which alert is to be stored, and the API server stores only one of the
// name. If a quota or a policy denies an alert, the status tells the truth meanwhile, and the alert is stored when it can be.
package heartbeat

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/admission"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=create
// +kubebuilder:rbac:groups=tocsin.dev,resources=heartbeats,verbs=get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=heartbeats/status,verbs=patch
// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=get;list;watch

// concurrency is how many heartbeats the leader looks at at a time: many may be missed together.
const concurrency = 10

// maxPause is the longest time until the leader looks again at a heartbeat that may be missed. Otherwise a miss could be found
// hours late: timers run by the monotonic clock, and do not notice that the API server's clock is set forward or the machine
// sleeps. A look that finds nothing new reads the cache and writes nothing.
const maxPause = time.Minute

// storeTimeout bounds the storing of one alert, and retryPause is the time until the next attempt.
const (
	storeTimeout = 5 * time.Second
	retryPause   = 10 * time.Second
)

// reconciler finds heartbeats that are missed or heard again.
type reconciler struct {
	cache    client.Reader
	live     client.Client
	health   replica.Health
	recorder events.EventRecorder
	specs    sync.Map // known, by types.NamespacedName
}

// known is a spec, and since when the leader knows it.
type known struct {
	spec  v1alpha1.HeartbeatSpec
	since time.Time
}

// Lead implements controllers.Feature.
func (f *Feature) Lead(mgr ctrl.Manager, live client.Client) error {
	r := &reconciler{
		cache: mgr.GetCache(), live: live, health: f.health, recorder: mgr.GetEventRecorder("tocsin"),
	}
	err := requests.Complete("the heartbeats", ctrl.NewControllerManagedBy(mgr).
		Named("heartbeat").
		Watches(&v1alpha1.Heartbeat{}, requests.OfObject[*v1alpha1.Heartbeat]()).
		Watches(&v1alpha1.WebhookIntegration{}, r.watchIntegrations()).
		WatchesRawSource(requests.Source("metrics of heartbeats", func(ctx context.Context, _ requests.Queue) error {
			leading.report(ctx, r.cache)
			return nil
		})).
		WithOptions(requests.Options(mgr, "heartbeat", "heartbeat", concurrency, requests.NameOf)), r)
	return cmp.Or(err, addOrphans(mgr, r), addLinks(mgr, r))
}

// watchIntegrations enqueues the heartbeats of an integration that comes, goes or becomes ready: before, they are not judged.
func (r *reconciler) watchIntegrations() handler.EventHandler {
	return requests.OnChange(func(
		ctx context.Context, before, after *v1alpha1.WebhookIntegration, _ bool, queue requests.Queue,
	) {
		integration := cmp.Or(after, before)
		if before != nil && after != nil && before.Generation == after.Generation &&
			reflect.DeepEqual(before.Status.Conditions, after.Status.Conditions) {
			return
		}
		beats, _ := heartbeats.List(ctx, r.cache, client.ObjectKeyFromObject(integration)) // an error: the term has ended
		for _, h := range beats {
			requests.Add(queue, client.ObjectKeyFromObject(h))
		}
	})
}

// Reconcile decides about one heartbeat. If the cache says that there is something to do, it reads it from the quorum and decides
// again: another replica may have heard it.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	h := &v1alpha1.Heartbeat{}
	switch err := r.cache.Get(ctx, request.NamespacedName, h); {
	case apierrors.IsNotFound(err):
		r.specs.Delete(request.NamespacedName)
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the Heartbeat: %w", err)
	}
	decided, now, err := r.decide(ctx, r.cache, h)
	if err == nil && (decided.changed || decided.alert != nil) {
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := r.live.Get(ctx, request.NamespacedName, h); err != nil {
				return err
			}
			if decided, now, err = r.decide(ctx, r.live, h); err != nil {
				return err
			}
			return r.act(ctx, h, decided, now)
		})
	}
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("deciding about the Heartbeat: %w", err)
	case decided.next.IsZero():
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: min(max(decided.next.Sub(now), time.Millisecond), maxPause)}, nil
}

// decide gathers the facts and decides. It returns the time of the decision by the API server's clock. The integration comes from
// the reader: another replica may have answered it 503.
func (r *reconciler) decide(ctx context.Context, reader client.Reader, h *v1alpha1.Heartbeat) (*plan, time.Time, error) {
	now, key := r.health.APITime(), heartbeats.IntegrationOf(h)
	f := &facts{
		heartbeat: h, now: now, specified: r.specified(h, now), isOpen: func() bool { return r.hasOpenIncident(ctx, h) },
	}
	integration := &v1alpha1.WebhookIntegration{}
	switch err := reader.Get(ctx, key, integration); {
	case apierrors.IsNotFound(err):
		f.absent = true
	case err != nil:
		return nil, now, fmt.Errorf("reading the WebhookIntegration: %w", err)
	default:
		f.unsigned = integration.Spec.Verify != nil && h.IsPing()
		policy := fold.PolicyOf(integration, nil)
		quietFrom, ok := r.health.QuietFrom(key, policy.Unavailable)
		if ready := policy.ReadySince; !ready.IsZero() {
			quietFrom = fold.Latest(quietFrom, now.Add(min(0, ready.Sub(now))).Add(replica.Grace))
		}
		f.quietFrom, f.judging = quietFrom, ok && !policy.NotAccepting
	}
	return decide(f), now, nil
}

// specified returns since when the leader knows a heartbeat as it is defined.
func (r *reconciler) specified(h *v1alpha1.Heartbeat, now time.Time) time.Time {
	key := client.ObjectKeyFromObject(h)
	before, _ := r.specs.Load(key)
	last, ok := before.(known)
	if !ok || last.since.After(now) || !reflect.DeepEqual(last.spec, h.Spec) {
		last = known{h.Spec, now}
		r.specs.Store(key, last)
	}
	return last.since
}

// hasOpenIncident reports whether a heartbeat has an open Incident, as far as the cache tells.
func (r *reconciler) hasOpenIncident(ctx context.Context, h *v1alpha1.Heartbeat) bool {
	incident := &v1alpha1.Incident{}
	return r.cache.Get(ctx, heartbeats.IncidentOf(h), incident) == nil && isOpen(incident)
}

func isOpen(incident *v1alpha1.Incident) bool {
	return incident.Status.State == v1alpha1.IncidentOpen && incident.DeletionTimestamp.IsZero()
}

// act does what was decided. An alert that cannot be stored is tried again.
func (r *reconciler) act(ctx context.Context, read *v1alpha1.Heartbeat, decided *plan, now time.Time) error {
	if decided.changed {
		if err := r.write(ctx, read, &decided.status); err != nil {
			return err
		}
	}
	if decided.missed {
		r.recorder.Eventf(read, nil, corev1.EventTypeWarning, "HeartbeatMissed", "Listen", "No signal has come in time")
	}
	if decided.invalid {
		r.recorder.Eventf(read, nil, corev1.EventTypeWarning, v1alpha1.ReasonInvalidSchedule, "Check", "%s",
			decided.status.Conditions[0].Message)
	}
	if decided.alert == nil {
		return nil
	}
	if err := r.store(ctx, read.Namespace, read.Spec.IntegrationName, decided.alert.Alert, now); err != nil {
		log.FromContext(ctx).Info("Could not store the alert of a heartbeat; trying again", "reason", err.Error())
		decided.at(now.Add(retryPause))
		return nil
	}
	decided.status.AlertTime, decided.status.AlertStatus = decided.alert.about, decided.alert.Status
	return r.write(ctx, read, &decided.status)
}

// write writes the status, unless the heartbeat is not what was read any more.
func (r *reconciler) write(ctx context.Context, read *v1alpha1.Heartbeat, status *v1alpha1.HeartbeatStatus) error {
	before := read.DeepCopy()
	read.Status = *status.DeepCopy()
	return r.live.Status().Patch(ctx, read, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// store stores an alert as ingest does. One that exists was stored by an earlier attempt, or by another leader.
func (r *reconciler) store(ctx context.Context, namespace, integration string, alert v1alpha1.Alert, now time.Time) error {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: alert.ID, Labels: map[string]string{v1alpha1.ExcludeFromBackupLabel: "true"},
		},
		Spec:   v1alpha1.AlertEventSpec{IntegrationName: integration, ReceivedTime: v1alpha1.NewTimestamp(now)},
		Alerts: []v1alpha1.Alert{alert},
	}
	owner := &v1alpha1.WebhookIntegration{}
	if r.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: integration}, owner) == nil {
		event.Spec.Defaults = owner.Spec.Defaults
	}
	if err := queue.Encode(event); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := r.live.Create(ctx, event, client.FieldOwner(v1alpha1.FieldManager))
	if !admission.IsDenied(err) && apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
