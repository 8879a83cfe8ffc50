package controllers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/marks"
)

// incidentDeleter deletes Incidents whose time has come.
type incidentDeleter struct {
	cache    client.Reader
	live     client.Client
	gate     *writeGate
	releases *releaser
	resolved *resolvedIncidents
}

// delete deletes exactly the Incident that was read, when it is its namespace's turn to write, and reports whether it did.
// It keeps an Incident while an AlertEvent exists for it that it has counted, by a list that begins after the Incident was
// read, or is still to count: the ledger must outlive its events, or their marks replace it.
func (d *incidentDeleter) delete(
	ctx context.Context, read *v1alpha1.Incident, list func(ctx context.Context, namespace string) (*eventList, error),
) (bool, error) {
	if free, err := d.markSettled(ctx, client.ObjectKeyFromObject(read)); err != nil || !free {
		return false, err
	}
	listed, err := list(ctx, read.Namespace)
	if err != nil || ledgerHolds(read, listed) {
		return false, err
	}
	return d.remove(ctx, read)
}

// remove deletes exactly the Incident that was read, and reports whether it did.
func (d *incidentDeleter) remove(ctx context.Context, read *v1alpha1.Incident) (bool, error) {
	leave, err := d.gate.enter(ctx, read.Namespace, false)
	if err != nil {
		return false, err
	}
	defer leave()
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: read.Namespace, Name: read.Name}}
	err = d.live.Delete(ctx, incident, client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("deleting the Incident %s: %w", read.Name, err)
	}
	d.resolved.deleted(read)
	return true, nil
}

// markSettled has the AlertEvents marked that are settled for the Incident and stay for other ones. It reports whether the
// cache has none that exists for it.
func (d *incidentDeleter) markSettled(ctx context.Context, incident types.NamespacedName) (free bool, err error) {
	events, err := listAlertEvents(ctx, d.cache, incident)
	if err != nil {
		return false, err
	}
	free = true
	for _, event := range events {
		if mark, ok := marks.Of(event); ok && mark.Settles(incident.Name) {
			continue
		}
		free = false
		d.releases.mark(event, incident.Name)
	}
	return free, nil
}

// gone notes that the cache shows an Incident no longer: it is Resolved, or a user has deleted it. What a deleted one has counted
// must not open it anew. It reports whether the Incident is to be looked at.
func (r *incidentReconciler) gone(ctx context.Context, shown *v1alpha1.Incident) bool {
	incident := client.ObjectKeyFromObject(shown)
	last, ok := r.writes.last(incident)
	r.writes.forget(incident)
	r.blocked.retryNow(incident)
	if ok && last.resolved && last.resourceVersion == shown.ResourceVersion {
		return false // it was this process that resolved it
	}
	if _, err := r.deletions.markSettled(ctx, incident); err != nil {
		log.FromContext(ctx).Error(err, "AlertEvents of a deleted Incident not marked", "incident", incident)
	}
	return true
}

// ledgerHolds reports whether an AlertEvent in the Incident's ledger exists for it per the list.
func ledgerHolds(incident *v1alpha1.Incident, listed *eventList) bool {
	for _, entry := range incident.Status.Ledger.Events {
		if listed.has(entry.UID, incident.Name) {
			return true
		}
	}
	return false
}
