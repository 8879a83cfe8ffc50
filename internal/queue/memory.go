package queue

import (
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

const (
	// replayWindow is how long the name of a deleted AlertEvent is remembered. Another attempt of ours to store it comes well
	// before that.
	replayWindow = 2 * time.Minute

	// maxDeletedNames bounds the remembered names, in each of two generations: more than are deleted in replayWindow.
	maxDeletedNames = 50_000

	// CopyDoubt is how long an AlertEvent is doubtful, for which a replica cannot remember a first copy: it is not folded yet. By
	// the end of it, a replica that remembers one has deleted the second copy.
	CopyDoubt = 30 * time.Second

	// KeyedLinger is how long an AlertEvent with an idempotency key stays after it was folded, so that the API server knows the key.
	KeyedLinger = 10 * time.Minute

	// lateStore is how long after its alerts were received an AlertEvent is stored late: a retry may have been stored before. An
	// attempt ends after 2.5 s, the time of the storing is in whole seconds, and that of the receipt is known to about a second.
	lateStore = time.Second
)

// Ref is one AlertEvent: another object of the same name is another event.
type Ref struct {
	types.NamespacedName
	UID types.UID
}

// RefOf returns the reference to an AlertEvent.
func RefOf(event *v1alpha1.AlertEvent) Ref {
	return Ref{client.ObjectKeyFromObject(event), event.UID}
}

// Memory is what a replica remembers of AlertEvents, whether it leads or not: the resourceVersion under which its watch
// first saw each, and for replayWindow the names of those that its watch saw deleted. By the names it tells second copies:
// of two attempts to store an AlertEvent, one may be stored after that of the other was folded and deleted.
//
// It learns everything from one event handler (NoteShown and NoteDeleted), in the order of the watch. So if it has seen an
// AlertEvent, it has seen all deletions before that one.
type Memory struct {
	// Cached has what the cache lacks of the AlertEvents that exist.
	Cached *Cached

	// ServerTime tells the time by the API server's clock; ok is false while the API server has told none. Default: the own clock.
	ServerTime func() (now time.Time, ok bool)

	// DeleteCopy is to delete a second copy. Nil: they stay.
	DeleteCopy func(second Ref)

	clock         Clock
	canariesEnded atomic.Int64

	mu             sync.Mutex
	since          time.Time // no deletion was missed since then
	seen           map[types.UID]seenEvent
	deleted, older map[types.NamespacedName]deletedEvent // in two generations
	began          time.Time                             // when the younger generation began
}

// seenEvent is an AlertEvent that exists as far as the watch tells.
type seenEvent struct {
	version       string    // its first resourceVersion here; empty for a stub
	isStub        bool      // the watch has not shown its alerts yet
	doubtfulUntil time.Time // until then it may be a second copy, and is not folded
	isCopy        bool
	alerts        int
	canary        bool
}

// deletedEvent is the last AlertEvent of its name that was deleted.
type deletedEvent struct {
	uid     types.UID
	ids     Digest // of its alerts, if it was kept for its idempotency key
	created time.Time
	at      time.Time
}

// Clock tells the time.
type Clock interface{ Now() time.Time }

// NewMemory returns a memory that begins now.
func NewMemory(clock Clock) *Memory {
	return &Memory{
		clock:      clock,
		ServerTime: func() (time.Time, bool) { return clock.Now(), true },
		Cached:     NewCached(fair.DefaultShare),
		since:      clock.Now(),
		began:      clock.Now(),
		seen:       map[types.UID]seenEvent{},
		deleted:    map[types.NamespacedName]deletedEvent{},
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

// NoteShown notes an AlertEvent that the watch shows, and has it deleted if it is a second copy.
func (m *Memory) NoteShown(event *v1alpha1.AlertEvent, _ bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, known := m.seen[event.UID]
	if known && !seen.isStub {
		return
	}
	entry := seenEvent{
		version: event.ResourceVersion, isStub: IsStub(event),
		isCopy: seen.isCopy || m.isSecondCopy(event), alerts: len(event.Alerts),
		canary: m.IsCanary(client.ObjectKeyFromObject(event)),
	}
	if m.mayBeCopy(event) {
		entry.doubtfulUntil = m.clock.Now().Add(CopyDoubt)
	}
	m.seen[event.UID] = entry
	if entry.isCopy && m.DeleteCopy != nil {
		m.DeleteCopy(RefOf(event))
	}
}

// mayBeCopy reports whether an AlertEvent may be the second copy of one that was deleted before this memory began: its alerts
// were received before that, and it is a retry, or was stored so late that a retry may have come before it. Both times are the
// API server's; as long as that has told none, or if it was set back meanwhile, nobody knows what was received before.
func (m *Memory) mayBeCopy(event *v1alpha1.AlertEvent) bool {
	received := event.Spec.ReceivedTime.Time
	isLate := !received.IsZero() && event.CreationTimestamp.Sub(received) > lateStore
	if !isGenerated(event.Name) || !isLate && event.Annotations[v1alpha1.RetryAnnotation] == "" {
		return false
	}
	now, ok := m.ServerTime()
	ago, remembered := now.Sub(received), m.clock.Now().Sub(m.since)-lateStore
	return !ok || ago > remembered || ago < -lateStore && remembered < replayWindow
}

// isSecondCopy reports whether another AlertEvent of the name was deleted a moment ago, and the name is never given twice:
// the webhook server generated it, or derived it from an idempotency key and the alerts are the same. Names given by people
// may come again, and so may a key for which an AlertEvent has stayed as long as it should.
func (m *Memory) isSecondCopy(event *v1alpha1.AlertEvent) bool {
	first, ok := m.lastDeleted(client.ObjectKeyFromObject(event))
	switch {
	case !ok, first.uid == event.UID, m.clock.Now().Sub(first.at) > replayWindow:
		return false
	case v1alpha1.IsKeyedEventName(event.Name):
		stayed := event.CreationTimestamp.Sub(first.created) >= KeyedLinger
		return !stayed && first.ids == idsOf(event) && first.ids != Digest{}
	default:
		return v1alpha1.IsGeneratedEventName(event.Name)
	}
}

// isGenerated reports whether the webhook server made the name of an AlertEvent.
func isGenerated(name string) bool {
	return v1alpha1.IsGeneratedEventName(name) || v1alpha1.IsKeyedEventName(name)
}

func (m *Memory) lastDeleted(name types.NamespacedName) (deletedEvent, bool) {
	last, ok := m.deleted[name]
	if !ok {
		last, ok = m.older[name]
	}
	return last, ok
}

func idsOf(event *v1alpha1.AlertEvent) Digest {
	var ids Digest
	for i := range event.Alerts {
		ids.Add(event.Alerts[i].ID)
	}
	return ids
}

// NoteDeleted notes that an AlertEvent was deleted.
func (m *Memory) NoteDeleted(event *v1alpha1.AlertEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	isCopy := m.seen[event.UID].isCopy
	if m.seen[event.UID].canary {
		m.canariesEnded.Add(1)
	}
	delete(m.seen, event.UID)
	m.Cached.Forget(event)
	now := m.clock.Now()
	if full := len(m.deleted) >= maxDeletedNames; full || now.Sub(m.began) > replayWindow {
		if full && m.began.After(m.since) {
			m.since = m.began // the names before are dropped
		}
		m.older, m.deleted, m.began = m.deleted, map[types.NamespacedName]deletedEvent{}, now
	}
	entry := deletedEvent{uid: event.UID, created: event.CreationTimestamp.Time, at: now}
	// A keyed one that is not marked was deleted by a user before it was folded, and its key may come again; unless it was a
	// second copy itself, and a third one may come.
	switch mark, _ := MarkOf(event); {
	case IsRestored(event): // it stands for the first one, which may have gone a moment ago
		first, _ := m.lastDeleted(client.ObjectKeyFromObject(event))
		entry.ids, entry.created = first.ids, first.created
	case mark.All, isCopy:
		entry.ids = idsOf(event)
	}
	m.deleted[client.ObjectKeyFromObject(event)] = entry
}

func (m *Memory) find(uid types.UID) (seen seenEvent, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, known = m.seen[uid]
	return seen, known
}

// CopyState returns whether an AlertEvent is a second copy, and until when it is doubtful: it may be one, and is not folded.
// known is false if the memory has not seen its alerts yet, or has seen its end.
func (m *Memory) CopyState(uid types.UID) (isCopy bool, doubtfulUntil time.Time, known bool) {
	seen, known := m.find(uid)
	return seen.isCopy, seen.doubtfulUntil, known && !seen.isStub
}

// CanariesEnded returns how many canaries the watch has shown the end of.
func (m *Memory) CanariesEnded() int64 { return m.canariesEnded.Load() }

// Alerts returns how many alerts an AlertEvent has that the watch shows; ok is false for one that it does not show.
func (m *Memory) Alerts(uid types.UID) (alerts int, ok bool) {
	seen, ok := m.find(uid)
	return seen.alerts, ok
}

// IsShown reports whether the watch shows an AlertEvent, be it as a stub.
func (m *Memory) IsShown(uid types.UID) bool {
	_, shown := m.find(uid)
	return shown
}

// HasStub reports whether the watch shows an AlertEvent as a stub.
func (m *Memory) HasStub(uid types.UID) bool {
	seen, _ := m.find(uid)
	return seen.isStub
}

// HasShown reports whether the watch shows the alerts of an AlertEvent, or has shown its deletion since then: a list that began
// before may have it.
func (m *Memory) HasShown(event Ref, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seen, shown := m.seen[event.UID]; shown {
		return !seen.isStub
	}
	last, deleted := m.lastDeleted(event.NamespacedName)
	return deleted && last.uid == event.UID && !last.at.Before(since)
}

// IsCanary reports whether a name is that of a canary, or of the Incident that canaries belong to.
func (m *Memory) IsCanary(name types.NamespacedName) bool { return m.Cached.IsCanary(name) }

// Turn returns the name with the namespace at whose turn it comes: canaries have a turn of their own. Otherwise a leader that is
// behind with all else in their namespace would give the lease up.
func (m *Memory) Turn(name types.NamespacedName) types.NamespacedName {
	if m.IsCanary(name) {
		name.Namespace += "/canaries"
	}
	return name
}

// IsDeleted reports whether the watch has seen the deletion of an AlertEvent.
func (m *Memory) IsDeleted(ref Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.lastDeleted(ref.NamespacedName)
	return ok && last.uid == ref.UID
}

// Version returns the place in commit order of an AlertEvent, or its metadata: the resourceVersion of its mark, else the first
// one that the watch has seen, else its own. An update of its metadata does not move it.
func (m *Memory) Version(event metav1.Object) string {
	if mark, marked := MarkOf(event); marked {
		return mark.ResourceVersion
	}
	if seen, ok := m.find(event.GetUID()); ok && NewerVersion(event.GetResourceVersion(), seen.version) {
		return seen.version
	}
	return event.GetResourceVersion()
}
