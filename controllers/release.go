package controllers

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=get;list;watch;delete

// eventRef is one AlertEvent: another object of the same name is another event.
type eventRef struct {
	types.NamespacedName
	uid types.UID
}

func refOf(event *v1alpha1.AlertEvent) eventRef {
	return eventRef{client.ObjectKeyFromObject(event), event.UID}
}

// releaser deletes AlertEvents once each of their alerts is settled: folded and written, or found to
// belong to no Incident. What is settled it knows from memory only; after a restart the ledgers tell it
// again.
//
// It also remembers for a while what it released. A retry of a create whose answer was lost may be stored
// after the first copy was folded and deleted: the same name, made by the server for one event only, with
// another UID. Such a replay is deleted and not folded.
type releaser struct {
	cache client.Reader
	live  client.Writer
	clock Clock

	mu        sync.Mutex
	queue     workqueue.TypedRateLimitingInterface[eventRef] // nil until the controller starts
	records   map[types.UID]*releaseRecord
	lingering lingering

	released *utilcache.LRUExpireCache // UIDs by names
}

// releaseRecord is an event of which at least one alert is settled.
type releaseRecord struct {
	ref     eventRef
	waiting map[string]bool // names of the Incidents whose alerts are not settled
	due     time.Time       // when to delete it, once nothing is waiting

	integration types.NamespacedName
	bytes       int // of its alerts
	linger      *list.Element
}

func newReleaseRecord(event *v1alpha1.AlertEvent) *releaseRecord {
	record := &releaseRecord{
		ref:         refOf(event),
		waiting:     incidentNames(event),
		integration: types.NamespacedName{Namespace: event.Namespace, Name: event.Spec.IntegrationName},
	}
	for i := range event.Spec.Alerts {
		record.bytes += event.Spec.Alerts[i].EncodedSize()
	}
	return record
}

func newReleaser(cache client.Reader, live client.Writer, clock Clock) *releaser {
	return &releaser{
		cache:    cache,
		live:     live,
		clock:    clock,
		records:  map[types.UID]*releaseRecord{},
		released: utilcache.NewLRUExpireCacheWithClock(maxReleased, clock),
	}
}

// start takes the controller's queue and enters the AlertEvents that were settled before.
func (r *releaser) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[eventRef]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = queue
	for _, record := range r.records {
		queue.Add(record.ref)
	}
	return nil
}

// settle notes that the event's alerts for one Incident are settled.
func (r *releaser) settle(event *v1alpha1.AlertEvent, incidentName string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record := r.records[event.UID]
	if record == nil {
		if r.isReleased(refOf(event)) {
			return
		}
		record = newReleaseRecord(event)
		r.records[event.UID] = record
		r.enqueueAfter(record.ref, partialCheck)
	}
	delete(record.waiting, incidentName)
	if len(record.waiting) == 0 && record.due.IsZero() {
		r.schedule(record)
	}
}

// discard has an event deleted, all its alerts unfolded, and reports whether that is news. The result is why.
func (r *releaser) discard(event *v1alpha1.AlertEvent, result string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records[event.UID] != nil {
		return false
	}
	record := &releaseRecord{ref: refOf(event), due: r.clock.Now()}
	r.records[event.UID] = record
	r.enqueue(record.ref)
	countFolded(result, len(event.Spec.Alerts))
	return true
}

// schedule fixes when a record that waits for nothing more is due.
func (r *releaser) schedule(record *releaseRecord) {
	record.due = r.clock.Now()
	if v1alpha1.IsKeyedEventName(record.ref.Name) {
		record.due = record.due.Add(keyedLinger)
		for _, early := range r.lingering.add(record) {
			r.makeDue(early, r.clock.Now())
		}
	}
	r.enqueue(record.ref)
}

// expedite makes up to n of the events due that are settled and stay for their keys only.
func (r *releaser) expedite(ledger []v1alpha1.LedgerEntry, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for _, entry := range ledger {
		if n <= 0 {
			return
		}
		if record := r.records[types.UID(entry.UID)]; record != nil && record.due.After(now) {
			r.makeDue(record, now)
			n--
		}
	}
}

