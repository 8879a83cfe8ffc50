package controllers

import (
	"container/list"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=get;list;watch;patch;delete

// eventRef is one AlertEvent: another object of the same name is another event.
type eventRef struct {
	types.NamespacedName
	uid types.UID
}

func refOf(event *v1alpha1.AlertEvent) eventRef {
	return eventRef{client.ObjectKeyFromObject(event), event.UID}
}

// releaser deletes AlertEvents once each of their alerts is settled: folded and written, or found to belong to no
// Incident. What is settled it knows from memory and from the marks of the AlertEvents; after a restart, the marks and the
// ledgers tell it again. It writes the marks, see marks.go.
type releaser struct {
	cache  client.Reader
	live   client.Client
	memory *EventMemory
	clock  replica.Clock

	mu        sync.Mutex
	queue     workqueue.TypedRateLimitingInterface[eventRef] // nil until the controller starts
	records   map[types.UID]*releaseRecord
	lingering lingering
}

// releaseRecord is an event of which at least one alert is settled.
type releaseRecord struct {
	ref     eventRef
	version string          // its place in commit order
	waiting map[string]bool // names of the Incidents whose alerts are not settled
	settled []string        // names of the others
	began   time.Time       // when the first of them was settled
	due     time.Time       // when to delete it, once nothing is waiting
	deleted bool            // and the watch has not shown it yet

	discarded bool // its alerts are not folded

	marked     v1alpha1.Mark // as far as it is known
	markWanted bool

	integration types.NamespacedName
	bytes       int // of its alerts
	linger      *list.Element
}

func newReleaseRecord(event *v1alpha1.AlertEvent, version string, now time.Time) *releaseRecord {
	record := &releaseRecord{
		ref:         refOf(event),
		version:     version,
		waiting:     incidentNames(event),
		began:       now,
		integration: types.NamespacedName{Namespace: event.Namespace, Name: event.Spec.IntegrationName},
	}
	for i := range event.Spec.Alerts {
		record.bytes += event.Spec.Alerts[i].EncodedSize()
	}
	record.read(event)
	return record
}

// settle notes that the alerts for one Incident are settled.
func (r *releaseRecord) settle(incident string) {
	if _, waits := r.waiting[incident]; waits {
		delete(r.waiting, incident)
		r.settled = append(r.settled, incident)
	}
}

// isKeyed reports whether the event stays for its idempotency key.
func (r *releaseRecord) isKeyed() bool { return v1alpha1.IsKeyedEventName(r.ref.Name) }

func newReleaser(cache client.Reader, live client.Client, memory *EventMemory, clock replica.Clock) *releaser {
	return &releaser{
		cache: cache, live: live, memory: memory, clock: clock,
		records: map[types.UID]*releaseRecord{}, lingering: newLingering(),
	}
}

// start takes the controller's queue, enters the AlertEvents that were settled before, and begins to tidy.
func (r *releaser) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[eventRef]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = queue
	for _, record := range r.records {
		queue.Add(record.ref)
	}
	go wait.UntilWithContext(ctx, r.tidy, tidyInterval)
	return nil
}

// settle notes that the event's alerts for one Incident are settled.
func (r *releaser) settle(event *v1alpha1.AlertEvent, incident string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.record(event); record != nil {
		record.settle(incident)
		r.schedule(record)
	}
}

// see notes what the mark of an event says. That of one from a backup is of another time: the fold discards such an event.
func (r *releaser) see(event *v1alpha1.AlertEvent) {
	if _, marked := v1alpha1.MarkOf(event); !marked || event.IsRestored() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.record(event); record != nil {
		record.read(event)
		r.schedule(record)
	}
}

// record returns the record of an event, a new one if there is none; nil for an event that is deleted.
func (r *releaser) record(event *v1alpha1.AlertEvent) *releaseRecord {
	record := r.records[event.UID]
	if record == nil && !r.memory.isDeleted(refOf(event)) {
		record = newReleaseRecord(event, r.memory.version(event), r.clock.Now())
		r.records[event.UID] = record
	}
	return record
}

