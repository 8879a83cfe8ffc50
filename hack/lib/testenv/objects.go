package testenv

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// Heartbeat returns a Heartbeat of an integration. Nil for match: it is pinged.
func Heartbeat(
	namespace, name, integration string, every time.Duration, match *v1alpha1.HeartbeatMatch,
) *v1alpha1.Heartbeat {
	return &v1alpha1.Heartbeat{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.HeartbeatSpec{IntegrationName: integration, Every: &metav1.Duration{Duration: every}, Match: match},
	}
}

// AnyRequest is the match of a Heartbeat for which every request is a signal.
func AnyRequest() *v1alpha1.HeartbeatMatch { return &v1alpha1.HeartbeatMatch{AnyRequest: true} }

// Window returns a MaintenanceWindow that is open once, for all integrations of its namespace.
func Window(namespace, name string, start, end time.Time) v1alpha1.MaintenanceWindow {
	window := v1alpha1.MaintenanceWindow{}
	window.Namespace, window.Name = namespace, name
	window.Spec.Once = &v1alpha1.SingleOpening{StartTime: v1alpha1.NewTimestamp(start), EndTime: v1alpha1.NewTimestamp(end)}
	return window
}

// Say writes the alerts of an event into its spec: as a report what a person says, and all else as a text.
func Say(event *v1alpha1.AlertEvent) error {
	if len(event.Alerts) != 1 {
		return queue.Encode(event)
	}
	alert := &event.Alerts[0]
	if !alert.IsReport && alert.By == "" && alert.SilenceFor == nil {
		return queue.Encode(event)
	}
	event.Spec.Report = &v1alpha1.Report{
		IncidentName: alert.IncidentName, DedupKey: alert.DedupKey, Status: alert.Status,
		By: alert.By, Comment: alert.Comment, Assignee: alert.Assignee,
		SilenceFor: alert.SilenceFor, AcknowledgeFor: alert.AcknowledgeFor,
	}
	return nil
}

// Text is the text of alerts in an AlertEvent.
func Text(alerts ...v1alpha1.Alert) v1alpha1.AlertsText {
	text, err := json.Marshal(alerts)
	if err != nil {
		panic(err) // an alert of a test's own
	}
	return v1alpha1.AlertsText(text)
}

// Bags returns a view of the four bags of an alert's content, by their names, with all values as JSON.
func Bags(c *v1alpha1.AlertContent) map[string]v1alpha1.Bag {
	return map[string]v1alpha1.Bag{
		"labels": quoted(c.Labels), "annotations": quoted(c.Annotations), "values": c.Values, "custom": c.Custom,
	}
}

func quoted(texts map[string]string) v1alpha1.Bag {
	if texts == nil {
		return nil
	}
	bag := v1alpha1.Bag{}
	for name, text := range texts {
		bag[name], _ = json.Marshal(text) // no string fails to encode
	}
	return bag
}
