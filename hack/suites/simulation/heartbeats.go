package simulation

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// heartbeatName is that of every tenant's heartbeat, which expects a ping every beatInterval.
	heartbeatName = "pinged"
	beatInterval  = time.Minute

	// beatPeriod is how long after a ping the heartbeat is missed, and findTime how much later that is found at the latest.
	beatPeriod = beatInterval + beatInterval/5
	findTime   = 30 * time.Second

	// grace is for how long after alerts were not accepted no quiet counts, as Grace in package replica.
	grace = time.Minute

	// readyTime is how long after the faults an integration may take to be Ready.
	readyTime = 2 * time.Minute

	pingEvery = 15 * time.Second
	pingAgain = 2 * time.Second // after one that was not acknowledged
	hushFor   = 3 * time.Minute
)

// signalReport is the call by which a replica tells the others that a heartbeat was heard.
var signalReport = &apiserver.Call{
	Verb: "patch", Resource: "heartbeats." + v1alpha1.GroupVersion.Group, Subresource: "status",
}

// hush keeps a tenant's sender from pinging for a while.
type hush struct {
	tenant int
	d      time.Duration
}

func (o hush) do(w *world) { w.pings.hush(tenantName(o.tenant), time.Now().Add(o.d)) }

// ping is one that was acknowledged.
type ping struct {
	at   time.Time
	by   *process
	kept bool // nothing kept the process from writing it at once
}

// isKept says whether nothing kept the process from writing the ping. It may wait for a third of the interval, and is lost with a
// process that is killed meanwhile.
func (p *ping) isKept() bool {
	return p.kept && !p.by.hasStopped(p.at, p.at.Add(beatInterval/3+reportTime))
}

// pings are those of all tenants, and judges what is made of them.
type pings struct {
	mu          *sync.Mutex          // the judge's, which holds it for commit and check
	quiet       map[string]time.Time // until when, by namespace
	acked       map[string][]*ping
	unavailable map[string]time.Time // the last that was not accepted because of older CustomResourceDefinitions, by namespace
	found       *oracle.Findings
	open        map[string]bool      // namespaces with an open Incident of the heartbeat
	late        map[string]time.Time // when the heartbeat was last said to be missed, by namespace
	missed      func(namespace string, since time.Duration)

	clockError time.Duration // how much too old the time of a ping may be
}

func newPings(j *judge, clockError time.Duration) *pings {
	return &pings{
		clockError: clockError,
		mu:         &j.mu, found: &j.found, quiet: map[string]time.Time{}, acked: map[string][]*ping{}, open: map[string]bool{},
		late: map[string]time.Time{}, unavailable: map[string]time.Time{},
	}
}

func (p *pings) hush(namespace string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet[namespace] = until
}

func (p *pings) markUnavailable(namespace string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unavailable[namespace] = at
}

func (p *pings) isQuiet(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.quiet[namespace])
}

// send pings the heartbeat of a tenant until stop is closed.
func (w *world) sendPings(namespace string, stop <-chan struct{}) {
	for n := 0; ; n++ {
		pause := pingEvery
		if !w.pings.isQuiet(namespace) && !w.ping(namespace, n) {
			pause = pingAgain
		}
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
	}
}

// ping pings one of the replicas, and reports whether it was acknowledged.
func (w *world) ping(namespace string, to int) bool {
	p, began := w.route(to), time.Now()
	if p == nil {
		return false
	}
	code, _, err := p.send(http.MethodGet, "/heartbeat/"+heartbeatName, namespace, "", nil)
	if code == http.StatusServiceUnavailable && p.isOutdated(0) {
		w.pings.markUnavailable(namespace, time.Now())
	}
	if err != nil || code != http.StatusOK {
		return false
	}
	made := &ping{at: began, by: p}
	w.pings.mu.Lock()
	w.pings.acked[namespace] = append(w.pings.acked[namespace], made)
	w.pings.mu.Unlock()
	w.senders.busy.Go(func() {
		time.Sleep(reportTime)
		w.pings.mu.Lock()
		defer w.pings.mu.Unlock()
		made.kept = !p.wasFrozen(began) && !p.isDead() && !p.disturbs(unavailableReport) && !p.disturbs(signalReport)
	})
	return true
}

// commit judges a new AlertEvent of a replica, and sees each write of an Incident: a user may delete one.
func (p *pings) commit(c *change) {
	switch {
	case c.Resource == "incidents":
		if c.Name == v1alpha1.IncidentName(integrationName, v1alpha1.HeartbeatKey(heartbeatName)) {
			p.open[c.Namespace] = c.incident != nil && c.incident.Status.State == v1alpha1.IncidentOpen
		}
	case c.Resource == "alertevents" && c.Created && isReplica(c.client):
		event := decode[v1alpha1.AlertEvent](c.Object)
		if queue.Decode(event) != nil || len(event.Alerts) != 1 {
			return
		}
		alert := &event.Alerts[0]
		if alert.DedupKey == v1alpha1.HeartbeatKey(heartbeatName) && alert.Status == v1alpha1.AlertFiring {
			p.judge(c.Namespace, time.Now())
		}
	}
}

