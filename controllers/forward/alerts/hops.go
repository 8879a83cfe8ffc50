package alerts

import (
	"strconv"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// addHops adds the label of the hops, unless there are none.
func addHops(labels map[string]string, incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration) {
	if hops := hopsOf(incident, integration); hops > 0 {
		labels[labelHops] = strconv.Itoa(hops)
	}
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
	case !found && v1alpha1.IsOwnKey(incident.Spec.DedupKey): // an Incident of this Tocsin's own
		return 0
	case err != nil || hops < 1 || hops > v1alpha1.MaxHops:
		hops = v1alpha1.MaxHops
	}
	return hops + 1
}
