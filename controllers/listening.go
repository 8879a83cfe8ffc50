package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// Listening knows since when this process has been able to store alerts without a break, and how far its clock differs
// from the API server's. An Incident is silent only while Tocsin listens: alerts that senders could not deliver are no silence.
//
// There is one for each process. Every replica keeps it, so that a follower which becomes the leader knows its own past.
// It depends on two things: the API server would store an alert (see Start), and no alert was refused for a reason of
// Tocsin's or the API server's (see Refused). The time of the API server is known from any answer.
type Listening struct {
	clock  Clock
	prober *prober

	mu       sync.Mutex
	since    time.Time            // of the first answer in a row without a gap that said that alerts can be stored
	last     time.Time            // of the newest such answer
	told     time.Time            // of the newest answer that told the time
	ahead    time.Duration        // of the own clock before the API server's, at last
	wrong    bool                 // that it is too much was said
	refusals map[string]*refusals // by namespace
}

// refusals knows the newest refusals in a namespace.
type refusals struct {
	all          time.Time            // none of its integrations was listened to before
	integrations map[string]time.Time // by name
}

// newListening makes one without a probe.
func newListening(clock Clock) *Listening {
	return &Listening{clock: clock, refusals: map[string]*refusals{}}
}

// Refused notes that an alert of the integration was not stored though there was nothing wrong with it: because the
// API server was away or full, or a limit was reached. It concerns the Incidents of that integration only; no tenant
// defers what another one asked for.
func (l *Listening) Refused(integration types.NamespacedName) {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.refusals[integration.Namespace]
	if own == nil {
		if len(l.refusals) >= maxRefusingNamespaces {
			l.since = now // tenants cannot create that many
			clear(l.refusals)
		}
		own = &refusals{integrations: map[string]time.Time{}}
		l.refusals[integration.Namespace] = own
	}
	if _, known := own.integrations[integration.Name]; !known && len(own.integrations) >= maxRefusals {
		own.all = now // too many integrations to remember: none of the namespace has been listened to
		clear(own.integrations)
	}
	own.integrations[integration.Name] = now
}

// silentFrom is when the silence of the integration's Incidents begins at the earliest. It is not ok while nothing may
// end for its age: the API server does not answer, or the clock is wrong.
func (l *Listening) silentFrom(integration types.NamespacedName, now time.Time) (from time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.IsZero() || passed(l.last, now) > maxProbeGap || l.aheadAt(now).Abs() > fold.MaxClockDifference {
		return time.Time{}, false
	}
	from = l.since
	if own := l.refusals[integration.Namespace]; own != nil {
		for _, refused := range []time.Time{own.all, own.integrations[integration.Name]} {
			if refused.After(from) {
				from = refused
			}
		}
	}
	return from.Add(autoResolveGrace), true
}

// ClockLead returns how far the process's clock is ahead of the API server's (negative: behind), and zero while the two
// differ by no more than clocks may.
func (l *Listening) ClockLead() time.Duration {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if ahead := l.aheadAt(now); !l.told.IsZero() && ahead.Abs() > fold.MaxClockDifference {
		return ahead
	}
	return 0
}

// Now returns the time by the API server's clock, to about a second. It is not ok until the API server has answered once.
func (l *Listening) Now() (now time.Time, ok bool) {
	now = l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told.IsZero() {
		return time.Time{}, false
	}
	return now.Add(-l.aheadAt(now)), true
}

// aheadAt is how far the clock is ahead of the API server's. A clock that was set since the last answer shows: the time
// that has passed by it is another than that of the monotonic clock.
func (l *Listening) aheadAt(now time.Time) time.Duration {
	return l.ahead + now.Round(0).Sub(l.told.Round(0)) - now.Sub(l.told)
}

// answered notes an answer of the API server to a request sent and answered at these times: alerts can be stored.
func (l *Listening) answered(sent, received, server time.Time) (ahead time.Duration, wrong, changed bool) {
	l.mu.Lock()
	if l.last.IsZero() || passed(l.last, received) > maxProbeGap {
		l.since = received
	}
	l.last = received
	l.mu.Unlock()
	return l.tell(sent, received, server)
}

// tell notes the time that the API server told in an answer, also if it refused the request; it is cut to seconds. tell returns
// whether the clock is wrong, and whether it was not before, or the other way round.
func (l *Listening) tell(sent, received, server time.Time) (ahead time.Duration, wrong, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = received
	// The server's clock showed a time from server to a second later at some moment between sent and received.
	switch {
	case sent.Sub(server) > time.Second:
		l.ahead = sent.Round(0).Sub(server) - time.Second
	case server.After(received):
		l.ahead = received.Round(0).Sub(server)
	default:
		l.ahead = 0
	}
	wrong = l.ahead.Abs() > fold.MaxClockDifference
	changed = wrong != l.wrong
	l.wrong = wrong
	return l.ahead, wrong, changed
}

// passed returns how much time has passed by the clock that shows more. The monotonic clock stands still while a virtual machine
// is suspended, and the wall clock may be set back.
func passed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
