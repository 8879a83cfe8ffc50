package fold

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Messages of an Incident's conditions. They are stable, so that a condition changes only with its state.
const (
	messageFiring          = "The incident is open."
	messageAutoResolved    = "No alert came within the integration's autoResolveAfter."
	messageExpired         = "The sender stopped repeating the alert, and the time until which it was valid has passed."
	messageNotAcknowledged = "Nobody has acknowledged the incident."
)

// maxEpisodeTitle is that of the schema. A character takes up to six bytes in JSON.
const maxEpisodeTitle, bytesPerChar = 256, 6

// receivedAlert is an alert with the data of its event.
type receivedAlert struct {
	*v1alpha1.Alert
	received    time.Time
	quietSince  time.Time // since when its sender may be quiet, see quietSince
	stored      time.Time // by the API server's clock, see storedTime
	defaults    *v1alpha1.AlertDefaults
	integration string // of the event or, if it names none, of the Incident
	overtaken   bool   // a newer event is folded already
}

// apply takes in one alert and returns its result. If there is no Incident, an alert that cannot open one changes nothing. Every
// time is that of an alert, so folding the same alerts again gives the same status.
func (f *folding) apply(a receivedAlert) string {
	if f.status.State == "" && isFollowUp(a.Status) {
		return ResultNoMatch
	}
	result := f.step(a)
	if a.Status == v1alpha1.AlertNoted && a.Comment != "" {
		f.plan.AddEntry(a.transition(v1alpha1.TransitionNoted, "Noted"))
	}
	f.count(a)
	return result
}

// step is the table of the life cycle.
func (f *folding) step(a receivedAlert) string {
	switch {
	case f.status.State == "":
		f.open(a, v1alpha1.TransitionOpened)
		return ResultOpened
	case a.overtaken:
		return f.ignore(a, v1alpha1.IgnoredOvertaken)
	}
	for _, r := range f.rules {
		if result := r.takeReport(f, a); result != "" {
			return result
		}
	}
	switch {
	case f.status.State != v1alpha1.IncidentResolved:
		return f.stepOpen(a)
	case isFollowUp(a.Status):
		return ResultLate
	case isLateDuplicate(f.status, a, f.in.Policy.lateWindow(a.Preset)):
		return f.ignore(a, v1alpha1.IgnoredLate)
	default:
		f.open(a, v1alpha1.TransitionReopened)
		return ResultReopened
	}
}

// stepOpen takes in an alert of an Incident that is Open.
func (f *folding) stepOpen(a receivedAlert) string {
	if isStaleResolve(f.status, a) {
		return f.ignore(a, v1alpha1.IgnoredStale)
	}
	before := f.status.Alert.Severity
	replaced := f.merge(a)
	f.noteReplaced(a, replaced)
	if a.Status == v1alpha1.AlertFiring {
		f.status.Expiry = expiryOf(a)
	}
	if a.Status == v1alpha1.AlertResolved {
		f.resolve(a.describe(v1alpha1.TransitionResolved, v1alpha1.ReasonResolvedByAlert, v1alpha1.ReasonResolvedByUser))
		return ResultResolved
	}
	if after := f.status.Alert.Severity; before != after && before != "" {
		f.plan.AddEntry(v1alpha1.Transition{
			Type: v1alpha1.TransitionSeverityChanged, Time: *timestamp(a.received), Severity: after,
			Message: fmt.Sprintf("Severity changed from %s to %s", before, after),
		})
	}
	return f.acknowledge(a)
}

// isLateDuplicate reports whether a firing repeats the episode that has ended: it was received within the window of the
// resolve, or before it (by another replica's clock, or it was stored late), and its startTime is not after the newest one of
// that episode, or not after its end.
//
// After the window, the sender says that the trouble goes on: Prometheus keeps startTime when its alerts could not reach
// Alertmanager for a while and were resolved there. A duplicate that reopens an Incident annoys; an outage that stays hidden
// hurts. With a window of zero, the sender delivers in order.
//
// Only times up to the resolve are believed: some senders write a predicted end into every alert, and an end in the year 9999
// must not hide every later outage. A startTime that the ended episode had is late whatever it is. After an Incident resolved by
// itself, no alert has said that the trouble was over, so whatever fires then reopens it.
func isLateDuplicate(s *v1alpha1.IncidentStatus, a receivedAlert, window time.Duration) bool {
	if !isSet(a.StartTime) || window <= 0 || !isSet(s.ResolvedTime) || a.received.Sub(s.ResolvedTime.Time) >= window ||
		IsFuture(s.ResolvedTime.Time, a.stored) { // the clock has been set back, and would hide it until then
		return false
	}
	resolved := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResolved)
	if resolved != nil && (resolved.Reason == v1alpha1.ReasonAutoResolved || resolved.Reason == v1alpha1.ReasonExpired) {
		return false
	}
	episode := cmp.Or(s.Episode, &v1alpha1.Episode{})
	for _, known := range []*v1alpha1.Timestamp{s.Alert.StartTime, episode.LastStartTime} {
		if isSet(known) && a.StartTime.Equal(known.Time) {
			return true
		}
	}
	if a.StartTime.After(s.ResolvedTime.Time) {
		return false
	}
	last := Latest(episode.StartTime.Time, valueOf(episode.LastStartTime).Time, valueOf(s.Alert.EndTime).Time)
	return !a.StartTime.After(last)
}

