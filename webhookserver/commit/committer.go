package commit

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// Committer stores submissions with a fixed number of writers.
//
// A submission that finds a free writer, and no other of its integration on the way, is written at once and
// alone. Otherwise it waits in the queue of its integration; the writer that comes to that queue takes as many
// from its head as fit into one AlertEvent. So an idle server adds no latency, a busy one writes fewer and
// larger objects the more there is to write. Submissions wait for others to join them only in a storm (see gather).
//
// A queue has one write under way, which keeps its alerts in the order in which they came and makes batches as large as
// possible; when that write is slow, as on a connection that has died unnoticed, another one may begin. A free writer goes to
// the namespace with the fewest writes under way, and in it to the queues in turn; while others wait, a queue with a slow write
// under way has at most one turn in four. So an integration in a storm delays another one by no more than the write that was
// under way. However many integrations of a namespace are in a storm, they leave a writer and space to wait to the other
// namespaces.
type Committer struct {
	writer *writer

	mu      sync.Mutex
	closed  bool
	free    int                             // writers; above 0 only while no queue waits that may have one
	queues  map[types.NamespacedName]*queue // those with something waiting or being written
	turns   fair.Turns[*queue]              // those with something waiting that may write
	shares  shares
	writing int        // submissions that are being written
	idle    *sync.Cond // signalled whenever a writer becomes free
}

// queue holds the submissions of one integration that wait.
type queue struct {
	integration types.NamespacedName
	share       *share // of its namespace
	entries     []*entry
	waiting     load
	writes      int       // under way
	begun       time.Time // the last of them
	watched     bool      // a timer runs that starts a write beside a slow one
	gathering   gathering
}

// mayWrite says whether another write of the queue may begin.
func (q *queue) mayWrite() bool {
	return q.writes == 0 || time.Since(q.begun) >= slowWrite
}

type entry struct {
	Submission
	load     load
	ctx      context.Context
	deadline time.Time
	writing  bool        // guarded by the Committer's mutex
	done     chan result // buffered, so that a writer never waits
}

type result struct {
	receipt Receipt
	err     error
}

// New makes a Committer that writes to the store with so many writers. A nil provider makes no spans.
func New(store Store, writers int, tracers trace.TracerProvider) *Committer {
	c := &Committer{
		writer: &writer{store: store},
		free:   writers,
		queues: map[types.NamespacedName]*queue{},
		turns:  fair.Turns[*queue]{PerKey: writers - writers/4}, // a quarter is left to other namespaces
		shares: shares{writers: writers, namespaces: map[string]*share{}},
	}
	c.idle = sync.NewCond(&c.mu)
	if tracers != nil {
		c.writer.tracer = tracers.Tracer("github.com/tocsin-dev/tocsin/webhookserver/commit")
	}
	return c
}

// Commit stores a submission and returns where. The errors are ErrOverloaded, ErrUnavailable, ErrOutcomeUnknown, a
// *InvalidError and a *DeniedError; after all but ErrOutcomeUnknown nothing of the submission is stored, nor will be. It
// returns when ctx ends at the latest.
func (c *Committer) Commit(ctx context.Context, submission Submission) (Receipt, error) {
	if n := len(submission.Alerts); n == 0 || n > v1alpha1.MaxAlertsPerEvent {
		return Receipt{}, &InvalidError{Message: fmt.Sprintf("%d alerts do not fit into one AlertEvent", n)}
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(Timeout)
	}
	e := &entry{
		Submission: submission,
		load:       load{requests: 1, alerts: len(submission.Alerts), bytes: Size(submission.Alerts)},
		ctx:        ctx,
		deadline:   deadline,
		done:       make(chan result, 1),
	}
	if err := c.enqueue(e); err != nil {
		return Receipt{}, err
	}
	select {
	case r := <-e.done:
		return r.receipt, r.err
	case <-ctx.Done():
		return c.giveUp(e)
	}
}

// CheckCapacity returns ErrOverloaded when there is no space for a submission of the integration to wait.
func (c *Committer) CheckCapacity(integration types.NamespacedName) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkCapacity(integration, load{requests: 1, alerts: 1, bytes: 1})
}

// Backlog returns how many submissions wait for a write, or have waited for the one that they now share. It is 0 on an
// idle server and while single submissions are written.
func (c *Committer) Backlog() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shares.waiting.requests + max(0, c.writing-(c.shares.writers-c.free))
}

// enqueue gives the submission to a writer or puts it into its queue.
func (c *Committer) enqueue(e *entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w: the server is stopping", ErrUnavailable)
	}
	if err := e.ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := c.checkCapacity(e.Integration, e.load); err != nil {
		return err
	}
	q := c.queues[e.Integration]
	if q == nil {
		q = &queue{integration: e.Integration, share: c.shares.of(e.Integration.Namespace)}
		q.share.queues++
		c.queues[e.Integration] = q
	}
	q.entries = append(q.entries, e)
	c.shares.addWaiting(q, e.load)
	q.gathering.arrived(len(q.entries))
	c.startWriter(q)
	return nil
}

// startWriter has a queue wait for its turn, and begins a write if a writer is free.
func (c *Committer) startWriter(q *queue) {
	c.await(q)
	if c.free > 0 {
		if turn, batch := c.take(); batch != nil {
			c.free--
			go c.runWriter(turn, batch)
		}
	}
}

