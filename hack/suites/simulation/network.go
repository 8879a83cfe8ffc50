package simulation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/traces"
)

// network is what lies between the replicas and the API server. It decides how long each call takes.
type network struct {
	seed uint64

	mu     sync.Mutex
	counts map[string]uint64
	names  map[string]int    // AlertEvents by the order in which they were first seen: their names are random
	taken  map[int64]bool    // nanoseconds at which a call goes on
	trace  func(call string) // of every call, for TestRepeats

	committed map[int64]time.Time // by revision

	webhooks   []*brokenWebhook
	rolledBack atomic.Bool     // the CustomResourceDefinitions were
	found      oracle.Findings // writes that the API server would strip of fields
	tracer     tracer
}

func newNetwork(seed uint64) *network {
	return &network{
		seed: seed, counts: map[string]uint64{}, names: map[string]int{}, taken: map[int64]bool{}, committed: map[int64]time.Time{},
	}
}

// commit notes when a revision is committed.
func (n *network) commit(c apiserver.Commit) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.committed[c.Revision] = time.Now()
}

// sinceCommit returns how long ago a revision was committed.
func (n *network) sinceCommit(revision int64) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.committed[revision])
}

// The longest that a call without a fault is on its way, in each direction, and an event of a watch.
const (
	longestTravel  = 8 * time.Millisecond
	longestDeliver = 3 * time.Millisecond
)

// identity is what a call is about, without what differs from run to run.
func (n *network) identity(call *apiserver.Call) string {
	name := call.Name
	if strings.HasPrefix(call.Resource, "alertevents") && name != "" {
		number, known := n.names[name]
		if !known {
			number = len(n.names) + 1
			n.names[name] = number
		}
		name = fmt.Sprint("#", number)
	}
	return fmt.Sprintf("%s %s %s/%s %s/%s", call.Client, call.Verb, call.Resource, call.Subresource, call.Namespace, name)
}

// chance returns a number that depends on the seed, the identity and how often it was asked for before.
func (n *network) chance(identity string) uint64 {
	n.counts[identity]++
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s %d", n.seed, identity, n.counts[identity])
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// travel sleeps for a time of at most longest, to an instant that is nobody else's.
func (n *network) travel(ctx context.Context, phase string, call *apiserver.Call, longest time.Duration) error {
	n.mu.Lock()
	identity := phase + " " + n.identity(call)
	if n.trace != nil {
		n.trace(time.Now().Format("04:05.000000000 ") + identity)
	}
	wait := time.Duration(n.chance(identity) % uint64(longest))
	at := time.Now().Add(wait).UnixNano()
	for n.taken[at] {
		at++
	}
	n.taken[at] = true
	n.mu.Unlock()
	return sleep(ctx, time.Until(time.Unix(0, at)), nil)
}

// sleep returns early when until is closed and, with an error, when ctx ends.
func sleep(ctx context.Context, d time.Duration, until <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-until:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// target selects calls. Empty fields select all.
type target struct{ verb, resource string }

func (t target) matches(call *apiserver.Call) bool {
	resource, _, _ := strings.Cut(call.Resource, ".")
	if call.Subresource != "" {
		resource += "/" + call.Subresource
	}
	return (t.verb == "" || t.verb == call.Verb) && (t.resource == "" || t.resource == resource)
}

// effect is what a fault does to a call.
type effect string

const (
	lose       effect = "lose"        // the response
	hang       effect = "hang"        // the response never comes
	late       effect = "late"        // the request arrives later, whether or not its sender waits for it
	slow       effect = "slow"        // the request arrives later
	answerLate effect = "answer late" // the response comes later
	refuse     effect = "refuse"      // nobody listens
	reject     effect = "reject"      // 503
	throttle   effect = "throttle"    // 429
	lag        effect = "lag"         // events of a watch come later
	stall      effect = "stall"       // no events of a watch come
	end        effect = "end"         // the watch ends
	expire     effect = "expire"      // with 410
	behind     effect = "behind"      // reads that may be stale are
	drop       effect = "drop"        // a watch leaves events out
	repeat     effect = "repeat"      // a watch sends events twice
	swap       effect = "swap"        // a watch sends events in another order
	rewind     effect = "rewind"      // a watch sends older events again
)

// hindrances are the effects on a write or its answer.
var hindrances = []effect{lose, hang, late, slow, answerLate, refuse, reject, throttle}

// breaches are the effects of a store whose watches do not keep their promise, and what Deliver returns for them.
var breaches = map[effect]error{
	drop: apiserver.ErrDropped, repeat: apiserver.ErrRepeated, swap: apiserver.ErrSwapped, rewind: apiserver.ErrRewound,
}

// fault is an effect on some calls of a replica for a while.
type fault struct {
	target
	effect
	delay time.Duration // of late, slow, answerLate and lag
	until time.Time
	left  int           // how many calls it concerns still; negative: any number
	ended chan struct{} // closed when the faults are healed early
}

// link is the connection of one process to the API server. It implements apiserver.Faults.
type link struct {
	*network
	client string
	traced *traces.Process

	mu     sync.Mutex
	faults []*fault
	thawed chan struct{} // not nil: the process is frozen, until it is closed
	moved  time.Time     // when it was last thawed
	stops  []time.Time   // when it was frozen or killed
	dead   chan struct{} // closed at the death of the process

	outdated time.Time // since when it knows that the CustomResourceDefinitions are too old; zero: they are not
}

func newLink(n *network, client string) *link {
	return &link{network: n, client: client, traced: n.tracer.process(client), dead: make(chan struct{})}
}

var (
	errDead    = errors.New("connect: connection refused: the process is dead")
	errRefused = errors.New("connect: connection refused")
	errLost    = errors.New("read: connection reset by peer")
)

// add begins a fault.
func (l *link) add(f fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.ended = make(chan struct{})
	l.faults = append(l.faults, &f)
}

// heal ends all faults.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		close(f.ended)
	}
	l.faults = nil
}

