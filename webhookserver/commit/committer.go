// Package commit stores alerts as AlertEvents through group commit.
//
// A Submission, the alerts of one request, takes this path:
//
//  1. Committer.Commit puts it into the queue of its integration (committer.go). A writer takes as many submissions from the
//     head of a queue as fit into one AlertEvent.
//  2. A writer makes one AlertEvent of the batch and carries it through its attempts (writer.go); classify reads what
//     the API server says of it. A batch that is refused is halved, so that one alert does not fail its neighbours,
//     unless a policy refuses very many.
//  3. Client talks to the API server (client.go). Commit returns once it has acknowledged the write.
package commit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// Submission holds the alerts of one request. All of them are stored in one AlertEvent, or none.
type Submission struct {
	Integration types.NamespacedName    // the WebhookIntegration that received the request
	Defaults    *v1alpha1.AlertDefaults // of the integration; only submissions with the same ones share an AlertEvent
	Received    time.Time               // when the request arrived
	Alerts      []v1alpha1.Alert        // with ids and names; 1 to v1alpha1.MaxAlertsPerEvent

	// EventName is the name of the AlertEvent for a request with an idempotency key, which gets one of its own. Empty: the
	// Committer generates a name.
	EventName string
}

// Receipt says where a Submission was stored.
type Receipt struct {
	EventName string           // of the AlertEvent
	Alerts    []v1alpha1.Alert // as stored; if the EventName existed already, those that it has: nothing was stored then
}

// Errors of Commit. After all errors but ErrOutcomeUnknown, nothing of the submission is stored, nor will be.
var (
	ErrOverloaded = errors.New("too many alerts are waiting to be stored")

	// ErrUnavailable: the API server was not reached, did not accept writes, or did not process this one in time.
	ErrUnavailable = errors.New("the API server did not take the alert in time")

	ErrOutcomeUnknown = errors.New("the API server did not confirm the write in time")
)

// Committer stores submissions with a fixed number of writers, see fair.Turns.
//
// A submission that finds a free writer, and no other of its integration on the way, is written at once and alone. Otherwise it
// waits in the queue of its integration, of which a writer takes as many as fit into one AlertEvent. So an idle server adds no
// latency, and a busy one writes larger objects. Submissions wait for others to join them only in a storm (see lingerAfter).
//
// A queue has one write under way, which keeps its alerts in the order in which they came and makes batches as large as
// possible; when that write is slow, as on a connection that has died unnoticed, another one may begin. A free writer goes to
// the namespace with the fewest writes under way, and in it to the queues in turn; while others wait, a queue with a slow write
// under way has at most one turn in four. So an integration in a storm delays another one by no more than the write that was
// under way. However many integrations of a namespace are in a storm, they leave a writer and space to wait to the other
// namespaces. A slow write does not count against the number of writers any more: else the writes of one namespace that hang
// would stop those of all.
type Committer struct {
	store  Store
	tracer trace.Tracer // may be nil
	space  *fair.Space  // of the submissions that wait

	mu      sync.Mutex
	closed  bool
	queues  map[types.NamespacedName]*integrationQueue // those with something waiting or being written
	turns   fair.Turns[*integrationQueue]              // those with something waiting that may write; a place is a writer
	waiting int                                        // submissions in all queues
	writing int                                        // submissions that are being written
	changed *sync.Cond                                 // signalled whenever a submission leaves its queue or a writer becomes free
}

// integrationQueue holds the submissions of one integration that wait.
type integrationQueue struct {
	integration types.NamespacedName
	entries     []*entry
	writes      int // under way
	pauses      int // reasons not to begin another write: a write that is not slow yet, or a linger
	linger      linger
}

type entry struct {
	Submission
	size     int // of the alerts
	space    *fair.Reservation
	ctx      context.Context
	deadline time.Time
	writing  bool        // guarded by the Committer's mutex
	done     chan result // buffered, so that a writer never waits
}

type result struct {
	receipt Receipt
	err     error
}

type batch struct {
	from    *integrationQueue
	entries []*entry
	alerts  int
	bytes   int
	turn    *fair.Turn[*integrationQueue]
	slow    *time.Timer // fires when the write is slow
}

