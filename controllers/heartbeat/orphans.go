package heartbeat

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
)

// AlertType is the type of the alerts about heartbeats, which their Incidents keep without their content: an Incident of another
// type is none of a heartbeat.
const AlertType = "heartbeat"

// orphans resolves the open Incidents whose heartbeat was deleted, or belongs to another integration now.
type orphans struct{ *reconciler }

func addOrphans(mgr ctrl.Manager, r *reconciler) error {
	return requests.Complete("the orphans of heartbeats", ctrl.NewControllerManagedBy(mgr).
		Named("heartbeat-orphans").
		Watches(&v1alpha1.Incident{}, requests.OnChange(func(
			_ context.Context, _, after *v1alpha1.Incident, _ bool, queue requests.Queue,
		) {
			if after != nil && isOpen(after) && after.Status.Alert.Type == AlertType {
				requests.Add(queue, client.ObjectKeyFromObject(after))
			}
		})).
		Watches(&v1alpha1.Heartbeat{}, requests.OnChange(func(
			_ context.Context, before, after *v1alpha1.Heartbeat, _ bool, queue requests.Queue,
		) {
			if before != nil && (after == nil || heartbeats.IncidentOf(before) != heartbeats.IncidentOf(after)) {
				requests.Add(queue, heartbeats.IncidentOf(before))
			}
		})).
		WithOptions(requests.Options(mgr, "heartbeat-orphans", "incident", concurrency, requests.NameOf)), orphans{r})
}

// Reconcile resolves an Incident if its heartbeat is not there any more. The cache may not show one that is.
func (r orphans) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	incident := &v1alpha1.Incident{}
	if err := r.cache.Get(ctx, request.NamespacedName, incident); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	name, ok := v1alpha1.HeartbeatOfKey(incident.Spec.DedupKey)
	if !ok || len(validation.IsDNS1123Subdomain(name)) > 0 || incident.Status.Alert.Type != AlertType || !isOpen(incident) {
		return ctrl.Result{}, nil // also what a sender calls so
	}
	for _, reader := range []client.Reader{r.cache, r.live} {
		h := &v1alpha1.Heartbeat{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: incident.Namespace, Name: name}, h)
		switch {
		case err == nil && heartbeats.IncidentOf(h) == request.NamespacedName:
			return ctrl.Result{}, nil
		case client.IgnoreNotFound(err) != nil:
			return ctrl.Result{}, fmt.Errorf("reading the Heartbeat of an Incident: %w", err)
		}
	}
	now := r.health.APITime()
	alert := v1alpha1.Alert{
		Status: v1alpha1.AlertResolved, Comment: "The heartbeat was deleted.",
		AlertContent: v1alpha1.AlertContent{EndTime: new(v1alpha1.NewTimestamp(now))},
	}
	episode := int64(0)
	if incident.Status.Episode != nil {
		episode = incident.Status.Episode.Number
	}
	address(&alert, incident.Spec.IntegrationName, name, string(incident.UID), "deleted", strconv.FormatInt(episode, 10))
	if err := r.store(ctx, incident.Namespace, incident.Spec.IntegrationName, alert, now); err != nil {
		return ctrl.Result{}, fmt.Errorf("storing the alert of a heartbeat that was deleted: %w", err)
	}
	return ctrl.Result{}, nil
}
