package controllers

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// errUnfoldable says that the fold itself failed on its input.
var errUnfoldable = errors.New("the fold failed")

// isRejected reports whether a fold failed in a way that another attempt does not repair.
func isRejected(err error) bool {
	return errors.Is(err, errUnfoldable) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// bisection finds the AlertEvents that make the folds of an Incident fail permanently, by folding fewer and fewer at a
// time, and schedules the retries of quarantined ones.
type bisection struct {
	mu           sync.Mutex
	searches     map[types.NamespacedName]*search // by Incident
	retryBatches map[types.NamespacedName]int     // by Incident: how many quarantined AlertEvents are tried at a time
	retries      map[types.UID]time.Time          // when to try a quarantined AlertEvent again
	delayed      map[delayedEvent]time.Time       // AlertEvents that could not be moved, and until when they wait
}

// delayedEvent is an AlertEvent in the folds of one of its Incidents.
type delayedEvent struct {
	incident types.NamespacedName
	uid      types.UID
}

// search is the search for the AlertEvent at fault among an Incident's.
type search struct {
	failures int // in a row before the search began
	atOnce   int // how many AlertEvents are folded at a time; 0: all
}

func newBisection() *bisection {
	return &bisection{
		searches:     map[types.NamespacedName]*search{},
		retryBatches: map[types.NamespacedName]int{},
		retries:      map[types.UID]time.Time{},
		delayed:      map[delayedEvent]time.Time{},
	}
}

// pick returns the AlertEvents to fold: all of them or, during a search, the first ones.
func (b *bisection) pick(key types.NamespacedName, events []*v1alpha1.AlertEvent) []*v1alpha1.AlertEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.searches[key]
	if s == nil || s.atOnce == 0 || len(events) <= s.atOnce {
		return events
	}
	return slices.SortedFunc(slices.Values(events), fold.InCommitOrder)[:s.atOnce]
}

// failed notes that the fold of these AlertEvents was rejected. After a few consecutive rejections, each one halves the
// number that is folded together, until one is left: the culprit. Until then narrowed reports whether the next fold takes
// fewer than this one, or the last one once more.
func (b *bisection) failed(
	key types.NamespacedName, events []*v1alpha1.AlertEvent,
) (culprit *v1alpha1.AlertEvent, narrowed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.searches[key]
	if s == nil {
		s = &search{}
		b.searches[key] = s
	}
	s.failures++
	switch {
	case s.failures < bisectAfter || len(events) == 0:
		return nil, false
	case len(events) > 1 || s.failures == bisectAfter:
		s.atOnce = max(1, len(events)/2)
		return nil, true
	}
	return events[0], false
}

// folded notes that a fold succeeded while others wait: the next one takes twice as many, so that neither one bad
// AlertEvent among many good ones nor many bad ones cost more folds than it takes to find them.
func (b *bisection) folded(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.searches[key]; s != nil {
		s.atOnce *= 2
	}
}

// clear ends the search: all of the Incident's AlertEvents that can be folded are. Without quarantined ones, the next
// retry is the first one again.
func (b *bisection) clear(key types.NamespacedName, quarantined int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.searches, key)
	if quarantined == 0 {
		delete(b.retryBatches, key)
	}
}

// delay keeps an AlertEvent that cannot be moved out of its Incident's folds for a while.
func (b *bisection) delay(key types.NamespacedName, uid types.UID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.delayed, func(_ delayedEvent, until time.Time) bool { return !until.After(now) })
	b.delayed[delayedEvent{key, uid}] = now.Add(quarantineRetry)
}

// isDelayed reports whether the AlertEvent is kept out of the Incident's folds.
func (b *bisection) isDelayed(key types.NamespacedName, uid types.UID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.delayed[delayedEvent{key, uid}].After(now)
}

// dueRetries returns the quarantined AlertEvents to retry now, oldest first: one of them, and the more the more retries
// succeeded before.
func (b *bisection) dueRetries(key types.NamespacedName, events []*v1alpha1.AlertEvent, now time.Time) []*v1alpha1.AlertEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []*v1alpha1.AlertEvent
	for _, event := range events {
		if !b.retries[event.UID].After(now) {
			due = append(due, event)
		}
	}
	slices.SortFunc(due, fold.InCommitOrder)
	return due[:min(len(due), max(1, b.retryBatches[key]))]
}

// nextRetry is how long until one of the quarantined AlertEvents is to be tried, false without any.
func (b *bisection) nextRetry(events []*v1alpha1.AlertEvent, now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, event := range events {
		if left := max(0, b.retries[event.UID].Sub(now)); !ok || left < wait {
			wait, ok = left, true
		}
	}
	return wait, ok
}

// retryFailed notes that a retry of quarantined AlertEvents failed: one alone waits, several are retried one by one.
func (b *bisection) retryFailed(key types.NamespacedName, events []*v1alpha1.AlertEvent, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.retryBatches, key)
	if len(events) == 1 {
		b.retries[events[0].UID] = now.Add(quarantineRetry)
	}
}

// retrySucceeded notes that a retry of n quarantined AlertEvents succeeded.
func (b *bisection) retrySucceeded(key types.NamespacedName, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retryBatches[key] = min(2*n, v1alpha1.MaxLedger/4)
}

// scheduleRetry has a quarantined AlertEvent tried later.
func (b *bisection) scheduleRetry(uid types.UID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retries[uid] = now.Add(quarantineRetry)
}

// forget drops all records of an AlertEvent that no longer exists.
func (b *bisection) forget(event *v1alpha1.AlertEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.retries, event.UID)
	for name := range incidentNames(event) {
		delete(b.delayed, delayedEvent{types.NamespacedName{Namespace: event.Namespace, Name: name}, event.UID})
	}
}
