package forward

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// sender posts alerts to one address of an Alertmanager. It depends on no other sender.
type sender struct {
	term          *term
	name, address string // of the Alertmanager, for metrics and logs
	log           logr.Logger

	queue  *queue        // the Incidents that changed
	round  []incidentKey // the open ones that the round has not reached
	ended  *queue        // those that are not open
	alone  *queue        // those of leftOut whose turn has come
	memory memory

	recalled map[forwardedSet]map[string]string // the labels of the sets of an earlier leader; nil until they are needed, see recall

	ahead atomic.Int64 // the nanoseconds that the Alertmanager's clock is ahead of the API server's

	mu        sync.Mutex
	target    *target
	client    *httpClient // nil: http_config cannot be used
	began     time.Time
	succeeded time.Time                 // when a request was last accepted; zero: never
	failed    time.Time                 // when Alertmanager last accepted nothing; zero: never
	failure   cause                     // of that
	rejection cause                     // of the newest in leftOut
	leftOut   map[incidentKey]time.Time // since when it accepts requests, but not the alerts of these
	failing   time.Time                 // since when it accepts nothing; zero: it does

	// told has the severity of each set that fires in the Alertmanager, by what it has accepted in this term.
	told map[incidentKey]v1alpha1.Severity
}

// queue holds Incidents that a sender has to post. It keeps names only; the sender reads the Incident when its turn has come, so
// it never posts an old state after a newer one.
//
// Namespaces take turns, so a storm in one of them delays the others by one Incident each.
type queue struct {
	signal signal // something was added

	mu       sync.Mutex
	turns    fair.Turns[incidentKey]
	received map[incidentKey]time.Time // the alert that caused it; zero if that is not to be measured
}

func newQueue() *queue {
	return &queue{signal: newSignal(), turns: fair.NewTurns[incidentKey](1), received: map[incidentKey]time.Time{}}
}

// add puts an Incident in the queue. If it is there already, the earlier time counts.
func (q *queue) add(key incidentKey, received time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turns.Add(key.namespace, key, false)
	if q.received[key].IsZero() {
		q.received[key] = received
	}
	q.signal.give()
}

func (q *queue) next() (key incidentKey, received time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, turn, ok := q.turns.Next()
	if ok {
		turn.Done()
	}
	received = q.received[key]
	delete(q.received, key)
	return key, received, ok
}

func (q *queue) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns.IsEmpty()
}

// item is one Incident in a request.
type item struct {
	key      incidentKey
	received time.Time // see queue
	alerts   []json.RawMessage
	size     int               // of the alerts
	severity v1alpha1.Severity // of the one that fires; empty if none does
}

func newSender(t *term, name, address string) *sender {
	s := &sender{
		term: t, name: name, address: address, log: t.forwarder.log.WithValues("alertmanager", name, "address", address),
		queue: newQueue(), ended: newQueue(), alone: newQueue(), memory: memory{},
		began: time.Now(), leftOut: map[incidentKey]time.Time{}, told: map[incidentKey]v1alpha1.Severity{},
	}
	lastSuccess.WithLabelValues(name, address).Set(float64(s.began.Unix()))
	return s
}

// configure sets the target, and makes a client unless there is one for it. A new target has everything posted at once.
func (s *sender) configure(t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target == t && s.client != nil {
		return
	}
	client, err := newClient(t, s.address, s.term.forwarder.Dial)
	if err != nil {
		s.log.Error(err, "Alertmanager cannot be configured")
	}
	if s.client != nil {
		s.client.http.CloseIdleConnections()
	}
	s.target, s.client = t, client
	s.queue.signal.give()
}

func (s *sender) configured() (*target, *httpClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.target, s.client
}

