package webhookserver

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// groupCommitter stores submissions through a fixed number of write slots.
//
// A submission that finds a free slot, and no other of its integration on the way, is written at once and
// alone. Otherwise it waits in the lane of its integration; the slot that comes to that lane takes as many
// from its head as fit into one AlertEvent. So an idle server adds no latency, a busy one writes fewer and
// larger objects the more there is to write, and nothing ever waits for company.
//
// A lane has one write under way, which keeps its alerts in the order in which they came and makes batches
// as large as can be; when that write is slow, as on a connection that has died unnoticed, another one may
// begin. A free slot goes to the namespace with the fewest writes under way, in it to the lane with the fewest, and among
// those to the one that has waited longest for its turn: an integration in a storm does not hold up another one
// by more than the write that was under way, and however many integrations of a namespace are in a storm, they
// leave a slot and a place to wait to the other namespaces.
type groupCommitter struct {
	writer  *writer
	tracing *tracing

	mu      sync.Mutex
	free    int                            // slots; above 0 only while no lane waits that may have one
	lanes   map[types.NamespacedName]*lane // those with something waiting or being written
	ring    []*lane                        // those with something waiting, next turn first
	waiting load                           // in all lanes
	shares  map[string]*share              // of the namespaces with something waiting or being written
	writing int                            // submissions that are being written
	closed  bool
	idle    *sync.Cond // signalled whenever a slot becomes free
	slots   int
}

// lane is what one integration has waiting.
type lane struct {
	key     types.NamespacedName
	share   *share // of its namespace
	queue   []*entry
	waiting load
	writes  int       // under way
	begun   time.Time // the last of them
	watched bool      // a timer runs that starts what waits behind a slow write
}

// mayWrite tells whether another write of the lane may begin, beside so many.
func (l *lane) mayWrite(beside int) bool {
	return beside == 0 || time.Since(l.begun) >= slowWrite
}

// load is an amount of alerts, in so many requests.
type load struct{ requests, alerts, bytes int }

func (l *load) add(other load) {
	l.requests += other.requests
	l.alerts += other.alerts
	l.bytes += other.bytes
}

func (l *load) subtract(other load) {
	l.requests -= other.requests
	l.alerts -= other.alerts
	l.bytes -= other.bytes
}

// entry is a submission on its way.
type entry struct {
	Submission
	load     load
	ctx      context.Context
	deadline time.Time
	writing  bool        // guarded by the committer's mutex
	done     chan result // buffered, so that nobody has to listen
}

// result is what Commit returns.
type result struct {
	receipt Receipt
	err     error
}

func newGroupCommitter(writer *writer, slots int) *groupCommitter {
	c := &groupCommitter{writer: writer, free: slots, slots: slots,
		lanes: map[types.NamespacedName]*lane{}, shares: map[string]*share{}}
	c.idle = sync.NewCond(&c.mu)
	return c
}

// Commit implements Committer.
func (c *groupCommitter) Commit(ctx context.Context, submission Submission) (Receipt, error) {
	if n := len(submission.Alerts); n == 0 || n > v1alpha1.MaxAlertsPerEvent {
		return Receipt{}, &RejectedError{Message: fmt.Sprintf("%d alerts do not fit into one AlertEvent", n)}
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(storeTimeout)
	}
	e := &entry{
		Submission: submission,
		load:       load{requests: 1, alerts: len(submission.Alerts), bytes: alertsSize(submission.Alerts)},
		ctx:        ctx,
		deadline:   deadline,
		done:       make(chan result, 1),
	}
	if err := c.enter(e); err != nil {
		return Receipt{}, err
	}
	select {
	case r := <-e.done:
		return r.receipt, r.err
	case <-ctx.Done():
		return c.giveUp(e)
	}
}

// admits returns ErrOverloaded when a submission of the lane would find no room to wait.
func (c *groupCommitter) admits(key types.NamespacedName) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.room(key, load{requests: 1, alerts: 1, bytes: 1})
}

// crowd is how many submissions wait for a write, or have waited for one that they share now.
func (c *groupCommitter) crowd() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting.requests + max(0, c.writing-(c.slots-c.free))
}

// enter gives the submission a slot or a place in its lane.
func (c *groupCommitter) enter(e *entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w: the server is stopping", ErrUnavailable)
	}
	if err := e.ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := c.room(e.lane(), e.load); err != nil {
		return err
	}
	l := c.lanes[e.lane()]
	if l == nil {
		l = &lane{key: e.lane(), share: c.share(e.lane().Namespace)}
		l.share.lanes++
		c.lanes[l.key] = l
	}
	if len(l.queue) == 0 {
		c.ring = append(c.ring, l)
	}
	l.queue = append(l.queue, e)
	c.wait(l, e.load)
	c.start(l)
	return nil
}

// start begins a write of the lane if it may, and otherwise sees to it that a slow write does not hold up
// what waits behind it.
func (c *groupCommitter) start(l *lane) {
	if c.free > 0 && l.mayWrite(l.writes) && c.mayHave(l.share, 0) {
		if batch := c.take(l); batch != nil {
			c.free--
			c.begin(l, batch)
			go c.serveSlot(l, batch)
		}
	}
	if len(l.queue) == 0 || l.watched {
		return
	}
	l.watched = true
	time.AfterFunc(slowWrite, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		l.watched = false
		if len(l.queue) > 0 {
			c.start(l)
		}
	})
}

// begin accounts for a write that begins.
func (c *groupCommitter) begin(l *lane, batch []*entry) {
	l.writes++
	l.share.writes++
	l.begun = time.Now()
	c.writing += len(batch)
}

