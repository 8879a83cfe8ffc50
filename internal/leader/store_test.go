package leader

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// store is an API server that has one Lease.
type store struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	writes  []*coordinationv1.Lease
	watches map[*stream]struct{}
}

func newStore() *store { return &store{watches: map[*stream]struct{}{}} }

// commit stores a Lease, or deletes it. The store is locked.
func (s *store) commit(lease *coordinationv1.Lease) *coordinationv1.Lease {
	kind, shown := watch.Modified, lease
	switch {
	case lease == nil:
		kind, shown = watch.Deleted, s.lease
	case s.lease == nil:
		kind = watch.Added
	}
	s.version++
	shown = shown.DeepCopy()
	shown.ResourceVersion = strconv.Itoa(s.version)
	s.lease = nil
	if lease != nil {
		s.lease = shown
		s.writes = append(s.writes, shown)
	}
	for w := range s.watches {
		w.events <- watch.Event{Type: kind, Object: shown}
	}
	return shown.DeepCopy()
}

// edit changes the Lease as a user does; nil deletes it.
func (s *store) edit(change func(*coordinationv1.Lease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change == nil {
		s.commit(nil)
		return
	}
	lease := s.lease.DeepCopy()
	change(lease)
	s.commit(lease)
}

// current returns the Lease.
func (s *store) current() *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy()
}

// count returns how many versions of the Lease were stored.
func (s *store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.writes)
}

// connection is how a replica reaches the store. Of the requests for Leases it answers
// those that a Lease sends.
type connection struct {
	coordinationv1client.LeaseInterface
	*store
	mu     sync.Mutex
	faults faults
}

// faults are those of a connection.
type faults struct {
	there, back time.Duration // how long a request and its response are on their way
	refused     error         // of all requests
	lost        bool          // responses to writes do not come
	mute        bool          // watches show nothing
	unwatched   error         // of watches
	dead        bool          // nothing comes through: the process was killed, frozen or cut off
}

func (c *connection) set(f faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = f
}

func (c *connection) now() faults {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faults
}

// pass waits, and fails if the connection breaks or ctx ends.
func (c *connection) pass(ctx context.Context, d time.Duration) error {
	for c.now().dead {
		d = time.Millisecond
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(d)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return c.now().refused
	}
}

// call carries out a request.
func (c *connection) call(
	ctx context.Context, isWrite bool, do func() (*coordinationv1.Lease, error),
) (*coordinationv1.Lease, error) {
	if err := c.pass(ctx, time.Millisecond+c.now().there); err != nil {
		return nil, err
	}
	c.store.mu.Lock()
	answer, err := do()
	c.store.mu.Unlock()
	if isWrite && c.now().lost {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := c.pass(ctx, time.Millisecond+c.now().back); err != nil {
		return nil, err
	}
	return answer, err
}

// Get implements coordinationv1client.LeaseInterface.
func (c *connection) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.call(ctx, false, func() (*coordinationv1.Lease, error) {
		if c.lease == nil {
			return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
		}
		return c.lease.DeepCopy(), nil
	})
}

// Create implements coordinationv1client.LeaseInterface.
func (c *connection) Create(
	ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	return c.call(ctx, true, func() (*coordinationv1.Lease, error) {
		if c.lease != nil {
			return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), lease.Name)
		}
		return c.commit(lease), nil
	})
}

// Update implements coordinationv1client.LeaseInterface.
func (c *connection) Update(
	ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	return c.call(ctx, true, func() (*coordinationv1.Lease, error) {
		switch {
		case c.lease == nil:
			return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), lease.Name)
		case c.lease.ResourceVersion != lease.ResourceVersion:
			return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("it has changed"))
		default:
			return c.commit(lease), nil
		}
	})
}

// stream is a watch of the store.
type stream struct {
	events, shown chan watch.Event
	stop          context.CancelFunc
}

// Watch implements coordinationv1client.LeaseInterface.
func (c *connection) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := c.now().unwatched; err != nil {
		return nil, err
	}
	if err := c.pass(ctx, time.Millisecond); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &stream{events: make(chan watch.Event, 10_000), shown: make(chan watch.Event), stop: stop}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.lease != nil && c.lease.ResourceVersion != opts.ResourceVersion { // all changes since then would come, of which one is enough
		w.events <- watch.Event{Type: watch.Modified, Object: c.lease.DeepCopy()}
	}
	c.watches[w] = struct{}{}
	go c.show(ctx, w)
	return w, nil
}

// show passes the events of a watch on until ctx ends.
func (c *connection) show(ctx context.Context, w *stream) {
	defer func() {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		delete(c.watches, w)
		close(w.shown)
	}()
	for {
		var event watch.Event
		select {
		case <-ctx.Done():
			return
		case event = <-w.events:
		}
		if c.pass(ctx, time.Millisecond) != nil {
			return
		}
		if c.now().mute {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case w.shown <- event:
		}
	}
}

// ResultChan implements watch.Interface.
func (w *stream) ResultChan() <-chan watch.Event { return w.shown }

// Stop implements watch.Interface.
func (w *stream) Stop() { w.stop() }
