package webhookserver

import (
	"cmp"
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// complete adds to the alerts of a payload what the request says beside it.
func complete(result *mapping.Result, p *protocol.Payload, received time.Time) {
	var fallback v1alpha1.Alert
	if p.Fallback != nil {
		fallback, _ = payload.Normalise(p.Fallback, received)
	}
	if len(result.Alerts) > 1 {
		fallback.DedupKey = ""
	}
	for i := range result.Alerts {
		alert := &result.Alerts[i]
		fill(alert, &fallback)
		if p.IncidentName != "" {
			alert.IncidentName, alert.DedupKey = p.IncidentName, ""
		}
		alert.Status = cmp.Or(p.Status, alert.Status)
		alert.Comment = p.Comment
		if alert.DedupKey != "" || alert.IncidentName != "" {
			alert.Warnings = slices.DeleteFunc(alert.Warnings, payload.Warning.IsNoMatch)
		}
	}
}

// fill gives an alert the fields that it lacks. An alert with a description has a title: its first line.
func fill(alert *mapping.Alert, from *v1alpha1.Alert) {
	if alert.Title == "" && alert.Description == "" {
		alert.Title = from.Title
	}
	alert.DedupKey = cmp.Or(alert.DedupKey, from.DedupKey)
	alert.Type = cmp.Or(alert.Type, from.Type)
	if alert.Status == v1alpha1.AlertFiring {
		alert.StartsAt = cmp.Or(alert.StartsAt, from.StartsAt)
	}
	if alert.Status == v1alpha1.AlertResolved {
		alert.EndsAt = cmp.Or(alert.EndsAt, from.EndsAt)
	}
	alert.Labels = from.Labels.Merge(alert.Labels)
	alert.Custom = from.Custom.Merge(alert.Custom)
	alert.Warnings = append(alert.Warnings, payload.LimitKeys(&alert.AlertContent)...)
}
