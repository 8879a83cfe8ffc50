// Package alerts decides which alerts an Alertmanager is to have for an Incident. It is pure: no client, no context, no clock.
//
//  1. Target.Want returns the label sets that the Incident's status asks for: the one that fires, and those that ended lately;
//     none if the Alertmanager is not to know the Incident (Target.ExcludesIncident). The severity is that of now, or of before
//     the Incident was muted.
//  2. History.Extend adds what was posted before and must now end, and keeps labels that may not change.
//  3. Make returns the alerts, with the times of the API server's clock, and of Alertmanager's where that differs.
//
// Alertmanager identifies an alert by its labels. While an Incident is open they stay the same, except when its severity, its
// type or a forwarded label of the sender changes. The old set then ends in the request that starts the new one.
package alerts

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

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// MaxRoundInterval is how often everything is posted, unless a third of the expiry is shorter: two posts may fail.
	MaxRoundInterval = time.Minute

	// MinEndedWindow is how long ended alerts are posted again, unless the expiry is longer: an Alertmanager that missed
	// the end keeps the alert for an expiry.
	MinEndedWindow = 15 * time.Minute

	// clockMargin is how far in the past an alert ends at least. Alertmanager ignores an end that lies in its future, and
	// the API server's clock is known to the second only.
	clockMargin = time.Second

	// MaxLabelChars bounds the value of a label, and the other bounds those of annotations, in characters.
	MaxLabelChars       = 256
	maxDescriptionChars = 2048
	maxURLBytes         = 2048

	// FormerDelay is how long what an earlier leader has posted is not ended, though it differs from what is wanted: the watch of
	// the new one may be behind.
	FormerDelay = 30 * time.Second

	// maxEndedSets bounds the ended label sets that are remembered for one Incident and Alertmanager.
	maxEndedSets = 8

	// maxLabelChanges bounds how often the labels of an Incident change, apart from the severity, while ended alerts are posted.
	// Alertmanager keeps each set for half an hour, so a sender that changes the type with every alert would fill it.
	maxLabelChanges = 8
)

// Alert is a postable alert of Alertmanager's API v2
// (https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml).
type Alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// OwnAnnotations are the annotations that Tocsin writes, see annotationsOf.
var OwnAnnotations = []string{"summary", "description", "host", "count", "acknowledged_by", "command"}

// Make returns the alerts to post about an Incident, which is nil after it was deleted. The firing one comes first, so that a
// group of alerts never looks resolved while a set replaces another.
//
// ahead is how far the clock of Alertmanager, or of a proxy that wrote the Date, is ahead of now (negative: behind). A set
// fires for an expiry, from the later time on, and has ended by the earlier one, so neither clock can make an Alertmanager
// take an open Incident for one that has ended.
func Make(
	key types.NamespacedName, incident *v1alpha1.Incident, w Wanted, settings *Settings, now time.Time, ahead time.Duration,
) []Alert {
	alerts := make([]Alert, 0, len(w.sets))
	annotations, link := annotationsOf(key, incident, settings), ""
	if incident != nil {
		link = webLink(incident.Status.Alert.Link)
	}
	// A receiver leads back to the Incident, and from there to the sender's link.
	if settings.PageURL != nil {
		if link != "" && incident != nil {
			annotations["source_url"] = link
		}
		link = settings.PageURL.JoinPath("incidents", key.Namespace, key.Name).String()
		annotations["incident_url"] = link
	}
	for _, set := range w.sets {
		starts, ends := set.from, now.Add(max(0, ahead)).Add(settings.Expiry)
		if !set.fires() {
			ends = fold.Earliest(set.to, now.Add(min(0, ahead)).Add(-clockMargin))
			starts = fold.Earliest(starts, ends.Add(-time.Millisecond))
		}
		labels := decodeLabels(set.labels)
		if set.severity != "" {
			labels[labelSeverity] = string(set.severity)
		}
		alerts = append(alerts, Alert{
			Labels: labels, Annotations: annotations, GeneratorURL: link, StartsAt: starts.UTC(), EndsAt: ends.UTC(),
		})
	}
	return alerts
}

