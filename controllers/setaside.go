package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// reportUnreadable tells of an AlertEvent whose packed alerts nobody can read: it was made by another hand.
// It stays, for that hand to mend.
func (r *incidentReconciler) reportUnreadable(ctx context.Context, event *v1alpha1.AlertEvent, cause error) {
	log.FromContext(ctx).Error(cause, "an AlertEvent cannot be read", "namespace", event.Namespace, "alertevent", event.Name)
	r.recorder.Eventf(event, nil, corev1.EventTypeWarning, "Unreadable", "Fold",
		"Nothing of it is folded, and it is kept: %s", oneLine(cause.Error(), maxMessageChars, maxMessageBytes))
}

// errUnfoldable says that the fold itself failed on what it was given.
var errUnfoldable = errors.New("the fold failed")

// asideBook keeps AlertEvents out of folds that fail for good with them: the API server finds the Incident
// invalid that they make, or the fold panics. Nothing like it is known to exist. But if it came, it must not
// stop the Incident's other alerts for ever, nor the event's alerts of other Incidents. An event that is set
// aside is not released; it is tried again after a while, by another version of the manager perhaps.
type asideBook struct {
	mu     sync.Mutex
	trials map[types.NamespacedName]*trial // by Incident
	events map[asideEvent]time.Time        // when to try again
}

// asideEvent is an AlertEvent in the fold of one of its Incidents.
type asideEvent struct {
	incident types.NamespacedName
	uid      types.UID
}

// trial is the search for the event at fault among an Incident's.
type trial struct {
	refusals int // so far
	atOnce   int // how many events are folded at a time; 0: all
}

func newAsideBook() *asideBook {
	return &asideBook{trials: map[types.NamespacedName]*trial{}, events: map[asideEvent]time.Time{}}
}

// has says whether the event is set aside in the Incident's folds.
func (b *asideBook) has(key types.NamespacedName, uid types.UID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events[asideEvent{key, uid}].After(now)
}

// pick returns the events to fold: all of them, or, where folds were refused again and again, the first ones.
func (b *asideBook) pick(key types.NamespacedName, events []*v1alpha1.AlertEvent) []*v1alpha1.AlertEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.trials[key]
	if t == nil || t.atOnce == 0 || len(events) <= t.atOnce {
		return events
	}
	return slices.SortedFunc(slices.Values(events), inCommitOrder)[:t.atOnce]
}

// refuse notes that the fold of these events was refused. After a few refusals in a row, each one halves the
// events that are folded together, until one is left; that is the one returned, now set aside. Until then closer
// says whether the next fold will take fewer events than this one, or the last one once more.
func (b *asideBook) refuse(
	key types.NamespacedName, events []*v1alpha1.AlertEvent, now time.Time,
) (aside *v1alpha1.AlertEvent, closer bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.trials[key]
	if t == nil {
		t = &trial{}
		b.trials[key] = t
	}
	t.refusals++
	switch {
	case t.refusals < asideAfter || len(events) == 0:
		return nil, false
	case len(events) > 1 || t.refusals == asideAfter:
		t.atOnce = max(1, len(events)/2)
		return nil, true
	}
	delete(b.trials, key) // the others are folded together again
	b.events[asideEvent{key, events[0].UID}] = now.Add(asideTime)
	b.tidy(now)
	return events[0], false
}

// forgive notes that all events of the Incident which are not set aside are folded.
func (b *asideBook) forgive(key types.NamespacedName, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.trials, key)
	if len(b.events) > 0 {
		b.tidy(now)
	}
}

// tidy forgets events that are to be tried again, and shows how many are left.
func (b *asideBook) tidy(now time.Time) {
	maps.DeleteFunc(b.events, func(_ asideEvent, until time.Time) bool { return !until.After(now) })
	distinct := map[types.UID]bool{}
	for event := range b.events {
		distinct[event.uid] = true
	}
	eventsAside.Set(float64(len(distinct)))
}

// isRefused says whether a fold failed in a way that another try does not mend.
func isRefused(err error) bool {
	return errors.Is(err, errUnfoldable) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// tryFold folds, and makes an error of a panic.
func (f *facts) tryFold() (p plan, err error) {
	defer func() {
		if v := recover(); v != nil {
			cause, ok := v.(runtime.Error)
			if !ok { // another value could quote the alert
				err = errUnfoldable
				return
			}
			err = fmt.Errorf("%w: %w", errUnfoldable, cause)
		}
	}()
	return f.fold(), nil
}

// setAside deals with a fold that was refused. Until it is clear which event is at fault, it is to be tried again; at once
// where that brings it out.
func (r *incidentReconciler) setAside(ctx context.Context, f *facts, refusal error) (ctrl.Result, error) {
	event, closer := r.aside.refuse(f.key, f.events, f.now)
	switch {
	case closer:
		log.FromContext(ctx).Info("a fold is refused: looking for the AlertEvent at fault",
			"alertevents", len(f.events), "refusal", refusal.Error())
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case event == nil:
		return ctrl.Result{}, refusal
	}
	log.FromContext(ctx).Error(refusal, "an AlertEvent is set aside", "alertevent", event.Name)
	r.recorder.Eventf(event, nil, corev1.EventTypeWarning, "SetAside", "Fold",
		"Folding it into the Incident %s fails again and again; it is kept and tried again every %s: %s",
		f.key.Name, asideTime, oneLine(refusal.Error(), maxMessageChars, maxMessageBytes))
	return ctrl.Result{RequeueAfter: staleRetry}, nil
}
