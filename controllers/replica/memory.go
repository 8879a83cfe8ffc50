package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/marks"
)

const (
	// replayWindow is how long the name of a deleted AlertEvent is remembered. A retry of our own whose first try got
	// through after all comes well before that.
	replayWindow = 2 * time.Minute

	// maxDeletedNames bounds the remembered names, in each of two generations: more than are deleted in replayWindow.
	maxDeletedNames = 50_000

	// RetryHold is how long a replica remembers names before it folds AlertEvents that may be second copies. Ingest tries
	// for 5 s to store an alert.
	RetryHold = 30 * time.Second

	// KeyedLinger is how long an AlertEvent with an idempotency key stays after it was folded, so that the API server knows the key.
	KeyedLinger = 10 * time.Minute

	// lateStore is how long after its name was made an AlertEvent is stored late. An attempt ends after 2.5 s, and the time of
	// the storing is in whole seconds.
	lateStore = time.Second
)

// EventRef is one AlertEvent: another object of the same name is another event.
type EventRef struct {
	types.NamespacedName
	UID types.UID
}

// RefOf returns the reference to an AlertEvent.
func RefOf(event *v1alpha1.AlertEvent) EventRef {
	return EventRef{client.ObjectKeyFromObject(event), event.UID}
}

// Memory is what a replica remembers of AlertEvents, whether it leads or not: the resourceVersion under which its watch
// first saw each, and for replayWindow the names of those that its watch saw deleted. By the names it tells second copies:
// a retry of a create whose response was lost may be stored after the first copy was folded and deleted.
//
// It learns everything from one event handler, in the order of the watch. So if it has seen an AlertEvent, it has seen all
// deletions before that one.
type Memory struct {
	// Cached has what the cache lacks of the AlertEvents that exist.
	Cached *clustercache.Events

	clock  Clock
	live   client.Writer                                  // of second copies
	copies workqueue.TypedRateLimitingInterface[EventRef] // second copies, to be deleted

	synced func() bool // whether the watch has shown what there was at the start

	mu             sync.Mutex
	since          time.Time // no deletion was missed since then
	seen           map[types.UID]seenEvent
	deleted, older map[types.NamespacedName]deletedEvent // in two generations
	began          time.Time                             // when the younger generation began
}

// seenEvent is an AlertEvent that exists as far as the watch tells.
type seenEvent struct {
	version string    // its first resourceVersion here
	hold    time.Time // a retry is not to be folded before
	isCopy  bool
	alerts  int
	created time.Time
	keyed   bool
}

// deletedEvent is the last AlertEvent of its name that was deleted.
type deletedEvent struct {
	uid types.UID
	ids fold.Digest // of its alerts, if it was kept for its idempotency key
	at  time.Time
}

// NewMemory returns a memory that begins now.
func NewMemory(clock Clock) *Memory {
	return &Memory{
		clock:   clock,
		synced:  func() bool { return false },
		Cached:  clustercache.NewEvents(),
		copies:  workqueue.NewTypedRateLimitingQueue(requests.Backoff[EventRef]()),
		since:   clock.Now(),
		began:   clock.Now(),
		seen:    map[types.UID]seenEvent{},
		deleted: map[types.NamespacedName]deletedEvent{},
	}
}

// Listed notes that an informer has listed its objects. If they are AlertEvents, there was a gap in their watch, and the
// memory begins anew: some may have come and gone in the gap. Those of a list that failed are forgotten unless the watch has
// shown them before: it may never do so, nor show their end.
func (m *Memory) Listed(kind runtime.Object, dropped ...runtime.Object) {
	if _, ok := kind.(*v1alpha1.AlertEvent); !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = m.clock.Now()
	for _, object := range dropped {
		if event, ok := object.(*v1alpha1.AlertEvent); ok {
			if _, shown := m.seen[event.UID]; !shown {
				m.Cached.Forget(event)
			}
		}
	}
}