func (r *releaser) makeDue(record *releaseRecord, now time.Time) {
	r.lingering.remove(record)
	record.due = now
	r.enqueue(record.ref)
}

// isSettled reports whether the event's alerts for the Incident are settled already.
func (r *releaser) isSettled(event *v1alpha1.AlertEvent, incidentName string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.records[event.UID]; record != nil {
		_, waiting := record.waiting[incidentName]
		return !waiting
	}
	return r.isReleased(refOf(event))
}

// knows reports whether the event was released, or is settled in part, here.
func (r *releaser) knows(ref eventRef) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[ref.uid] != nil || r.isReleased(ref)
}

// isReplay reports whether the event is a second copy of one that was released a moment ago. Names given by
// people or derived from an idempotency key may come again and are no sign of it.
func (r *releaser) isReplay(event *v1alpha1.AlertEvent) bool {
	if !v1alpha1.IsGeneratedEventName(event.Name) {
		return false
	}
	uid, ok := r.released.Get(client.ObjectKeyFromObject(event))
	return ok && uid != event.UID
}

// forget notes that the cache saw the event's end.
func (r *releaser) forget(ref eventRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.close(ref)
}

// close drops the record of an event that no longer exists, and remembers the event when all its alerts were settled.
func (r *releaser) close(ref eventRef) {
	record := r.records[ref.uid]
	if record == nil {
		return
	}
	delete(r.records, ref.uid)
	r.lingering.remove(record)
	if len(record.waiting) == 0 {
		r.released.Add(ref.NamespacedName, ref.uid, replayWindow)
	}
}

func (r *releaser) isReleased(ref eventRef) bool {
	uid, ok := r.released.Get(ref.NamespacedName)
	return ok && uid == ref.uid
}

func (r *releaser) enqueue(ref eventRef) {
	if r.queue != nil {
		r.queue.Add(ref)
	}
}

func (r *releaser) enqueueAfter(ref eventRef, after time.Duration) {
	if r.queue != nil {
		r.queue.AddAfter(ref, after)
	}
}

// Reconcile deletes the event if it is due.
func (r *releaser) Reconcile(ctx context.Context, ref eventRef) (ctrl.Result, error) {
	wait, partial, known := r.state(ref)
	switch {
	case !known:
		return ctrl.Result{}, nil
	case partial:
		return r.checkPartial(ctx, ref)
	case wait > 0:
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
	err := r.live.Delete(ctx, event, client.Preconditions{UID: &ref.uid})
	// A conflict says that the name has passed to another event: this one is gone as well.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return ctrl.Result{}, fmt.Errorf("releasing the AlertEvent: %w", err)
	}
	log.FromContext(ctx).V(1).Info("Released AlertEvent")
	r.forget(ref)
	return ctrl.Result{}, nil
}

// state returns how long an event is to stay, whether alerts of it are unsettled, and whether it is known at all.
func (r *releaser) state(ref eventRef) (wait time.Duration, partial, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record := r.records[ref.uid]
	if record == nil {
		return 0, false, false
	}
	return record.due.Sub(r.clock.Now()), len(record.waiting) > 0, true
}

// checkPartial drops the record of an event that was deleted before all of its alerts were settled, in
// case its end was seen before the record was made.
func (r *releaser) checkPartial(ctx context.Context, ref eventRef) (ctrl.Result, error) {
	var event v1alpha1.AlertEvent
	err := r.cache.Get(ctx, ref.NamespacedName, &event, client.UnsafeDisableDeepCopy)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("reading the AlertEvent: %w", err)
	case event.UID != ref.uid: // none, or another
		r.forget(ref)
		return ctrl.Result{}, nil
	default:
		return ctrl.Result{RequeueAfter: partialCheck}, nil
	}
}

// incidentNames returns the names of the Incidents that the event's alerts belong to, each with whether all its alerts in
// the event are firing.
func incidentNames(event *v1alpha1.AlertEvent) map[string]bool {
	names := make(map[string]bool, len(event.Spec.Alerts))
	for i := range event.Spec.Alerts {
		alert := &event.Spec.Alerts[i]
		name := event.IncidentNameFor(alert)
		firing, known := names[name]
		names[name] = (firing || !known) && alert.Status == v1alpha1.AlertFiring
	}
	return names
}
