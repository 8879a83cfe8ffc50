package forward

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
)

// poster posts alerts to one address of an Alertmanager. It depends on no other poster.
type poster struct {
	address   string
	log       logr.Logger
	metrics   addressMetrics
	clock     clock
	dialer    alertmanager.Dialer
	incidents *incidents
	mutings   Mutings
	schedule  *schedule
	record    *record
	skew      *skew
	refolder  *refolder
	took      time.Duration // by the last request that was accepted

	// knowsFormer says that the posts of earlier leaders were read, or could not be for long, see postMuted.
	knowsFormer atomic.Bool

	configured atomic.Pointer[requestParams] // its target and client
}

func newPoster(t *term, name, address string) *poster {
	p := &poster{
		address: address, log: t.forwarder.log.WithValues("alertmanager", name, "address", address),
		metrics: addressMetrics{name, address}, clock: t.clock, dialer: t.forwarder.Dialer,
		record:    &record{began: time.Now(), incidents: map[types.NamespacedName]*postedState{}},
		incidents: t.incidents, mutings: t.forwarder.Mutings, refolder: t.refolder,
	}
	p.configured.Store(&requestParams{})
	p.metrics.succeeded(time.Now())
	p.schedule = newSchedule(t.incidents, p.record)
	p.skew = &skew{metrics: p.metrics, log: p.log}
	return p
}

// configure sets the target, and makes a client unless there is one for it. A new target has everything posted at once.
func (p *poster) configure(t *config.Target) {
	before := p.configured.Load()
	if before.target == t && before.client != nil {
		return
	}
	client, err := t.NewClient(p.address, p.dialer)
	if err != nil {
		p.log.Error(err, "Alertmanager cannot be configured")
	}
	before.client.Close()
	p.configured.Store(&requestParams{target: t, client: client})
	p.schedule.changed.signal.give()
}

// requestParams returns those of the next request. It is not ok while nothing may be posted.
func (p *poster) requestParams() (params requestParams, ok bool) {
	params = *p.configured.Load()
	params.ahead = p.skew.get()
	params.now, ok = p.clock()
	return params, ok
}

// run posts until ctx ends. Its first request, and that after a failure, only asks for Alertmanager's clock, so that firing
// alerts do not arrive already ended. It is empty, so an answer to it proves nothing about alerts.
func (p *poster) run(ctx context.Context) {
	defer p.metrics.remove()
	var round requestParams // with which the last round began
	var due time.Time       // when the next one begins
	var logged time.Time    // when the failure was last logged; zero while nothing fails
	probe := true           // post even an empty request: nothing was accepted since the last round began
	var pause time.Duration // after a request for the clock: a proxy may limit the rate
	knowsClock, delays := false, newBackoff()
	var running sync.WaitGroup
	learn := sync.OnceFunc(func() { p.learnFormer(ctx, &running) })
	defer running.Wait()
	for ctx.Err() == nil {
		params, ok := p.requestParams()
		if !ok {
			sleep(ctx, minBackoff, nil)
			continue
		}
		var err error
		b := &batch{}
		if !knowsClock {
			err = p.request(ctx, params, nil, alertmanager.RequestTimeout)
		} else {
			isDue := params.target != round.target || !time.Now().Before(due)
			if isDue && p.schedule.beginRound(params.now.Add(-params.target.EndedWindow())) {
				round, due, probe = params, time.Now().Add(params.target.RoundInterval()), true
			}
			b = p.next(ctx, params)
			if len(b.posts)+len(b.alone) == 0 && !probe {
				p.schedule.wait(ctx, due)
				continue
			}
			err = p.deliver(ctx, params, b)
		}
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			p.schedule.putBack(slices.Concat(b.posts, b.alone))
			knowsClock, probe, pause = false, true, minBackoff // an Alertmanager that was away may be another one
			if p.record.fail(err); time.Since(logged) >= logInterval {
				p.log.Error(err, "Alerts cannot be forwarded")
				logged = time.Now()
			}
			sleep(ctx, delays.Step(), nil)
			continue
		}
		if !knowsClock {
			knowsClock = true
			learn()
			sleep(ctx, pause, nil)
			continue
		}
		probe = false
		if isWrong(p.skew.get() - round.ahead) {
			due = fold.Earliest(due, time.Now().Add(minBackoff)) // what was posted may have ended at once
		}
		if !logged.IsZero() {
			p.log.Info("Alerts are forwarded again")
			logged, delays, due = time.Time{}, newBackoff(), time.Time{} // Alertmanager may have lost what it had
		}
	}
}

