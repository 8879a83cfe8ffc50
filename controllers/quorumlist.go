package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/pages"
)

// storedEvent is an AlertEvent in an eventList.
type storedEvent struct {
	key             types.NamespacedName
	resourceVersion string
	created         metav1.Time
	mark            v1alpha1.Mark
}

// eventList is the AlertEvents that existed at one moment. It is shared and never modified once it is complete.
type eventList struct {
	events map[types.UID]storedEvent
}

func newEventList(size int) *eventList {
	return &eventList{events: make(map[types.UID]storedEvent, size)}
}

// add enters an AlertEvent or its metadata.
func (l *eventList) add(event client.Object) {
	mark, _ := v1alpha1.MarkOf(event)
	l.events[event.GetUID()] = storedEvent{
		client.ObjectKeyFromObject(event), event.GetResourceVersion(), event.GetCreationTimestamp(), mark,
	}
}

// has reports whether the event existed for the Incident: it was there, and not marked as settled for it.
func (l *eventList) has(uid, incident string) bool {
	event, ok := l.events[types.UID(uid)]
	return ok && !event.mark.Settles(incident)
}

// isMarked reports whether the event was there and marked as settled for the Incident.
func (l *eventList) isMarked(uid, incident string) bool {
	event, ok := l.events[types.UID(uid)]
	return ok && event.mark.Settles(incident)
}

// quorumList shares lists of the AlertEvents that exist. Whoever joins gets a list that began after it
// joined, as the exactly-once argument requires: while one is under way, all newcomers wait
// together for the next. So when idle a fold costs one small list, and under load all folds share them.
type quorumList struct {
	// list makes one list, as the API server's quorum has it and not as a cache does.
	list func(context.Context) (*eventList, error)

	mu        sync.Mutex
	running   bool
	next      *listing  // the list that has not begun, when a fold waits for it
	restUntil time.Time // belongs to the one run that is running
}

// listing is one list and its waiters.
type listing struct {
	ctx     context.Context
	cancel  context.CancelFunc
	waiters int
	done    chan struct{} // closed when events and err are set
	events  *eventList
	err     error
}

// join returns the events of a list that began after the call.
func (q *quorumList) join(ctx context.Context) (*eventList, error) {
	l := q.enter()
	select {
	case <-l.done:
		return l.events, l.err
	case <-ctx.Done():
		q.leave(l)
		return nil, fmt.Errorf("waiting for the list of AlertEvents: %w", ctx.Err())
	}
}

// enter adds a waiter to the next list, and starts to make lists if none is under way.
func (q *quorumList) enter() *listing {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == nil {
		// It belongs to no waiter alone: it ends when the last of them has left.
		ctx, cancel := context.WithCancel(context.Background())
		q.next = &listing{ctx: ctx, cancel: cancel, done: make(chan struct{})}
	}
	q.next.waiters++
	if !q.running {
		q.running = true
		go q.run()
	}
	return q.next
}

// leave takes a waiter off a list; without any the list is called off.
func (q *quorumList) leave(l *listing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.waiters--
	if l.waiters > 0 {
		return
	}
	l.cancel()
	if q.next == l {
		q.next = nil
	}
}

// run makes lists as long as there are waiters. It pauses after each for as long as it took, so that
// lists take at most half the time, and the longer they are, the more folds share one.
func (q *quorumList) run() {
	for {
		<-time.After(time.Until(q.restUntil))
		l := q.take()
		if l == nil {
			return
		}
		began := time.Now()
		// The time that it may take begins here: it has waited for the list before it, and for the pause after that.
		ctx, end := context.WithTimeout(l.ctx, listTimeout)
		l.events, l.err = q.list(ctx)
		end()
		l.cancel()
		close(l.done)
		ended := time.Now()
		q.restUntil = ended.Add(min(ended.Sub(began), maxListPause))
		if q.stop() {
			return
		}
	}
}

// take begins the next list, nil without waiters.
func (q *quorumList) take() *listing {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.next
	q.next = nil
	q.running = l != nil
	return l
}

// stop ends the run when there are no waiters.
func (q *quorumList) stop() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = q.next != nil
	return !q.running
}

// listEvents lists the AlertEvents' metadata in the namespaces, one of which may be empty for all. The
// reader must not be a cache. Without a resourceVersion the answer is as new as the quorum; later pages
// of one list are as old as its first.
func listEvents(reader client.Reader, namespaces []string) func(context.Context) (*eventList, error) {
	var inPages pages.Reader
	return func(ctx context.Context) (*eventList, error) {
		events := newEventList(0)
		for _, namespace := range namespaces {
			list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				page := &metav1.PartialObjectMetadataList{}
				page.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEventList"))
				return page, reader.List(ctx, page, client.InNamespace(namespace), client.Limit(options.Limit),
					client.Continue(options.Continue))
			}
			_, err := inPages.Each(ctx, metav1.ListOptions{}, list, func(object runtime.Object) error {
				if page, ok := object.(*metav1.PartialObjectMetadataList); ok {
					for i := range page.Items {
						events.add(&page.Items[i])
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
