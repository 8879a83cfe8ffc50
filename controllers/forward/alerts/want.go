package alerts

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// set is a label set that fires, or has fired. Labels and severity are the identity of the alert.
type set struct {
	labels   string // the JSON object of all labels but the severity, in alphabetical order: equal labels are equal strings
	severity v1alpha1.Severity
	from, to time.Time // to is zero while it fires
}

func (s set) fires() bool { return s.to.IsZero() }

// setOf returns the set of an alert's labels.
func setOf(labels map[string]string) set {
	_, severity := IncidentOf(labels)
	labels = maps.Clone(labels)
	delete(labels, labelSeverity)
	return set{labels: encodeLabels(labels), severity: severity}
}

func (s set) isSame(other set) bool { return s.labels == other.labels && s.severity == other.severity }

// Wanted is what an Alertmanager is to know of an Incident.
type Wanted struct {
	sets []set // the one that fires, if any, and those that have ended lately, newest first

	// muted is what mutes the Incident, nil if nothing does: the set with which it was posted before fires on as it is.
	muted *fold.Muted

	labels string    // of the sets; empty if the target excludes the Incident, or does not know it
	since  time.Time // when the set begins that fires, or would
}

// Firing returns the severity of the set that fires; empty if none does.
func (w *Wanted) Firing() v1alpha1.Severity {
	if len(w.sets) == 0 || !w.sets[0].fires() {
		return ""
	}
	return w.sets[0].severity
}

// IsMuted reports whether the Incident is muted.
func (w *Wanted) IsMuted() bool { return w.muted != nil }

// IsEmpty reports whether nothing is to be posted.
func (w *Wanted) IsEmpty() bool { return len(w.sets) == 0 }

// Want returns what the target's Alertmanager is to know of an Incident, by its status. muting is that of the integration. All
// arguments but the time may be nil.
func (t *Target) Want(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, muting fold.Muting, now time.Time,
) Wanted {
	w := Wanted{muted: mutedBy(incident, integration, muting, now)}
	if incident == nil || incident.Status.State == "" || integration == nil || t.ExcludesIncident(incident, integration) != nil {
		return w
	}
	status := &incident.Status
	w.since, w.labels = startOf(incident, now), labelsOf(incident, integration, t.Settings)
	severity := fold.ForwardedSeverity(status)
	if w.muted != nil {
		severity = w.muted.Severity
		if severity == "" {
			return w
		}
	}
	add := func(severity v1alpha1.Severity, from, to time.Time) {
		s := set{w.labels, severity, from, to}
		if t.hasSeverity(severity) && !slices.ContainsFunc(w.sets, s.isSame) {
			w.sets = append(w.sets, s)
		}
	}
	if fires(status, now) {
		add(severity, w.since, time.Time{})
	}
	for _, period := range slices.Backward(periodsOf(status, w.muted)) {
		from := w.since
		if status.OpenedTime != nil && period.To.Before(status.OpenedTime.Time) { // of an earlier episode
			from = period.From
		}
		if t.isToEnd(status, period.To, now) {
			add(period.Severity, from, period.To)
		}
	}
	return w
}

// fires reports whether an Incident is posted as one that fires, unless it is muted.
func fires(status *v1alpha1.IncidentStatus, now time.Time) bool {
	return status.State == v1alpha1.IncidentOpen && !fold.IsHeld(status, now) || fold.EndIsKeptBack(status, now)
}

// isToEnd reports whether the end of what fired until a time is posted; zero stands for what fires still. What was never
// forwarded has no end to forward.
func (t *Target) isToEnd(status *v1alpha1.IncidentStatus, ended, now time.Time) bool {
	return !ended.IsZero() && now.Sub(ended) < t.EndedWindow() && !fold.WasHeld(status, ended)
}

