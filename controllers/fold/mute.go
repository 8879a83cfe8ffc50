package fold

import (
	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// updateMute mutes the Incident while a maintenance window is open. The record is written together with what the alerts have
// changed, so the forwarding never sees an episode that began in a window without it.
//
// An Incident that was open and not muted is forwarded with the severity that was read, and stays so. One that is resolved keeps
// the record: what was not forwarded has no end to forward.
func (f *folding) updateMute() {
	read, status := &f.in.Incident.Status, f.status
	isOpen, wasOpen := status.State == v1alpha1.IncidentOpen, read.State == v1alpha1.IncidentOpen
	if !isOpen && !wasOpen && episodeOf(read) == episodeOf(status) || isOpen && f.staysMuted() {
		return
	}
	last, muted := f.in.Policy.Maintenance.Mutes(&status.Alert, f.in.Policy.APITime)
	mute := f.muteOf(wasOpen, isOpen, muted)
	if mute != nil && isOpen {
		mute.Window = last.Window
		if !last.Until.IsZero() {
			mute.EndTime = timestamp(last.Until)
		}
	}
	if sameMute(read.Mute, mute) {
		return
	}
	status.Mute = mute
	f.plan.Write = true // not urgent: a user may change the windows all the time
}

// staysMuted reports whether the integration of a muted Incident is absent. It may come again, with the window: until that ends,
// the record stays. Meanwhile nothing is forwarded.
func (f *folding) staysMuted() bool {
	read := &f.in.Incident.Status
	return f.in.Policy.Absent && read.State == v1alpha1.IncidentOpen && read.Mute != nil &&
		(read.Mute.EndTime == nil || f.in.Policy.APITime.Before(read.Mute.EndTime.Time))
}

// muteOf returns the record without the window, nil if the Incident is not muted. muted says that a window is open.
func (f *folding) muteOf(wasOpen, isOpen, muted bool) *v1alpha1.Mute {
	read, now := &f.in.Incident.Status, f.in.Policy.APITime
	switch {
	case isOpen && !muted:
		return nil
	case wasOpen && read.Mute != nil:
		return &v1alpha1.Mute{StartTime: read.Mute.StartTime, ForwardedSeverity: read.Mute.ForwardedSeverity}
	case wasOpen && isOpen:
		return &v1alpha1.Mute{StartTime: *timestamp(now), ForwardedSeverity: read.Alert.Severity}
	case !wasOpen && muted:
		return &v1alpha1.Mute{StartTime: *timestamp(now)}
	default:
		return nil
	}
}

// episodeOf returns the number of the episode, 0 if there is none.
func episodeOf(status *v1alpha1.IncidentStatus) int64 {
	if status.Episode == nil {
		return 0
	}
	return status.Episode.Number
}

func sameMute(a, b *v1alpha1.Mute) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Window == b.Window && valueOf(a.EndTime).Equal(valueOf(b.EndTime).Time) && a.StartTime.Equal(b.StartTime.Time) &&
		a.ForwardedSeverity == b.ForwardedSeverity
}
