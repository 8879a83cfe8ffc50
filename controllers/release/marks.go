package release

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/admission"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// MarkPatience is how long an AlertEvent is settled in part before it is marked though none of its other Incidents is
	// known to wait. In a storm, an Incident is written once a second.
	MarkPatience = 5 * time.Second

	// deletePatience is how long an AlertEvent is to be deleted before it is marked: finalizers keep it, or its deletion is
	// rejected.
	deletePatience = 30 * time.Second

	// deleteTimeout bounds a deletion after which the event may have to be marked: an admission webhook may hang.
	deleteTimeout = 10 * time.Second

	// conflictRetry is when to mark again after a conflict.
	conflictRetry = 50 * time.Millisecond
)

// markOwner is the field manager of marks. That of the creation is another one, whose time tells restored AlertEvents.
const markOwner = client.FieldOwner("tocsin-settled")

// read notes what the mark of an event says.
func (r *releaseRecord) read(event *v1alpha1.AlertEvent) {
	mark, ok := queue.MarkOf(event)
	if !ok {
		return
	}
	for name := range r.unsettled {
		if mark.Settles(name) {
			r.settle(name)
		}
	}
	r.marked = mark
}

// wantedMark returns the mark to write, nil if there is none: that of an event that stays for its idempotency key, or the
// Incidents for which an event is settled. That is written when one of them needs it, of an event that is settled in part or
// cannot be deleted; and in part also after MarkPatience: nothing may tell when a user deletes one of them.
func (r *releaseRecord) wantedMark(now time.Time) *queue.Mark {
	switch {
	case len(r.unsettled) == 0 && r.isKeyed() && !r.marked.All:
		return &queue.Mark{All: true}
	case r.hasNews() && (r.markWanted && r.stays(now) || len(r.unsettled) > 0 && now.Sub(r.began) >= MarkPatience):
		return &queue.Mark{Incidents: slices.Clone(r.settled)}
	default:
		return nil
	}
}

// stays reports whether the event is not deleted soon: others of its Incidents need it, or it cannot be deleted.
func (r *releaseRecord) stays(now time.Time) bool {
	return len(r.unsettled) > 0 || !r.tried.IsZero() && now.Sub(r.tried) >= deletePatience
}

// hasNews reports whether the event is settled for Incidents that its mark does not name.
func (r *releaseRecord) hasNews() bool {
	return slices.ContainsFunc(r.settled, func(name string) bool { return !r.marked.Settles(name) })
}

// Mark has an event marked that is settled for the Incident and stays.
func (r *Releaser) Mark(event *v1alpha1.AlertEvent, incident string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.records[event.UID]; record != nil && !record.unsettled.Has(incident) {
		record.markWanted = true
		r.enqueueMark(record)
	}
}

// MarkKept has those events of a ledger marked that cannot be deleted, or stay for other Incidents: those for which isBlocked
// reports that their alerts cannot be folded for now, or others that have been settled in part for long.
func (r *Releaser) MarkKept(ledger []v1alpha1.LedgerEntry, isBlocked func(incident string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, entry := range ledger {
		if record := r.records[types.UID(entry.UID)]; record != nil {
			record.markWanted = record.markWanted || len(record.unsettled) == 0 ||
				slices.ContainsFunc(record.unsettled.UnsortedList(), isBlocked)
			r.enqueueMark(record)
		}
	}
}

func (r *Releaser) enqueueMark(record *releaseRecord) {
	if record.wantedMark(r.clock.Now()) != nil {
		r.enqueue(record.ref)
	}
}

// writeMark adds to the mark of an event. What it says was written before, or found to be so. The write is conditional on
// what was read, so no mark ever loses anything.
func (r *Releaser) writeMark(ctx context.Context, ref queue.Ref, wanted *queue.Mark) (ctrl.Result, error) {
	var stored metav1.PartialObjectMetadata
	stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEvent"))
	err := r.live.Get(ctx, ref.NamespacedName, &stored)
	switch {
	case apierrors.IsNotFound(err), err == nil && stored.UID != ref.UID:
		return ctrl.Result{}, nil // the watch will tell
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the AlertEvent to mark: %w", err)
	}
	mark, marked := queue.MarkOf(&stored)
	if !marked {
		mark.ResourceVersion = r.memory.Version(&stored)
	}
	mark = mark.With(wanted.Incidents)
	mark.All = mark.All || wanted.All
	if value := mark.String(); !marked || stored.Annotations[v1alpha1.SettledAnnotation] != value {
		before := stored.DeepCopy()
		before.UID = "" // then the patch has the UID, and fails on another object of the name
		metav1.SetMetaDataAnnotation(&stored.ObjectMeta, v1alpha1.SettledAnnotation, value)
		err = r.live.Patch(ctx, &stored, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), markOwner)
		switch denied := admission.IsDenied(err); {
		case !denied && apierrors.IsConflict(err):
			return ctrl.Result{RequeueAfter: conflictRetry}, nil
		case denied, client.IgnoreNotFound(err) != nil:
			return ctrl.Result{}, fmt.Errorf("marking the AlertEvent: %w", err)
		}
		log.FromContext(ctx).V(1).Info("Marked AlertEvent as settled", "incidents", len(mark.Incidents), "all", mark.All)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.records[ref.UID]; record != nil {
		record.marked = mark
		record.markWanted = record.markWanted && record.hasNews() // another Incident may have wanted the mark during the write
		if record.isDue(r.clock.Now()) {
			r.enqueue(ref)
		}
		r.enqueueMark(record)
	}
	return ctrl.Result{}, nil
}
