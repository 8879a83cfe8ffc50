package forward

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// The labels by which Tocsin identifies an alert. Neither external labels nor labels of the sender replace them.
const (
	labelAlertname   = "alertname"
	labelNamespace   = "namespace"
	labelIntegration = "integration"
	labelIncident    = v1alpha1.ForwardedLabel
	labelSeverity    = "severity"
	labelHops        = v1alpha1.HopsLabel
)

// ownAnnotations are the annotations that Tocsin writes, see annotationsOf.
var ownAnnotations = []string{"summary", "description", "host", "count", "acknowledged_by", "command"}

var identityLabels = []string{labelAlertname, labelNamespace, labelIntegration, labelIncident, labelSeverity, labelHops}

// noType is the type of alerts that have none, see package fold. It names no alert.
const noType = "webhook"

// alert is a postable alert of Alertmanager's API v2
// (https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml).
type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// set is a label set that fires, or has fired. Labels and severity are the identity of the alert.
type set struct {
	labels   string // the JSON object of all labels but the severity, in alphabetical order: equal labels are equal strings
	severity v1alpha1.Severity
	from, to time.Time // to is zero while it fires
}

func (s set) fires() bool { return s.to.IsZero() }

func (s set) isSame(other set) bool { return s.labels == other.labels && s.severity == other.severity }

// mutedBy returns the record of the maintenance by which an Incident is muted, nil if it is not. An open Incident is muted only
// while the windows say so, too, unless they are unknown: it must be forwarded at their end even if its status cannot be written.
// All objects may be nil.
func mutedBy(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, windows maintenance.Plan, now time.Time,
) *v1alpha1.Mute {
	if incident == nil || incident.Status.Mute == nil {
		return nil
	}
	mute := incident.Status.Mute
	_, muted := windows.Mutes(&incident.Status.Alert, now)
	muted = muted || integration != nil && !integrations.IsWhole(integration)
	isOver := mute.EndTime != nil && !now.Before(mute.EndTime.Time) // also if another window is open, of which the record is not
	if incident.Status.State == v1alpha1.IncidentOpen && (!muted || isOver) {
		return nil
	}
	return mute
}

// want returns the sets of an Incident that the target's Alertmanager has to know: the one that fires, if any, and those that
// have ended lately, newest first. While the Incident is muted, the set fires on with which it was forwarded before. All objects
// may be nil.
func want(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, mute *v1alpha1.Mute, t *target, now time.Time,
) (sets []set) {
	if incident == nil || incident.Status.State == "" || integration == nil || t.skipsIncident(incident, integration) != "" {
		return nil
	}
	severity := incident.Status.Alert.Severity
	if mute != nil {
		severity = mute.ForwardedSeverity
		if severity == "" {
			return nil
		}
	}
	status, since, labels := &incident.Status, startOf(incident, now), labelsOf(incident, integration, t.config)
	add := func(severity v1alpha1.Severity, from, to time.Time) {
		s := set{labels: labels, severity: severity, from: from, to: to}
		if t.hasSeverity(severity) && !slices.ContainsFunc(sets, s.isSame) {
			sets = append(sets, s)
		}
	}
	if status.State == v1alpha1.IncidentOpen {
		add(severity, since, time.Time{})
	}
	for _, period := range slices.Backward(periodsOf(status, mute)) {
		from := since
		if status.OpenedTime != nil && period.To.Before(status.OpenedTime.Time) { // of an earlier episode
			from = period.From
		}
		if !period.To.IsZero() && now.Sub(period.To) < t.config.endedWindow() {
			add(period.Severity, from, period.To)
		}
	}
	return sets
}

// periodsOf returns the periods of the timeline. The severity of a Resolved Incident counts only if that tells nothing, and the
// one with which it was forwarded while it was muted until it was resolved.
func periodsOf(status *v1alpha1.IncidentStatus, mute *v1alpha1.Mute) []fold.SeverityPeriod {
	periods := fold.SeverityPeriods(status.Timeline)
	if status.State != v1alpha1.IncidentResolved || status.ResolvedTime == nil {
		return periods
	}
	if mute != nil {
		periods = append(periods, fold.SeverityPeriod{Severity: mute.ForwardedSeverity, To: status.ResolvedTime.Time})
	} else if len(periods) == 0 {
		periods = []fold.SeverityPeriod{{Severity: status.Alert.Severity, To: status.ResolvedTime.Time}}
	}
	return periods
}