// await has a queue wait for its turn if it may write, and otherwise until its write ends or is slow: a slow write does not hold
// up the submissions behind it.
func (c *Committer) await(q *queue) {
	switch {
	case len(q.entries) == 0:
	case q.mayWrite():
		c.turns.Add(q.integration.Namespace, q, q.writes == 0)
	case !q.watched:
		q.watched = true
		time.AfterFunc(slowWrite-time.Since(q.begun), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			q.watched = false
			c.startWriter(q)
		})
	}
}

// take begins the write of the queue whose turn it is. It returns nil when none waits that may write.
func (c *Committer) take() (*queue, []*entry) {
	for q, ok := c.turns.Next(); ok; q, ok = c.turns.Next() {
		if batch := c.takeBatch(q); batch != nil {
			q.writes++
			q.begun = time.Now()
			c.writing += len(batch)
			c.await(q)
			return q, batch
		}
		c.turns.Done(q.integration.Namespace)
	}
	return nil, nil
}

// checkCapacity returns ErrOverloaded when the queue, its namespace or all of them together cannot take more.
func (c *Committer) checkCapacity(integration types.NamespacedName, added load) error {
	q := c.queues[integration]
	if c.free > 0 && (q == nil || q.mayWrite()) && c.turns.MayWork(integration.Namespace) {
		return nil
	}
	queueBound := load{alerts: maxQueueAlerts, bytes: maxQueueBytes}
	if !c.shares.allowsWaiting(integration.Namespace, added) ||
		q != nil && !q.waiting.plus(added).isWithin(queueBound, 1, 1) {
		return ErrOverloaded
	}
	return nil
}

// giveUp returns the outcome for a submission whose request has ended. One that still waits is taken out and will never
// be written; the outcome of one that is being written is unknown.
func (c *Committer) giveUp(e *entry) (Receipt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case r := <-e.done: // at the very same moment
		return r.receipt, r.err
	default:
	}
	if e.writing {
		return Receipt{}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, e.ctx.Err())
	}
	q := c.queues[e.Integration]
	q.entries = slices.DeleteFunc(q.entries, func(other *entry) bool { return other == e })
	c.shares.addWaiting(q, e.load.negative())
	if len(q.entries) == 0 {
		c.turns.Remove(q.integration.Namespace, q)
		c.prune(q)
	}
	return Receipt{}, fmt.Errorf("%w: %w before its turn came", ErrUnavailable, e.ctx.Err())
}

// prune forgets a queue that is empty and has no write under way.
func (c *Committer) prune(q *queue) {
	if len(q.entries) > 0 || q.writes > 0 || c.queues[q.integration] != q {
		return
	}
	delete(c.queues, q.integration)
	if q.share.queues--; q.share.queues == 0 {
		delete(c.shares.namespaces, q.integration.Namespace)
	}
}

// runWriter carries out one write after the other until nothing waits.
func (c *Committer) runWriter(q *queue, batch []*entry) {
	for batch != nil {
		begun := time.Now()
		c.writer.writeBatch(batch)
		yield()
		c.gather(q, len(batch), time.Since(begun))
		q, batch = c.next(q)
	}
}

// yield runs the requests that a write has just answered, or that have come meanwhile, before the next
// write takes its batch: batches of a storm are larger by a sixth. On an idle server it costs microseconds.
func yield() {
	for range 8 { // a request is handed from goroutine to goroutine a few times on its way
		runtime.Gosched()
	}
}

// next ends a write of queue q and returns the writer's next batch and its queue, nil when nothing waits.
func (c *Committer) next(q *queue) (*queue, []*entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q.writes--
	c.turns.Done(q.integration.Namespace)
	c.await(q)
	turn, batch := c.take()
	if batch == nil {
		c.free++
		c.idle.Broadcast()
	}
	c.prune(q)
	return turn, batch
}

// takeBatch removes from the head of the queue the submissions of one AlertEvent. It returns nil when everything that waited has
// been given up meanwhile.
func (c *Committer) takeBatch(q *queue) []*entry {
	var batch []*entry
	var size load
	for len(q.entries) > 0 {
		e := q.entries[0]
		expired := !time.Now().Before(e.deadline) || e.ctx.Err() != nil
		if !expired && len(batch) > 0 && !fits(batch[0], e, size) {
			break
		}
		q.entries[0] = nil
		q.entries = q.entries[1:]
		c.shares.addWaiting(q, e.load.negative())
		if expired {
			e.done <- result{err: fmt.Errorf("%w: %w before its turn came", ErrUnavailable, context.DeadlineExceeded)}
			continue
		}
		size = size.plus(e.load)
		e.writing = true
		batch = append(batch, e)
		if e.EventName != "" {
			break // a keyed submission has its AlertEvent to itself
		}
	}
	if len(q.entries) == 0 {
		q.entries = nil
		if len(batch) == 0 {
			c.prune(q)
		}
	}
	return batch
}

// fits says whether e may go into the AlertEvent that first began and that has grown to size.
func fits(first, e *entry, size load) bool {
	return e.EventName == "" &&
		size.plus(e.load).isWithin(load{alerts: maxBatchAlerts, bytes: maxBatchBytes}, 1, 1) &&
		(first.Defaults == e.Defaults || reflect.DeepEqual(first.Defaults, e.Defaults))
}

// Close accepts no more submissions and returns when nothing is waiting or being written, or when ctx ends.
func (c *Committer) Close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle.Broadcast()
	})
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.free < c.shares.writers {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for %d writes: %w", c.shares.writers-c.free, err)
		}
		c.idle.Wait()
	}
	return nil
}