// judge judges that a heartbeat is said to be missed.
func (p *pings) judge(namespace string, now time.Time) {
	p.late[namespace] = now
	var last *ping
	for _, ping := range p.acked[namespace] {
		if ping.isKept() {
			last = ping
		}
	}
	switch {
	case last == nil && len(p.acked[namespace]) > 0: // those that are not surely kept were heard
	case last == nil:
		p.found.Add("H: the heartbeat of %s is missed before it was heard", namespace)
	case now.Sub(p.unavailable[namespace]) < beatInterval && now.Sub(p.unavailable[namespace]) > reportTime:
		p.found.Add("H: the heartbeat of %s is missed, and one got 503 for the CustomResourceDefinitions %s ago", namespace,
			now.Sub(p.unavailable[namespace]))
	case now.Sub(last.at) < beatInterval-p.clockError:
		p.found.Add("H: the heartbeat of %s is missed, and a ping was acknowledged %s ago", namespace, now.Sub(last.at))
	case p.missed != nil:
		p.missed(namespace, now.Sub(last.at))
	}
}

// check judges the last state: what is pinged has no open Incident, unless alerts of its namespace may wait.
func (p *pings) check(now time.Time, mayWait func(namespace string) bool) {
	for namespace, open := range p.open {
		acked := p.acked[namespace]
		if open && !mayWait(namespace) && len(acked) > 0 && acked[len(acked)-1].isKept() &&
			now.Sub(acked[len(acked)-1].at) < 2*pingEvery {
			p.found.Add("H: the heartbeat of %s is pinged, and its Incident is open", namespace)
		}
	}
}

// endQuietly has all senders go quiet after all faults have ended, and judges that each is missed in time. Nobody
// watches any more. At the limit of Incidents, alerts are refused as long as it lasts, and no quiet is the sender's.
func (w *world) endQuietly() oracle.Findings {
	if w.story.MaxIncidents > 0 {
		return nil
	}
	w.judge.watchNoMore()
	w.awaitReady()
	began := time.Now()
	heard := map[string]time.Time{} // since when quiet counts, of namespaces whose heartbeat is expected
	for _, namespace := range tenants {
		if w.story.stays(namespace) {
			continue // no alert of the heartbeat may be storable
		}
		integration := w.storedIntegration(namespace)
		if integration == nil {
			continue
		}
		if beats := stored[v1alpha1.Heartbeat](w, "heartbeats", namespace); len(beats) > 0 && beats[0].Status.LastSignalTime != nil {
			heard[namespace] = acceptedSince(integration).Add(grace)
		}
		w.pings.hush(namespace, began.Add(time.Hour))
	}
	time.Sleep(senderTimeout) // a ping may be under way
	time.Sleep(grace + beatPeriod + findTime)
	if !w.story.loses("webhookintegrations") {
		w.pings.checkMissed(heard, began)
	}
	return w.judge.findings()
}

// awaitReady waits until the integrations are Ready, since quiet counts from then. An integration that stays unready is judged
// by what its status tells.
func (w *world) awaitReady() {
	isWaiting := func(namespace string) bool {
		integration := w.storedIntegration(namespace)
		return integration != nil && !meta.IsStatusConditionTrue(integration.Status.Conditions, v1alpha1.ConditionReady)
	}
	for deadline := time.Now().Add(readyTime); time.Now().Before(deadline) && slices.ContainsFunc(tenants, isWaiting); {
		time.Sleep(time.Second)
	}
}

// acceptedSince returns since when alerts of an integration were accepted, as far as its status tells.
func acceptedSince(integration *v1alpha1.WebhookIntegration) (since time.Time) {
	if unavailable := integration.Status.LastUnavailableTime; unavailable != nil {
		since = unavailable.Time
	}
	if ready := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		since = latest(since, ready.LastTransitionTime.Time)
	}
	return since
}

// checkMissed judges that the end of the pings was found. What was quiet before the faults had ended has more time.
func (p *pings) checkMissed(heard map[string]time.Time, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for namespace, counts := range heard {
		acked := p.acked[namespace]
		if len(acked) == 0 {
			continue // an earlier integration was heard
		}
		last, late := acked[len(acked)-1].at, p.late[namespace]
		switch found := late.Sub(last); {
		case found <= 0:
			p.found.Add("H: the heartbeat of %s is not missed, %s after the last ping", namespace, time.Since(last))
		case found > max(0, counts.Sub(last))+beatPeriod+findTime && began.Sub(last) < 2*pingEvery:
			p.found.Add("H: the heartbeat of %s was found to be missed only %s after the last ping", namespace, found)
		}
	}
}
