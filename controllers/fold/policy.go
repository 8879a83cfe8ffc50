package fold

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Policy is the part of an integration's spec that applies to its Incidents, and the state of ingest.
type Policy struct {
	AutoResolveAfter time.Duration // 0: never
	Retention        time.Duration
	LateFiringWindow time.Duration // 0: no firing is late
	Absent           bool          // there is no such integration

	Refusing   bool      // the integration accepts no alerts
	ReadySince time.Time // it has accepted alerts since then, as far as its conditions tell

	Unavailable time.Time // when a replica last reported an answer of 5xx, by the API server's clock

	QuietFrom     time.Time // quiet is measured from then on at the earliest
	AcceptingFrom time.Time // as QuietFrom, for leases: their senders can renew them from then on
	Untrusted     bool      // nothing may end for its age, see replica.IngestHealth
}

// PolicyOf returns the policy of an integration; nil stands for one that does not exist.
func PolicyOf(integration *v1alpha1.WebhookIntegration, presetWindow func(string) (time.Duration, bool)) Policy {
	p := Policy{Retention: DefaultRetention, LateFiringWindow: defaultLateFiringWindow}
	if integration == nil {
		p.Absent = true
		return p
	}
	p.LateFiringWindow = lateFiringWindow(integration, presetWindow)
	ready := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionTrue {
		p.ReadySince = ready.LastTransitionTime.Time
	}
	// Without any token, alerts do not come by HTTP, and the condition does not matter.
	p.Refusing = integration.Spec.Suspend ||
		len(integration.Spec.Tokens) > 0 && ready != nil && ready.Status == metav1.ConditionFalse
	if at := integration.Status.LastUnavailableTime; at != nil {
		p.Unavailable = at.Time
	}
	if after := integration.Spec.AutoResolveAfter; after != nil {
		p.AutoResolveAfter = after.Duration
	}
	if retention := integration.Spec.Retention; retention != nil {
		p.Retention = retention.Duration
	}
	return p
}

// lateFiringWindow is the integration's window for late firings: that of the spec, else that of its preset, else the
// default.
func lateFiringWindow(
	integration *v1alpha1.WebhookIntegration, presetWindow func(preset string) (time.Duration, bool),
) time.Duration {
	if window := integration.Spec.LateFiringWindow; window != nil {
		return window.Duration
	}
	if window, ok := presetWindow(integration.Spec.Preset); ok {
		return window
	}
	return defaultLateFiringWindow
}
