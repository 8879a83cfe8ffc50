// Package heartbeat has the leader open an Incident when a heartbeat of a WebhookIntegration is missed, and resolve it when the
// heartbeat is heard again. It does so by AlertEvents, like every sender. Package webhookserver hears the signals.
//
// What is known is in the status of the integration. The leader stores the AlertEvent first and then writes the status, on
// condition that it still is what the decision was made of. So after a crash, the next leader decides the same; its AlertEvent
// has the same name, and the API server stores only one of them.
package heartbeat

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=create
// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations/status,verbs=patch

// AlertType is the type of the alerts about heartbeats.
const AlertType = "heartbeat"

// concurrency is how many integrations the leader looks at at a time: many may fall silent together.
const concurrency = 10

// reconciler finds heartbeats that are missed or heard again.
type reconciler struct {
	cache    client.Reader
	live     client.Client
	health   replica.Health
	clock    replica.Clock
	recorder events.EventRecorder
	specs    sync.Map // specs of integrations, by types.NamespacedName
}

// specs are the heartbeats of an integration, and since when the leader knows them.
type specs struct {
	heartbeats []v1alpha1.Heartbeat
	since      time.Time
}

// Add adds the controller to the manager of a leader's term.
func Add(mgr ctrl.Manager, live client.Client, health replica.Health, clock replica.Clock) error {
	r := &reconciler{
		cache: mgr.GetCache(), live: live, health: health, clock: clock, recorder: mgr.GetEventRecorder("tocsin"),
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("heartbeat").
		Watches(&v1alpha1.WebhookIntegration{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.Incident{}, watchIncidents()).
		WatchesRawSource(requests.Source("metrics of heartbeats", func(ctx context.Context, _ requests.Queue) error {
			leading.report(ctx, r.cache)
			return nil
		})).
		WithOptions(requests.Options(mgr, "heartbeat", "integration", concurrency, requests.NameOf)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding the heartbeats: %w", err)
	}
	return nil
}

// watchIncidents enqueues the integration of an Incident of a heartbeat: the heartbeat may have been heard before it opened.
func watchIncidents() handler.EventHandler {
	return requests.OnChange(func(_ context.Context, _, after *v1alpha1.Incident, _ bool, queue requests.Queue) {
		if after != nil && v1alpha1.IsHeartbeatKey(after.Spec.DedupKey) && after.Status.State == v1alpha1.IncidentOpen {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{
				Namespace: after.Namespace, Name: after.Spec.IntegrationName,
			}})
		}
	})
}

// Reconcile decides about the heartbeats of one integration. If the cache says that there is something to do, it reads the
// integration from the quorum and decides again: another replica may have heard the heartbeat, or refused it with 503.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	integration := &v1alpha1.WebhookIntegration{}
	switch err := r.cache.Get(ctx, request.NamespacedName, integration); {
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("reading the WebhookIntegration: %w", err)
	case apierrors.IsNotFound(err), !integration.DeletionTimestamp.IsZero():
		r.specs.Delete(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	posted := sets.New[string]()
	decided, now := r.decide(ctx, integration, posted)
	if !decided.isIdle() {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := r.live.Get(ctx, request.NamespacedName, integration); err != nil {
				return err
			}
			decided, now = r.decide(ctx, integration, posted)
			return r.act(ctx, integration, decided, now, posted)
		})
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("writing what is known of the heartbeats: %w", err)
		}
	}
	if decided.next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(decided.next.Sub(now), time.Millisecond)}, nil
}

// decide gathers the facts and decides. It returns the time of the decision by the API server's clock.
func (r *reconciler) decide(
	ctx context.Context, integration *v1alpha1.WebhookIntegration, posted sets.Set[string],
) (*plan, time.Time) {
	own, now := r.clock.Now(), r.health.APITime()
	policy := fold.PolicyOf(integration, func(string) (time.Duration, bool) { return 0, false })
	from, ok := r.health.QuietFromByAPITime(client.ObjectKeyFromObject(integration), policy.Unavailable, own)
	quietFrom := now.Add(from.Sub(own))
	if ready := policy.ReadySince; !ready.IsZero() {
		quietFrom = fold.Latest(quietFrom, now.Add(min(0, ready.Sub(now))).Add(replica.Grace))
	}
	return decide(&facts{
		integration: integration, now: now, quietFrom: quietFrom, specified: r.specified(integration, now),
		judging: ok && !policy.Refusing, posted: posted,
		open: func(name string) *v1alpha1.Incident { return r.openIncident(ctx, integration, name) },
	}), now
}

// specified returns since when the leader knows the heartbeats of an integration as they are defined.
func (r *reconciler) specified(integration *v1alpha1.WebhookIntegration, now time.Time) time.Time {
	key := client.ObjectKeyFromObject(integration)
	before, _ := r.specs.Load(key)
	known, ok := before.(specs)
	if !ok || known.since.After(now) || !equality.Semantic.DeepEqual(known.heartbeats, integration.Spec.Heartbeats) {
		known = specs{integration.Spec.Heartbeats, now}
		r.specs.Store(key, known)
	}
	return known.since
}

// openIncident returns the open Incident of a heartbeat, nil if the cache has none.
func (r *reconciler) openIncident(ctx context.Context, integration *v1alpha1.WebhookIntegration, name string) *v1alpha1.Incident {
	incident := &v1alpha1.Incident{}
	key := client.ObjectKey{
		Namespace: integration.Namespace, Name: v1alpha1.IncidentName(integration.Name, v1alpha1.HeartbeatKey(name)),
	}
	err := r.cache.Get(ctx, key, incident)
	if err != nil || incident.Status.State != v1alpha1.IncidentOpen || !incident.DeletionTimestamp.IsZero() {
		return nil
	}
	return incident
}

func (r *reconciler) act(
	ctx context.Context, read *v1alpha1.WebhookIntegration, decided *plan, now time.Time, posted sets.Set[string],
) error {
	for i := range decided.alerts {
		if err := r.store(ctx, read, decided.alerts[i], now); err != nil {
			return err
		}
	}
	posted.Insert(decided.missed...)
	if decided.changed {
		updated := read.DeepCopy()
		updated.Status.Heartbeats = decided.heartbeats
		patch := client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
		if err := r.live.Status().Patch(ctx, updated, patch); err != nil {
			return err
		}
	}
	if len(decided.missed) > 0 {
		r.recorder.Eventf(read, nil, corev1.EventTypeWarning, "HeartbeatMissed", "Listen", "Not heard in time: %s",
			strings.Join(decided.missed, ", "))
	}
	return nil
}

// store stores an alert as ingest does. One that exists was stored by an earlier attempt, or by another leader.
func (r *reconciler) store(
	ctx context.Context, integration *v1alpha1.WebhookIntegration, alert v1alpha1.Alert, now time.Time,
) error {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: integration.Namespace, Name: alert.ID, Labels: map[string]string{v1alpha1.ExcludeFromBackupLabel: "true"},
		},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: integration.Name, ReceivedTime: v1alpha1.NewTimestamp(now), Defaults: integration.Spec.Defaults,
			Alerts: []v1alpha1.Alert{alert},
		},
	}
	err := r.live.Create(ctx, event, client.FieldOwner(v1alpha1.FieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("storing the alert of a heartbeat: %w", err)
	}
	return nil
}