// New makes a Committer that writes to the store with so many writers. A nil provider makes no spans.
func New(store Store, writers int, tracers trace.TracerProvider) *Committer {
	c := &Committer{
		store:  store,
		tracer: tracerOf(tracers),
		space:  fair.NewSpace(maxWaiting),
		queues: map[types.NamespacedName]*integrationQueue{},
		turns:  fair.NewTurns[*integrationQueue](writers),
	}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// Commit stores a submission and returns where. The errors are those above, a *InvalidError and a *DeniedError. It returns when
// ctx ends at the latest.
func (c *Committer) Commit(ctx context.Context, submission Submission) (Receipt, error) {
	if n := len(submission.Alerts); n == 0 || n > v1alpha1.MaxAlertsPerEvent {
		return Receipt{}, &InvalidError{Message: fmt.Sprintf("%d alerts do not fit into one AlertEvent", n)}
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(Timeout)
	}
	e := &entry{
		Submission: submission, size: queue.EncodedSize(submission.Alerts), ctx: ctx, deadline: deadline, done: make(chan result, 1),
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

// Fits reports whether alerts can be stored in one AlertEvent.
func Fits(alerts []v1alpha1.Alert) bool {
	switch size := queue.EncodedSize(alerts); {
	case size <= MaxBytes:
		return true
	case size > maxGroupBytes:
		return false
	}
	event := v1alpha1.AlertEvent{Alerts: alerts}
	return queue.Encode(&event) == nil && len(event.Spec.Alerts) <= MaxBytes
}

// Find returns the receipt of an earlier submission with this EventName, as the quorum has it; an empty one if nothing is stored
// under the name.
func (c *Committer) Find(ctx context.Context, name types.NamespacedName) (receipt Receipt, err error) {
	stored, err := c.store.Get(ctx, name.Namespace, name.Name)
	switch {
	case apierrors.IsNotFound(err):
		return receipt, nil
	case err != nil:
		return receipt, fmt.Errorf("reading the AlertEvent of an earlier copy: %w", err)
	}
	return Receipt{EventName: name.Name, Alerts: stored.Alerts}, nil
}

// CheckSpace returns ErrOverloaded when there is no space for a submission of the integration to wait.
func (c *Committer) CheckSpace(integration types.NamespacedName) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mayBegin(integration) || c.space.Allows(integration, minWeight) {
		return nil
	}
	return ErrOverloaded
}

// Backlog returns the number of submissions beyond one for each write: those in the queues, and those that share a write. It is 0
// on an idle server.
func (c *Committer) Backlog() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting + max(0, c.writing-c.turns.AtWork())
}

// mayBegin reports whether a submission of the integration would be written at once.
func (c *Committer) mayBegin(integration types.NamespacedName) bool {
	q := c.queues[integration]
	return (q == nil || q.pauses == 0) && c.turns.MayWork(integration.Namespace)
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
	if !c.mayBegin(e.Integration) {
		e.space = c.space.Reserve(e.Integration, int64(max(e.size, minWeight*len(e.Alerts))), 0)
		if e.space == nil {
			return ErrOverloaded
		}
	}
	q := c.queues[e.Integration]
	if q == nil {
		q = &integrationQueue{integration: e.Integration}
		c.queues[e.Integration] = q
	}
	q.entries = append(q.entries, e)
	c.waiting++
	if l := &q.linger; l.timer != nil && len(q.entries) >= l.target && l.timer.Stop() {
		l.timer = nil
		q.pauses--
	}
	c.startWriter(q)
	return nil
}

// startWriter has a queue wait for its turn, and begins a write if a writer is free.
func (c *Committer) startWriter(q *integrationQueue) {
	c.queueTurn(q)
	if b := c.take(); b != nil {
		go c.runWriter(b)
	}
}

// resume removes one of the queue's pauses: a write became slow, or a linger ended.
func (c *Committer) resume(q *integrationQueue) {
	q.pauses--
	c.startWriter(q)
	c.prune(q)
}

func (c *Committer) queueTurn(q *integrationQueue) {
	if len(q.entries) > 0 && q.pauses == 0 {
		c.turns.Add(q.integration.Namespace, q, q.writes == 0)
	}
}

// take begins the write of the queue whose turn it is. It returns nil when none waits that may write.
func (c *Committer) take() *batch {
	for q, turn, ok := c.turns.Next(); ok; q, turn, ok = c.turns.Next() {
		if b := c.takeBatch(q); len(b.entries) > 0 {
			q.writes++
			q.pauses++
			c.writing += len(b.entries)
			b.turn = turn
			b.slow = time.AfterFunc(slowWrite, func() { // a slow write holds up neither those behind it nor other namespaces
				c.mu.Lock()
				defer c.mu.Unlock()
				turn.Yield()
				c.resume(q)
			})
			return b
		}
		turn.Done()
		c.prune(q)
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
	c.leave(e)
	if len(q.entries) == 0 {
		c.turns.Remove(q.integration.Namespace, q)
		c.prune(q)
	}
	return Receipt{}, lateError(e.ctx.Err())
}

func (c *Committer) leave(e *entry) {
	c.waiting--
	e.space.Release()
	c.changed.Broadcast()
}

// lateError is the outcome of a submission whose request has ended while it waited.
func lateError(err error) error {
	return fmt.Errorf("%w: %w before its turn came", ErrUnavailable, err)
}

func (c *Committer) prune(q *integrationQueue) {
	if len(q.entries) == 0 && q.writes == 0 && q.pauses == 0 {
		delete(c.queues, q.integration)
	}
}

func (c *Committer) runWriter(b *batch) {
	for b != nil {
		begun := time.Now()
		c.writeBatch(b.entries)
		yield()
		b = c.next(b, time.Since(begun))
	}
}

// yield runs the requests that a write has just answered, or that have come meanwhile, before the next
// write takes its batch: batches of a storm are larger by a sixth. On an idle server it costs microseconds.
func yield() {
	for range 8 { // a request is handed from goroutine to goroutine a few times on its way
		runtime.Gosched()
	}
}

// next ends a write and returns the writer's next batch, nil when nothing waits.
func (c *Committer) next(written *batch, took time.Duration) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := written.from
	c.writing -= len(written.entries)
	q.writes--
	if written.slow.Stop() {
		q.pauses--
	}
	c.lingerAfter(q, len(written.entries), took)
	written.turn.Done()
	c.queueTurn(q)
	c.prune(q)
	b := c.take()
	if b == nil {
		c.changed.Broadcast()
	}
	return b
}

// takeBatch removes from the head of the queue the submissions of one AlertEvent, and those that have been given up meanwhile.
func (c *Committer) takeBatch(q *integrationQueue) *batch {
	b := &batch{from: q}
	for len(q.entries) > 0 {
		e := q.entries[0]
		late := !time.Now().Before(e.deadline) || e.ctx.Err() != nil
		if !late && !b.fits(e) {
			break
		}
		q.entries[0] = nil
		q.entries = q.entries[1:]
		c.leave(e)
		if late {
			e.done <- result{err: lateError(context.DeadlineExceeded)}
			continue
		}
		e.writing = true
		b.entries, b.alerts, b.bytes = append(b.entries, e), b.alerts+len(e.Alerts), b.bytes+e.size
	}
	if len(q.entries) == 0 {
		q.entries = nil
	}
	return b
}

// fits says whether e may go into the AlertEvent of the batch. A keyed submission has its AlertEvent to itself.
func (b *batch) fits(e *entry) bool {
	if len(b.entries) == 0 {
		return true
	}
	first := b.entries[0]
	return first.EventName == "" && e.EventName == "" &&
		b.alerts+len(e.Alerts) <= maxBatchAlerts && b.bytes+e.size <= maxBatchBytes &&
		(first.Defaults == e.Defaults || reflect.DeepEqual(first.Defaults, e.Defaults))
}

// Close accepts no more submissions and returns when nothing is waiting or being written, or when ctx ends.
func (c *Committer) Close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.turns.AtWork() > 0 || c.waiting > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for %d writes: %w", c.turns.AtWork(), err)
		}
		c.changed.Wait()
	}
	return nil
}
