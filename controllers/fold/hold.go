package fold

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// maxHold bounds a time of forwardAfter, as the schema does.
const maxHold = 24 * time.Hour

// holdRule holds an episode back for the integration's forwardAfter: nothing of it is forwarded before its forwardTime. That is
// written together with its opening, so the forwarding never sees an episode without it, and no new leader begins it anew. While
// it has not come, it follows the severity and the integration, counted from the opening in any case; afterwards it stays. What
// an Alertmanager has accepted is held back no more, whatever the clocks say, or people would hear of an end that is none.
type holdRule struct{ noRule }

func (holdRule) alert(f *folding, a receivedAlert, before stateBefore) {
	// A receipt by a clock that is ahead, or behind that of an earlier alert, must not hold what its severity has freed.
	at := Earliest(Latest(a.received, valueOf(f.status.LastAlertTime).Time), f.in.Now)
	if !before.isOpen || IsHeld(f.status, at) && !f.isAccepted() {
		f.hold(at)
	}
}

func (holdRule) finish(f *folding, _ stateBefore) {
	if IsHeld(f.status, f.in.Now) && !f.isAccepted() && f.hold(f.in.Now) {
		f.plan.Write = true
	}
}

// ends has the end forwarded of an episode that an Alertmanager has accepted: it may be folded after the forwardTime, although it
// was received before.
func (holdRule) ends(f *folding) {
	if f.isAccepted() && f.status.Episode != nil {
		f.status.Episode.ForwardTime = nil
	}
}

func (holdRule) due(status *v1alpha1.IncidentStatus, _ *Policy) time.Time {
	if status.State != v1alpha1.IncidentOpen || status.Episode == nil ||
		status.Forwarding == nil || status.Forwarding.Reason != v1alpha1.ForwardingHeld {
		return time.Time{}
	}
	return valueOf(status.Episode.ForwardTime).Time
}

// hold sets the forwardTime of an Open Incident that was not forwarded at a time, and reports whether it differs. One that fires
// on stays forwarded.
func (f *folding) hold(at time.Time) bool {
	p := &f.in.Policy
	if f.status.State != v1alpha1.IncidentOpen || !isSet(f.status.OpenedTime) || p.Absent || continuesLast(f.status) {
		return false
	}
	episode, opened := f.episode(), f.status.OpenedTime.Time
	until := timestamp(opened.Add(holdOf(p.ForwardAfter, f.status.Alert.Severity)))
	if isSet(episode.ForwardTime) && until.Before(at) {
		until = timestamp(at) // until then it was held
	}
	last := valueOf(episode.ForwardTime, f.status.OpenedTime)
	if until.Equal(last.Time) {
		return false
	}
	episode.ForwardTime = until
	return true
}

// holdOf is how long Incidents of a severity are held back.
func holdOf(after *v1alpha1.ForwardAfter, severity v1alpha1.Severity) time.Duration {
	if after == nil {
		return 0
	}
	own := map[v1alpha1.Severity]*metav1.Duration{
		v1alpha1.SeverityCritical: after.Critical, v1alpha1.SeverityError: after.Error,
		v1alpha1.SeverityWarning: after.Warning, v1alpha1.SeverityInfo: after.Info,
	}[severity]
	return min(max(0, durationOr(cmp.Or(own, after.Default), 0)), maxHold)
}
