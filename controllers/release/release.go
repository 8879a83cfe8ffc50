// Package release deletes AlertEvents once they are settled for all their Incidents, and marks those that stay.
package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// concurrency is how many AlertEvents are deleted at a time, more only if some deletions take long.
	concurrency = 8

	// tidyInterval is how often the records of the release are looked through.
	tidyInterval = 10 * time.Second
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=get;list;watch;patch;delete

// Releaser deletes AlertEvents that are settled. What is settled it knows from memory and from the marks of the AlertEvents;
// after a restart, the marks and the ledgers tell it again. It writes the marks, see marks.go.
type Releaser struct {
	cache  client.Reader
	live   client.Client
	memory *queue.Memory
	clock  replica.Clock

	mu        sync.Mutex
	queue     workqueue.TypedRateLimitingInterface[queue.Ref] // nil until the controller starts
	records   map[types.UID]*releaseRecord
	lingering lingering
}

// releaseRecord is an event of which at least one alert is settled.
type releaseRecord struct {
	ref       queue.Ref
	unsettled sets.Set[string] // names of Incidents
	settled   []string         // names of the others
	began     time.Time        // when the first of them was settled
	due       time.Time        // when to delete it, once nothing is unsettled
	tried     time.Time        // when that was first tried; zero: never
	deleted   bool             // the watch does not show it yet, or finalizers keep it

	marked     queue.Mark // as far as it is known
	markWanted bool

	integration types.NamespacedName
	bytes       int // of its alerts, also if the cached copy has no content
}

func newReleaseRecord(event *v1alpha1.AlertEvent, cached *queue.Cached, now time.Time) *releaseRecord {
	record := &releaseRecord{
		ref:         queue.RefOf(event),
		unsettled:   sets.KeySet(replica.IncidentNames(event)),
		began:       now,
		integration: types.NamespacedName{Namespace: event.Namespace, Name: event.Spec.IntegrationName},
		bytes:       int(cached.StoredSize(event)) - queue.EncodedSize(event.Alerts), // what the copy lacks
	}
	for i := range event.Alerts {
		record.bytes += alertcontent.Size(&event.Alerts[i].AlertContent)
	}
	record.read(event)
	return record
}

// settle notes that the alerts for one Incident are settled.
func (r *releaseRecord) settle(incident string) {
	if r.unsettled.Has(incident) {
		r.unsettled.Delete(incident)
		r.settled = append(r.settled, incident)
	}
}

// isDue reports whether the time has come to delete the event.
func (r *releaseRecord) isDue(now time.Time) bool { return !r.due.IsZero() && !r.due.After(now) }

// isKeyed reports whether the event stays for its idempotency key.
func (r *releaseRecord) isKeyed() bool { return v1alpha1.IsKeyedEventName(r.ref.Name) }

// New returns a Releaser that has not started. It reads from the cache, and writes with the live client.
func New(cache client.Reader, live client.Client, memory *queue.Memory, clock replica.Clock) *Releaser {
	return &Releaser{
		cache: cache, live: live, memory: memory, clock: clock,
		records: map[types.UID]*releaseRecord{}, lingering: newLingering(),
	}
}

func nameOf(ref queue.Ref) types.NamespacedName { return ref.NamespacedName }

// Add adds the controller to the manager of a leader's term.
func (r *Releaser) Add(mgr ctrl.Manager) error {
	options := requests.Options(mgr, "release", "alertevent", concurrency, nameOf)
	options.NewQueue = requests.NewQueue(concurrency, func(ref queue.Ref) types.NamespacedName {
		return r.memory.Turn(ref.NamespacedName)
	})
	options.Reconciler = r
	c, err := controller.NewTyped("release", mgr, options)
	if err == nil {
		err = c.Watch(requests.Source("settled AlertEvents", r.start))
	}
	if err != nil {
		return fmt.Errorf("adding the release of AlertEvents: %w", err)
	}
	return nil
}

// start takes the controller's queue and begins to tidy, which enters the AlertEvents that were settled before.
func (r *Releaser) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[queue.Ref]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = queue
	go wait.UntilWithContext(ctx, r.Tidy, tidyInterval)
	return nil
}

// Settle notes that the event's alerts for one Incident are settled.
func (r *Releaser) Settle(event *v1alpha1.AlertEvent, incident string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.record(event); record != nil {
		record.settle(incident)
		r.schedule(record)
	}
}

// NoteMark notes what the mark of an event says. An event that was restored from a backup is discarded: its mark is of another
// time.
func (r *Releaser) NoteMark(ctx context.Context, event *v1alpha1.AlertEvent) {
	_, marked := queue.MarkOf(event)
	switch {
	case len(event.Alerts) == 0: // it cannot be decoded now: nobody knows whose alerts it has
	case queue.IsRestored(event):
		r.discard(ctx, event)
	case marked:
		r.mu.Lock()
		defer r.mu.Unlock()
		if record := r.record(event); record != nil {
			record.read(event)
			r.schedule(record)
		}
	}
}

