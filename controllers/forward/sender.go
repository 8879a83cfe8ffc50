package forward

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// store is what a sender reads: the cache of the replica. The objects must not be modified.
type store interface {
	// incident returns an Incident and its integration, each nil if it does not exist. An Incident that was resolved long ago
	// may be nil as well.
	incident(ctx context.Context, key incidentKey) (*v1alpha1.Incident, *v1alpha1.WebhookIntegration, error)
	// active returns the names of the Incidents that are open or were resolved after a time.
	active(since time.Time) []incidentKey
	// silenced returns the names of the Incidents that silences concern: they are acknowledged, or have had a silence.
	silenced() []incidentKey
	// installation tells this Tocsin from others that share an Alertmanager. It has no spaces.
	installation(ctx context.Context) (string, error)
	// complete reports whether active and silenced know the Resolved Incidents.
	complete() bool
}

// clock returns the time by the API server's clock. It is not ok while that is unknown.
type clock func() (now time.Time, ok bool)

// sender posts alerts to one address of an Alertmanager. It depends on no other sender.
type sender struct {
	name, address string // of the Alertmanager, for metrics and logs
	store         store
	clock         clock
	log           logr.Logger
	queue         *queue
	memory        memory

	mu        sync.Mutex
	target    *target
	client    *httpClient
	began     time.Time
	succeeded time.Time     // when a request was last accepted; zero: never
	failed    time.Time     // when Alertmanager last accepted nothing; zero: never
	ahead     time.Duration // of the Alertmanager's clock before the API server's
	leftOut   map[incidentKey]*leftOut
	alone     []item // those of leftOut whose turn is to come
}

// item is one Incident in a request.
type item struct {
	key      incidentKey
	received time.Time // see waiting
	body     []byte    // the JSON of its alerts, separated by commas
	alerts   int
	alone    bool // to be posted alone, see leftOut
	// integration is that of the Incident; empty if it was deleted.
	integration string
}

func newSender(name, address string, store store, clock clock, log logr.Logger) *sender {
	s := &sender{
		name: name, address: address, store: store, clock: clock, queue: newQueue(), memory: memory{},
		leftOut: map[incidentKey]*leftOut{},
		log:     log.WithValues("alertmanager", name, "address", address), began: time.Now(),
	}
	lastSuccess.WithLabelValues(name, address).Set(float64(s.began.Unix()))
	return s
}

// configure sets the target and the client. A new target has everything posted at once.
func (s *sender) configure(t *target, client *httpClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.close()
	}
	s.target, s.client = t, client
	s.queue.signal.give()
}

func (s *sender) configured() (*target, *httpClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.target, s.client
}

// run posts until ctx ends.
func (s *sender) run(ctx context.Context) {
	defer s.forgetMetrics()
	var swept *target      // the target of the last sweep
	var due time.Time      // when the next sweep begins
	var lead time.Duration // that the last sweep took into account
	quiet := true          // nothing was accepted since the last sweep began
	failing, delays := s.greet(ctx), newBackoff()
	for ctx.Err() == nil {
		t, client := s.configured()
		now, ok := s.clock()
		if !ok {
			sleep(ctx, minBackoff, nil)
			continue
		}
		if (t != swept || !time.Now().Before(due)) && s.queue.startSweep(s.sweepKeys(now.Add(-t.config.endedWindow()))) {
			swept, due, quiet, lead = t, time.Now().Add(t.config.sweepInterval()), true, s.lead()
		}
		items := s.collect(ctx, t, now)
		if len(items) == 0 && !quiet {
			sleep(ctx, time.Until(due), s.queue.signal)
			continue
		}
		if err := s.deliver(ctx, client, items); err != nil {
			s.failedAt(ctx, time.Now())
			s.putBack(items)
			if !failing && ctx.Err() == nil {
				s.log.Error(err, "Alerts cannot be forwarded")
			}
			failing = true
			sleep(ctx, delays.Step(), nil)
			continue
		}
		quiet = false
		if isWrong(s.lead() - lead) {
			due = earlier(due, time.Now().Add(minBackoff)) // what was posted may have ended at once
		}
		if failing {
			s.log.Info("Alerts are forwarded again")
			failing, delays, due = false, newBackoff(), time.Time{} // Alertmanager may have lost what it had
		}
	}
}

// greet posts empty lists until one is accepted, whose answer tells the time: by a clock that is much later, what is to fire
// would end at once. It reports whether one has failed.
func (s *sender) greet(ctx context.Context) (failing bool) {
	for delays := newBackoff(); ctx.Err() == nil; {
		_, client := s.configured()
		if _, ok := s.clock(); !ok {
			sleep(ctx, minBackoff, nil)
			continue
		}
		err := s.deliver(ctx, client, nil)
		if err == nil {
			break
		}
		s.failedAt(ctx, time.Now())
		if !failing && ctx.Err() == nil {
			s.log.Error(err, "Alerts cannot be forwarded")
		}
		failing = true
		sleep(ctx, delays.Step(), nil)
	}
	return failing
}

