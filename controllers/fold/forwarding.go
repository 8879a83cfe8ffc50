package fold

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// KnownForwarding is what is known about the forwarding of an Incident, beside its status.
type KnownForwarding struct {
	Disabled      bool                      // Incidents are not forwarded
	Reason        v1alpha1.ForwardingReason // empty: not known
	Severity      v1alpha1.Severity         // with which it was posted
	Alertmanagers int64                     // to which it was posted
	Opened        time.Time                 // when the episode that was posted opened: it may be an earlier one
	Message       string                    // why it was not
}

// ForwardingOf returns what the status of an Incident is to say about its forwarding.
//
// What an Alertmanager has accepted stays so while nothing else is known: a new leader knows of no request of the last one. An
// Incident that is resolved keeps what was so while it was open.
func ForwardingOf(status *v1alpha1.IncidentStatus, known KnownForwarding, now time.Time) *v1alpha1.Forwarding {
	before := status.Forwarding
	if status.State != v1alpha1.IncidentOpen {
		return before
	}
	next := known.next(status, now)
	switch {
	case next == nil:
		return nil
	case before == nil || before.Reason != next.Reason:
		next.Time = *timestamp(now)
	case before.Severity == next.Severity && before.Message == next.Message:
		return before
	default:
		next.Time = before.Time
	}
	return next
}

// next returns the status.forwarding that an open Incident is to have, without its time; nil if it is to have none.
func (known *KnownForwarding) next(status *v1alpha1.IncidentStatus, now time.Time) *v1alpha1.Forwarding {
	before, muted := status.Forwarding, MutedBy(status)
	next := &v1alpha1.Forwarding{Reason: known.Reason, Message: plaintext.ShortMessage(known.Message)}
	switch {
	case muted != nil && muted.Severity == "":
		next.Reason, next.Message = v1alpha1.ForwardingMuted, plaintext.ShortMessage(muted.Message)
	case known.Disabled:
		return nil
	case IsHeld(status, now) && !known.isExcluded():
		next.Reason = v1alpha1.ForwardingHeld
		next.Message = fmt.Sprintf("Held back by the integration's forwardAfter until %s.",
			status.Episode.ForwardTime.UTC().Format(time.RFC3339))
	case known.Reason == v1alpha1.ForwardingPosted:
		next.Severity, next.Alertmanagers = known.Severity, known.Alertmanagers
	case known.Reason == "" && before != nil && before.Severity != "":
		next = before.DeepCopy()
		next.Reason, next.Message = v1alpha1.ForwardingPosted, ""
	case known.Reason == "":
		return nil
	}
	if next.Reason == v1alpha1.ForwardingPosted && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSilenced) {
		next.Reason = v1alpha1.ForwardingSilenced
	}
	return next
}

// isExcluded reports whether the Incident is not posted at all.
func (known *KnownForwarding) isExcluded() bool {
	return known.Reason == v1alpha1.ForwardingOff || known.Reason == v1alpha1.ForwardingFiltered ||
		known.Reason == v1alpha1.ForwardingFromAlertmanager
}

// forwardingRule records whether people are told of the Incident, and each change of that in the timeline.
type forwardingRule struct{ noRule }

func (forwardingRule) alert(f *folding, _ receivedAlert, before stateBefore) {
	if !before.isOpen && f.status.State == v1alpha1.IncidentOpen && !continuesLast(f.status) {
		f.status.Forwarding = nil // people are to be told anew
	}
}

// begin tells what this leader has posted: the episode may end in this fold.
func (forwardingRule) begin(f *folding) {
	if f.status.State == v1alpha1.IncidentOpen && f.isKnownAccepted() {
		f.tellForwarding()
	}
}

func (forwardingRule) finish(f *folding, _ stateBefore) { f.tellForwarding() }