// run posts until ctx ends. The first request is empty, and its answer tells the time: by a clock that is much later, what is to
// fire would end at once.
func (s *sender) run(ctx context.Context) {
	defer s.forgetMetrics()
	var last *target        // the target of the last round
	var due time.Time       // when the next round begins
	var ahead time.Duration // that the last round took into account
	var logged time.Time    // when the failure was last logged; zero while nothing fails
	quiet := true           // nothing was accepted since the last round began
	greeted, delays := false, newBackoff()
	for ctx.Err() == nil {
		t, client := s.configured()
		now, ok := s.term.clock()
		if !ok {
			sleep(ctx, minBackoff, nil)
			continue
		}
		var items, alone []item
		if greeted {
			if (t != last || !time.Now().Before(due)) && s.startRound(t, now) {
				last, due, quiet, ahead = t, time.Now().Add(t.config.roundInterval()), true, s.clockAhead()
			}
			items, alone = s.collect(ctx, t, client, now)
			if len(items)+len(alone) == 0 && !quiet {
				s.rest(ctx, due)
				continue
			}
		}
		if err := s.deliver(ctx, client, items, alone); err != nil {
			if ctx.Err() != nil {
				return
			}
			s.putBack(slices.Concat(items, alone))
			if s.setFailed(err); time.Since(logged) >= logInterval {
				s.log.Error(err, "Alerts cannot be forwarded")
				logged = time.Now()
			}
			sleep(ctx, delays.Step(), nil)
			continue
		}
		quiet, greeted = !greeted, true
		if isWrong(s.clockAhead() - ahead) {
			due = fold.Earliest(due, time.Now().Add(minBackoff)) // what was posted may have ended at once
		}
		if !logged.IsZero() {
			s.log.Info("Alerts are forwarded again")
			logged, delays, due = time.Time{}, newBackoff(), time.Time{} // Alertmanager may have lost what it had
		}
	}
}

// rest waits until a time or for an Incident that changes, unless some have not been posted. Those that have to be read first
// wait a moment for their reads.
func (s *sender) rest(ctx context.Context, until time.Time) {
	if len(s.round) > 0 || !s.queue.isEmpty() {
		return
	}
	if !s.ended.isEmpty() {
		until = fold.Earliest(until, time.Now().Add(endedTime))
	}
	sleep(ctx, time.Until(until), s.queue.signal)
}

