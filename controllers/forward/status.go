package forward

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// reasons are those of an Incident for the reasons of target.skips.
var reasons = map[string]v1alpha1.ForwardingReason{
	v1alpha1.ReasonForwardNever:     v1alpha1.ForwardingOff,
	v1alpha1.ReasonNotSelected:      v1alpha1.ForwardingOff,
	v1alpha1.ReasonFromAlertmanager: v1alpha1.ForwardingFromAlertmanager,
}

// Forwarding implements incident.Forwarder. Nothing is known of an Incident that is not open.
func (f *Forwarder) Forwarding(incident types.NamespacedName) fold.Forwarding {
	t := f.term.Load()
	if t == nil {
		return fold.Forwarding{}
	}
	known, integration, _ := t.index.get(incidentKey{incident.Namespace, incident.Name})
	if known.open == nil {
		return fold.Forwarding{}
	}
	return t.forwarding(known.open, integration, time.Now())
}

// forwarding returns what is known about the forwarding of an open Incident. The integration may be nil.
func (t *term) forwarding(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, now time.Time,
) fold.Forwarding {
	file := t.forwarder.file.Load()
	switch {
	case integration == nil:
		return fold.Forwarding{}
	case !file.config.isValid() && file.err != nil:
		return fold.Forwarding{Reason: v1alpha1.ForwardingFailing, Message: messageInvalidConfig + oneLine(file.err) + "."}
	}
	severity := incident.Status.Alert.Severity
	if mute := incident.Status.Mute; mute != nil {
		severity = mute.ForwardedSeverity
	}
	if severity == "" { // muted since it opened: no Alertmanager has it, also if the fold has just ended the mute
		return fold.Forwarding{}
	}
	a := t.ask(incident, integration, severity, now)
	switch {
	case a.accepted > 0:
		return fold.Forwarding{Reason: v1alpha1.ForwardingPosted, Severity: severity, Alertmanagers: a.accepted}
	case a.waits:
		return fold.Forwarding{}
	case len(a.causes) == 0:
		return a.declined
	}
	// A new leader knows only of its own requests: what was posted before stays so.
	if before := incident.Status.Forwarding; before != nil && before.Severity == severity && !t.leavesOut(keyOf(incident), now) {
		return fold.Forwarding{}
	}
	return fold.Forwarding{Reason: v1alpha1.ForwardingFailing, Message: messageAllFailing + listed(a.causes) + "."}
}

// answers are what the Alertmanagers do with an Incident.
type answers struct {
	declined fold.Forwarding  // why it is not posted to those to which it is not
	accepted int64            // how many have accepted it
	waits    bool             // one has not answered yet
	causes   sets.Set[string] // why the others do not accept it
}

// ask returns the answers about an Incident with a severity.
func (t *term) ask(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, severity v1alpha1.Severity, now time.Time,
) answers {
	a := answers{causes: sets.New[string]()}
	for _, e := range t.endpoints.all() {
		if declined := e.target.Load().declines(incident, integration, severity); declined.Reason != "" {
			if a.declined.Reason == "" || declined.Reason == v1alpha1.ForwardingFiltered {
				a.declined = declined
			}
			continue
		}
		accepted, cause := e.accepts(keyOf(incident), severity, now)
		switch {
		case accepted:
			a.accepted++
		case cause == "":
			a.waits = true
		default:
			a.causes.Insert(e.name + " (" + cause + ")")
		}
	}
	return a
}

// declines returns why an Incident is not posted to the target with a severity; nothing if it is.
func (t *target) declines(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, severity v1alpha1.Severity,
) fold.Forwarding {
	if reason := t.skipsIncident(incident, integration); reason != "" {
		return fold.Forwarding{Reason: reasons[reason], Message: notForwarded[reason]}
	}
	if !t.hasSeverity(severity) {
		return fold.Forwarding{
			Reason:  v1alpha1.ForwardingFiltered,
			Message: fmt.Sprintf("The operator's configuration selects the severity %s for no Alertmanager.", severity),
		}
	}
	return fold.Forwarding{}
}

