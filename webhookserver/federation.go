package webhookserver

import (
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// periodsPerExpiry times the time after which people are told that its sender is gone is the least time for which an alert of a
// federated integration is valid: when the link breaks, they have to be told before the first alert ends.
const periodsPerExpiry = 2

// annotationAcknowledged is the annotation by which the forwarding tells who has acknowledged an Incident.
const annotationAcknowledged = "acknowledged_by"

// federate completes an alert of a federated integration. What has no label counts as the first hop, or the label could get lost.
// Labels and annotations are merged with those of earlier alerts: an acknowledgement that was withdrawn is replaced by nothing.
func (h *handler) federate(integration *v1alpha1.WebhookIntegration, alert *mapping.Alert, received time.Time) {
	alert.Labels = alertcontent.Merge(alert.Labels, v1alpha1.Texts{v1alpha1.HopsLabel: strconv.Itoa(max(1, alert.Hops))})
	if alert.Hops > 0 {
		alert.Annotations = alertcontent.Merge(v1alpha1.Texts{annotationAcknowledged: ""}, alert.Annotations)
	}
	if alert.ExpiryTime == nil {
		return
	}
	if start := alert.StartTime; start != nil && start.After(received) {
		received = start.Time // by the clock of the other cluster
	}
	var period time.Duration
	for _, f := range h.options.Features {
		period = max(period, f.LinkPeriod(client.ObjectKeyFromObject(integration)))
	}
	if least := received.Add(periodsPerExpiry * period); period > 0 && alert.ExpiryTime.Before(least) {
		alert.ExpiryTime = new(v1alpha1.NewTimestamp(least))
	}
}
