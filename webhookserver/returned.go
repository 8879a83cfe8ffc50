package webhookserver

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// dropForwarded drops the alerts that a Tocsin has forwarded, unless the integration is federated and they have not passed too
// many: they would open Incidents about Incidents, which would be forwarded in turn, for ever.
func (h *handler) dropForwarded(integration *v1alpha1.WebhookIntegration, alerts []mapping.Alert, received time.Time) {
	for i := range alerts {
		alert := &alerts[i]
		switch federated := integration.Spec.Federate; {
		case alert.Hops > 0 && !federated:
			reason := returnedOwn
			if alert.Status == v1alpha1.AlertFiring && !h.options.Capacity.ExpectsIncident(
				alert.Labels["namespace"], alert.Labels[v1alpha1.ForwardedLabel]) {
				reason = returnedNotFederated
			}
			drop(alert, reason, "the alert has the label %s: a Tocsin forwarded it, and it is dropped", v1alpha1.ForwardedLabel)
		case alert.Hops > v1alpha1.MaxHops:
			drop(alert, returnedTooManyHops, "by the label %s, more than %d Tocsins have forwarded the alert, and it is dropped",
				v1alpha1.HopsLabel, v1alpha1.MaxHops)
		case federated:
			h.federate(integration, alert, received)
		}
	}
}

// Why an alert was dropped that a Tocsin had forwarded. An Alertmanager that notifies Tocsin of everything returns Incidents of
// this Tocsin, and the owner of the integration has nothing to do; the other alerts are lost.
const (
	returnedOwn          = "OwnIncident"
	returnedNotFederated = "NotFederated"
	returnedTooManyHops  = "TooManyHops"
)

// returnedMessages tell the owner of an integration of alerts that are lost.
var returnedMessages = map[string]string{
	returnedNotFederated: "Dropped an alert that a Tocsin has forwarded, of an incident that is not open here: " +
		"to store the alerts of another cluster's Tocsin, set spec.federate.",
	returnedTooManyHops: "Dropped an alert that too many Tocsins have forwarded: do they forward to each other?",
}

// reportReturned shows in the status of the integration that alerts were dropped.
func (h *handler) reportReturned(integration *v1alpha1.WebhookIntegration, alerts []mapping.Alert) {
	for i := range alerts {
		if message := returnedMessages[alerts[i].Returned]; message != "" {
			h.reports.reportRejection(integration, alerts[i].Returned, message)
			return
		}
	}
}

func drop(alert *mapping.Alert, reason, format string, args ...any) {
	alert.Dropped, alert.Returned = true, reason
	alert.Warn("labels", format, args...)
}
