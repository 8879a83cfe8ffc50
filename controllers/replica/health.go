package replica

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/controllers/fold"
)

const (
	// maxGap is how long the API server may give no answer to a canary: after that, the time before does not count any more. Ingest
	// itself tries for 5 s to store an alert.
	maxGap = 15 * time.Second

	// Grace is added to autoResolveAfter when senders could not deliver: they wait between their attempts, and
	// many of them come at once.
	Grace = time.Minute

	// maxMissed bounds the integrations of a namespace whose newest missed alert is remembered, and maxMissingNamespaces the
	// namespaces.
	maxMissed            = 1000
	maxMissingNamespaces = 10_000
)

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// APIClock tells the time by the API server's clock. It is an *IngestHealth outside of tests.
type APIClock interface {
	APITime() time.Time
}

// Health is an *IngestHealth outside of tests.
type Health interface {
	APIClock
	QuietFrom(integration types.NamespacedName, unavailable time.Time) (from time.Time, ok bool)
}

// IngestHealth knows since when this process has been able to store alerts without a break, and the time by the API server's
// clock. An Incident is quiet only as long as its alerts could be stored: those that senders could not deliver
// tell of no quiet.
//
// There is one for each process. Every replica keeps it, so that a follower which becomes the leader knows its own past.
// It depends on two things: the API server stores a canary (see Canary), and no replica missed an alert for a reason of
// Tocsin's or the API server's (see Missed; the other replicas report theirs in the status of the integration). The time of the
// API server is known from any answer.
type IngestHealth struct {
	clock Clock

	mu     sync.Mutex
	since  time.Time          // of the first answer in a row without a gap that said that alerts can be stored
	last   time.Time          // of the newest such answer
	told   time.Time          // of the newest answer that told the time
	ahead  time.Duration      // of the own clock before the API server's, at last
	wrong  bool               // that it is too much was said
	missed map[string]*missed // by namespace
}

// missed knows the newest missed in a namespace.
type missed struct {
	all          time.Time            // until then, all of its integrations count as unavailable
	integrations map[string]time.Time // by name
}

// NewIngestHealth returns an IngestHealth that has heard nothing of the API server yet.
func NewIngestHealth(clock Clock) *IngestHealth {
	return &IngestHealth{clock: clock, missed: map[string]*missed{}}
}

// Missed notes that an alert of the integration was not stored though there was nothing wrong with it: because the
// API server was away or full, or a limit was reached. It concerns the Incidents of that integration only; no tenant
// defers what another one asked for.
func (h *IngestHealth) Missed(integration types.NamespacedName) {
	now := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	own := h.missed[integration.Namespace]
	if own == nil {
		if len(h.missed) >= maxMissingNamespaces {
			h.since = now // tenants cannot create that many
			clear(h.missed)
		}
		own = &missed{integrations: map[string]time.Time{}}
		h.missed[integration.Namespace] = own
	}
	if _, known := own.integrations[integration.Name]; !known && len(own.integrations) >= maxMissed {
		own.all = now // too many integrations to remember: none of the namespace has been listened to
		clear(own.integrations)
	}
	own.integrations[integration.Name] = now
}

// QuietFrom is when the quiet of the integration's Incidents and heartbeats begins at the earliest. unavailable is when a replica
// last reported a missed alert, zero if none did. All times are by the API server's clock. It is not ok while nothing may end for
// its age: the API server does not answer, or the own clock was set since the last answer, and nobody knows which of the two was.
func (h *IngestHealth) QuietFrom(integration types.NamespacedName, unavailable time.Time) (from time.Time, ok bool) {
	now := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	wasSet := (h.aheadAt(now) - h.ahead).Abs() > fold.MaxClockDifference
	if h.last.IsZero() || passed(h.last, now) > maxGap || wasSet {
		return time.Time{}, false
	}
	from = fold.Latest(h.timeOf(h.since, now), fold.Earliest(unavailable, h.timeOf(now, now)))
	if own := h.missed[integration.Namespace]; own != nil {
		from = fold.Latest(from, h.timeOf(own.all, now), h.timeOf(own.integrations[integration.Name], now))
	}
	return from.Add(Grace), true
}

// Now returns the time by the API server's clock, to about a second. It is not ok until the API server has answered once.
// It has no reading of the monotonic clock, which would be wrong by as much as the own clock and win every comparison.
func (h *IngestHealth) Now() (now time.Time, ok bool) {
	now = h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told.IsZero() {
		return time.Time{}, false
	}
	return h.timeOf(now, now), true
}

// timeOf returns what the API server's clock showed at a time of the own one: a time in the past was as long ago as the monotonic
// clock says. The result has no reading of it.
func (h *IngestHealth) timeOf(then, now time.Time) time.Time {
	if then.IsZero() {
		return then
	}
	return now.Round(0).Add(then.Sub(now) - h.aheadAt(now))
}

// APITime is Now, or the time by the own clock until the API server has answered once.
func (h *IngestHealth) APITime() time.Time {
	if now, ok := h.Now(); ok {
		return now
	}
	return h.clock.Now().Round(0)
}

// aheadAt is how far the clock is ahead of the API server's. A clock that was set since the last answer shows: the time
// that has passed by it is another than that of the monotonic clock.
func (h *IngestHealth) aheadAt(now time.Time) time.Duration {
	return h.ahead + now.Round(0).Sub(h.told.Round(0)) - now.Sub(h.told)
}

// Answered notes an answer of the API server to a request sent and answered at these times: alerts can be stored.
func (h *IngestHealth) Answered(sent, received, server time.Time) (ahead time.Duration, wrong, changed bool) {
	h.mu.Lock()
	if h.last.IsZero() || passed(h.last, received) > maxGap {
		h.since = received
	}
	h.last = received
	h.mu.Unlock()
	return h.tell(sent, received, server)
}

// IsCutOff reports whether the API server has answered no canary for maxGap, and has answered before. This replica may not know
// what was created since.
func (h *IngestHealth) IsCutOff() bool {
	now := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.told.IsZero() && passed(h.told, now) > maxGap
}

// Interrupt notes that this process accepts no alerts for now. Quiet starts anew with the next answer.
func (h *IngestHealth) Interrupt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Time{}
}

// tell notes the time that the API server told in an answer, also if it missed the request; it is cut to seconds. tell returns
// whether the clock is wrong, and whether it was not before, or the other way round.
func (h *IngestHealth) tell(sent, received, server time.Time) (ahead time.Duration, wrong, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	expected, first := h.aheadAt(received), h.told.IsZero()
	h.told = received
	sent = received.Round(0).Add(sent.Sub(received)) // the clock may have been set meanwhile
	h.ahead = -fold.LeadOf(server, sent, received.Round(0))
	if !first && (h.ahead-expected).Abs() > fold.MaxClockDifference {
		h.since = received // the API server's clock was set: what was received before seems to be long ago
	}
	wrong = h.ahead.Abs() > fold.MaxClockDifference
	changed = wrong != h.wrong
	h.wrong = wrong
	return h.ahead, wrong, changed
}

// passed returns how much time has passed by the clock that shows more. The monotonic clock stands still while a virtual machine
// is suspended, and the wall clock may be set back.
func passed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
