package alerts

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

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
	if hops := hopsOf(incident, integration); hops > 0 {
		labels[labelHops] = strconv.Itoa(hops)
	}
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
	return plaintext.OneLine(text, MaxLabelChars, bytesPerChar*MaxLabelChars)
}
