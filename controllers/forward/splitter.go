package forward

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
)

var errNoClock = errors.New("the API server's time is not known, or the lease has run out")

// splitter posts Incidents.
type splitter struct {
	clock    clock
	skew     *skew
	record   *record
	metrics  addressMetrics
	log      logr.Logger
	accepted func(types.NamespacedName)            // is called when an Incident fires with another severity than before
	retry    func(types.NamespacedName, time.Time) // has an Incident posted again
}

// post posts Incidents in one request, or an empty list if there are none. It fails if Alertmanager accepts nothing at all.
//
// If the request fails, it posts them in smaller ones, down to those that are the cause. What the failure looks like does not
// matter, since a proxy may answer an alert that it dislikes with anything. The cause is in the alerts if Alertmanager accepts an
// empty list; that does not count as a success, because alerts are what it has to accept. After the deadline, all that are left
// may be the cause: they are posted alone later, so that those of others do not expire.
func (s *splitter) post(ctx context.Context, at occasion, posts []*post, timeout time.Duration) error {
	cause := s.request(ctx, at, posts, timeout)
	if cause == nil {
		s.accept(posts)
		return nil
	}
	if len(posts) == 0 {
		return cause
	}
	if err := s.request(ctx, at, nil, alertmanager.RequestTimeout); err != nil {
		return err
	}
	if len(posts) == 1 || time.Now().After(at.deadline) {
		for _, p := range posts {
			s.reject(p, cause)
		}
		return nil
	}
	half := len(posts) / 2
	for _, part := range [][]*post{posts[:half], posts[half:]} {
		// A part does not wait long for an answer: others wait for it.
		if err := s.post(ctx, at, part, partTimeout); err != nil {
			return err
		}
	}
	return nil
}

func (s *splitter) request(ctx context.Context, at occasion, posts []*post, timeout time.Duration) error {
	alerts := []json.RawMessage{}
	for _, p := range posts {
		alerts = append(alerts, p.alerts...)
	}
	sent, ok := s.clock()
	err := errNoClock
	if ok { // else the process was frozen since it looked last
		var date time.Time
		date, err = at.client.PostAlerts(ctx, alerts, timeout)
		if received, ok := s.clock(); ok && !date.IsZero() {
			s.skew.compare(date, sent, received)
		}
	}
	if err != nil {
		s.metrics.count(resultFailed, len(alerts))
		return err
	}
	s.metrics.count(resultSent, len(alerts))
	now, _ := s.clock()
	for _, p := range posts {
		if !p.received.IsZero() {
			latency.Observe(max(0, now.Sub(p.received).Seconds()))
		}
	}
	return nil
}

// accept records that Alertmanager has accepted a request with these Incidents, or an empty one.
func (s *splitter) accept(posts []*post) {
	s.metrics.succeeded(time.Now())
	for _, p := range posts {
		if s.record.accept(p.key, p.wanted.Firing(), p.opened) {
			s.accepted(p.key)
		}
	}
	s.record.succeed()
}

// reject records that Alertmanager does not accept the alerts of an Incident. They are posted alone, first after short delays and
// then in every round.
func (s *splitter) reject(p *post, cause error) {
	s.metrics.count(resultRejected, len(p.alerts))
	since, isFirst := s.record.reject(p.key, cause)
	if isFirst {
		s.log.Error(cause, "Alertmanager does not accept the alerts of an Incident",
			"namespace", p.key.Namespace, "incident", p.key.Name)
	}
	if failing := time.Since(since); failing < retryWindow { // each delay doubles that
		time.AfterFunc(max(minBackoff, failing), func() { s.retry(p.key, p.received) })
	}
}
