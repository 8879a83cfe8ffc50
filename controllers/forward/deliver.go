package forward

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

var (
	errNoClient = errors.New("http_config cannot be used")
	errNoClock  = errors.New("the API server's time is not known, or the lease has run out")
)

// deliver posts Incidents, or an empty list if there are none: all in one request, and then those that were left out before. It
// fails if Alertmanager accepts nothing at all.
func (s *sender) deliver(ctx context.Context, client *httpClient, items, alone []item) error {
	deadline := time.Now().Add(isolationTime)
	if len(items) > 0 || len(alone) == 0 {
		if err := s.post(ctx, client, items, requestTimeout, deadline); err != nil {
			return err
		}
	}
	for i := range alone {
		if time.Now().After(deadline) {
			s.putBack(alone[i:])
			break
		}
		if err := s.post(ctx, client, alone[i:i+1], requestTimeout, deadline); err != nil {
			return err
		}
	}
	return nil
}

// post posts Incidents in one request, or if that fails, in smaller ones, down to those that are the cause. What the failure
// looks like does not matter, since a proxy may answer an alert that it dislikes with anything. The cause is in the alerts if
// Alertmanager accepts an empty list; that does not count as a success, because alerts are what it has to accept. After the
// deadline, all that are left may be the cause: they are posted alone later, so that those of others do not expire.
func (s *sender) post(ctx context.Context, client *httpClient, items []item, timeout time.Duration, deadline time.Time) error {
	cause := s.request(ctx, client, items, timeout)
	if cause == nil {
		s.accepted(items)
		return nil
	}
	if len(items) == 0 {
		return cause
	}
	if err := s.request(ctx, client, nil, requestTimeout); err != nil {
		return err
	}
	if len(items) == 1 || time.Now().After(deadline) {
		for _, it := range items {
			s.leaveOut(it, cause)
		}
		return nil
	}
	half := len(items) / 2
	for _, part := range [][]item{items[:half], items[half:]} {
		// A part does not wait long for an answer: others wait for it.
		if err := s.post(ctx, client, part, partTimeout, deadline); err != nil {
			return err
		}
	}
	return nil
}

func (s *sender) request(ctx context.Context, client *httpClient, items []item, timeout time.Duration) error {
	alerts := []json.RawMessage{}
	for _, it := range items {
		alerts = append(alerts, it.alerts...)
	}
	sent, ok := s.term.clock()
	err := errNoClient
	switch {
	case !ok: // also a process that was frozen since it looked last
		err = errNoClock
	case client != nil:
		var told time.Time
		told, err = client.send(ctx, timeout, http.MethodPost, "alerts", nil, alerts, nil)
		s.compareClocks(told, sent)
	}
	if err != nil {
		alertsTotal.WithLabelValues(s.name, s.address, resultFailed).Add(float64(len(alerts)))
		return err
	}
	alertsTotal.WithLabelValues(s.name, s.address, resultSent).Add(float64(len(alerts)))
	now, _ := s.term.clock()
	for _, it := range items {
		if !it.received.IsZero() {
			latency.Observe(max(0, now.Sub(it.received).Seconds()))
		}
	}
	return nil
}

// accepted notes that Alertmanager has accepted a request with these Incidents, or an empty one.
func (s *sender) accepted(items []item) {
	now := time.Now()
	lastSuccess.WithLabelValues(s.name, s.address).Set(float64(now.Unix()))
	for _, it := range items {
		s.include(it.key, it.severity)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.succeeded, s.failing = now, time.Time{}
}

// leaveOut notes that Alertmanager does not accept the alerts of an Incident. They are posted alone, first after short delays and
// then in every round.
func (s *sender) leaveOut(it item, cause error) {
	alertsTotal.WithLabelValues(s.name, s.address, resultRejected).Add(float64(len(it.alerts)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejection.see(cause, time.Now())
	since, known := s.leftOut[it.key]
	if !known {
		since = time.Now()
		s.leftOut[it.key] = since
		s.log.Error(cause, "Alertmanager does not accept the alerts of an Incident",
			"namespace", it.key.namespace, "incident", it.key.name)
	}
	if failing := time.Since(since); failing < maxRoundInterval { // each delay doubles that
		time.AfterFunc(max(minBackoff, failing), func() { s.queue.add(it.key, it.received) })
	}
}

// include notes that there is nothing of an Incident to leave out, and the severity with which it fires in the Alertmanager,
// empty if it does not.
func (s *sender) include(key incidentKey, severity v1alpha1.Severity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leftOut, key)
	if severity == "" {
		delete(s.told, key)
		return
	}
	if s.told[key] != severity {
		s.told[key] = severity
		s.term.unreported.add(key, time.Time{})
	}
}

func (s *sender) leavesOut(key incidentKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.leftOut[key].IsZero()
}

// leavesOutOf reports whether Alertmanager has not accepted the alerts of some Incidents of an integration for failingAfter.
func (s *sender) leavesOutOf(integration incidentKey, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, since := range s.leftOut {
		known, _, _ := s.term.index.get(key)
		if integration == (incidentKey{key.namespace, known.integration}) && now.Sub(since) >= failingAfter {
			return true
		}
	}
	return false
}

// leadOf returns how far a clock is ahead that showed a time, cut to seconds, at some moment between sent and received. It
// returns the smallest difference that is possible.
func leadOf(told, sent, received time.Time) time.Duration {
	switch {
	case told.After(received):
		return told.Sub(received)
	case sent.Sub(told) > time.Second:
		return told.Add(time.Second).Sub(sent)
	default:
		return 0
	}
}

// compareClocks notes how far the Alertmanager's clock is ahead of the API server's, by the time that an answer told.
func (s *sender) compareClocks(told, sent time.Time) {
	received, ok := s.term.clock()
	if told.IsZero() || !ok {
		return
	}
	ahead := leadOf(told, sent, received)
	before := time.Duration(s.ahead.Swap(int64(ahead)))
	clockAhead.WithLabelValues(s.name, s.address).Set(ahead.Seconds())
	switch wrong := isWrong(ahead); {
	case wrong == isWrong(before):
	case wrong:
		s.log.Error(nil, "The clock of Alertmanager differs from the API server's; alerts fire by the later one",
			"aheadSeconds", ahead.Seconds())
	default:
		s.log.Info("The clock of Alertmanager agrees with the API server's again")
	}
}

// clockAhead returns how far the Alertmanager's clock is ahead of the API server's.
func (s *sender) clockAhead() time.Duration { return time.Duration(s.ahead.Load()) }

// isWrong reports whether clocks differ by more than clocks may.
func isWrong(ahead time.Duration) bool { return ahead.Abs() > fold.MaxClockDifference }