// Handler returns the handler by which the memory follows the watch.
func (m *Memory) Handler() toolscache.ResourceEventHandler { return informers.Handler(m.see, m.forget) }

// see notes an AlertEvent that the watch shows, and has it deleted if it is a second copy.
func (m *Memory) see(event *v1alpha1.AlertEvent, _ bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.seen[event.UID]; known {
		return
	}
	entry := seenEvent{
		version: event.ResourceVersion, isCopy: m.isSecondCopy(event), alerts: len(event.Spec.Alerts),
		created: event.CreationTimestamp.Time, keyed: v1alpha1.IsKeyedEventName(event.Name),
	}
	if event.Annotations[v1alpha1.RetryAnnotation] != "" || isStoredLate(event) {
		entry.hold = m.since.Add(RetryHold)
	}
	m.seen[event.UID] = entry
	if entry.isCopy {
		m.copies.Add(RefOf(event))
	}
}

// isStoredLate reports whether an AlertEvent was stored so long after its name was made that a retry may have come before it:
// the first attempt bears no mark. The clocks of the replica and the API server are compared, and the latter's time is in
// whole seconds.
func isStoredLate(event *v1alpha1.AlertEvent) bool {
	id, err := uuid.Parse(event.Name)
	return err == nil && v1alpha1.IsGeneratedEventName(event.Name) &&
		event.CreationTimestamp.Sub(time.Unix(id.Time().UnixTime())) > lateStore
}

// isSecondCopy reports whether another AlertEvent of the name was deleted a moment ago, and the name is never given twice:
// the webhook server generated it, or derived it from an idempotency key and the alerts are the same. Names given by people
// may come again.
func (m *Memory) isSecondCopy(event *v1alpha1.AlertEvent) bool {
	first, ok := m.lastDeleted(client.ObjectKeyFromObject(event))
	switch {
	case !ok, first.uid == event.UID, m.clock.Now().Sub(first.at) > replayWindow:
		return false
	case v1alpha1.IsKeyedEventName(event.Name):
		return first.ids == idsOf(event) && first.ids != fold.Digest{}
	default:
		return v1alpha1.IsGeneratedEventName(event.Name)
	}
}

func (m *Memory) lastDeleted(name types.NamespacedName) (deletedEvent, bool) {
	last, ok := m.deleted[name]
	if !ok {
		last, ok = m.older[name]
	}
	return last, ok
}

// idsOf sums the ids of an AlertEvent's alerts.
func idsOf(event *v1alpha1.AlertEvent) fold.Digest {
	var ids fold.Digest
	for i := range event.Spec.Alerts {
		ids.Add(event.Spec.Alerts[i].ID)
	}
	return ids
}

// forget notes that an AlertEvent was deleted.
func (m *Memory) forget(event *v1alpha1.AlertEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	isCopy := m.seen[event.UID].isCopy
	delete(m.seen, event.UID)
	m.Cached.Forget(event)
	now := m.clock.Now()
	if full := len(m.deleted) >= maxDeletedNames; full || now.Sub(m.began) > replayWindow {
		if full {
			m.since = fold.Latest(m.since, m.began) // the names before are dropped
		}
		m.older, m.deleted, m.began = m.deleted, map[types.NamespacedName]deletedEvent{}, now
	}
	entry := deletedEvent{uid: event.UID, at: now}
	// A keyed one that is not marked was deleted by a user before it was folded, and its key may come again; unless it was a
	// second copy itself, and a third one may come.
	if mark, _ := marks.Of(event); mark.All || isCopy {
		entry.ids = idsOf(event)
	}
	m.deleted[client.ObjectKeyFromObject(event)] = entry
}

// find returns what the watch has shown of an AlertEvent that exists as far as it tells.
func (m *Memory) find(uid types.UID) (seen seenEvent, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, known = m.seen[uid]
	return seen, known
}