// accepts reports whether an Alertmanager of the endpoint has accepted an Incident with its severity. Else cause says why none
// does, for some time; it is empty while that is not known.
func (e *endpoint) accepts(key incidentKey, severity v1alpha1.Severity, now time.Time) (accepted bool, cause string) {
	waits := false
	for _, s := range e.senders.all() {
		told, failure := s.tells(key, now)
		if told == severity {
			return true, ""
		}
		waits = waits || failure == ""
		cause = failure
	}
	if waits {
		cause = ""
	}
	return false, cause
}

// tells returns the severity with which an Incident fires in the Alertmanager, empty if it does not, and why that accepts
// nothing, or not this Incident.
func (s *sender) tells(key incidentKey, now time.Time) (severity v1alpha1.Severity, failure string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.leftOut[key]
	switch {
	case !left.IsZero() && now.Sub(left) >= unpostedAfter:
		failure = s.rejection.text
	case !s.failing.IsZero() && now.Sub(s.failing) >= unpostedAfter:
		failure = s.failure.text
	}
	return s.told[key], failure
}

// leavesOut reports whether a sender has left out an Incident for failingAfter.
func (t *term) leavesOut(key incidentKey, now time.Time) bool {
	for _, e := range t.endpoints.all() {
		for _, s := range e.senders.all() {
			s.mu.Lock()
			since := s.leftOut[key]
			s.mu.Unlock()
			if !since.IsZero() && now.Sub(since) >= failingAfter {
				return true
			}
		}
	}
	return false
}

// reportAll has each open Incident folded whose status does not say what is known about its forwarding, until ctx ends.
// Namespaces take turns, at a rate that a storm does not raise.
func (t *term) reportAll(ctx context.Context) {
	defer t.countUntold(nil)
	due := time.Now()
	for ctx.Err() == nil {
		if !time.Now().Before(due) {
			t.countUntold(t.compareAll())
			due = time.Now().Add(reportInterval)
		}
		key, _, ok := t.unreported.next()
		if !ok {
			sleep(ctx, time.Until(due), t.unreported.signal)
			continue
		}
		if changed := t.forwarder.changed.Load(); changed != nil && t.isBehind(key) {
			(*changed)(types.NamespacedName{Namespace: key.namespace, Name: key.name})
			sleep(ctx, time.Second/reportRate, nil)
		}
	}
}

// compareAll finds the open Incidents whose status is behind, and returns those of severity critical that people are not told of.
func (t *term) compareAll() map[untold]int {
	found, now := map[untold]int{}, time.Now()
	for _, key := range t.index.filter(func(_ incidentKey, entry indexed) bool { return entry.open != nil }) {
		known, integration, _ := t.index.get(key)
		if known.open == nil {
			continue
		}
		next, isBehind := t.compare(known.open, integration, now)
		if isBehind {
			t.unreported.add(key, time.Time{})
		}
		if known.open.Status.Alert.Severity != v1alpha1.SeverityCritical {
			continue
		}
		switch {
		case next == nil:
			found[untold{key.namespace, reasonPending}]++
		case next.Reason != v1alpha1.ForwardingPosted:
			found[untold{key.namespace, string(next.Reason)}]++
		}
	}
	return found
}

// isBehind reports whether the status of an Incident does not say what is known about its forwarding.
func (t *term) isBehind(key incidentKey) bool {
	known, integration, _ := t.index.get(key)
	if known.open == nil {
		return false
	}
	_, isBehind := t.compare(known.open, integration, time.Now())
	return isBehind
}

// compare returns what the status of an open Incident is to say about its forwarding, and whether it does not.
func (t *term) compare(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, now time.Time,
) (next *v1alpha1.Forwarding, isBehind bool) {
	next = fold.ForwardingOf(&incident.Status, t.forwarding(incident, integration, now), now)
	return next, next != nil && next != incident.Status.Forwarding
}

// countUntold sets the metric.
func (t *term) countUntold(now map[untold]int) {
	for of, n := range now {
		criticalUntold.WithLabelValues(of.namespace, of.reason).Set(float64(n))
	}
	for of := range t.untold {
		if now[of] == 0 {
			criticalUntold.DeleteLabelValues(of.namespace, of.reason)
		}
	}
	t.untold = now
}