// mutedBy returns what mutes an Incident by its status, nil if it is not muted. An open one is muted only while muting says so,
// too, unless the integration is a stub: it must be posted when the muting ends, even if its status cannot be written. All
// objects may be nil.
func mutedBy(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, muting fold.Muting, now time.Time,
) *fold.Muted {
	if incident == nil {
		return nil
	}
	muted := fold.MutedBy(&incident.Status)
	if muted == nil || incident.Status.State != v1alpha1.IncidentOpen {
		return muted
	}
	isMuted := integration != nil && !integrations.IsWhole(integration)
	if muting != nil && !isMuted {
		_, _, isMuted = muting.Mutes(&incident.Status.Alert, now)
	}
	isOver := !muted.Until.IsZero() && !now.Before(muted.Until) // also if another one mutes it, which the status lacks
	if !isMuted || isOver {
		return nil
	}
	return muted
}

// periodsOf returns the periods of the timeline. For a Resolved Incident, it adds the severity with which it was posted while it
// was muted, or its own if the timeline has no period.
func periodsOf(status *v1alpha1.IncidentStatus, muted *fold.Muted) []fold.SeverityPeriod {
	periods := fold.ForwardedPeriods(status)
	if status.State != v1alpha1.IncidentResolved || status.ResolvedTime == nil {
		return periods
	}
	if muted != nil {
		periods = append(periods, fold.SeverityPeriod{Severity: muted.Severity, To: fold.ForwardedEnd(status)})
	} else if len(periods) == 0 {
		periods = []fold.SeverityPeriod{{Severity: status.Alert.Severity, To: status.ResolvedTime.Time}}
	}
	return periods
}

// startOf returns when the current episode began, or when its first alert was received if that is earlier: a sender's clock
// may be ahead, and Alertmanager rejects an alert that ends before it starts.
func startOf(incident *v1alpha1.Incident, now time.Time) time.Time {
	start := now
	if opened := incident.Status.OpenedTime; opened != nil && !opened.IsZero() && opened.Before(start) {
		start = opened.Time
	}
	if episode := incident.Status.Episode; episode != nil && !episode.StartTime.IsZero() && episode.StartTime.Before(start) {
		start = episode.StartTime.Time
	}
	return start
}

// Urgent reports whether an Incident changed in a way that Alertmanager has to know at once; counts and texts can wait for the
// next round. before is nil if it was Resolved or absent, and labels are the names of those that are forwarded. received is the
// time at which the alert that caused a transition was received; zero for other changes.
func Urgent(before, after *v1alpha1.Incident, labels []string) (received time.Time, urgent bool) {
	if before == nil {
		before, urgent = &v1alpha1.Incident{}, true
	}
	was, is := &before.Status, &after.Status
	if n := len(is.Timeline); n > 0 {
		newest := is.Timeline[n-1]
		m, isOwn := len(was.Timeline), newest.Type == v1alpha1.TransitionForwarding
		if !isOwn && (m == 0 || !sameTransition(was.Timeline[m-1], newest)) {
			return newest.Time.Time, true
		}
	}
	urgent = urgent || was.State != is.State || (fold.MutedBy(was) == nil) != (fold.MutedBy(is) == nil) ||
		wasNotedHeld(was) != wasNotedHeld(is) ||
		fold.ForwardedSeverity(was) != fold.ForwardedSeverity(is) || was.Alert.Type != is.Alert.Type ||
		slices.ContainsFunc(labels, func(name string) bool { return was.Alert.Labels[name] != is.Alert.Labels[name] })
	return time.Time{}, urgent
}

// wasNotedHeld reports whether the fold that wrote a status found that its Incident is not forwarded yet.
func wasNotedHeld(status *v1alpha1.IncidentStatus) bool {
	return status.Forwarding != nil && status.Forwarding.Reason == v1alpha1.ForwardingHeld
}

func sameTransition(a, b v1alpha1.Transition) bool {
	return a.Type == b.Type && a.Message == b.Message && a.Time.Equal(b.Time.Time)
}