// startRound begins a round over the Incidents that are open, and has those posted again that were resolved a short while ago, or
// of which this sender has posted alerts that it has to end. It reports false while the last one is under way.
func (s *sender) startRound(t *target, now time.Time) bool {
	if len(s.round) > 0 {
		return false
	}
	open, ended := s.term.index.active(now.Add(-t.config.endedWindow()))
	slices.SortFunc(open, func(a, b incidentKey) int { // each comes at about the same time of every round
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	s.round = open
	for _, key := range ended {
		s.ended.add(key, time.Time{})
	}
	for key := range s.memory {
		if !s.term.index.isOpen(key) {
			s.ended.add(key, time.Time{})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.leftOut {
		s.alone.add(key, time.Time{})
	}
	return true
}

// batch is the Incidents of one request, as far as it is made.
type batch struct {
	*sender
	take  func(key incidentKey, received time.Time) // adds an Incident
	fits  func(incidents, bytes int) bool           // reports whether there is place for another one
	items []item
	size  int
}

// collect takes as many Incidents as fit in one request, and those that are to be posted alone. It returns none if there is
// nothing to post.
//
// The open ones come first, since they expire. The others follow when the round has reached all that are open: thousands of
// them may have to be read one after another.
func (s *sender) collect(ctx context.Context, t *target, client *httpClient, now time.Time) (items, alone []item) {
	b := &batch{sender: s}
	b.take = func(key incidentKey, received time.Time) {
		if s.leavesOut(key) {
			s.alone.add(key, received)
		} else if it := s.encode(ctx, t, client, now, key, received); len(it.alerts) > 0 {
			b.items, b.size = append(b.items, it), b.size+it.size
		}
	}
	b.fits = func(incidents, bytes int) bool { return len(b.items) < incidents && b.size < bytes && ctx.Err() == nil }
	b.addOpen()
	if len(s.round) == 0 {
		b.addEnded()
	}
	for range maxAlone {
		key, received, ok := s.alone.next()
		if !ok {
			break
		}
		if it := s.encode(ctx, t, client, now, key, received); len(it.alerts) > 0 {
			alone = append(alone, it)
		}
	}
	return b.items, alone
}

// addOpen adds the open Incidents that changed, and then those of the round.
func (b *batch) addOpen() {
	for b.fits(changedIncidents, changedBytes) {
		key, received, ok := b.queue.next()
		if !ok {
			break
		}
		if b.term.index.isOpen(key) {
			b.take(key, received)
		} else {
			b.ended.add(key, received)
		}
	}
	for b.fits(batchIncidents, batchBytes) && len(b.round) > 0 {
		key := b.round[0]
		b.round = b.round[1:]
		b.take(key, time.Time{})
	}
}

// addEnded adds those that are not open, for a while.
func (b *batch) addEnded() {
	for began := time.Now(); b.fits(batchIncidents, batchBytes) && time.Since(began) < endedTime; {
		key, received, ok := b.ended.next()
		if !ok {
			return
		}
		if !b.term.isAtHand(key) {
			b.ended.add(key, received)
			return
		}
		b.take(key, received)
	}
}

// encode returns the alerts of an Incident; none if there is nothing to post about it.
func (s *sender) encode(
	ctx context.Context, t *target, client *httpClient, now time.Time, key incidentKey, received time.Time,
) item {
	it := item{key: key, received: received}
	incident, integration, err := s.term.incident(ctx, key)
	if err != nil { // the next round tries again
		s.log.Error(err, "Incident cannot be posted", "namespace", key.namespace, "incident", key.name)
		return it
	}
	var sets []set
	// Without the integration, a set that fires is neither renewed nor ended, so nothing changes if the integration is created
	// again within the expiry; otherwise the set ends with it.
	if integration != nil || incident == nil || incident.Status.State != v1alpha1.IncidentOpen {
		mute := mutedBy(incident, integration, s.term.forwarder.Windows.Of(integration), now)
		wanted := want(incident, integration, mute, t, now)
		s.recall(ctx, client, key, mute, wanted, t.config)
		sets = s.memory.update(key, wanted, mute != nil, t.config.endedWindow(), now)
	}
	if len(sets) == 0 {
		s.include(key, "")
	} else if sets[0].fires() {
		it.severity = sets[0].severity
	}
	for _, alert := range alertsOf(key, incident, sets, t.config, now, s.clockAhead()) {
		encoded, _ := json.Marshal(alert) // strings and times always encode
		it.alerts, it.size = append(it.alerts, encoded), it.size+len(encoded)
	}
	return it
}

// putBack puts Incidents whose request failed back in the queue.
func (s *sender) putBack(items []item) {
	for _, it := range items {
		s.queue.add(it.key, it.received)
	}
}

// setFailed notes that Alertmanager accepted nothing.
func (s *sender) setFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = time.Now()
	s.failing = cmp.Or(s.failing, s.failed)
	s.failure.see(err, s.failed)
}

// causes returns why Alertmanager accepts nothing, and why it does not accept the alerts of some Incidents.
func (s *sender) causes() (failure, rejection string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failure, rejection = s.failure.text, s.rejection.text
	if !s.failed.After(s.succeeded) {
		failure = rejection // it accepts empty requests
	}
	return failure, rejection
}

// health tells whether the Alertmanager accepts alerts. It is not known until the first request has been accepted or requests
// have failed for failingAfter. One that accepts only empty requests fails as well, see post.
func (s *sender) health(now time.Time) (healthy, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.began
	if !s.succeeded.IsZero() {
		since = s.succeeded
	}
	failing := s.failed.After(s.succeeded) && now.Sub(since) >= failingAfter ||
		len(s.leftOut) > 0 && now.Sub(since) >= failingAfter+maxRoundInterval
	return !failing, failing || !s.succeeded.IsZero()
}

// forgetMetrics removes the series of an address that is no longer used, or of a leader whose term has ended.
func (s *sender) forgetMetrics() {
	labels := prometheus.Labels{"alertmanager": s.name, "address": s.address}
	lastSuccess.DeletePartialMatch(labels)
	clockAhead.DeletePartialMatch(labels)
	alertsTotal.DeletePartialMatch(labels)
}

func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: minBackoff, Factor: 2, Jitter: 0.2, Steps: 10, Cap: maxBackoff}
}

// signal wakes one goroutine that sleeps, or that is going to.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) give() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// sleep waits for a time, for ctx, or for a signal.
func sleep(ctx context.Context, d time.Duration, signal signal) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-signal:
	}
}
