package integrations

import (
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// stubVersion begins the resourceVersion of the cached copies that are stubs. The API server sets no such one, so no user can.
const stubVersion = "stub-"

// IsWhole reports whether the spec of a WebhookIntegration is whole. The cache has only a stub of one that has no place in its
// memory, since those of its namespace are too large together. It is read again when there is a place.
//
// Of a stub, nobody knows how to read alerts, what is signed, which heartbeats there are and what mutes its Incidents. So ingest
// answers 503, nothing ends for want of alerts, and what is missed or muted stays so.
func IsWhole(w *v1alpha1.WebhookIntegration) bool {
	return !strings.HasPrefix(w.ResourceVersion, stubVersion)
}

// MakeStub removes from a WebhookIntegration the parts of its spec that can be large. defaults says that its defaults are small,
// so that they stay: forwarded alerts are routed by them.
func MakeStub(w *v1alpha1.WebhookIntegration, defaults bool) {
	whole := &w.Spec
	stub := v1alpha1.WebhookIntegrationSpec{
		Tokens: whole.Tokens, Suspend: whole.Suspend, Preset: whole.Preset, Forward: whole.Forward, Federate: whole.Federate,
		ObjectLabels: whole.ObjectLabels, LateFiringWindow: whole.LateFiringWindow, AutoResolveAfter: whole.AutoResolveAfter,
		Retention: whole.Retention, Flapping: whole.Flapping, ForwardAfter: whole.ForwardAfter,
		AcknowledgementExpiresAfter: whole.AcknowledgementExpiresAfter,
	}
	if defaults {
		stub.Defaults = whole.Defaults
	}
	w.Spec, w.ResourceVersion = stub, stubVersion+w.ResourceVersion
}