// Seen returns whether an AlertEvent is a second copy, and until when it is not to be folded, if it may be one. known is false if
// the memory has not seen it yet, or has seen its end.
func (m *Memory) Seen(uid types.UID) (isCopy bool, hold time.Time, known bool) {
	seen, known := m.find(uid)
	return seen.isCopy, seen.hold, known
}

// HasShown reports whether the watch shows an AlertEvent, or has shown its deletion since then: a list that began before may
// have it.
func (m *Memory) HasShown(event EventRef, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, shown := m.seen[event.UID]; shown {
		return true
	}
	last, deleted := m.lastDeleted(event.NamespacedName)
	return deleted && last.uid == event.UID && !last.at.Before(since)
}

// pending returns how many AlertEvents there are, and the age of the oldest one that waits to be folded.
func (m *Memory) pending() (events int, oldest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	for _, event := range m.seen {
		age := now.Sub(event.created)
		if !event.keyed || age >= KeyedLinger+time.Minute { // before, it may be there for its idempotency key alone
			oldest = max(oldest, age)
		}
	}
	return len(m.seen), oldest
}

// Copies returns how many second copies wait to be deleted.
func (m *Memory) Copies() int { return m.copies.Len() }

// IsDeleted reports whether the watch has seen the deletion of an AlertEvent.
func (m *Memory) IsDeleted(ref EventRef) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.lastDeleted(ref.NamespacedName)
	return ok && last.uid == ref.UID
}

// Version returns the place in commit order of an AlertEvent, or its metadata: the resourceVersion of its mark, else the first
// one that the watch has seen, else its own. An update of its metadata does not move it.
func (m *Memory) Version(event metav1.Object) string {
	if mark, marked := marks.Of(event); marked {
		return mark.ResourceVersion
	}
	if seen, ok := m.find(event.GetUID()); ok && fold.NewerVersion(event.GetResourceVersion(), seen.version) {
		return seen.version
	}
	return event.GetResourceVersion()
}

// Follow has the memory follow the manager's cache, and second copies deleted.
func (m *Memory) Follow(mgr ctrl.Manager) (err error) {
	m.synced, err = informers.Feed(context.Background(), mgr.GetCache(), &v1alpha1.AlertEvent{}, m.see, m.forget)
	if err != nil {
		return err
	}
	if m.live, err = NewClient(mgr); err != nil {
		return err
	}
	if err := mgr.Add(m); err != nil {
		return fmt.Errorf("adding the deletion of second copies: %w", err)
	}
	return nil
}

// Start implements manager.Runnable: it deletes second copies on every replica. The one that stored the copy was usually there
// when the first one was deleted, whoever leads now.
func (m *Memory) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, m.copies.ShutDown)()
	for m.DeleteCopy(ctx, m.live) {
	}
	return nil
}

// DeleteCopy waits for a second copy and deletes it. It returns false at the end.
func (m *Memory) DeleteCopy(ctx context.Context, live client.Writer) bool {
	ref, shutdown := m.copies.Get()
	if shutdown {
		return false
	}
	defer m.copies.Done(ref)
	logger := log.FromContext(ctx).WithValues("namespace", ref.Namespace, "alertevent", ref.Name)
	if seen, ok := m.find(ref.UID); ok {
		deleted, err := DeleteEvent(ctx, live, ref)
		if err != nil {
			logger.Error(err, "Second copy of an AlertEvent not deleted")
			m.copies.AddRateLimited(ref)
			return true
		}
		if deleted {
			CountFolded(fold.ResultReplayed, seen.alerts)
			logger.V(1).Info("Deleted second copy of an AlertEvent")
		}
	}
	m.copies.Forget(ref)
	return true
}

// DeleteEvent deletes exactly this AlertEvent. deleted is false if it is gone, and another one of its name is left alone.
func DeleteEvent(ctx context.Context, live client.Writer, ref EventRef) (deleted bool, err error) {
	event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
	err = live.Delete(ctx, event, client.Preconditions{UID: &ref.UID})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("deleting the AlertEvent %s: %w", ref.Name, err)
	}
	return true, nil
}
