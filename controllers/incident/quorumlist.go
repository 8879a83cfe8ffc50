package incident

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/pages"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// listTimeout bounds one quorum list.
	listTimeout = 20 * time.Second

	// heavyList is how many bytes make a quorum list heavy. At most lightLists light lists and one heavy list run at once.
	heavyList  = 8 << 20
	lightLists = 4

	// slowList is from when on a list of all namespaces is heavy, whatever its bytes: the API server reads all of the AlertEvents
	// for their metadata. An API server that is slow with everything had better make one list for all.
	slowList = listTimeout / 2

	// heavyInterval is how often a heavy list of all namespaces is made.
	heavyInterval = 10 * time.Second

	// maxListPause bounds the pause between two quorum lists.
	maxListPause = time.Second
)

// storedEvent is an AlertEvent in an eventList.
type storedEvent struct {
	ref             queue.Ref
	resourceVersion string
	created         metav1.Time
	marked          queue.MarkedNames
}

// eventList is the AlertEvents of one moment. It is shared and never modified once it is complete. It keeps at most
// 5 KiB of an AlertEvent, whatever metadata that has. Of one that the cache hides, it keeps only a hash, since there may be
// hundreds of thousands: it may be in a ledger, but it is not folded.
type eventList struct {
	events map[types.UID]storedEvent
	hidden map[uint64]struct{}
	oldest map[string]storedEvent // the oldest times of hidden ones that wait, by namespace
	bytes  int64                  // of the list as it was read

	mu       sync.Mutex
	unshown  []storedEvent // those that the watch had not shown when it was last asked
	compared bool          // with what the watch has shown
}

func newEventList(size int) *eventList {
	return &eventList{
		events: make(map[types.UID]storedEvent, size), hidden: map[uint64]struct{}{}, oldest: map[string]storedEvent{},
	}
}

func (l *eventList) add(event client.Object) {
	mark, _ := queue.MarkOf(event)
	l.events[event.GetUID()] = storedEvent{
		queue.Ref{NamespacedName: client.ObjectKeyFromObject(event), UID: event.GetUID()},
		event.GetResourceVersion(), event.GetCreationTimestamp(), mark.Names(),
	}
}

// addHidden adds an AlertEvent that the cache hides.
func (l *eventList) addHidden(event client.Object) {
	l.hidden[maphash.String(uidSeed, string(event.GetUID()))] = struct{}{}
	if mark, _ := queue.MarkOf(event); mark.All {
		return
	}
	namespace, created := event.GetNamespace(), event.GetCreationTimestamp()
	oldest, ok := l.oldest[namespace]
	if !ok || queue.NewerVersion(oldest.resourceVersion, event.GetResourceVersion()) {
		oldest.resourceVersion = event.GetResourceVersion()
	}
	if !ok || created.Before(&oldest.created) {
		oldest.created = created
	}
	oldest.ref.Namespace = namespace
	l.oldest[namespace] = oldest
}

var uidSeed = maphash.MakeSeed()

// notShown returns the AlertEvents of a namespace, or of all, that the watch has not shown. It asks for an event until the watch
// has shown it, and no more: thousands of folds share a list.
func (l *eventList) notShown(namespace string, hasShown func(queue.Ref) bool) []storedEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.compared {
		l.compared = true
		for _, event := range l.events {
			if !hasShown(event.ref) {
				l.unshown = append(l.unshown, event)
			}
		}
		l.unshown = slices.AppendSeq(l.unshown, maps.Values(l.oldest))
	} else {
		l.unshown = slices.DeleteFunc(l.unshown, func(event storedEvent) bool { return hasShown(event.ref) })
	}
	var in []storedEvent
	for _, event := range l.unshown {
		if namespace == metav1.NamespaceAll || event.ref.Namespace == namespace {
			in = append(in, event)
		}
	}
	return in
}