// record returns the record of an event, a new one if there is none; nil for an event that is deleted.
func (r *Releaser) record(event *v1alpha1.AlertEvent) *releaseRecord {
	record := r.records[event.UID]
	if record == nil && !r.memory.IsDeleted(queue.RefOf(event)) {
		record = newReleaseRecord(event, r.memory.Cached, r.clock.Now())
		r.records[event.UID] = record
	}
	return record
}

// discard has an event deleted, all its alerts unfolded.
func (r *Releaser) discard(ctx context.Context, event *v1alpha1.AlertEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records[event.UID] != nil || r.memory.IsDeleted(queue.RefOf(event)) {
		return
	}
	record := &releaseRecord{ref: queue.RefOf(event), due: r.clock.Now(), marked: queue.Mark{All: true}}
	r.records[event.UID] = record
	r.enqueue(record.ref)
	replica.CountFolded(fold.ResultRestored, len(event.Alerts))
	log.FromContext(ctx).Info("Discarded AlertEvent restored from a backup", "namespace", event.Namespace, "alertevent", event.Name)
}

// schedule fixes when a record is due, once it waits for nothing more.
func (r *Releaser) schedule(record *releaseRecord) {
	if len(record.unsettled) > 0 || !record.due.IsZero() {
		return
	}
	now := r.clock.Now()
	record.due = now
	if record.isKeyed() {
		record.due = now.Add(queue.KeyedLinger)
		for _, early := range r.lingering.add(record) {
			early.due = now
			r.enqueue(early.ref)
		}
	}
	r.enqueue(record.ref)
}

// IsSettled reports whether the event's alerts for the Incident are known to be settled.
func (r *Releaser) IsSettled(event *v1alpha1.AlertEvent, incident string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	record := r.records[event.UID]
	return record != nil && !record.unsettled.Has(incident)
}

// Forget notes that the cache saw the event's end.
func (r *Releaser) Forget(ref queue.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.records[ref.UID]; record != nil {
		delete(r.records, ref.UID)
		r.lingering.remove(record)
	}
}

func (r *Releaser) enqueue(ref queue.Ref) {
	if r.queue != nil {
		r.queue.Add(ref)
	}
}

// Reconcile deletes the event if it is due. It marks one that stays, or cannot be deleted, if that is wanted. The deletion comes
// first: a mark that is rejected for good must not prevent it, and an event that goes needs no mark.
func (r *Releaser) Reconcile(ctx context.Context, ref queue.Ref) (ctrl.Result, error) {
	due, mark := r.state(ref)
	switch {
	case due && mark == nil:
		return ctrl.Result{}, r.delete(ctx, ref)
	case due:
		soon, cancel := context.WithTimeout(ctx, deleteTimeout) // which leaves time to mark the event
		defer cancel()
		failed := r.delete(soon, ref)
		if failed == nil {
			return ctrl.Result{}, nil
		}
		_, err := r.writeMark(ctx, ref, mark)
		return ctrl.Result{}, errors.Join(failed, err)
	case mark != nil:
		return r.writeMark(ctx, ref, mark)
	}
	return ctrl.Result{}, nil
}

func (r *Releaser) delete(ctx context.Context, ref queue.Ref) error {
	if _, err := replica.DeleteEvent(ctx, r.live, ref); err != nil {
		return err
	}
	log.FromContext(ctx).V(1).Info("Released AlertEvent")
	r.mu.Lock()
	defer r.mu.Unlock()
	if record := r.records[ref.UID]; record != nil {
		record.deleted = true // the cache may show it for a while
		r.lingering.remove(record)
	}
	return nil
}

// state reports whether an event is to be deleted now, and which mark is to be written if it stays, if any. It notes that the
// deletion is tried.
func (r *Releaser) state(ref queue.Ref) (due bool, mark *queue.Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, now := r.records[ref.UID], r.clock.Now()
	if record == nil {
		return false, nil
	}
	if due = record.isDue(now) && !record.deleted; due {
		record.tried = cmp.Or(record.tried, now)
	}
	return due, record.wantedMark(now)
}

// Tidy drops the records of events that are gone, and has those deleted or marked whose time has come. One look at all records
// now and then costs less than a timer for each.
func (r *Releaser) Tidy(ctx context.Context) {
	for _, ref := range r.Refs() {
		var event v1alpha1.AlertEvent
		err := r.cache.Get(ctx, ref.NamespacedName, &event, client.UnsafeDisableDeepCopy)
		switch due, mark := r.state(ref); {
		case client.IgnoreNotFound(err) != nil:
		case event.UID != ref.UID: // there is none, or another
			r.Forget(ref)
		case due, mark != nil:
			r.enqueue(ref)
		}
	}
}

// Refs returns the events on record.
func (r *Releaser) Refs() []queue.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	refs := make([]queue.Ref, 0, len(r.records))
	for _, record := range r.records {
		refs = append(refs, record.ref)
	}
	return refs
}
