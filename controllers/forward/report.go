package forward

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

// Forwarding implements incident.Forwarder. Nothing is known of an Incident that is not open.
func (f *Forwarder) Forwarding(incident types.NamespacedName) fold.KnownForwarding {
	t := f.term.Load()
	if t == nil {
		return fold.KnownForwarding{}
	}
	known, integration, _ := t.incidents.get(incident)
	if known.content == nil {
		return fold.KnownForwarding{}
	}
	return t.forwarding(known.content, integration, time.Now())
}

// forwarding returns what is known about the forwarding of an open Incident. The integration may be nil.
func (t *term) forwarding(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, now time.Time,
) fold.KnownForwarding {
	file := t.forwarder.file.Load()
	switch {
	case integration == nil:
		return fold.KnownForwarding{}
	case file.config.IsEmpty() && file.err != nil:
		return fold.KnownForwarding{Reason: v1alpha1.ForwardingFailing, Message: messageInvalidConfig + oneLine(file.err) + "."}
	}
	severity := fold.ForwardedSeverity(&incident.Status)
	if mute := incident.Status.Mute; mute != nil && (mute.EndTime == nil || t.forwarder.apiTime().Before(mute.EndTime.Time)) {
		severity = mute.ForwardedSeverity
	}
	if severity == "" { // muted since it opened: no Alertmanager has it
		return fold.KnownForwarding{}
	}
	r := t.results(incident, integration, severity, now)
	before := incident.Status.Forwarding
	switch {
	case r.accepted > 0:
		return fold.KnownForwarding{
			Reason: v1alpha1.ForwardingPosted, Severity: severity, Alertmanagers: r.accepted, Opened: incident.Status.OpenedTime.OrZero(),
		}
	case r.isPending:
		return fold.KnownForwarding{}
	case len(r.causes) == 0:
		return fold.KnownForwarding{Reason: r.exclusion.Status, Message: r.exclusion.Message}
	case before != nil && before.Severity == severity && !r.isRejected: // as posted by the last leader, whose requests are not known
		return fold.KnownForwarding{}
	}
	return fold.KnownForwarding{Reason: v1alpha1.ForwardingFailing, Message: messageAllFailing + listed(r.causes) + "."}
}

// results are what the Alertmanagers have done with an Incident.
type results struct {
	exclusion  alerts.Exclusion // why it is not posted to those to which it is not
	accepted   int64            // how many have accepted its current episode
	isPending  bool             // one has not answered yet
	isRejected bool             // one has not accepted it for failingAfter
	causes     sets.Set[string] // why the others do not accept it
}

// results returns the results of posting an Incident with a severity.
func (t *term) results(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, severity v1alpha1.Severity, now time.Time,
) results {
	r, key := results{causes: sets.New[string]()}, types.NamespacedName{Namespace: incident.Namespace, Name: incident.Name}
	for _, e := range t.endpoints.all() {
		if exclusion := e.target.Load().Excludes(incident, integration, severity); exclusion != nil {
			if r.exclusion.Status == "" || exclusion.Status == v1alpha1.ForwardingFiltered {
				r.exclusion = *exclusion
			}
			continue
		}
		accepted, isPending, cause := false, false, "" // by one of its addresses
		for _, p := range e.posters.all() {
			o := p.record.outcomeOf(key, now)
			// One that did not accept the end of the last episode still has that, and notifies nobody of the current one.
			accepted = accepted || o.severity == severity && o.opened.Equal(incident.Status.OpenedTime.OrZero())
			isPending = isPending || o.failure == ""
			r.isRejected = r.isRejected || o.rejected
			cause = o.failure
		}
		switch {
		case accepted:
			r.accepted++
		case isPending || cause == "":
			r.isPending = true
		default:
			r.causes.Insert(e.name + " (" + cause + ")")
		}
	}
	return r
}

// untold are Incidents that people are not told of.
type untold struct{ namespace, reason string }

// reasonPending is the reason of an Incident without status.forwarding.
const reasonPending = "Pending"

// reporter has Incidents folded whose status does not say what is known about their forwarding.
type reporter struct {
	term   *term
	behind *incidentQueue // the Incidents whose status may be behind
	untold map[untold]int // what the metric says
}

func newReporter(t *term) *reporter { return &reporter{term: t, behind: newIncidentQueue()} }

// add adds an Incident of which something is news.
func (r *reporter) add(key types.NamespacedName) { r.behind.add(key, time.Time{}) }

// run has Incidents folded until ctx ends. Namespaces take turns, at a rate that a storm does not raise.
func (r *reporter) run(ctx context.Context) {
	defer r.setUntold(nil)
	due := time.Now()
	for ctx.Err() == nil {
		if !time.Now().Before(due) {
			r.setUntold(r.compareAll())
			due = time.Now().Add(reportInterval)
		}
		key, _, ok := r.behind.next()
		if !ok {
			sleep(ctx, time.Until(due), r.behind.signal)
			continue
		}
		if incident, next := r.compare(key, time.Now()); isBehind(incident, next) && r.term.forwarder.enqueue(key) {
			sleep(ctx, time.Second/reportRate, nil)
		}
	}
}

// compareAll finds the open Incidents whose status is behind, and returns those of severity critical that people are not told of.
func (r *reporter) compareAll() map[untold]int {
	found, now := map[untold]int{}, time.Now()
	for _, key := range r.term.incidents.open() {
		incident, next := r.compare(key, now)
		if isBehind(incident, next) {
			r.add(key)
		}
		switch {
		case incident == nil || incident.Status.Alert.Severity != v1alpha1.SeverityCritical:
		case next == nil:
			found[untold{key.Namespace, reasonPending}]++
		case next.Reason != v1alpha1.ForwardingPosted:
			found[untold{key.Namespace, string(next.Reason)}]++
		}
	}
	return found
}

// compare returns an Incident, nil if it is not open, and what its status is to say about its forwarding.
func (r *reporter) compare(key types.NamespacedName, now time.Time) (*v1alpha1.Incident, *v1alpha1.Forwarding) {
	known, integration, _ := r.term.incidents.get(key)
	if known.content == nil {
		return nil, nil
	}
	of := r.term.forwarding(known.content, integration, now)
	return known.content, fold.ForwardingOf(&known.content.Status, of, r.term.forwarder.apiTime())
}

// isBehind reports whether the status of an Incident does not say what it is to say.
func isBehind(incident *v1alpha1.Incident, next *v1alpha1.Forwarding) bool {
	return next != nil && next != incident.Status.Forwarding
}

// setUntold sets the metric.
func (r *reporter) setUntold(now map[untold]int) {
	for of, n := range now {
		criticalUntold.WithLabelValues(of.namespace, of.reason).Set(float64(n))
	}
	for of := range r.untold {
		if now[of] == 0 {
			criticalUntold.DeleteLabelValues(of.namespace, of.reason)
		}
	}
	r.untold = now
}