// tellForwarding has the status tell what is known about the forwarding.
func (f *folding) tellForwarding() {
	before := f.status.Forwarding
	next := ForwardingOf(f.status, f.in.Forwarding, f.in.Now)
	f.status.Forwarding = next
	if next == before || next == nil { // turning the forwarding off costs no writes: it is written with the next change
		isReleased := before != nil && before.Reason == v1alpha1.ForwardingHeld // which the forwarding has to learn
		f.plan.Write = f.plan.Write || next == nil && isReleased
		return
	}
	f.plan.Write = true
	if before == nil || before.Reason != next.Reason {
		message := strings.TrimSuffix(cmp.Or(forwardingMessages[next.Reason], "Not posted to Alertmanager")+". "+next.Message, ". ")
		f.plan.AddEntry(v1alpha1.Transition{Type: v1alpha1.TransitionForwarding, Time: next.Time, Message: message})
	}
}

// forwardingMessages are what the timeline says; of the other reasons, that it is not posted.
var forwardingMessages = map[v1alpha1.ForwardingReason]string{
	v1alpha1.ForwardingPosted:   "Posted to Alertmanager",
	v1alpha1.ForwardingSilenced: "Silenced in Alertmanager",
	v1alpha1.ForwardingMuted:    "Muted",
	v1alpha1.ForwardingHeld:     "Not posted to Alertmanager yet",
}

// Muting knows when the Incidents of an integration are muted.
type Muting interface {
	// Mutes reports whether one with this content is muted at a time, by what, and until when; zero: without end.
	Mutes(content *v1alpha1.AlertContent, at time.Time) (by string, until time.Time, muted bool)
}

// Muted is what mutes an Incident: what people were told of it before stays so.
type Muted struct {
	Severity v1alpha1.Severity // with which it was forwarded before, and still is; empty: it was not
	Until    time.Time         // zero: for as long as the status notes it
	Message  string            // why it is not forwarded
}

// MutedBy returns what mutes an Incident, by its status; nil if nothing does.
func MutedBy(status *v1alpha1.IncidentStatus) *Muted {
	for _, r := range rules {
		if muted := r.muted(status); muted != nil {
			return muted
		}
	}
	return nil
}

// IsHeld reports whether an Open Incident is not forwarded yet at a time, because of its forwardTime. One that was noted by a
// clock that has been set back since then is forwarded at once: nobody knows for how long it has been open.
func IsHeld(status *v1alpha1.IncidentStatus, at time.Time) bool {
	return status.State == v1alpha1.IncidentOpen && status.Episode != nil && isSet(status.Episode.ForwardTime) &&
		at.Before(status.Episode.ForwardTime.Time) && !wasAccepted(status) && !IsFuture(valueOf(status.OpenedTime).Time, at)
}

// isNotForwarded reports whether the Incident has not been forwarded. What the last fold has held back was not, even if its
// time has come since then.
func (f *folding) isNotForwarded() bool {
	last := f.status.Forwarding
	return !f.isAccepted() && (IsHeld(f.status, f.in.Now) || last != nil && last.Reason == v1alpha1.ForwardingHeld)
}

// isAccepted reports whether an Alertmanager has accepted the current episode, as far as its status or this leader knows.
func (f *folding) isAccepted() bool {
	return wasAccepted(f.status) || f.isKnownAccepted()
}

// isKnownAccepted reports whether this leader knows that an Alertmanager has accepted the current episode.
func (f *folding) isKnownAccepted() bool {
	known := &f.in.Forwarding
	return known.Severity != "" && known.Opened.Equal(valueOf(f.status.OpenedTime).Time)
}

// wasAccepted reports whether an Alertmanager has accepted the episode, by its status.
func wasAccepted(status *v1alpha1.IncidentStatus) bool {
	return status.Forwarding != nil && status.Forwarding.Severity != ""
}

// WasHeld reports whether what ended at a time in the current episode ended before the episode's forwardTime: then neither it nor
// its end is forwarded.
func WasHeld(status *v1alpha1.IncidentStatus, ended time.Time) bool {
	return status.Episode != nil && isSet(status.Episode.ForwardTime) && !ended.After(status.Episode.ForwardTime.Time) &&
		!ended.Before(valueOf(status.OpenedTime).Time)
}

// EndIsKeptBack reports whether a Resolved Incident is forwarded as one that fires.
func EndIsKeptBack(status *v1alpha1.IncidentStatus, now time.Time) bool {
	return status.State == v1alpha1.IncidentResolved && keptFiring(status) != nil && now.Before(ForwardedEnd(status)) &&
		!IsFuture(valueOf(status.ResolvedTime).Time, now)
}