// has reports whether the event is listed for the Incident: it was there, without a mark for it. The mark of a hidden
// one is not known.
func (l *eventList) has(uid, incident string) bool {
	event, ok := l.events[types.UID(uid)]
	if _, hidden := l.hidden[maphash.String(uidSeed, uid)]; hidden {
		return true
	}
	return ok && !event.marked.Has(incident)
}

// lister makes one list, as the API server's quorum has it and not as a cache does. It fails with errHeavy if the list has more
// than so many bytes.
type lister func(ctx context.Context, maxBytes int64) (*eventList, error)

// errHeavy says that a list has more than heavyList, or takes longer than slowList.
var errHeavy = errors.New("the list of AlertEvents is heavy")

// quorumLists shares the lists of all namespaces among all folds, unless such a list is heavy. If it is, since some namespace has
// many or large AlertEvents, the folds of each namespace share lists of their own: a fold needs no more, and nobody waits for
// what another namespace has. Start still lists all now and then, and so finds out when that is light again.
type quorumLists struct {
	all  *quorumList
	list func(namespaces ...string) lister

	light, heavy chan struct{} // semaphores; the previous result of the same namespaces chooses which

	mu  sync.Mutex
	own map[string]*quorumList // by namespace; none while the list of all is light
}

func newQuorumLists(list func(namespaces ...string) lister, namespaces []string) *quorumLists {
	l := &quorumLists{list: list, light: make(chan struct{}, lightLists), heavy: make(chan struct{}, 1)}
	l.all = l.of(namespaces...)
	l.all.slow = slowList
	return l
}

func (l *quorumLists) of(namespaces ...string) *quorumList {
	return &quorumList{
		list: l.list(namespaces...), light: l.light, heavy: l.heavy, slow: math.MaxInt64, turn: make(chan struct{}, 1),
	}
}

// Start is a runnable of the leader's term that lists all namespaces now and then while that list is heavy.
func (l *quorumLists) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if l.all.isHeavy.Load() {
			_, _ = l.all.join(ctx) // which notes whether it is heavy
		}
	}, heavyInterval)
	return nil
}

// join returns the AlertEvents of a namespace, and maybe those of others, of a list that began after the call.
func (l *quorumLists) join(ctx context.Context, namespace string) (*eventList, error) {
	for {
		events, err := l.listOf(namespace).join(ctx)
		if !errors.Is(err, errHeavy) {
			return events, err
		}
	}
}

// listOf returns the list that the folds of a namespace share: that of all namespaces, or its own.
func (l *quorumLists) listOf(namespace string) *quorumList {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.all.isHeavy.Load() {
		l.own = nil
		return l.all
	}
	if l.own == nil {
		l.own = map[string]*quorumList{}
	}
	if l.own[namespace] == nil {
		l.own[namespace] = l.of(namespace)
	}
	return l.own[namespace]
}

// quorumList shares quorum lists of AlertEvents. Whoever joins gets a list that began after it
// joined, as the exactly-once argument requires: while one is under way, all newcomers wait
// together for the next. So when idle a fold costs one small list, and under load all folds share them.
type quorumList struct {
	list         lister
	light, heavy chan struct{} // as in quorumLists
	slow         time.Duration // what takes so long is heavy; those of one namespace are not, or a slow API server would make all so
	isHeavy      atomic.Bool   // the last one had more than heavyList, or was slow

	turn       chan struct{} // holds something while a list is under way
	pauseUntil time.Time     // belongs to the list whose turn it is

	mu   sync.Mutex
	next *sharedList // the list that has not begun, when a fold waits for it
}

// sharedList is one list and its waiters.
type sharedList struct {
	ctx     context.Context // ends when the last waiter has left
	cancel  context.CancelFunc
	waiters int
	done    chan struct{} // closed when events and err are set
	events  *eventList
	err     error
}