// isStaleResolve reports whether a resolve of a sender is about an earlier firing than the newest of the episode: its endTime,
// or without one its startTime, is before the startTime of that firing. A sender repeats and delays messages, so the resolve of
// an earlier round may come after the firing of the next one; it must not end what fires.
//
// Only times given by the sender are compared: an episode whose alerts have no startTime is resolved by any resolve. So is one
// that began in the future by the API server's clock, since that was set back: a heartbeat goes by it, and its Incident would
// stay open. A startTime of the future alone says that the sender's clock is ahead.
func isStaleResolve(s *v1alpha1.IncidentStatus, a receivedAlert) bool {
	last := cmp.Or(s.Episode, &v1alpha1.Episode{}).LastStartTime
	if a.Status != v1alpha1.AlertResolved || a.by() != "" || !isSet(last) {
		return false
	}
	if IsFuture(last.Time, a.stored) && IsFuture(valueOf(s.LastAlertTime).Time, a.stored) {
		return false
	}
	about := valueOf(a.EndTime, a.StartTime)
	return !about.IsZero() && about.Before(last.Truncate(unitOf(about.Time)))
}

// unitOf is the unit in which a sender appears to give a time. Some give the end of an alert in seconds and its start
// with a fraction; an alert that ends in the second in which it started must not seem to end before.
func unitOf(t time.Time) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		if t.Truncate(unit).Equal(t) {
			return unit
		}
	}
	return time.Microsecond
}

// ignore leaves a trace of an alert that came too late to change anything but the count: whoever waits for what it reported finds
// out why nothing happened.
func (f *folding) ignore(a receivedAlert, reason v1alpha1.IgnoredReason) string {
	f.status.LastIgnored = &v1alpha1.IgnoredAlert{
		Reason: reason, Time: *timestamp(a.received), Message: plaintext.ShortMessage(whyIgnored(f.status, a, reason)),
	}
	return ResultLate
}

func whyIgnored(s *v1alpha1.IncidentStatus, a receivedAlert, reason v1alpha1.IgnoredReason) string {
	switch at := func(t *v1alpha1.Timestamp) string { return t.UTC().Format(time.RFC3339) }; reason {
	case v1alpha1.IgnoredLate:
		return fmt.Sprintf("A firing that began at %s repeats the episode that was resolved at %s.",
			at(a.StartTime), at(s.ResolvedTime))
	case v1alpha1.IgnoredStale:
		about, verb := a.EndTime, "ended"
		if !isSet(about) {
			about, verb = a.StartTime, "began"
		}
		return fmt.Sprintf("A resolve of what %s at %s is about an earlier firing than the one that began at %s.",
			verb, at(about), at(s.Episode.LastStartTime))
	default:
		return fmt.Sprintf("An alert with status %s was folded after one that had been accepted later.", a.Status)
	}
}

// transition returns the entry of the timeline for a report.
func (a *receivedAlert) transition(kind v1alpha1.TransitionType, did string) v1alpha1.Transition {
	by := a.by()
	return v1alpha1.Transition{
		Type: kind, Time: *timestamp(a.received), Message: did + " by " + cmp.Or(by, byAlert),
		By: by, Comment: plaintext.ShortComment(a.Comment),
	}
}

// byAlert is the author of what no person did.
const byAlert = "an alert"

// by is the name of the user whose report the alert is, in one line; empty for an alert of a sender.
func (a *receivedAlert) by() string { return plaintext.ShortName(a.By) }