// ForwardedEnd returns when the end of the last episode is forwarded; zero while the Incident is open.
func ForwardedEnd(status *v1alpha1.IncidentStatus) time.Time {
	end := valueOf(status.ResolvedTime).Time
	if kept := keptFiring(status); kept != nil && !end.IsZero() {
		end = Latest(end, kept.EndTime.Time)
	}
	return end
}

// ForwardedSeverity returns the severity with which an Incident is forwarded unless it is muted. It does not fall while it flaps.
func ForwardedSeverity(status *v1alpha1.IncidentStatus) v1alpha1.Severity {
	if kept := keptFiring(status); kept != nil && (status.State == v1alpha1.IncidentResolved || continuesLast(status)) {
		return kept.Severity
	}
	return status.Alert.Severity
}

// keptFiring returns the record of what is forwarded as if it fired; nil if there is none.
func keptFiring(status *v1alpha1.IncidentStatus) *v1alpha1.KeptFiring {
	if status.Flapping == nil {
		return nil
	}
	return status.Flapping.KeptFiring
}

// continuesLast reports whether the current episode has opened before the end of the last one was forwarded, and the Incident
// flaps: Alertmanager is told of nothing but a rise of the severity.
func continuesLast(status *v1alpha1.IncidentStatus) bool {
	kept := keptFiring(status)
	return kept != nil && isSet(status.Flapping.EndTime) && valueOf(status.OpenedTime).Before(kept.EndTime.Time)
}

// ForwardedPeriods returns the periods in which an Incident was forwarded with one severity, as far as its timeline tells. They
// are those in which it was open with that severity. From the first end on that was kept back, they have no gaps, and the
// severity does not fall.
func ForwardedPeriods(status *v1alpha1.IncidentStatus) []SeverityPeriod {
	periods, kept := SeverityPeriods(status.Timeline), keptFiring(status)
	if kept == nil {
		return periods
	}
	to := kept.EndTime.Time
	if status.State == v1alpha1.IncidentOpen && continuesLast(status) {
		to = time.Time{}
	}
	begun := slices.IndexFunc(periods, func(p SeverityPeriod) bool { return !p.From.Before(kept.StartTime.Time) })
	if begun < 0 {
		begun = len(periods)
	}
	told, later, last := slices.Clone(periods[:begun]), []SeverityPeriod(nil), begun-1
	for _, p := range periods[begun:] {
		if last >= 0 && IsMoreSevere(p.Severity, told[last].Severity) {
			told[last].To = p.From
			told, last = append(told, p), last+1
		}
		if !to.IsZero() && (p.To.IsZero() || p.To.After(to)) {
			later = append(later, p)
		}
	}
	if last < 0 || told[last].Severity != kept.Severity { // the timeline is too short, or the others were muted
		told, last = append(told, SeverityPeriod{Severity: kept.Severity, From: kept.StartTime.Time}), last+1
	}
	told[last].To = to
	return append(told, later...)
}

// SeverityPeriod is a continuous period in which an Incident was open with one severity.
type SeverityPeriod struct {
	Severity v1alpha1.Severity
	From     time.Time
	To       time.Time // zero if the period lasts
}

// SeverityPeriods returns the periods that a timeline tells, oldest first. A timeline keeps MaxTimeline transitions, so
// older periods are missing.
func SeverityPeriods(timeline []v1alpha1.Transition) []SeverityPeriod {
	var periods []SeverityPeriod
	for i := range timeline {
		entry := &timeline[i]
		switch entry.Type {
		case v1alpha1.TransitionOpened, v1alpha1.TransitionReopened, v1alpha1.TransitionSeverityChanged,
			v1alpha1.TransitionResolved:
			if last := len(periods) - 1; last >= 0 && periods[last].To.IsZero() {
				periods[last].To = entry.Time.Time
			}
			if entry.Severity != "" {
				periods = append(periods, SeverityPeriod{Severity: entry.Severity, From: entry.Time.Time})
			}
		default: // the severity stays
		}
	}
	return periods
}