// take returns the fault that concerns a call, and counts the call.
func (l *link) take(call *apiserver.Call, effects ...effect) *fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		if f.left == 0 || !time.Now().Before(f.until) || !slices.Contains(effects, f.effect) || !f.matches(call) {
			continue
		}
		f.left--
		return f
	}
	return nil
}

// disturbs says whether a fault concerns the next call of this kind.
func (l *link) disturbs(call *apiserver.Call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.faults, func(f *fault) bool {
		return f.left != 0 && time.Now().Before(f.until) && slices.Contains(hindrances, f.effect) && f.matches(call)
	})
}

// freeze stops the process until thaw.
func (l *link) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thawed == nil {
		l.thawed = make(chan struct{})
		l.stops = append(l.stops, time.Now())
	}
}

func (l *link) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thawed != nil {
		close(l.thawed)
		l.thawed, l.moved = nil, time.Now()
	}
}

// wasFrozen says whether the process was frozen at some moment since then.
func (l *link) wasFrozen(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.thawed != nil || l.moved.After(since)
}

// hasStopped says whether the process was frozen or killed between two times.
func (l *link) hasStopped(from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.stops, func(stop time.Time) bool { return !stop.Before(from) && !stop.After(to) })
}

// kill ends the process: it sends and hears nothing more. What it has sent still arrives.
func (l *link) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.dead)
	l.stops = append(l.stops, time.Now())
	if l.thawed != nil {
		close(l.thawed)
		l.thawed = nil
	}
}

