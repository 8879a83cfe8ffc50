package forward

import (
	"bytes"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// leftOut is an Incident whose alerts Alertmanager, or a proxy in front of it, does not accept though it accepts requests. They
// are posted alone, first after short delays and then at every sweep.
type leftOut struct {
	integration string
	since       time.Time
	delays      *wait.Backoff
	waiting     bool // in the list alone of the sender
}

// deliver posts Incidents, or an empty list if there are none: all in one request, and then those that were left out before. It
// fails if Alertmanager accepts nothing at all.
func (s *sender) deliver(ctx context.Context, client *httpClient, items []item) error {
	deadline := time.Now().Add(isolationTime)
	first := slices.IndexFunc(items, func(it item) bool { return it.alone })
	if first < 0 {
		first = len(items)
	}
	if together := items[:first]; first > 0 || len(items) == 0 {
		err := s.post(ctx, client, together)
		switch {
		case err == nil:
			s.accepted(together)
		case len(together) == 0:
			return err
		default:
			if err := s.isolate(ctx, client, together, err, deadline); err != nil {
				return err
			}
		}
	}
	for i := first; i < len(items); i++ {
		if time.Now().After(deadline) {
			s.putBack(items[i:])
			break
		}
		if err := s.postPart(ctx, client, items[i:i+1], requestTimeout, deadline); err != nil {
			return err
		}
	}
	return nil
}

// isolate posts Incidents whose request failed in smaller requests, down to those that are the cause. What the failure looks
// like does not matter, since a proxy may answer an alert that it dislikes with anything. The cause is in the alerts if
// Alertmanager accepts an empty list; that does not count as a success, because alerts are what it has to accept. After the
// deadline, all that are left may be the cause: they are posted alone later, so that the leases of others do not end.
func (s *sender) isolate(ctx context.Context, client *httpClient, items []item, cause error, deadline time.Time) error {
	if err := s.post(ctx, client, nil); err != nil {
		return err
	}
	if len(items) == 1 || time.Now().After(deadline) {
		for _, it := range items {
			s.leaveOut(ctx, it, cause)
		}
		return nil
	}
	half := len(items) / 2
	for _, part := range [][]item{items[:half], items[half:]} {
		if err := s.postPart(ctx, client, part, partTimeout, deadline); err != nil {
			return err
		}
	}
	return nil
}

// postPart posts a part of the Incidents. Those that were not posted alone yet do not wait long for an answer: others wait for
// them.
func (s *sender) postPart(
	ctx context.Context, client *httpClient, part []item, timeout time.Duration, deadline time.Time,
) error {
	short, cancel := context.WithTimeout(ctx, timeout)
	err := s.post(short, client, part)
	cancel()
	if err != nil {
		return s.isolate(ctx, client, part, err, deadline)
	}
	s.accepted(part)
	return nil
}

// accepted notes that Alertmanager has accepted a request with these Incidents, or an empty one.
func (s *sender) accepted(items []item) {
	now := time.Now()
	lastSuccess.WithLabelValues(s.name, s.address).Set(float64(now.Unix()))
	for _, it := range items {
		s.include(it.key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.succeeded = now
}

// leaveOut notes that Alertmanager does not accept the alerts of an Incident.
func (s *sender) leaveOut(ctx context.Context, it item, cause error) {
	alertsTotal.WithLabelValues(s.name, s.address, resultRejected).Add(float64(it.alerts))
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leftOut[it.key]
	if l == nil {
		l = &leftOut{integration: it.integration, since: time.Now(), delays: newBackoff()}
		s.leftOut[it.key] = l
		s.log.Error(cause, "Alertmanager does not accept the alerts of an Incident",
			"namespace", it.key.namespace, "incident", it.key.name)
	}
	if delay := l.delays.Step(); l.delays.Steps > 0 && ctx.Err() == nil {
		time.AfterFunc(delay, func() { s.queue.add(it.key, it.received) })
	}
}

// include notes that there is nothing of an Incident to leave out.
func (s *sender) include(key incidentKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leftOut, key)
}

// postpone has an Incident that was left out posted alone, and reports whether it was.
func (s *sender) postpone(it item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leftOut[it.key]
	if l != nil && !l.waiting {
		l.waiting = true
		s.alone = append(s.alone, it)
	}
	return l != nil
}

// nextAlone takes the next Incident to post alone.
func (s *sender) nextAlone() (it item, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.alone) == 0 {
		return item{}, false
	}
	it, s.alone = s.alone[0], s.alone[1:]
	if l := s.leftOut[it.key]; l != nil {
		it.alone, l.waiting = true, false
	}
	return it, true
}

// leavesOut reports whether Alertmanager has not accepted the alerts of some Incidents of an integration for failingAfter.
func (s *sender) leavesOut(integration incidentKey, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, l := range s.leftOut {
		if key.namespace == integration.namespace && l.integration == integration.name && now.Sub(l.since) >= failingAfter {
			return true
		}
	}
	return false
}

// post posts the alerts of Incidents in one request.
func (s *sender) post(ctx context.Context, client *httpClient, items []item) error {
	bodies, alerts := make([][]byte, len(items)), 0
	for i, it := range items {
		bodies[i] = it.body
		alerts += it.alerts
	}
	body := append(append([]byte{'['}, bytes.Join(bodies, []byte{','})...), ']')
	err := errNoClient
	if client != nil {
		var told time.Time
		sent, _ := s.clock()
		told, err = client.postAlerts(ctx, body)
		s.compareClocks(told, sent)
	}
	if err != nil {
		alertsTotal.WithLabelValues(s.name, s.address, resultFailed).Add(float64(alerts))
		return err
	}
	alertsTotal.WithLabelValues(s.name, s.address, resultSent).Add(float64(alerts))
	s.observeLatency(items)
	return nil
}
