// Package heartbeat has the leader open an Incident when a heartbeat of a WebhookIntegration is missed, and resolve it when the
// heartbeat is heard again. It does so by AlertEvents, like every sender. Package webhookserver hears the signals.
//
// What is known is in the status of the integration. Every replica writes the signals there, and a ping that reports a failure
// before its answer. Only the leader stores alerts, in three steps:
//
//  1. Write to the status that a heartbeat is missed, is heard again or was removed, on condition that the status still is what
//     the decision was made of.
//  2. Store the alert that the status calls for, under a name that follows from the status.
//  3. Write to the status that it is stored.
//
// So after a crash, the next leader finds in the status which alert is to be stored, and the API server stores only one of the
// name. If a quota or a policy denies an alert, the status tells the truth meanwhile, and the alert is stored when it can be.
package heartbeat

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	"github.com/tocsin-dev/tocsin/internal/alerttext"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=create
// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations/status,verbs=patch

// AlertType is the type of the alerts about heartbeats.
const AlertType = "heartbeat"

// concurrency is how many integrations the leader looks at at a time: many may be missed together.
const concurrency = 10

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
	specs    sync.Map // specs of integrations, by types.NamespacedName
}

// specs are the heartbeats of an integration, and since when the leader knows them.
type specs struct {
	heartbeats []v1alpha1.Heartbeat
	since      time.Time
}

// Add adds the controller to the manager of a leader's term.
func Add(mgr ctrl.Manager, live client.Client, health replica.Health) error {
	r := &reconciler{
		cache: mgr.GetCache(), live: live, health: health, recorder: mgr.GetEventRecorder("tocsin"),
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("heartbeat").
		Watches(&v1alpha1.WebhookIntegration{}, &handler.EnqueueRequestForObject{}).
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

// Reconcile decides about the heartbeats of one integration. If the cache says that there is something to do, it reads the
// integration from the quorum and decides again: another replica may have heard the heartbeat, or refused it with 503. While the
// heartbeats are unknown, they stay as they are.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	integration := &v1alpha1.WebhookIntegration{}
	switch err := r.cache.Get(ctx, request.NamespacedName, integration); {
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("reading the WebhookIntegration: %w", err)
	case apierrors.IsNotFound(err), !integration.DeletionTimestamp.IsZero(), !integrations.IsWhole(integration):
		r.specs.Delete(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	decided, now := r.decide(ctx, integration)
	if !decided.isIdle() {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := r.live.Get(ctx, request.NamespacedName, integration); err != nil {
				return err
			}
			decided, now = r.decide(ctx, integration)
			return r.act(ctx, integration, decided, now)
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
func (r *reconciler) decide(ctx context.Context, integration *v1alpha1.WebhookIntegration) (*plan, time.Time) {
	now := r.health.APITime()
	policy := fold.PolicyOf(integration, func(string) (time.Duration, bool) { return 0, false })
	quietFrom, ok := r.health.QuietFrom(client.ObjectKeyFromObject(integration), policy.Unavailable)
	if ready := policy.ReadySince; !ready.IsZero() {
		quietFrom = fold.Latest(quietFrom, now.Add(min(0, ready.Sub(now))).Add(replica.Grace))
	}
	return decide(&facts{
		integration: integration, now: now, quietFrom: quietFrom, specified: r.specified(integration, now),
		judging: ok && !policy.Refusing,
		isOpen:  func(name string) bool { return r.hasOpenIncident(ctx, integration, name) },
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

// hasOpenIncident reports whether a heartbeat has an open Incident, as far as the cache tells.
func (r *reconciler) hasOpenIncident(ctx context.Context, integration *v1alpha1.WebhookIntegration, name string) bool {
	incident := &v1alpha1.Incident{}
	key := client.ObjectKey{
		Namespace: integration.Namespace, Name: v1alpha1.IncidentName(integration.Name, v1alpha1.HeartbeatKey(name)),
	}
	err := r.cache.Get(ctx, key, incident)
	return err == nil && incident.Status.State == v1alpha1.IncidentOpen && incident.DeletionTimestamp.IsZero()
}

// act does what was decided. An alert that cannot be stored keeps no other one from being stored, and is tried again.
func (r *reconciler) act(ctx context.Context, read *v1alpha1.WebhookIntegration, decided *plan, now time.Time) error {
	if decided.changed {
		if err := r.write(ctx, read, decided.heartbeats); err != nil {
			return err
		}
	}
	if len(decided.missed) > 0 {
		r.recorder.Eventf(read, nil, corev1.EventTypeWarning, "HeartbeatMissed", "Listen", "Not heard in time: %s",
			strings.Join(decided.missed, ", "))
	}
	stored := 0
	for i := range decided.alerts {
		alert := &decided.alerts[i]
		if err := r.store(ctx, read, alert.Alert, now); err != nil {
			log.FromContext(ctx).Info("Could not store the alert of a heartbeat; trying again",
				"heartbeat", alert.heartbeat, "reason", err.Error())
			decided.at(now.Add(retryPause))
			continue
		}
		decided.stored(alert)
		stored++
	}
	if stored == 0 {
		return nil
	}
	return r.write(ctx, read, decided.heartbeats)
}

// write writes the heartbeats to the status, unless the integration is not what was read any more.
func (r *reconciler) write(ctx context.Context, read *v1alpha1.WebhookIntegration, heartbeats []v1alpha1.HeartbeatStatus) error {
	before := read.DeepCopy()
	read.Status.Heartbeats = slices.Clone(heartbeats)
	return r.live.Status().Patch(ctx, read, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
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
		},
		Alerts: []v1alpha1.Alert{alert},
	}
	if err := alerttext.Encode(event); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := r.live.Create(ctx, event, client.FieldOwner(v1alpha1.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