// Settings are what the configuration says about the alerts of all Alertmanagers.
type Settings struct {
	ExternalLabels      map[string]string
	AlertLabels         []string // names of the labels of senders that are forwarded
	AlertAnnotations    []string // names of the annotations of senders that are forwarded
	Expiry              time.Duration
	SilenceAcknowledged bool
	AssigneeLabel       bool     // forwarded alerts have a label that names who works on the Incident
	PageURL             *url.URL // of the page, for links to Incidents; nil if there is none
}

// RoundInterval is how often everything is posted: two posts of an expiry may fail.
func (s *Settings) RoundInterval() time.Duration {
	const postsPerExpiry = 3
	return min(MaxRoundInterval, s.Expiry/postsPerExpiry)
}

// EndedWindow is how long ended alerts are posted again.
func (s *Settings) EndedWindow() time.Duration { return max(MinEndedWindow, s.Expiry) }

// Target is which Incidents one Alertmanager is to know, and what of them.
type Target struct {
	*Settings
	Integrations labels.Selector
	Severities   []v1alpha1.Severity // empty: all
	ExternalURL  *url.URL            // of the Alertmanager, for links that people follow; nil if there is none
}

// Exclusion is why an Incident is not posted. Its message does not change while it applies.
type Exclusion struct {
	Condition string                    // the reason of the integration's condition Forwarded; empty if it excludes only a severity
	Status    v1alpha1.ForwardingReason // the reason in the Incident's status
	Message   string
}

var (
	forwardNever     = &Exclusion{v1alpha1.ReasonForwardNever, v1alpha1.ForwardingOff, "spec.forward is Never."}
	fromAlertmanager = &Exclusion{
		v1alpha1.ReasonFromAlertmanager, v1alpha1.ForwardingFromAlertmanager,
		"The alerts come from Alertmanager or vmalert. Set spec.forward to Always to forward the Incidents.",
	}
	notSelected = &Exclusion{
		v1alpha1.ReasonNotSelected, v1alpha1.ForwardingOff,
		"The operator's configuration selects this integration for no Alertmanager.",
	}
)

// ExcludesIntegration returns why no Incident of an integration is posted; nil if they are.
func (t *Target) ExcludesIntegration(integration *v1alpha1.WebhookIntegration) *Exclusion {
	return t.excludes(integration, integration.Spec.Preset)
}

// ExcludesIncident returns why an Incident of the integration is not posted, whatever its severity; nil if it is. The Incident
// has the preset that read its alerts. The Incidents that Tocsin itself opens come from no Alertmanager.
func (t *Target) ExcludesIncident(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration) *Exclusion {
	if v1alpha1.IsOwnKey(incident.Spec.DedupKey) {
		return t.excludes(integration)
	}
	return t.excludes(integration, integration.Spec.Preset, incident.Status.Alert.Preset)
}

// Excludes returns why an Incident of the integration is not posted with a severity; nil if it is.
func (t *Target) Excludes(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, severity v1alpha1.Severity,
) *Exclusion {
	if exclusion := t.ExcludesIncident(incident, integration); exclusion != nil {
		return exclusion
	}
	if !t.hasSeverity(severity) {
		return &Exclusion{
			Status:  v1alpha1.ForwardingFiltered,
			Message: fmt.Sprintf("The operator's configuration selects the severity %s for no Alertmanager.", severity),
		}
	}
	return nil
}

// excludes returns why alerts that one of the presets has read are not posted.
func (t *Target) excludes(integration *v1alpha1.WebhookIntegration, presets ...string) *Exclusion {
	switch {
	case integration.Spec.Forward == v1alpha1.ForwardNever:
		return forwardNever
	case integrations.StaysInAlertmanager(&integration.Spec, presets...):
		return fromAlertmanager
	case !t.Integrations.Matches(labels.Set(integration.Labels)):
		return notSelected
	default:
		return nil
	}
}

func (t *Target) hasSeverity(severity v1alpha1.Severity) bool {
	return len(t.Severities) == 0 || slices.Contains(t.Severities, severity)
}
