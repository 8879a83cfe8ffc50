package fold

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Defaults of spec.flapping.
const (
	defaultFlappingOpenings = 5
	defaultFlappingPeriod   = time.Hour
)

// forwardedEndRetention is how long a Resolved Incident is kept at least after the time of an end that was kept back: the next
// round, or the first sweep of a new leader, has to find it.
const forwardedEndRetention = 2 * time.Minute

const messageNotFlapping = "The incident has not opened often of late."

// flappingRule tells that an Incident opens often, and keeps its ends from Alertmanager for the integration's keepFiringFor.
//
// All that depends on the integration is decided at an opening or at an end, and written with it: until when the Incident flaps
// unless it opens again, and until when it is forwarded as if it fired. So no new leader forgets or hurries, and a change of the
// integration, or its deletion, concerns what comes later. The condition ends by time alone, also while the Incident is Resolved.
type flappingRule struct{ noRule }

// opens notes when the last episode has opened. The time of the new one is in the status.
func (flappingRule) opens(f *folding) {
	opened := f.status.OpenedTime
	if !isSet(opened) {
		return
	}
	if f.status.Flapping == nil {
		f.status.Flapping = &v1alpha1.Flapping{}
	}
	known := f.status.Flapping
	known.OpenedTimes = append(known.OpenedTimes, *timestamp(opened.Truncate(time.Second)))
	known.OpenedTimes = known.OpenedTimes[max(0, len(known.OpenedTimes)-flappingOpenings(f.in.Policy.Flapping)):]
}

func (flappingRule) alert(f *folding, a receivedAlert, before stateBefore) {
	known := f.status.Flapping
	if known == nil || a.overtaken {
		return
	}
	f.endFlapping(a.received)
	switch kept, isOpen := known.KeptFiring, f.status.State == v1alpha1.IncidentOpen; {
	case isOpen && !before.isOpen:
		f.startFlapping()
		f.raiseKept()
		f.freeFlapping()
	case isOpen:
		f.raiseKept()
	case !before.isOpen && a.Status == v1alpha1.AlertResolved && a.by() != "" && kept != nil && a.received.Before(kept.EndTime.Time):
		kept.EndTime = *timestamp(a.received) // a person says that it is over
		f.plan.Urgent = true
	}
}

// ends keeps the end from being forwarded if the Incident flaps, nobody has resolved it, and its opening was forwarded.
func (flappingRule) ends(f *folding) {
	status, known := f.status, f.status.Flapping
	if known == nil {
		return
	}
	resolved := *status.ResolvedTime
	f.endFlapping(resolved.Time)
	kept := &v1alpha1.KeptFiring{Severity: status.Alert.Severity, StartTime: resolved, EndTime: resolved}
	wasForwarded, muted := !WasHeld(status, resolved.Time), MutedBy(status)
	if muted != nil {
		kept.Severity, wasForwarded = muted.Severity, muted.Severity != ""
	}
	length := time.Duration(0)
	if p, forwarding := f.in.Policy.Flapping, &f.in.Forwarding; p != nil && isSet(known.EndTime) && wasForwarded &&
		status.Resolution.Reason != v1alpha1.ReasonResolvedByUser && !forwarding.Disabled && !forwarding.isExcluded() {
		length = durationOr(p.KeepFiringFor, 0)
	}
	switch {
	case continuesLast(status): // also if it ends now, with a severity that the timeline may lack
		if kept.StartTime = known.KeptFiring.StartTime; muted == nil { // which has hidden a rise
			kept.Severity = known.KeptFiring.Severity
		}
	case length <= 0:
		known.KeptFiring = nil
		return
	}
	if length > 0 {
		kept.EndTime = *timestamp(resolved.Add(length))
		known.EndTime = timestamp(Latest(known.EndTime.Time, kept.EndTime.Time)) // it flaps while its end is kept back
	}
	known.KeptFiring = kept
}

