package fold

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// muteRule mutes the Incident while a maintenance window is open. The record is written together with what the alerts have
// changed, so the forwarding never sees an episode that began in a window without it. It is brought up to date after each alert,
// so it is the same however many alerts are folded at once.
//
// An Incident that was open and not muted before is forwarded with the severity that it had, and stays so. One that is resolved
// keeps the record: what was not forwarded has no end to forward.
type muteRule struct{ noRule }

func (muteRule) alert(f *folding, _ receivedAlert, before stateBefore) { f.updateMute(before) }

func (muteRule) finish(f *folding, before stateBefore) { f.updateMute(before) }

// due is the end of the window. Package maintenance has the Incident folded then in any case, unless its integration was deleted:
// nobody knows any more which windows were for it.
func (muteRule) due(status *v1alpha1.IncidentStatus, _ *Policy) (never time.Time) {
	if status.State != v1alpha1.IncidentOpen || status.Mute == nil {
		return never
	}
	return valueOf(status.Mute.EndTime).Time
}

func (muteRule) bare(status, stored *v1alpha1.IncidentStatus, p *Policy, now time.Time) {
	if _, _, muted := p.mutes(&status.Alert, now); !muted && stored.Mute == nil {
		status.Mute = nil // without the labels that a window matches, the next fold could not tell why it is muted
	}
}

func (muteRule) muted(status *v1alpha1.IncidentStatus) *Muted {
	mute := status.Mute
	if mute == nil {
		return nil
	}
	return &Muted{mute.ForwardedSeverity, valueOf(mute.EndTime).Time, "The maintenance window " + mute.Window + " is open."}
}

func (p *Policy) mutes(content *v1alpha1.AlertContent, at time.Time) (window string, until time.Time, muted bool) {
	if p.Muting == nil {
		return window, until, false
	}
	return p.Muting.Mutes(content, at)
}

func (f *folding) updateMute(before stateBefore) {
	status := f.status
	isOpen := status.State == v1alpha1.IncidentOpen
	if !isOpen && !before.isOpen || isOpen && f.staysMuted(before) {
		return
	}
	window, until, muted := f.in.Policy.mutes(&status.Alert, f.in.Now)
	mute := f.muteOf(before, isOpen, muted)
	if mute != nil && isOpen {
		mute.Window = window
		if !until.IsZero() {
			mute.EndTime = timestamp(until)
		}
	}
	if sameMute(status.Mute, mute) {
		return
	}
	status.Mute = mute
	f.plan.Write = true // not urgent: a user may change the windows all the time
}

// staysMuted reports whether the integration of a muted Incident is absent, or its windows are unknown. It may come again, with
// the window: until that ends, the record stays. Meanwhile nothing is forwarded.
func (f *folding) staysMuted(before stateBefore) bool {
	mute := f.status.Mute
	return (f.in.Policy.Absent || f.in.Policy.Stub) && before.isOpen && mute != nil &&
		(!isSet(mute.EndTime) || f.in.Now.Before(mute.EndTime.Time))
}

// muteOf returns the record without the window, nil if the Incident is not muted. muted says that a window is open.
func (f *folding) muteOf(before stateBefore, isOpen, muted bool) *v1alpha1.Mute {
	now, mute := *timestamp(f.in.Now), f.status.Mute
	switch {
	case isOpen && !muted:
		return nil
	case mute != nil && isOpen && isSet(mute.EndTime) && !f.in.Now.Before(mute.EndTime.Time) && f.isKnownAccepted():
		// Of another window: what was posted after the last one fires on, or people would be told of an end that is none.
		return &v1alpha1.Mute{StartTime: now, ForwardedSeverity: f.in.Forwarding.Severity}
	case mute != nil && (before.isOpen || continuesLast(f.status)):
		return &v1alpha1.Mute{StartTime: mute.StartTime, ForwardedSeverity: mute.ForwardedSeverity}
	case isOpen && (before.isOpen || continuesLast(f.status)):
		return &v1alpha1.Mute{StartTime: now, ForwardedSeverity: before.forwarded}
	case isOpen:
		return &v1alpha1.Mute{StartTime: now}
	default:
		return nil
	}
}

func sameMute(a, b *v1alpha1.Mute) bool {
	return a == b || a != nil && b != nil && a.Window == b.Window && a.ForwardedSeverity == b.ForwardedSeverity &&
		a.StartTime.Equal(b.StartTime.Time) && valueOf(a.EndTime).Equal(valueOf(b.EndTime).Time)
}