func (l *link) isDead() bool { return isClosed(l.dead) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// run waits while the process is frozen, and fails when it is dead. A frozen process does not notice that its contexts end.
func (l *link) run() error {
	l.mu.Lock()
	thawed := l.thawed
	l.mu.Unlock()
	if thawed != nil {
		<-thawed
	}
	if l.isDead() {
		return errDead
	}
	return nil
}

// Arrive implements apiserver.Faults.
func (l *link) Arrive(ctx context.Context, call *apiserver.Call) (*metav1.Status, error) {
	if call.Resource == recorded {
		return nil, nil
	}
	l.tracer.sent(call)
	if err := l.travel(ctx, "arrive", call, longestTravel); err != nil {
		return nil, err
	}
	if f := l.take(call, late, slow); f != nil {
		if err := sleep(ctx, f.delay, f.ended); err != nil {
			return nil, err
		}
	}
	switch f := l.take(call, refuse, reject, throttle); {
	case f == nil:
		return l.admit(ctx, call)
	case f.effect == refuse:
		return nil, errRefused
	case f.effect == throttle:
		return &apierrors.NewTooManyRequests("the server is busy", 1).ErrStatus, nil
	default:
		return &apierrors.NewServiceUnavailable("the server is currently unable to handle the request").ErrStatus, nil
	}
}

// leave has the response to a call travel, or not.
func (l *link) leave(ctx context.Context, call *apiserver.Call) error {
	if call.Resource == recorded {
		return nil
	}
	if err := l.travel(ctx, "leave", call, longestTravel); err != nil {
		return err
	}
	switch f := l.take(call, lose, hang, answerLate); {
	case f == nil:
		return nil
	case f.effect == answerLate:
		return sleep(ctx, f.delay, f.ended)
	case f.effect == lose:
		return errLost
	default:
		return errors.Join(errLost, sleep(ctx, time.Until(f.until)+time.Hour, f.ended))
	}
}

// deliver has an event of a watch travel, or not.
func (l *link) deliver(ctx context.Context, call *apiserver.Call, revision int64) error {
	named := *call
	named.Name = fmt.Sprint(revision)
	named.Resource = "watch of " + call.Resource
	if err := l.travel(ctx, "deliver", &named, longestDeliver); err != nil {
		return err
	}
	effects := []effect{lag, stall, end, expire, drop, repeat, swap, rewind}
	for f := l.take(call, effects...); f != nil; f = l.take(call, effects...) {
		switch f.effect {
		case drop, repeat, swap, rewind:
			return cmp.Or(l.run(), breaches[f.effect])
		case end:
			return errLost
		case expire:
			return apiserver.ErrExpired
		case stall:
			if err := sleep(ctx, time.Until(f.until), f.ended); err != nil {
				return err
			}
		default: // lag; what comes behind others does not come later for it
			if err := sleep(ctx, max(0, f.delay-l.sinceCommit(revision)), f.ended); err != nil {
				return err
			}
			return l.run()
		}
	}
	return l.run()
}

// maxLag is how many resourceVersions a stale read is behind.
const maxLag = 30

// Lag implements apiserver.Staleness.
func (l *link) Lag(call *apiserver.Call) int64 {
	if l.take(call, behind) == nil {
		return 0
	}
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	return int64(1 + l.chance("lag "+l.identity(call))%maxLag)
}

// recorded are the Kubernetes Events. Their client holds a mutex while it waits for an answer, and no time passes while somebody
// waits for a mutex: so they are answered at once, whatever fails.
const recorded = "events.events.k8s.io"

// transport is the http.RoundTripper of a process.
type transport struct {
	*link
	server http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A write that was sent arrives, even if its sender no longer waits for it.
func (t *transport) RoundTrip(q *http.Request) (*http.Response, error) {
	if strings.HasPrefix(q.URL.Path, "/apis/events.k8s.io/") {
		return t.server.RoundTrip(q)
	}
	if err := t.run(); err != nil {
		return nil, err
	}
	if q.Method == http.MethodGet {
		return t.read(q)
	}
	t.judgeWrite(q)
	sent, cancel := context.WithCancel(context.WithoutCancel(q.Context()))
	request := q.Clone(sent)
	if q.Body != nil {
		body, err := io.ReadAll(q.Body)
		if err = errors.Join(err, q.Body.Close()); err != nil {
			cancel()
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	type result struct {
		response *http.Response
		err      error
	}
	answered, left := make(chan result), make(chan struct{})
	defer close(left)
	go func() {
		defer cancel()
		response, err := t.server.RoundTrip(request)
		select {
		case answered <- result{response, err}:
		case <-left:
			if err == nil {
				_ = response.Body.Close()
			}
		}
	}()
	select {
	case r := <-answered:
		if err := t.run(); err != nil {
			return nil, err
		}
		return r.response, r.err
	case <-q.Context().Done():
		return nil, errors.Join(t.run(), context.Cause(q.Context()))
	case <-t.dead:
		return nil, errDead
	}
}

// read sends a request that writes nothing, and notes which definitions its answer tells.
func (t *transport) read(q *http.Request) (*http.Response, error) {
	response, err := t.server.RoundTrip(q)
	if dead := t.run(); dead != nil {
		return nil, dead
	}
	if err == nil && t.rolledBack.Load() && strings.HasPrefix(q.URL.Path, "/openapi/") && response.StatusCode == http.StatusOK {
		err = t.see(response)
	}
	return response, err
}
