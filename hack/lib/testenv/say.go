package testenv

import (
	"encoding/json"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

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
