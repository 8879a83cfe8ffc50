package fold

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Policy is the part of an integration's spec that applies to its Incidents, and the state of ingest.
type Policy struct {
	AutoResolveAfter time.Duration // 0: never
	Retention        time.Duration
	LateFiringWindow time.Duration // 0: no firing is late
	Absent           bool          // there is no such integration

	SilentFrom time.Time // silence is measured from then on at the earliest
	Untrusted  bool      // nothing may end for its age, see Listening.silentFrom
}

// PolicyOf returns the policy of an integration; nil stands for one that does not exist.
func PolicyOf(integration *v1alpha1.WebhookIntegration, presetWindow func(string) (time.Duration, bool)) Policy {
	p := Policy{Retention: DefaultRetention, LateFiringWindow: defaultLateFiringWindow}
	if integration == nil {
		p.Absent = true
		return p
	}
	p.LateFiringWindow = lateFiringWindow(integration, presetWindow)
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
