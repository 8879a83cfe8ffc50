package fold

import (
	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// forwarding is what decides how an Incident was forwarded: before an alert, or at the end of a fold before the time changed it.
type forwarding struct {
	isOpen   bool
	severity v1alpha1.Severity
	mute     *v1alpha1.Mute
}

func (f *folding) forwarding() forwarding {
	return forwarding{f.status.State == v1alpha1.IncidentOpen, f.status.Alert.Severity, f.status.Mute}
}

// updateMute mutes the Incident while a maintenance window is open. The record is written together with what the alerts have
// changed, so the forwarding never sees an episode that began in a window without it. It is brought up to date after each alert,
// so it is the same however many alerts are folded at once.
//
// An Incident that was open and not muted before is forwarded with the severity that it had, and stays so. One that is resolved
// keeps the record: what was not forwarded has no end to forward.
func (f *folding) updateMute(before forwarding) {
	status := f.status
	isOpen := status.State == v1alpha1.IncidentOpen
	if !isOpen && !before.isOpen || isOpen && f.staysMuted(before) {
		return
	}
	last, muted := f.in.Policy.Maintenance.Mutes(&status.Alert, f.in.Now)
	mute := f.muteOf(before, isOpen, muted)
	if mute != nil && isOpen {
		mute.Window = last.Window
		if !last.Until.IsZero() {
			mute.EndTime = timestamp(last.Until)
		}
	}
	if sameMute(before.mute, mute) {
		return
	}
	status.Mute = mute
	f.plan.Write = true // not urgent: a user may change the windows all the time
}

// staysMuted reports whether the integration of a muted Incident is absent, or its windows are unknown. It may come again, with
// the window: until that ends, the record stays. Meanwhile nothing is forwarded.
func (f *folding) staysMuted(before forwarding) bool {
	return (f.in.Policy.Absent || f.in.Policy.Stub) && before.isOpen && before.mute != nil &&
		(before.mute.EndTime == nil || f.in.Now.Before(before.mute.EndTime.Time))
}

// muteOf returns the record without the window, nil if the Incident is not muted. muted says that a window is open.
func (f *folding) muteOf(before forwarding, isOpen, muted bool) *v1alpha1.Mute {
	now := *timestamp(f.in.Now)
	switch {
	case isOpen && !muted:
		return nil
	case before.isOpen && before.mute != nil:
		return &v1alpha1.Mute{StartTime: before.mute.StartTime, ForwardedSeverity: before.mute.ForwardedSeverity}
	case before.isOpen && isOpen:
		return &v1alpha1.Mute{StartTime: now, ForwardedSeverity: before.severity}
	case isOpen:
		return &v1alpha1.Mute{StartTime: now}
	default:
		return nil
	}
}

func sameMute(a, b *v1alpha1.Mute) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Window == b.Window && valueOf(a.EndTime).Equal(valueOf(b.EndTime).Time) && a.StartTime.Equal(b.StartTime.Time) &&
		a.ForwardedSeverity == b.ForwardedSeverity
}