func annotationsOf(key types.NamespacedName, incident *v1alpha1.Incident, settings *Settings) map[string]string {
	if incident == nil {
		return map[string]string{"summary": "The Incident " + key.Name + " was deleted."}
	}
	status := &incident.Status
	annotations := map[string]string{"command": "kubectl tocsin show " + key.Name + " --namespace " + key.Namespace}
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
	for _, name := range settings.AlertAnnotations {
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
	return plaintext.Shorten(strings.TrimSpace(plaintext.SanitizeText(text)), maxDescriptionChars)
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

// Compact returns a copy of an Incident with only what its alerts have, for a memory of many.
func Compact(incident *v1alpha1.Incident, settings *Settings) *v1alpha1.Incident {
	kept := *incident
	alert := &kept.Status.Alert
	annotations, labels := v1alpha1.Texts{}, v1alpha1.Texts{}
	for _, name := range settings.AlertAnnotations {
		if text, ok := alert.Annotations[name]; ok {
			annotations[name] = annotationText(text)
		}
	}
	for _, name := range append(slices.Clone(settings.AlertLabels), labelHops) {
		if text, ok := alert.Labels[name]; ok {
			labels[name] = text
		}
	}
	alert.Annotations, alert.Labels, alert.Values, alert.Custom = annotations, labels, nil, nil
	kept.Status.UnarchivedEpisodes = nil
	alert.Description = plaintext.Shorten(alert.Description, maxDescriptionChars)
	kept.ManagedFields, kept.Annotations, kept.Status.Ledger = nil, nil, v1alpha1.Ledger{}
	return &kept
}

// History is what a leader has posted about one Incident to one Alertmanager. A set that fires there and differs from the one
// that the Incident has now is ended by it. The timeline has earlier severities, also for a new leader; only the history has
// other labels, Incidents that were deleted, and those that are no longer forwarded. Only Alertmanager has other labels with
// which an earlier leader has posted the Incident, see AddFormer.
type History struct {
	sets    []set       // the one that fires, and those that have ended and that the timeline may lack, newest first
	labels  string      // of all sets
	changes []time.Time // when these changed lately

	former []set // that fire in Alertmanager, as it seems by an earlier leader; from is when one that is not wanted may be ended
}

// IsEmpty reports whether nothing is to be remembered.
func (h *History) IsEmpty() bool { return !h.IsPosted() && len(h.former) == 0 }

// IsPosted reports whether this leader has posted the Incident.
func (h *History) IsPosted() bool { return len(h.sets)+len(h.changes) > 0 }

// Extend returns what is wanted plus the sets posted earlier that must now end, and remembers what is going to be posted. The
// labels of a muted Incident stay as they are.
func (h *History) Extend(w Wanted, target *Target, now time.Time) Wanted {
	window := target.EndedWindow()
	h.takeFormer(w, target, now)
	h.keepLabels(w, window, now)
	sets, remembered := w.sets, []set(nil)
	if len(sets) > 0 && sets[0].fires() {
		remembered = append(remembered, sets[0])
	}
	for _, old := range h.sets {
		if old.fires() {
			old.to = now
		}
		if now.Sub(old.to) >= window {
			continue
		}
		switch at := slices.IndexFunc(sets, old.isSame); {
		case at < 0:
			sets, remembered = append(sets, old), append(remembered, old)
		case !sets[at].fires(): // Alertmanager may not accept its end before the Incident opens again, with other labels
			remembered = append(remembered, old)
		}
	}
	if h.sets = remembered[:min(len(remembered), 1+maxEndedSets)]; !h.IsPosted() {
		h.labels = ""
	}
	w.sets = sets
	return w
}

// keepLabels changes the wanted labels to those of before if the Incident is muted, or if they have changed maxLabelChanges times
// lately. Only the severity still changes: it has few values.
func (h *History) keepLabels(w Wanted, window time.Duration, now time.Time) {
	h.changes = slices.DeleteFunc(h.changes, func(at time.Time) bool { return now.Sub(at) >= window })
	switch {
	case len(w.sets) == 0 || w.sets[0].labels == h.labels:
	case h.labels == "", w.muted == nil && len(h.changes) < maxLabelChanges:
		h.labels, h.changes = w.sets[0].labels, append(h.changes, now)
	default:
		for i := range w.sets {
			w.sets[i].labels = h.labels
		}
	}
}

// AddFormer adds an alert that fires in Alertmanager, if an earlier leader may have posted it about the Incident, of which w is
// wanted. It returns how many bytes are kept of it, besides what fires of the Incident anyway.
func (h *History) AddFormer(labels map[string]string, w Wanted, target *Target, now time.Time) (bytes int) {
	const overhead = 256
	former := setOf(labels)
	switch {
	case slices.ContainsFunc(h.sets, former.isSame) || slices.ContainsFunc(h.former, former.isSame):
	case w.Firing() != "" && w.sets[0].isSame(former):
		h.sets = append(h.sets, w.sets[0]) // as if this leader had posted it
		h.labels = former.labels
	case len(h.former) < maxEndedSets && target.mayHavePosted(former, w.labels):
		former.from = now.Add(FormerDelay)
		h.former = append(h.former, former)
		return len(former.labels) + overhead
	}
	return 0
}

// HasFormer reports whether Extend has not taken all of what AddFormer has added.
func (h *History) HasFormer() bool { return len(h.former) > 0 }

// DropFormer drops the rest: what an earlier leader has posted has expired.
func (h *History) DropFormer() { h.former = nil }

// takeFormer treats the sets of an earlier leader as posted by this one. A muted Incident keeps their labels, and what is not
// wanted ends, but only after a delay: the cache may show something older than what the earlier leader posted. All of it waits
// while the target wants nothing of the Incident: this Alertmanager may have it from another target.
func (h *History) takeFormer(w Wanted, target *Target, now time.Time) {
	if w.labels == "" {
		return
	}
	h.former = slices.DeleteFunc(h.former, func(former set) bool {
		if !target.mayHavePosted(former, w.labels) {
			return true
		}
		if w.muted != nil && w.muted.Severity == former.severity && h.labels == "" {
			h.labels = former.labels
		}
		if now.Before(former.from) {
			return false
		}
		if former.from = w.since; !slices.ContainsFunc(h.sets, former.isSame) {
			h.sets = append(h.sets, former)
		}
		return true
	})
}

// changingLabels are the labels of Tocsin's own that change while an Incident is open.
var changingLabels = []string{labelAlertname, labelReminder, labelAssignee, labelHops}

// mayHavePosted reports whether the set may be one of the Incident that has the labels now; empty if they are not known. All that
// change neither by senders nor with time are equal: anyone can post to Alertmanager, and several installations may.
func (t *Target) mayHavePosted(s set, labels string) bool {
	if !slices.Contains(v1alpha1.Severities(), s.severity) || !t.hasSeverity(s.severity) {
		return false
	}
	if labels == "" {
		return true
	}
	now, before := decodeLabels(labels), decodeLabels(s.labels)
	for _, labels := range []map[string]string{now, before} {
		for name := range labels {
			_, isFixed := t.ExternalLabels[name]
			mayChange := !isFixed && slices.Contains(t.AlertLabels, name) || slices.Contains(changingLabels, name)
			if !mayChange && now[name] != before[name] {
				return false
			}
		}
	}
	return true
}

// The labels by which Tocsin identifies an alert. Neither external labels nor labels of the sender replace them.
const (
	labelAlertname   = "alertname"
	LabelNamespace   = "namespace"
	labelIntegration = "integration"
	LabelIncident    = v1alpha1.ForwardedLabel
	labelSeverity    = "severity"
	labelHops        = v1alpha1.HopsLabel
	labelReminder    = v1alpha1.ReminderLabel
	labelAssignee    = v1alpha1.AssigneeLabel
)

// IdentityLabels are the names of these labels.
var IdentityLabels = []string{
	labelAlertname, LabelNamespace, labelIntegration, LabelIncident, labelSeverity, labelHops, labelReminder, labelAssignee,
}

// noType is the type of alerts that have none, see package fold. It names no alert.
const noType = "webhook"

// IntegrationOf returns the integration that the labels of an alert name.
func IntegrationOf(labels map[string]string) types.NamespacedName {
	return types.NamespacedName{Namespace: labels[LabelNamespace], Name: labels[labelIntegration]}
}

// IncidentOf returns the Incident that the labels of an alert name, and the severity of the alert.
func IncidentOf(labels map[string]string) (incident types.NamespacedName, severity v1alpha1.Severity) {
	return types.NamespacedName{Namespace: labels[LabelNamespace], Name: labels[LabelIncident]},
		v1alpha1.Severity(labels[labelSeverity])
}

// labelsOf returns the labels of an Incident's alerts, see set. A default label of the integration wins over the sender's: alerts
// are routed by these labels, and no sender may choose the route of another team.
func labelsOf(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, settings *Settings) string {
	content := &incident.Status.Alert
	labels := map[string]string{}
	for _, name := range settings.AlertLabels {
		value := shortLabel(content.Labels[name])
		if defaults := integration.Spec.Defaults; defaults != nil {
			value = cmp.Or(shortLabel(string(defaults.Labels[name])), value)
		}
		if value != "" {
			labels[name] = value
		}
	}
	maps.Copy(labels, settings.ExternalLabels)
	labels[labelAlertname] = alertName(incident)
	labels[LabelNamespace] = incident.Namespace
	labels[labelIntegration] = incident.Spec.IntegrationName
	labels[LabelIncident] = incident.Name
	addHops(labels, incident, integration)
	if episode := incident.Status.Episode; episode != nil && episode.ExpiredAcknowledgements > 0 {
		labels[labelReminder] = strconv.FormatInt(episode.ExpiredAcknowledgements, 10)
	}
	if assignee := shortLabel(fold.AssigneeOf(&incident.Status)); settings.AssigneeLabel && assignee != "" {
		labels[labelAssignee] = assignee
	}
	return encodeLabels(labels)
}

func encodeLabels(labels map[string]string) string {
	encoded, _ := json.Marshal(labels) // strings always encode
	return string(encoded)
}

func decodeLabels(encoded string) map[string]string {
	labels := map[string]string{}
	_ = json.Unmarshal([]byte(encoded), &labels) // encodeLabels encoded them
	return labels
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
	return plaintext.OneLine(text, MaxLabelChars, bytesPerChar*MaxLabelChars)
}