// memory is what one sender has posted: the sets that fire in its Alertmanager. A set that differs from the one that an
// Incident has now is ended by it. The timeline tells a new leader the same about severities; the memory knows of
// other labels, of Incidents that were deleted, and of those that are no longer forwarded.
type memory map[incidentKey]*posted

// posted are the sets of one Incident.
type posted struct {
	sets    []set       // the one that fires, and those that have ended and that the timeline may not tell, newest first
	labels  string      // of all sets
	changes []time.Time // when these changed lately
}

// update returns the wanted sets plus the sets posted earlier that must now end, and remembers what is going to be posted. The
// labels of a muted Incident stay as they are.
func (m memory) update(key incidentKey, sets []set, muted bool, window time.Duration, now time.Time) []set {
	p := m[key]
	if p == nil {
		p = &posted{}
		m[key] = p
	}
	p.steady(sets, muted, window, now)
	var remembered []set
	if len(sets) > 0 && sets[0].fires() {
		remembered = append(remembered, sets[0])
	}
	for _, old := range p.sets {
		if old.fires() {
			old.to = now
		}
		if now.Sub(old.to) >= window {
			continue
		}
		switch at := slices.IndexFunc(sets, old.isSame); {
		case at < 0:
			sets, remembered = append(sets, old), append(remembered, old)
		case !sets[at].fires() && old.to.Sub(sets[at].to) > maxRoundInterval: // it fired on while the Incident was muted
			remembered = append(remembered, old)
		}
	}
	p.sets = remembered[:min(len(remembered), 1+maxEndedSets)]
	if len(p.sets)+len(p.changes) == 0 {
		delete(m, key)
	}
	return sets
}

// steady changes the labels of sets to those of before if the Incident is muted, or if they have changed maxLabelChanges times
// lately. Only the severity still changes: it has few values. Alertmanager keeps each set for half an hour, so a sender that
// changes the type with every alert would fill it.
func (p *posted) steady(sets []set, muted bool, window time.Duration, now time.Time) {
	p.changes = slices.DeleteFunc(p.changes, func(at time.Time) bool { return now.Sub(at) >= window })
	switch {
	case len(sets) == 0 || sets[0].labels == p.labels:
	case p.labels == "", !muted && len(p.changes) < maxLabelChanges:
		p.labels, p.changes = sets[0].labels, append(p.changes, now)
	default:
		for i := range sets {
			sets[i].labels = p.labels
		}
	}
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

// labelsOf returns the labels of an Incident's alerts, see set. A default label of the integration wins over the sender's: alerts
// are routed by these labels, and no sender may choose the route of another team.
func labelsOf(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, config *Config) string {
	content := &incident.Status.Alert
	labels := map[string]string{}
	for _, name := range config.AlertLabels {
		value := shortLabel(content.Labels[name])
		if defaults := integration.Spec.Defaults; defaults != nil {
			value = cmp.Or(shortLabel(string(defaults.Labels[name])), value)
		}
		if value != "" {
			labels[name] = value
		}
	}
	maps.Copy(labels, config.ExternalLabels)
	labels[labelAlertname] = alertName(incident)
	labels[labelNamespace] = incident.Namespace
	labels[labelIntegration] = incident.Spec.IntegrationName
	labels[labelIncident] = incident.Name
	if hops := hopsOf(incident, integration); hops > 0 {
		labels[labelHops] = strconv.Itoa(hops)
	}
	encoded, _ := json.Marshal(labels) // strings always encode
	return string(encoded)
}

// hopsOf returns the hops of an Incident's alerts, 0 for one of this Tocsin's own. The webhook server has set the label on every
// alert of a federated integration; if it is not a number, or was lost with the content, the next Tocsin has to drop the alerts.
func hopsOf(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration) int {
	if !integration.Spec.Federate {
		return 0
	}
	text, found := incident.Status.Alert.Labels[labelHops]
	hops, err := strconv.Atoi(text)
	switch {
	case !found && v1alpha1.IsHeartbeatKey(incident.Spec.DedupKey): // an Incident of this Tocsin's own
		return 0
	case err != nil || hops < 1 || hops > v1alpha1.MaxHops:
		hops = v1alpha1.MaxHops
	}
	return hops + 1
}

// alertName returns the name of an Incident's alerts: its type, or the words without digits of the title with which the episode
// began. Such a name is the same for the next host, percentage or number, and the title of the episode never changes. An episode
// that an earlier version began has none, so an upgrade renames no alert that fires.
func alertName(incident *v1alpha1.Incident) string {
	if kind := shortLabel(incident.Status.Alert.Type); kind != "" && kind != noType {
		return kind
	}
	var words []string
	if episode := incident.Status.Episode; episode != nil {
		hasDigit := func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) }
		words = slices.DeleteFunc(strings.Fields(episode.Title), hasDigit)
	}
	return cmp.Or(shortLabel(strings.Join(words, " ")), incident.Spec.IntegrationName)
}

