package incident

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/admission"
)

// Delete deletes those of these Incidents of one namespace whose ledgers are not needed, exactly as they were read, while more
// says so. It returns how many. An Incident stays while an AlertEvent is listed for it that it has counted, by a list that begins
// after the Incident was read, or is still to count: the ledger must outlive its events, or their marks replace it.
func (r *reconciler) Delete(
	ctx context.Context, namespace string, incidents []*v1alpha1.Incident, more func() bool,
) (deleted int, err error) {
	incidents = slices.DeleteFunc(incidents, func(incident *v1alpha1.Incident) bool {
		free, failed := r.markSettled(ctx, client.ObjectKeyFromObject(incident))
		err = cmp.Or(err, failed)
		return !free
	})
	if err != nil || len(incidents) == 0 {
		return 0, err
	}
	listed, err := r.lists.join(ctx, namespace)
	if err != nil {
		return 0, err
	}
	for _, incident := range incidents {
		isListed := func(entry v1alpha1.LedgerEntry) bool { return listed.has(entry.UID, incident.Name) }
		if !more() {
			break
		}
		if slices.ContainsFunc(incident.Status.Ledger.Events, isListed) {
			continue
		}
		removed, err := r.remove(ctx, incident)
		if err != nil {
			return deleted, err
		}
		if removed {
			deleted++
		}
	}
	return deleted, nil
}

// remove deletes exactly the Incident that was read, when it is its namespace's turn to write, and reports whether it did.
func (r *reconciler) remove(ctx context.Context, read *v1alpha1.Incident) (bool, error) {
	leave, err := r.gate.enter(ctx, read.Namespace, false)
	if err != nil {
		return false, err
	}
	defer leave()
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: read.Namespace, Name: read.Name}}
	err = r.live.Delete(ctx, incident, client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion})
	switch {
	case admission.IsOutdated(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("deleting the Incident %s: %w", read.Name, err)
	}
	r.sweeper.NoteWritten(read, nil)
	return true, nil
}

// markSettled has the AlertEvents marked that are settled for the Incident and stay for other ones. It reports whether the
// cache lists none for it.
func (r *reconciler) markSettled(ctx context.Context, incident types.NamespacedName) (free bool, err error) {
	events, err := replica.EventsOf(ctx, r.cache, incident)
	if err != nil {
		return false, err
	}
	free = true
	for _, event := range events {
		if isMarkedFor(event, incident.Name) {
			continue
		}
		free = false
		r.releases.Mark(event, incident.Name)
	}
	return free, nil
}

// noteGone notes that the cache shows an Incident no longer: it is Resolved, or a user has deleted it. AlertEvents that a deleted
// one has counted are marked, so that they do not open it again. It reports whether the Incident is to be looked at.
func (r *reconciler) noteGone(ctx context.Context, shown *v1alpha1.Incident) bool {
	incident := client.ObjectKeyFromObject(shown)
	r.blocked.forget(incident)
	if last, ok := r.writes.last(incident); ok && last.resolved && !last.outdated && last.resourceVersion == shown.ResourceVersion {
		return false // this process resolved it; a fold that has read it before still has to find the write
	}
	r.writes.forget(incident)
	if _, err := r.markSettled(ctx, incident); err != nil {
		log.FromContext(ctx).Error(err, "AlertEvents of a deleted Incident not marked", "incident", incident)
	}
	return true
}

// deleteEnded deletes a Resolved Incident whose retention is over, or one that never got a status. It looks again at one
// that AlertEvents hold after as long as it has waited so far, at the longest deletionRetry.
func (r *reconciler) deleteEnded(ctx context.Context, f *facts, due time.Time) (ctrl.Result, error) {
	deleted, err := r.Delete(ctx, f.key.Namespace, []*v1alpha1.Incident{f.incident}, func() bool { return true })
	if err != nil || deleted == 0 {
		wait := min(max(f.apiTime.Sub(due), writeInterval), deletionRetry)
		return ctrl.Result{RequeueAfter: wait}, err // a change of the Incident brings it back sooner
	}
	r.writes.forget(f.key)
	reason := "its retention is over"
	if f.incident.Status.State == "" {
		reason = "it has no status and no alerts"
	}
	log.FromContext(ctx).Info("Deleted Incident", "reason", reason, "integration", f.incident.Spec.IntegrationName)
	return ctrl.Result{}, nil
}

// awaitDeletion has the alerts of an Incident wait that is being deleted: nothing is folded into it, and once it is gone, they
// open it anew. Those that it has counted must not do so; its ledger tells them.
func (r *reconciler) awaitDeletion(ctx context.Context, f *facts) (ctrl.Result, error) {
	waiting := !f.nextFold.IsZero()
	for _, event := range f.toFold {
		if isFolded(f.incident, event) {
			r.releases.Settle(event, f.key.Name)
			r.releases.Mark(event, f.key.Name)
		} else {
			waiting = true
		}
	}
	if waiting {
		return r.waitBlocked(ctx, f, &blockedError{reason: v1alpha1.ReasonIncidentTerminating, cause: errTerminating}), nil
	}
	r.blocked.forget(f.key)
	return ctrl.Result{}, nil
}

// leaveOutVanished leaves out for a while those of the AlertEvents that the cache shows which a quorum list has not: a watch has
// lost their end. Otherwise their Incident would be created again at once, and deleted again. In case the list was wrong, it
// returns when to look at them again, zero if there are none.
func (r *reconciler) leaveOutVanished(c *confirmed, shown []*v1alpha1.AlertEvent) (until time.Time) {
	for _, event := range shown {
		if !c.list.has(string(event.UID), c.key.Name) {
			r.vanished.Add(vanished{event.UID, c.key.Name}, nil, vanishedMemory)
			until = r.Clock.Now().Add(vanishedMemory + writeInterval)
		}
	}
	return until
}

// dropEmpty deletes an Incident that was created for AlertEvents which turn out to be gone, if no other one is listed for it.
// Else it goes when its time has come. It returns the Incident that is left.
func (r *reconciler) dropEmpty(ctx context.Context, c *confirmed) (*v1alpha1.Incident, error) {
	if err := r.requireShown(ctx, c, nil); err != nil || !c.isEmpty() {
		return c.incident, err
	}
	if removed, err := r.remove(ctx, c.incident); err != nil || !removed {
		return c.incident, err
	}
	r.writes.forget(c.key)
	return nil, nil
}