// sweepKeys returns the Incidents to look at in a sweep: those that are open or were resolved after a time, and those of which
// this sender has posted alerts that it has to end, or has left some out.
func (s *sender) sweepKeys(since time.Time) []incidentKey {
	keys := s.store.active(since)
	included := make(map[incidentKey]struct{}, len(keys))
	for _, key := range keys {
		included[key] = struct{}{}
	}
	s.mu.Lock()
	others := slices.Collect(maps.Keys(s.leftOut))
	s.mu.Unlock()
	for _, key := range slices.AppendSeq(others, maps.Keys(s.memory)) {
		if _, ok := included[key]; !ok {
			included[key] = struct{}{}
			keys = append(keys, key)
		}
	}
	return keys
}

// collect takes as many Incidents from the queue as fit in one request. It returns none if the queue has nothing to post.
func (s *sender) collect(ctx context.Context, t *target, now time.Time) []item {
	var items []item
	size := 0
	take := func(it item) {
		if !it.alone && s.postpone(it) {
			return
		}
		switch err := s.encode(ctx, t, now, &it); {
		case err != nil:
			s.log.Error(err, "Incident cannot be posted", "namespace", it.key.namespace, "incident", it.key.name)
		case it.alerts > 0:
			items, size = append(items, it), size+len(it.body)
		default:
			s.include(it.key)
		}
	}
	fits := func(incidents, bytes int) bool { return len(items) < incidents && size < bytes && ctx.Err() == nil }
	for fits(changedIncidents, changedBytes) {
		key, received, ok := s.queue.nextChanged()
		if !ok {
			break
		}
		take(item{key: key, received: received})
	}
	for fits(batchIncidents, batchBytes) {
		key, ok := s.queue.nextSwept()
		if !ok {
			break
		}
		take(item{key: key})
	}
	for range maxAlone {
		it, ok := s.nextAlone()
		if !ok {
			break
		}
		take(it)
	}
	return items
}

// encode fills in the alerts of an item; none if there is nothing to post about its Incident.
func (s *sender) encode(ctx context.Context, t *target, now time.Time, it *item) error {
	incident, integration, err := s.store.incident(ctx, it.key)
	if err != nil {
		return err // the next sweep tries again
	}
	if incident != nil {
		it.integration = incident.Spec.IntegrationName
	}
	w := s.memory.update(it.key, want(incident, integration, t, now), t.config.endedWindow(), now)
	alerts := alertsOf(it.key, incident, w, t.config.Lease, momentOf(now, s.lead()))
	if len(alerts) == 0 {
		return nil
	}
	body, err := json.Marshal(alerts)
	if err != nil {
		return err
	}
	it.body, it.alerts = body[1:len(body)-1], len(alerts)
	return nil
}

// putBack puts Incidents whose request failed back in the queue.
func (s *sender) putBack(items []item) {
	for _, it := range items {
		s.queue.add(it.key, it.received)
	}
}

// errNoClient says that the HTTP client could not be made, for instance because a file of http_config is missing.
var errNoClient = errors.New("http_config cannot be used")

func (s *sender) observeLatency(items []item) {
	now, _ := s.clock()
	for _, it := range items {
		if !it.received.IsZero() {
			latency.Observe(max(0, now.Sub(it.received).Seconds()))
		}
	}
}

// failedAt notes that Alertmanager accepted nothing, unless that is because ctx has ended.
func (s *sender) failedAt(ctx context.Context, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.failed = now
	}
}

// health tells whether the Alertmanager accepts alerts. It is not known until the first request has been accepted or requests
// have failed for failingAfter. One that accepts only empty requests fails as well, see isolate.
func (s *sender) health(now time.Time) (healthy, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.began
	if !s.succeeded.IsZero() {
		since = s.succeeded
	}
	failing := s.failed.After(s.succeeded) && now.Sub(since) >= failingAfter ||
		len(s.leftOut) > 0 && now.Sub(since) >= failingAfter+maxSweepInterval
	return !failing, failing || !s.succeeded.IsZero()
}

// forgetMetrics removes the series of an address that is no longer used, or of a leader whose term has ended.
func (s *sender) forgetMetrics() {
	lastSuccess.DeleteLabelValues(s.name, s.address)
	clockAhead.DeleteLabelValues(s.name, s.address)
	for _, result := range []string{resultSent, resultFailed, resultRejected} {
		alertsTotal.DeleteLabelValues(s.name, s.address, result)
	}
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-signal:
	}
}