func (flappingRule) finish(f *folding, _ stateBefore) {
	known := f.status.Flapping
	if known != nil && isSet(known.EndTime) && IsFuture(f.lastChange(), f.in.Now) {
		known.EndTime = timestamp(f.in.Now) // the clock by which it was noted has been set back
		if f.status.State == v1alpha1.IncidentResolved {
			known.KeptFiring = nil
		}
	}
	f.plan.Write = f.endFlapping(f.in.Now) || f.plan.Write
}

// lastChange is when the Incident has opened, or was resolved.
func (f *folding) lastChange() time.Time {
	if f.status.State == v1alpha1.IncidentResolved {
		return valueOf(f.status.ResolvedTime).Time
	}
	return valueOf(f.status.OpenedTime).Time
}

func (flappingRule) due(status *v1alpha1.IncidentStatus, _ *Policy) time.Time {
	if status.Flapping == nil {
		return time.Time{}
	}
	return valueOf(status.Flapping.EndTime).Time
}

// startFlapping sets the condition of an Incident that has just opened, if it has opened often.
func (f *folding) startFlapping() {
	known, opened, p := f.status.Flapping, f.status.OpenedTime.Time, f.in.Policy.Flapping
	known.OpenedTimes = slices.DeleteFunc(known.OpenedTimes, func(t v1alpha1.Timestamp) bool { return IsFuture(t.Time, f.in.Now) })
	n, period := flappingOpenings(p), defaultFlappingPeriod
	if p != nil {
		period = durationOr(p.Period, period)
	}
	nthLast := len(known.OpenedTimes) - n
	if nthLast < 0 {
		return
	}
	if end := known.OpenedTimes[nthLast].Add(period); opened.Before(end) {
		times := "once"
		if n > 1 {
			times = fmt.Sprint(n, " times")
		}
		known.EndTime = timestamp(Latest(end, valueOf(known.EndTime).Time))
		f.condition(v1alpha1.ConditionFlapping, metav1.ConditionTrue, opened, v1alpha1.ReasonOpenedOften,
			fmt.Sprintf("The incident has opened more than %s in %s.", times, plaintext.Duration(period)))
	}
}

// freeFlapping has an Incident that flaps forwarded at once, if its end is kept back. Otherwise one that heals within the time of
// forwardAfter, and opens again and again, would page nobody.
func (f *folding) freeFlapping() {
	p, episode := f.in.Policy.Flapping, f.status.Episode
	if isSet(f.status.Flapping.EndTime) && p != nil && durationOr(p.KeepFiringFor, 0) > 0 && episode != nil {
		episode.ForwardTime = nil
	}
}

// endFlapping sets the condition if the Incident has not opened often of late, and reports whether it differs. If it is open,
// its severity may fall in Alertmanager from then on.
func (f *folding) endFlapping(at time.Time) (ended bool) {
	known := f.status.Flapping
	if known == nil || !isSet(known.EndTime) || at.Before(known.EndTime.Time) {
		return false
	}
	end := *known.EndTime
	if f.status.State == v1alpha1.IncidentOpen && continuesLast(f.status) {
		known.KeptFiring.EndTime = end
	}
	known.EndTime = nil
	f.condition(v1alpha1.ConditionFlapping, metav1.ConditionFalse, end.Time, v1alpha1.ReasonNotFlapping, messageNotFlapping)
	return true
}

// raiseKept has the severity rise with which the Incident is forwarded.
func (f *folding) raiseKept() {
	severity := f.status.Alert.Severity
	if continuesLast(f.status) && IsMoreSevere(severity, f.status.Flapping.KeptFiring.Severity) {
		f.status.Flapping.KeptFiring.Severity = severity
	}
}

// flappingOpenings is how often an Incident may open within the period.
func flappingOpenings(p *v1alpha1.FlappingPolicy) int {
	if p == nil || p.Openings <= 0 {
		return defaultFlappingOpenings
	}
	return int(min(p.Openings, v1alpha1.MaxOpenedTimes))
}
