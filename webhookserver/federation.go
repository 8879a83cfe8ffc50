package webhookserver

import (
	"strconv"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// periodsPerLease times the time after which its heartbeat is missed is the least time for which an alert of a federated
// integration is valid: when the link breaks, the heartbeat has to be missed before the first alert ends.
const periodsPerLease = 2

// annotationAcknowledged is the annotation by which the forwarding tells who has acknowledged an Incident.
const annotationAcknowledged = "acknowledged_by"

// admit drops the alerts that a Tocsin has forwarded, unless the integration is federated and they have not passed too many:
// they would open Incidents about Incidents, which would be forwarded in turn, for ever.
func admit(integration *v1alpha1.WebhookIntegration, alerts []mapping.Alert, received time.Time) {
	for i := range alerts {
		alert := &alerts[i]
		switch federated := integration.Spec.Federate; {
		case alert.Hops > 0 && !federated:
			drop(alert, "the alert has the label %s: a Tocsin forwarded it, and it is dropped", v1alpha1.ForwardedLabel)
		case alert.Hops > v1alpha1.MaxHops:
			drop(alert, "by the label %s, more than %d Tocsins have forwarded the alert, and it is dropped",
				v1alpha1.HopsLabel, v1alpha1.MaxHops)
		case federated:
			federate(integration, alert, received)
		}
	}
}

func drop(alert *mapping.Alert, format string, args ...any) {
	alert.Dropped, alert.Returned = true, true
	alert.Warn("labels", format, args...)
}

// federate completes an alert of a federated integration. What has no label counts as the first hop, or the label could get lost.
// Labels and annotations are merged with those of earlier alerts: an acknowledgement that was withdrawn is replaced by nothing.
func federate(integration *v1alpha1.WebhookIntegration, alert *mapping.Alert, received time.Time) {
	alert.Labels = alertcontent.Merge(alert.Labels, v1alpha1.Texts{v1alpha1.HopsLabel: strconv.Itoa(max(1, alert.Hops))})
	if alert.Hops > 0 {
		alert.Annotations = alertcontent.Merge(v1alpha1.Texts{annotationAcknowledged: ""}, alert.Annotations)
	}
	if alert.LeaseEndTime == nil {
		return
	}
	if start := alert.StartTime; start != nil && start.After(received) {
		received = start.Time // by the clock of the other cluster
	}
	for i := range integration.Spec.Heartbeats {
		beat := &integration.Spec.Heartbeats[i]
		if least := received.Add(periodsPerLease * beat.Period()); beat.Match == nil && alert.LeaseEndTime.Before(least) {
			alert.LeaseEndTime = new(v1alpha1.NewTimestamp(least))
		}
	}
}