// describe returns the reason and the message of the condition that a report of a sender or a user changes, and its entry.
func (a *receivedAlert) describe(kind v1alpha1.TransitionType, bySender, byUser string) (
	reason, message string, entry v1alpha1.Transition,
) {
	entry, reason = a.transition(kind, string(kind)), bySender
	if entry.By != "" {
		reason = byUser
	}
	return reason, fmt.Sprintf("%s %s the incident.", cmp.Or(entry.By, "An alert"), strings.ToLower(string(kind))), entry
}

// open begins an episode. The content starts afresh, unless a person reopens the Incident, who tells nothing of it.
func (f *folding) open(a receivedAlert, transition v1alpha1.TransitionType) {
	for _, r := range f.rules {
		r.opens(f)
	}
	s := f.status
	number := int64(1)
	if s.Episode != nil {
		number = s.Episode.Number + 1
	}
	s.State = v1alpha1.IncidentOpen
	s.Episode = &v1alpha1.Episode{Number: number}
	s.OpenedTime = timestamp(a.received)
	s.ResolvedTime, s.Resolution, s.Acknowledgement, s.LastIgnored = nil, nil, nil, nil
	s.Expiry = expiryOf(a)
	if a.IsReport {
		s.Alert.StartTime, s.Alert.EndTime = nil, nil
	} else {
		s.Alert = v1alpha1.AlertContent{}
	}
	f.sizeBound = alertcontent.Size(&s.Alert) + maxTitleBytes // a title may be made from the description
	f.condition(v1alpha1.ConditionResolved, metav1.ConditionFalse, a.received, v1alpha1.ReasonFiring, messageFiring)
	f.condition(v1alpha1.ConditionAcknowledged, metav1.ConditionFalse, a.received,
		v1alpha1.ReasonNotAcknowledged, messageNotAcknowledged)
	replaced := f.merge(a)
	f.labelObject()
	if s.Alert.Title != defaultTitle+a.integration {
		s.Episode.Title = plaintext.OneLine(s.Alert.Title, maxEpisodeTitle, bytesPerChar*maxEpisodeTitle)
	}
	entry := a.transition(transition, string(transition))
	if entry.By == "" {
		entry.Message, entry.Comment = string(transition), ""
	}
	entry.Severity = s.Alert.Severity
	entry.Message = fmt.Sprintf("%s with severity %s: %s", entry.Message, s.Alert.Severity, s.Alert.Title)
	f.plan.AddEntry(entry)
	f.noteReplaced(a, replaced) // after the opening: it is of this episode
	f.plan.Urgent = true
}

// merge merges the content of an alert. It returns what had to be replaced because the content was too large, empty without that.
func (f *folding) merge(a receivedAlert) (replaced string) {
	content, mergeInto := &f.status.Alert, mergeContent
	if a.Status == v1alpha1.AlertResolved {
		mergeInto = mergeResolve
	}
	mergeInto(content, &a.AlertContent)
	content.Origins = mergeOrigins(content, &a)
	fillContent(content, a.defaults, a.integration)
	// Measuring a large content for each of thousands of small alerts would cost seconds: measure it when
	// the sum of the alerts could have passed the limit.
	f.sizeBound += alertcontent.Size(&a.AlertContent) + defaultsSize(a.defaults) + resolvedTextsSize
	if f.sizeBound > alertcontent.MaxBytes || alertcontent.Keys(content) > alertcontent.MaxKeys {
		replaced = boundContent(content, &a.AlertContent, a.defaults, a.integration)
		f.sizeBound = alertcontent.Size(content)
	}
	episode, began := f.episode(), valueOf(a.StartTime, timestamp(a.received))
	if !isSet(&episode.StartTime) || began.Before(episode.StartTime.Time) {
		episode.StartTime = began
	}
	noteStart(episode, a)
	return replaced
}

// noteStart keeps the latest startTime of the episode's firing alerts. One that is far ahead of its receipt is no time of a
// sender's clock, and would keep every resolve out.
func noteStart(episode *v1alpha1.Episode, a receivedAlert) {
	if a.Status != v1alpha1.AlertFiring || !isSet(a.StartTime) || a.StartTime.Sub(a.received) > maxClockLead {
		return
	}
	if last := episode.LastStartTime; !isSet(last) || last.Before(a.StartTime.Time) {
		episode.LastStartTime = a.StartTime.DeepCopy()
	}
}

// noteReplaced tells in the timeline what had to be replaced.
func (f *folding) noteReplaced(a receivedAlert, replaced string) {
	if replaced != "" {
		f.plan.addEntryOnce(v1alpha1.Transition{
			Type: v1alpha1.TransitionContentReplaced, Time: *timestamp(a.received), Message: replaced,
		})
	}
}