// room returns ErrOverloaded when the lane or all of them together cannot take more.
func (c *groupCommitter) room(key types.NamespacedName, more load) error {
	l := c.lanes[key]
	if c.free > 0 && (l == nil || l.mayWrite(l.writes)) && c.mayHave(c.shares[key.Namespace], 0) {
		return nil
	}
	if !c.fitsShare(key.Namespace, more) {
		return ErrOverloaded
	}
	if l != nil &&
		(l.waiting.alerts+more.alerts > maxLaneAlerts || l.waiting.bytes+more.bytes > maxLaneBytes) {
		return ErrOverloaded
	}
	return nil
}

// giveUp is for a submission whose request has ended. One that still waits is taken out and will never be
// written; of one that is being written nobody can say.
func (c *groupCommitter) giveUp(e *entry) (Receipt, error) {
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
	l := c.lanes[e.lane()]
	l.queue = slices.DeleteFunc(l.queue, func(other *entry) bool { return other == e })
	c.left(l, e)
	return Receipt{}, fmt.Errorf("%w: %w before its turn came", ErrUnavailable, e.ctx.Err())
}

// left accounts for an entry that has left the queue of its lane.
func (c *groupCommitter) left(l *lane, e *entry) {
	c.unwait(l, e.load)
	if len(l.queue) > 0 {
		return
	}
	c.ring = slices.DeleteFunc(c.ring, func(other *lane) bool { return other == l })
	c.prune(l)
}

// prune forgets a lane that has nothing left.
func (c *groupCommitter) prune(l *lane) {
	if len(l.queue) > 0 || l.writes > 0 || c.lanes[l.key] != l {
		return
	}
	delete(c.lanes, l.key)
	if l.share.lanes--; l.share.lanes == 0 {
		delete(c.shares, l.key.Namespace)
	}
}

// serveSlot carries out one write after the other until nothing waits.
func (c *groupCommitter) serveSlot(l *lane, batch []*entry) {
	for batch != nil {
		c.write(batch)
		yield()
		l, batch = c.next(l, len(batch))
	}
}

// yield lets the requests run that a write has just answered, or that have come meanwhile, before the next
// one takes what waits: batches of a storm are larger by a sixth. On an idle server it costs microseconds.
func yield() {
	const turns = 8 // a request is handed from goroutine to goroutine a few times on its way
	for range turns {
		runtime.Gosched()
	}
}

// next ends a write of so many submissions of lane l and returns what the slot writes next, nil when nothing
// waits.
func (c *groupCommitter) next(l *lane, written int) (*lane, []*entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing -= written
	var batch []*entry
	turn := l
	for turn != nil && batch == nil {
		if turn = c.nextLane(l); turn != nil {
			batch = c.take(turn)
		}
	}
	l.writes--
	l.share.writes--
	if batch == nil {
		c.free++
		c.idle.Broadcast()
	} else {
		c.begin(turn, batch)
	}
	c.prune(l)
	return turn, batch
}

// nextLane is the lane whose turn it is when a write of lane l ends, nil when none waits that may write. That
// write still counts among those under way, so of equals the others come before l.
func (c *groupCommitter) nextLane(l *lane) *lane {
	var turn *lane
	for _, waiting := range c.ring {
		beside, ended := waiting.writes, 0
		if waiting == l {
			beside--
		}
		if waiting.share == l.share {
			ended = 1
		}
		if waiting.mayWrite(beside) && c.mayHave(waiting.share, ended) && (turn == nil || waiting.comesBefore(turn)) {
			turn = waiting
		}
	}
	return turn
}

// take removes from the head of the lane what goes into one AlertEvent, and gives the lane's turn to the
// next one. It returns nil when all that waited has been given up meanwhile.
func (c *groupCommitter) take(l *lane) []*entry {
	var batch []*entry
	var size load
	for len(l.queue) > 0 {
		e := l.queue[0]
		late := !time.Now().Before(e.deadline) || e.ctx.Err() != nil
		if !late && len(batch) > 0 && !fits(batch[0], e, size) {
			break
		}
		l.queue[0] = nil
		l.queue = l.queue[1:]
		c.unwait(l, e.load)
		if late {
			e.done <- result{err: fmt.Errorf("%w: %w before its turn came", ErrUnavailable, context.DeadlineExceeded)}
			continue
		}
		size.add(e.load)
		e.writing = true
		batch = append(batch, e)
		if e.EventName != "" {
			break // a keyed submission has its AlertEvent to itself
		}
	}
	c.ring = slices.DeleteFunc(c.ring, func(other *lane) bool { return other == l })
	if len(l.queue) > 0 {
		c.ring = append(c.ring, l)
	} else {
		l.queue = nil
		if len(batch) == 0 {
			c.prune(l)
		}
	}
	return batch
}

// fits tells whether e may go into the AlertEvent that first began and that has grown to size.
func fits(first, e *entry, size load) bool {
	return e.EventName == "" &&
		size.alerts+e.load.alerts <= maxBatchAlerts &&
		size.bytes+e.load.bytes <= maxBatchBytes &&
		sameDefaults(first.Defaults, e.Defaults)
}

// close lets nothing more in and returns when nothing is waiting or being written, or when ctx ends.
func (c *groupCommitter) close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle.Broadcast()
	})
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.free < c.slots {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for %d writes: %w", c.slots-c.free, err)
		}
		c.idle.Wait()
	}
	return nil
}