// learnFormer reads what earlier leaders have posted, again and again until it is read or has expired, and ends what differs. It
// returns after the first attempt, at the latest after partTimeout: what is new is posted meanwhile.
func (p *poster) learnFormer(ctx context.Context, running *sync.WaitGroup) {
	tried := make(chan struct{})
	running.Go(func() {
		defer p.record.dropFormer()
		params, _ := p.requestParams()
		began, delays := time.Now(), newBackoff()
		err := p.readFormer(ctx, params)
		close(tried)
		if err != nil {
			p.log.Info("What an earlier leader has posted cannot be read from Alertmanager", "reason", err.Error())
		}
		for err != nil && ctx.Err() == nil && time.Since(began) < params.target.Expiry {
			delay := delays.Step()
			if time.Since(began) >= params.target.RoundInterval() {
				p.postMuted() // or it expires
				delay = params.target.RoundInterval()
			}
			sleep(ctx, delay, nil)
			params, _ = p.requestParams()
			err = p.readFormer(ctx, params)
		}
		p.postMuted()
		sleep(ctx, alerts.FormerDelay, nil)
		for _, key := range p.record.withFormer() {
			p.schedule.changed.add(key, time.Time{})
		}
		sleep(ctx, params.target.Expiry-time.Since(began), nil)
	})
	select {
	case <-tried:
	case <-time.After(partTimeout):
	case <-ctx.Done():
	}
}

// postMuted has Incidents posted that are muted: prepare puts them off until their former labels are known, or cannot be.
func (p *poster) postMuted() {
	if p.knowsFormer.Swap(true) {
		return
	}
	for _, key := range p.incidents.muted() {
		p.schedule.changed.add(key, time.Time{})
	}
}

// readFormer records the alerts that fire in Alertmanager: an earlier leader may have posted them, with labels that no status has
// any more. Without an answer, muted Incidents get their current labels, and old alerts fire until they expire.
func (p *poster) readFormer(ctx context.Context, params requestParams) error {
	return params.client.Labels(ctx, params.target.ExternalLabels, func(labels map[string]string) {
		key, _ := alerts.IncidentOf(labels)
		known, integration, ok := p.incidents.get(key)
		if ok || p.incidents.hasIntegration(alerts.IntegrationOf(labels)) { // an Incident may come, even one that is Resolved by then
			wanted := p.want(params, known.unresolved, integration)
			p.record.addFormer(key, labels, wanted, &params.target.Target, params.now)
		}
	})
}

// want returns what Alertmanager is to know of an Incident. The Incident and the integration may be nil.
func (p *poster) want(params requestParams, incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration) alerts.Wanted {
	var muting fold.Muting
	if p.mutings != nil {
		muting = p.mutings.Of(integration)
	}
	return params.target.Want(incident, integration, muting, params.now)
}

// next returns the posts of the next request.
func (p *poster) next(ctx context.Context, params requestParams) *batch {
	b := &batch{}
	p.schedule.fill(ctx, b, func(key types.NamespacedName, received time.Time) *post {
		return p.prepare(ctx, params, key, received)
	})
	return b
}

// deliver posts a batch: all in one request, which is empty if there are none, and then those that were rejected before. It fails
// if Alertmanager accepts nothing at all.
func (p *poster) deliver(ctx context.Context, params requestParams, b *batch) error {
	if len(b.posts) > 0 || len(b.alone) == 0 {
		if err := p.post(ctx, params, b.posts, alertmanager.RequestTimeout); err != nil {
			return err
		}
	}
	for i, deadline := 0, time.Now().Add(isolationTime); i < len(b.alone); i++ {
		if time.Now().After(deadline) {
			p.schedule.putBack(b.alone[i:])
			break
		}
		if err := p.post(ctx, params, b.alone[i:i+1], p.partTimeout()); err != nil {
			return err
		}
	}
	return nil
}

// requestParams are what all posts of a request have in common.
type requestParams struct {
	target   *config.Target
	client   *alertmanager.Client // nil: http_config cannot be used
	now      time.Time            // by the API server's clock
	ahead    time.Duration        // how far the Alertmanager's clock is ahead of that
	deadline time.Time            // until when a request that failed is split, see post; zero: none has failed
}

// post is what is posted about one Incident.
type post struct {
	key      types.NamespacedName
	received time.Time // when the alert came that caused it, for the latency; zero: it is not measured
	opened   time.Time // when its episode opened, if it fires
	wanted   alerts.Wanted
	alerts   []json.RawMessage
	size     int // of the alerts
}