// resolve ends the episode with the entry of the timeline.
func (f *folding) resolve(reason, message string, entry v1alpha1.Transition) {
	f.status.State = v1alpha1.IncidentResolved
	f.status.ResolvedTime = &entry.Time
	f.status.Resolution = &v1alpha1.Resolution{Reason: reason, By: entry.By}
	f.status.Expiry = nil
	f.condition(v1alpha1.ConditionResolved, metav1.ConditionTrue, entry.Time.Time, reason, message)
	f.plan.AddEntry(entry)
	f.plan.Urgent = true
	for _, r := range f.rules {
		r.ends(f)
	}
}

// count counts an alert, whatever else became of it. It does not count notes, what only a report can say, and reports of people
// that do not fire: they do not say that the problem continues.
func (f *folding) count(a receivedAlert) {
	episode := f.episode()
	if !isSet(&episode.StartTime) {
		episode.StartTime = *timestamp(a.received) // the API server rejects an Incident without a start
	}
	switch a.Status {
	case v1alpha1.AlertFiring:
	case v1alpha1.AlertResolved, v1alpha1.AlertAcknowledged, v1alpha1.AlertUnacknowledged:
		if a.by() != "" {
			return
		}
	default:
		return
	}
	f.status.AlertCount++
	episode.AlertCount++
	if last := f.status.LastAlertTime; !isSet(last) || a.quietSince.After(last.Time) {
		f.status.LastAlertTime = timestamp(a.quietSince)
	}
}

// episode is the current one. An Incident written by another hand may lack it.
func (f *folding) episode() *v1alpha1.Episode {
	if f.status.Episode == nil {
		f.status.Episode = &v1alpha1.Episode{Number: 1, StartTime: valueOf(f.status.OpenedTime)}
	}
	return f.status.Episode
}

// condition sets a condition. Its transition time changes only with its status.
func (f *folding) condition(kind string, status metav1.ConditionStatus, at time.Time, reason, message string) {
	meta.SetStatusCondition(&f.status.Conditions, metav1.Condition{
		Type:               kind,
		Status:             status,
		ObservedGeneration: f.in.Incident.Generation,
		LastTransitionTime: metav1.NewTime(at.UTC().Truncate(time.Second)),
		Reason:             reason,
		Message:            message,
	})
}

// AddEntry adds an entry to the timeline, which keeps the newest.
func (p *Plan) AddEntry(entry v1alpha1.Transition) {
	entry.Message = plaintext.ShortMessage(entry.Message)
	p.Transitions = append(p.Transitions, entry)
	p.Status.Timeline = append(p.Status.Timeline, entry)
	p.Status.Timeline = p.Status.Timeline[max(0, len(p.Status.Timeline)-v1alpha1.MaxTimeline):]
}

// addEntryOnce adds an entry to the timeline, unless it ends with one of the same kind: a sender whose every alert is too
// large does not push everything else out of it.
func (p *Plan) addEntryOnce(entry v1alpha1.Transition) {
	if last := len(p.Status.Timeline) - 1; last < 0 || p.Status.Timeline[last].Type != entry.Type {
		p.AddEntry(entry)
	}
}

// isFollowUp reports whether an alert can only change an Incident that exists: whatever does not fire opens nothing.
func isFollowUp(status v1alpha1.AlertStatus) bool { return status != v1alpha1.AlertFiring }

// labelMarks are the characters of a label's value that it can neither begin nor end with.
const labelMarks = "-_."

// labelObject plans the labels of the Incident object for an episode that begins. They are those of its first alert: the same
// however many alerts are folded at once, and the same again after a crash. While its integration is deleted, an Incident keeps
// the labels that it has.
func (f *folding) labelObject() {
	if f.in.Policy.Absent {
		return
	}
	labels := map[string]string{}
	for _, name := range f.in.Policy.ObjectLabels {
		if value := labelValue(f.status.Alert.Labels[name]); value != "" {
			labels[v1alpha1.AlertLabelPrefix+name] = value
		}
	}
	f.plan.ObjectLabels = labels
}

// labelValue returns a text as the value of a label: itself if it is one, empty if nothing of it can be one.
func labelValue(text string) string {
	value := strings.Trim(strings.Map(labelChar, text), labelMarks)
	return strings.TrimRight(value[:min(len(value), validation.LabelValueMaxLength)], labelMarks)
}

func labelChar(c rune) rune {
	if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(labelMarks, c) {
		return c
	}
	return '_'
}
