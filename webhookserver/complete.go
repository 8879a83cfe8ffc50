package webhookserver

import (
	"maps"
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
		if p.Status != "" {
			alert.Status = p.Status
		}
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
	if alert.DedupKey == "" {
		alert.DedupKey = from.DedupKey
	}
	if alert.Type == "" {
		alert.Type = from.Type
	}
	if alert.Status == v1alpha1.AlertFiring && alert.StartsAt == nil {
		alert.StartsAt = from.StartsAt
	}
	if alert.Status == v1alpha1.AlertResolved && alert.EndsAt == nil {
		alert.EndsAt = from.EndsAt
	}
	alert.Labels = union(alert.Labels, from.Labels)
	alert.Custom = union(alert.Custom, from.Custom)
	alert.Warnings = append(alert.Warnings, payload.LimitKeys(&alert.AlertContent)...)
}

// union returns a bag with the entries of both; those of the first win.
func union(bag, more v1alpha1.Bag) v1alpha1.Bag {
	if len(more) == 0 {
		return bag
	}
	all := maps.Clone(more)
	maps.Copy(all, bag)
	return all
}