// join returns the events of a list that began after the call.
func (q *quorumList) join(ctx context.Context) (*eventList, error) {
	q.mu.Lock()
	if q.next == nil {
		next := &sharedList{done: make(chan struct{})}
		next.ctx, next.cancel = context.WithCancel(context.Background())
		q.next = next
		go q.make(next)
	}
	l := q.next
	l.waiters++
	q.mu.Unlock()
	select {
	case <-l.done:
		return l.events, l.err
	case <-ctx.Done():
		q.leave(l)
		return nil, fmt.Errorf("waiting for the list of AlertEvents: %w", ctx.Err())
	}
}

// leave takes a waiter off a list; without any the list is called off.
func (q *quorumList) leave(l *sharedList) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.waiters--; l.waiters > 0 {
		return
	}
	l.cancel()
	if q.next == l {
		q.next = nil
	}
}

// make makes a list when the one before is over. It pauses between two for as long as the first one took, so that lists take at
// most half the time, and the longer they are, the more folds share one. The time that a list may take begins after that.
func (q *quorumList) make(l *sharedList) {
	defer l.cancel()
	select {
	case q.turn <- struct{}{}:
	case <-l.ctx.Done():
		return
	}
	defer func() { <-q.turn }()
	<-time.After(time.Until(q.pauseUntil))
	places, maxBytes, within := q.light, int64(heavyList), min(q.slow, listTimeout)
	if q.isHeavy.Load() {
		places, maxBytes, within = q.heavy, math.MaxInt64, listTimeout
	}
	places <- struct{}{}
	defer func() { <-places }()
	if q.begin(l) {
		began := time.Now()
		q.run(l, maxBytes, within)
		q.pauseUntil = time.Now().Add(min(time.Since(began), maxListPause))
	}
}

// begin has newcomers wait for another list from now on. It returns false if nobody waits for this one any more.
func (q *quorumList) begin(l *sharedList) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next != l {
		return false
	}
	q.next = nil
	return true
}

// run runs a list. One that turns out to have more bytes than it may have at its place, or to be slow, is called off with
// errHeavy.
func (q *quorumList) run(l *sharedList, maxBytes int64, within time.Duration) {
	defer close(l.done)
	began := time.Now()
	ctx, end := context.WithTimeout(l.ctx, within)
	defer end()
	l.events, l.err = q.list(ctx, maxBytes)
	isSlow := time.Since(began) >= q.slow
	if l.err != nil && isSlow {
		l.err = errHeavy
	}
	if l.err == nil || errors.Is(l.err, errHeavy) {
		q.isHeavy.Store(l.err != nil || isSlow || l.events.bytes > heavyList)
	}
}

// listEvents lists the AlertEvents' metadata in the namespaces, one of which may be empty for all. isHidden reports whether the
// cache hides one. The reader must not be a cache. Without a resourceVersion the answer is as new as the quorum; later pages of
// one list are as old as its first.
func listEvents(reader client.Reader, isHidden func(client.Object) bool, namespaces ...string) lister {
	var inPages pages.Reader
	return func(ctx context.Context, maxBytes int64) (*eventList, error) {
		events := newEventList(0)
		for _, namespace := range namespaces {
			list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				page := &metav1.PartialObjectMetadataList{}
				page.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEventList"))
				return page, reader.List(ctx, page, client.InNamespace(namespace), client.Limit(options.Limit),
					client.Continue(options.Continue))
			}
			_, err := inPages.Each(ctx, metav1.ListOptions{}, list, func(object runtime.Object, bytes int64) error {
				if events.bytes += bytes; events.bytes > maxBytes {
					return errHeavy
				}
				if page, ok := object.(*metav1.PartialObjectMetadataList); ok {
					for i := range page.Items {
						if isHidden(&page.Items[i]) {
							events.addHidden(&page.Items[i])
						} else {
							events.add(&page.Items[i])
						}
					}
				}
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("listing AlertEvents: %w", err)
			}
		}
		return events, nil
	}
}