// prepare makes the alerts of an Incident. It returns nil if nothing is to be posted: it cannot be read, and the next round tries
// again, or Alertmanager neither is to know the Incident nor has known it.
func (p *poster) prepare(ctx context.Context, params requestParams, key types.NamespacedName, received time.Time) *post {
	incident, integration, err := p.incidents.read(ctx, key)
	if err != nil {
		p.log.Error(err, "Incident cannot be posted", "namespace", key.Namespace, "incident", key.Name)
		return nil
	}
	wanted := p.want(params, incident, integration)
	// Without the integration, a set that fires is neither renewed nor ended, so nothing changes if the integration is created
	// again within the expiry; otherwise the set ends with it.
	stays := integration == nil && incident != nil &&
		(incident.Status.State == v1alpha1.IncidentOpen || fold.EndIsKeptBack(&incident.Status, params.now))
	if wanted.IsMuted() && !p.knowsFormer.Load() {
		return nil
	}
	if !stays {
		wanted = p.record.extend(key, wanted, &params.target.Target, params.now)
	}
	if wanted.IsEmpty() {
		p.record.setFiring(key, "", time.Time{})
		return nil
	}
	one := &post{key: key, received: received, wanted: wanted}
	if wanted.Firing() != "" && incident != nil {
		one.opened = incident.Status.OpenedTime.OrZero()
	}
	for _, alert := range alerts.Make(key, incident, wanted, params.target.Settings, params.now, params.ahead) {
		data, _ := json.Marshal(alert) // strings and times always encode
		one.alerts, one.size = append(one.alerts, data), one.size+len(data)
	}
	return one
}

var errNoClock = errors.New("the API server's time is not known, or the lease has run out")

// partTimeout bounds a request with a part of the Incidents, or with one alone: others wait for it. An Alertmanager that is slow
// gets twice the time of the last request that it has accepted, or it would never accept a part.
func (p *poster) partTimeout() time.Duration {
	return min(max(partTimeout, 2*p.took), alertmanager.RequestTimeout)
}

// post posts Incidents in one request, or an empty list if there are none. It fails if Alertmanager accepts nothing at all.
//
// If the request fails, it posts them in smaller ones, down to those that are the cause. What the failure looks like does not
// matter, since a proxy may answer an alert that it dislikes with anything. The cause is in the alerts if Alertmanager accepts an
// empty list; that does not count as a success, because alerts are what it has to accept.
//
// The first failure sets a deadline. After that, all that are left may be the cause: they are posted alone later, so that those
// of others do not expire.
func (p *poster) post(ctx context.Context, params requestParams, posts []*post, timeout time.Duration) error {
	cause := p.request(ctx, params, posts, timeout)
	if cause == nil {
		p.accept(posts)
		return nil
	}
	if len(posts) == 0 {
		return cause
	}
	if err := p.request(ctx, params, nil, alertmanager.RequestTimeout); err != nil {
		return err
	}
	if params.deadline.IsZero() {
		params.deadline = time.Now().Add(isolationTime)
	}
	if len(posts) == 1 || time.Now().After(params.deadline) {
		for _, one := range posts {
			p.reject(one, cause, len(posts) == 1)
		}
		return nil
	}
	half := len(posts) / 2
	for _, part := range [][]*post{posts[:half], posts[half:]} {
		if err := p.post(ctx, params, part, p.partTimeout()); err != nil {
			return err
		}
	}
	return nil
}

func (p *poster) request(ctx context.Context, params requestParams, posts []*post, timeout time.Duration) error {
	alerts := []json.RawMessage{}
	for _, one := range posts {
		alerts = append(alerts, one.alerts...)
	}
	began := time.Now()
	sent, ok := p.clock()
	err := errNoClock
	if ok { // else the process was frozen since it looked last
		var date time.Time
		date, err = params.client.PostAlerts(ctx, alerts, timeout)
		if received, ok := p.clock(); ok && !date.IsZero() {
			p.skew.compare(date, sent, received)
		}
	}
	if err != nil {
		p.metrics.count(resultFailed, len(alerts))
		return err
	}
	if len(posts) > 0 { // an empty request may take no time
		p.took = time.Since(began)
	}
	p.metrics.count(resultSent, len(alerts))
	now, _ := p.clock()
	for _, one := range posts {
		if !one.received.IsZero() {
			latency.Observe(max(0, now.Sub(one.received).Seconds()))
		}
	}
	return nil
}

// accept records that Alertmanager has accepted a request with these Incidents, or an empty one.
func (p *poster) accept(posts []*post) {
	p.metrics.succeeded(time.Now())
	for _, one := range posts {
		if p.record.setFiring(one.key, one.wanted.Firing(), one.opened) {
			p.refolder.add(one.key)
		}
	}
	p.record.succeed()
}

// reject records that Alertmanager does not accept the alerts of an Incident, alone or with others. They are posted alone, first
// after short delays and then in every round.
func (p *poster) reject(one *post, cause error, alone bool) {
	p.metrics.count(resultRejected, len(one.alerts))
	since, isFirst := p.record.reject(one.key, cause, alone)
	if isFirst {
		p.log.Error(cause, "Alertmanager does not accept the alerts of an Incident",
			"namespace", one.key.Namespace, "incident", one.key.Name)
	}
	if failing := time.Since(since); failing < retryWindow { // each delay doubles that
		time.AfterFunc(max(minBackoff, failing), func() { p.schedule.changed.add(one.key, one.received) })
	}
}
