package simulation

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// receivedLate is how late lastReceivedTime is at most: it is updated a minute after the write of the time before, which may take
// some seconds itself.
const receivedLate = time.Minute + 15*time.Second

// batchTime is how much earlier than one of its requests an AlertEvent may have been received, which several share.
const batchTime = 2 * time.Second

// judgeStatuses finds statuses of integrations that are not true at the end of a story, by
// docs/spec/v1alpha1/webhookintegration.md.
func (w *world) judgeStatuses() (found oracle.Findings) {
	if w.story.breaksWatches() {
		return nil // a change of an integration that a watch loses counts from its next change on
	}
	for _, namespace := range tenants {
		integration := w.storedIntegration(namespace)
		if integration == nil || w.story.stays(namespace) {
			continue
		}
		if status := &integration.Status; status.ObservedGeneration != integration.Generation {
			found.Add("I: the status of %s is that of generation %d, which is %d",
				namespace, status.ObservedGeneration, integration.Generation)
		}
		w.judgeConditions(integration, &found)
		last, received := integration.Status.LastReceivedTime, w.lastReceived(namespace).Truncate(time.Microsecond)
		isOfIts := received.After(integration.CreationTimestamp.Time) // and not of a deleted one of its name
		if isOfIts && (last == nil || received.Sub(last.Time) > batchTime) {
			found.Add("I: lastReceivedTime of %s is %s, and a request was received at %s", namespace, last, received)
		}
	}
	return found
}

func (w *world) judgeConditions(integration *v1alpha1.WebhookIntegration, found *oracle.Findings) {
	namespace := integration.Namespace
	for kind, want := range w.conditions(namespace) {
		switch is := meta.FindStatusCondition(integration.Status.Conditions, kind); {
		case want == "" && is == nil, is != nil && is.Reason == want && is.ObservedGeneration == integration.Generation:
		case is == nil:
			found.Add("I: %s of %s is absent, and should say %s", kind, namespace, want)
		default:
			found.Add("I: %s of %s says %s of generation %d, and should say %q of generation %d: %s",
				kind, namespace, is.Reason, is.ObservedGeneration, want, integration.Generation, is.Message)
		}
	}
}

// storedIntegration returns the integration of a namespace, nil if there is none that stays.
func (w *world) storedIntegration(namespace string) *v1alpha1.WebhookIntegration {
	all := stored[v1alpha1.WebhookIntegration](w, "webhookintegrations", namespace)
	if len(all) == 0 || all[0].DeletionTimestamp != nil {
		return nil
	}
	return all[0]
}

// conditions are the reasons that the conditions of a namespace's integration should have; empty for one that should be absent.
// Those that a bound of the story decides are not judged.
func (w *world) conditions(namespace string) map[string]string {
	want := map[string]string{
		v1alpha1.ConditionReady:        v1alpha1.ReasonAccepting,
		v1alpha1.ConditionMappingValid: v1alpha1.ReasonMappingValid,
		v1alpha1.ConditionForwarded:    "",
	}
	if len(w.alertmanagers) > 0 {
		want[v1alpha1.ConditionForwarded] = v1alpha1.ReasonForwarding
		if len(w.objects("maintenancewindows", namespace)) > 0 { // of which the condition may tell
			delete(want, v1alpha1.ConditionForwarded)
		}
	}
	if w.story.Archivers == 0 {
		want[v1alpha1.ConditionArchived] = ""
	}
	switch {
	case w.story.MaxIncidents > 0: // which the namespace may have reached
	case w.story.Forbidden && w.waits(namespace):
		want[v1alpha1.ConditionAlertsFolded] = v1alpha1.ReasonIncidentRejected
	default:
		want[v1alpha1.ConditionAlertsFolded] = v1alpha1.ReasonFolding
	}
	return want
}

// waits says whether an alert of the forbidden Incident is stored and not settled.
func (w *world) waits(namespace string) bool {
	forbidden := v1alpha1.IncidentName(integrationName, keyName(0))
	for _, event := range stored[v1alpha1.AlertEvent](w, "alertevents", namespace) {
		if err := queue.Decode(event); err != nil {
			panic(err)
		}
		mark, _ := queue.MarkOf(event)
		for i := range event.Alerts {
			if event.IncidentNameFor(&event.Alerts[i]) == forbidden && !mark.Settles(forbidden) {
				return true
			}
		}
	}
	return false
}

// lastReceived returns when the last request began that was acknowledged while nothing was wrong, and nothing was until its time
// was to be written. A leader does not know what another one has folded and released.
func (w *world) lastReceived(namespace string) (last time.Time) {
	w.senders.mu.Lock()
	defer w.senders.mu.Unlock()
	for _, r := range w.senders.records {
		if r.Namespace != namespace {
			continue
		}
		for i, d := range r.Deliveries {
			mayBeStored := func(d oracle.Delivery) bool { return d.Outcome != oracle.Refused }
			if r.IdempotencyKey != "" && slices.ContainsFunc(r.Deliveries[:i], mayBeStored) {
				break // copies of what may be stored are no newer alerts
			}
			due := d.Began.Add(receivedLate)
			isCalm := d.Outcome == oracle.Acknowledged && due.Before(time.Now()) && w.calm.isCalm(namespace, d.Began, due)
			if isCalm {
				last = latest(last, d.Began)
			}
		}
	}
	return last
}