// discard has an event deleted, all its alerts unfolded, and reports whether that is news. The result is why.
func (r *releaser) discard(event *v1alpha1.AlertEvent, result string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records[event.UID] != nil || r.memory.isDeleted(refOf(event)) {
		return false
	}
	record := &releaseRecord{ref: refOf(event), due: r.clock.Now(), discarded: true}
	r.records[event.UID] = record
	r.enqueue(record.ref)
	countFolded(result, len(event.Spec.Alerts))
	return true
}

// schedule fixes when a record is due, once it waits for nothing more.
func (r *releaser) schedule(record *releaseRecord) {
	if len(record.waiting) > 0 || !record.due.IsZero() {
		return
	}
	now := r.clock.Now()
	record.due = now
	if record.isKeyed() {
		record.due = now.Add(replica.KeyedLinger)
		for _, early := range r.lingering.add(record) {
			early.due = now
			r.enqueue(early.ref)
		}
	}
	r.enqueue(record.ref)
}

// isSettled reports whether the event's alerts for the Incident are known to be settled.
func (r *releaser) isSettled(event *v1alpha1.AlertEvent, incident string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	record := r.records[event.UID]
	if record == nil {
		return false
	}
	_, waiting := record.waiting[incident]
	return !waiting
}

// knows reports whether the event was deleted, or is settled in part, here.
func (r *releaser) knows(ref eventRef) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[ref.uid] != nil || r.memory.isDeleted(ref)
}

// forget notes that the cache saw the event's end.
func (r *releaser) forget(ref eventRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.records[ref.uid]; record != nil {
		delete(r.records, ref.uid)
		r.lingering.remove(record)
	}
}

func (r *releaser) enqueue(ref eventRef) {
	if r.queue != nil {
		r.queue.Add(ref)
	}
}

// Reconcile deletes the event if it is due. Until then, it marks the event if that is wanted.
func (r *releaser) Reconcile(ctx context.Context, ref eventRef) (ctrl.Result, error) {
	due, mark := r.state(ref)
	if !due {
		if mark == nil {
			return ctrl.Result{}, nil
		}
		return r.writeMark(ctx, ref, mark)
	}
	if _, err := deleteEvent(ctx, r.live, ref); err != nil {
		return ctrl.Result{}, err
	}
	log.FromContext(ctx).V(1).Info("Released AlertEvent")
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.records[ref.uid]; record != nil {
		record.deleted = true // the cache may show it for a while
		r.lingering.remove(record)
	}
	return ctrl.Result{}, nil
}

// state reports whether an event is to be deleted now, and else which mark is to be written, if any.
func (r *releaser) state(ref eventRef) (due bool, mark *v1alpha1.Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record := r.records[ref.uid]
	switch {
	case record == nil, record.deleted:
		return false, nil
	case !record.due.IsZero() && !record.due.After(r.clock.Now()) && (record.discarded || record.wantedMark() == nil):
		return true, nil
	default:
		return false, record.wantedMark()
	}
}

// tidy drops the records of events that are gone, and has those deleted whose time has come. One look at all records now
// and then costs less than a timer for each.
func (r *releaser) tidy(ctx context.Context) {
	for _, ref := range r.refs() {
		var event v1alpha1.AlertEvent
		err := r.cache.Get(ctx, ref.NamespacedName, &event, client.UnsafeDisableDeepCopy)
		switch due, mark := r.state(ref); {
		case client.IgnoreNotFound(err) != nil:
		case event.UID != ref.uid: // there is none, or another
			r.forget(ref)
		case due, mark != nil:
			r.enqueue(ref)
		default:
			r.markSettledInPart(ref)
		}
	}
}

// markSettledInPart has an event marked that has been settled in part for long: nothing may tell when a user deletes one of the
// Incidents that it is settled for.
func (r *releaser) markSettledInPart(ref eventRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.records[ref.uid]; record != nil && len(record.waiting) > 0 && r.clock.Now().Sub(record.began) >= markPatience {
		r.wantMark(record)
	}
}

// refs returns the events on record.
func (r *releaser) refs() []eventRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	refs := make([]eventRef, 0, len(r.records))
	for _, record := range r.records {
		refs = append(refs, record.ref)
	}
	return refs
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