// shortLabel returns a text as one line, short enough for a label.
func shortLabel(text string) string {
	const bytesPerChar = 6
	return plaintext.OneLine(text, maxLabelChars, bytesPerChar*maxLabelChars)
}

// alertsOf returns the alerts to post for the sets of an Incident, which is nil after it was deleted. The firing one comes first,
// so that a group of alerts never looks resolved while a set replaces another.
//
// Alertmanager's clock, or that of a proxy that wrote the Date, is ahead of now (negative: behind). A set fires for an expiry,
// from the later time on, and has ended by the earlier one, so neither clock can make an Alertmanager take an open Incident for
// one that has ended.
func alertsOf(
	key incidentKey, incident *v1alpha1.Incident, sets []set, config *Config, now time.Time, ahead time.Duration,
) []alert {
	alerts := make([]alert, 0, len(sets))
	annotations, link := annotationsOf(key, incident, config), ""
	if incident != nil {
		link = webLink(incident.Status.Alert.Link)
	}
	// A receiver leads back to the Incident, and from there to the sender's link.
	if config.pageURL != nil {
		if link != "" && incident != nil {
			annotations["source_url"] = link
		}
		link = config.pageURL.JoinPath("incidents", key.namespace, key.name).String()
		annotations["incident_url"] = link
	}
	for _, set := range sets {
		starts, ends := set.from, now.Add(max(0, ahead)).Add(config.Expiry.Duration)
		if !set.fires() {
			ends = fold.Earliest(set.to, now.Add(min(0, ahead)).Add(-clockMargin))
			starts = fold.Earliest(starts, ends.Add(-time.Millisecond))
		}
		labels := map[string]string{}
		_ = json.Unmarshal([]byte(set.labels), &labels) // labelsOf encoded them
		if set.severity != "" {
			labels[labelSeverity] = string(set.severity)
		}
		alerts = append(alerts, alert{
			Labels: labels, Annotations: annotations, GeneratorURL: link, StartsAt: starts.UTC(), EndsAt: ends.UTC(),
		})
	}
	return alerts
}

func annotationsOf(key incidentKey, incident *v1alpha1.Incident, config *Config) map[string]string {
	if incident == nil {
		return map[string]string{"summary": "The Incident " + key.name + " was deleted."}
	}
	status := &incident.Status
	annotations := map[string]string{"command": "kubectl tocsin show " + key.name + " --namespace " + key.namespace}
	for name, text := range map[string]string{
		"summary":         plaintext.SanitizeLine(status.Alert.Title),
		"description":     annotationText(status.Alert.Description),
		"host":            shortLabel(status.Alert.Hostname),
		"acknowledged_by": fold.AcknowledgedBy(status),
	} {
		if text != "" {
			annotations[name] = text
		}
	}
	for _, name := range config.AlertAnnotations {
		text := annotationText(status.Alert.Annotations[name])
		if strings.HasSuffix(name, "_url") { // which receivers show as a link
			text = webLink(text)
		}
		if text != "" {
			annotations[name] = text
		}
	}
	if status.Episode != nil {
		annotations["count"] = strconv.FormatInt(status.Episode.AlertCount, 10)
	}
	return annotations
}

// annotationText returns a text of a sender for an annotation.
func annotationText(text string) string {
	return shortDescription(strings.TrimSpace(plaintext.SanitizeText(text)))
}

// shortDescription returns at most maxDescriptionChars of a text, with an ellipsis where it was cut.
func shortDescription(text string) string {
	if len(text) <= maxDescriptionChars || utf8.RuneCountInString(text) <= maxDescriptionChars {
		return text
	}
	n := 0
	for at := range text {
		if n++; n == maxDescriptionChars {
			return strings.TrimSpace(text[:at]) + "…"
		}
	}
	return text
}

// webLink returns the link if it is an http or https URL, else nothing: Alertmanager rejects others, and receivers show
// the link to people.
func webLink(link string) string {
	parsed, err := url.ParseRequestURI(link)
	if err != nil || len(link) > maxURLBytes || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return ""
	}
	return link
}
