package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token authorizes a sender to post alerts. Only its hash is stored.
type Token struct {
	// name identifies the token within the integration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name"`

	// sha256 is the SHA-256 hash of the token, as 64 lower-case hexadecimal digits.
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +required
	SHA256 string `json:"sha256"`

	// expiresAt is the time at which the token expires. Default: never.
	// +optional
	ExpiresAt *Timestamp `json:"expiresAt,omitempty,omitzero"`
}

// WebhookIntegrationSpec defines who may post alerts, and how payloads are converted to alerts.
type WebhookIntegrationSpec struct {
	// tokens are the hashes of the tokens that senders may use. To rotate a token, add the new hash, reconfigure the
	// sender, and remove the old hash. Both tokens are valid in the meantime.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	Tokens []Token `json:"tokens,omitempty"`

	// suspend rejects every request with 403. Default: false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// defaults apply to fields that the alerts of an incident do not set.
	// +optional
	Defaults *AlertDefaults `json:"defaults,omitempty"`

	// preset is the name of a mapping that ships with the operator for a tool's payloads. Default: none; the payload
	// rules apply.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	// +optional
	Preset string `json:"preset,omitempty"`

	// mapping converts payloads to alerts. It overrides the preset field by field.
	// +optional
	Mapping *Mapping `json:"mapping,omitempty"`

	// lateFiringWindow is the time after a resolve in which a firing alert is a late duplicate if its startsAt falls
	// within the resolved episode: it is counted, and the Incident stays resolved. After this time, such an alert
	// reopens the Incident. A duration such as 1m30s, from 0s (no alert is late) to 24h. Default: that of the preset,
	// else 30s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 30s"
	// +optional
	LateFiringWindow *metav1.Duration `json:"lateFiringWindow,omitempty"`

	// autoResolveAfter resolves an Incident that has received no alert for this time: a duration such as 1h30m, from 1m
	// to 87600h. Default: never, or 24h for Incidents with a generated dedup key.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('87600h')",message="must be a duration from 1m to 87600h, such as 1h30m"
	// +optional
	AutoResolveAfter *metav1.Duration `json:"autoResolveAfter,omitempty"`

	// retention is the time after which a resolved Incident is deleted: a duration such as 72h, up to 87600h.
	// Default: 168h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('87600h')",message="must be a duration from 0s to 87600h, such as 168h"
	// +optional
	Retention *metav1.Duration `json:"retention,omitempty"`
}

// TokenClaimState tells whether an integration owns a token that it lists.
// +kubebuilder:validation:Enum=Held;Refused
type TokenClaimState string

const (
	// TokenHeld means that the integration held the hash first, and owns the token.
	TokenHeld TokenClaimState = "Held"
	// TokenRefused means that another integration held the hash first. The claim stays refused until the hash is
	// removed from this integration's spec.
	TokenRefused TokenClaimState = "Refused"
)

// TokenClaim is the operator's record of one hash in spec.tokens.
type TokenClaim struct {
	// sha256 is the hash, as in spec.tokens.
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +required
	SHA256 string `json:"sha256"`

	// state is Held or Refused. The integration receives no alerts for a refused token, even after the token's owner
	// has been deleted. Tokens with the tag of their integration are never refused.
	// +required
	State TokenClaimState `json:"state"`
}

// Rejection is a rejected request with a token of the integration.
type Rejection struct {
	// reason is the reason for the rejection, as one CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason"`

	// message is a human-readable description. It contains nothing of the request's content.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// time is the time of the rejection.
	// +required
	Time Timestamp `json:"time"`
}

// MappingFailure is a failure of an expression of the mapping on a received alert.
type MappingFailure struct {
	// field is the field of the expression: one of spec.mapping.fields, alerts or drop. If several expressions fail, it
	// is the most important one.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Field string `json:"field"`

	// expression is the expression, or the beginning of a long one.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Expression string `json:"expression"`

	// message is a human-readable description. It may quote the alert.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// count is the approximate number of failures since the first one.
	// +kubebuilder:validation:Minimum=1
	// +required
	Count int64 `json:"count"`

	// time is the time of the newest failure.
	// +required
	Time Timestamp `json:"time"`

	// observedGeneration is the generation of the spec whose mapping failed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WebhookIntegrationStatus is the observed state of an integration.
type WebhookIntegrationStatus struct {
	// conditions has the types Ready (requests with a token of this integration are accepted), MappingValid (the
	// mapping compiles and can be evaluated) and AlertsFolded (the stored alerts of the namespace are folded into
	// Incidents).
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime.getFullYear() > 1 && c.lastTransitionTime.getFullYear() < 9999)",message="lastTransitionTime must be an RFC 3339 time"
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// tokens records for each hash in spec.tokens whether this integration owns it. Written by the operator.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=sha256
	// +optional
	Tokens []TokenClaim `json:"tokens,omitempty"`

	// observedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastReceivedTime is the time at which the newest alert was accepted. It is updated at most once a minute.
	// +optional
	LastReceivedTime *Timestamp `json:"lastReceivedTime,omitempty,omitzero"`

	// lastRejection is the newest rejected request. It is updated at most once a minute.
	// +optional
	LastRejection *Rejection `json:"lastRejection,omitempty"`

	// lastMappingFailure is the newest failure of an expression of the mapping. The replica that observed it updates it
	// at most once a minute.
	// +optional
	LastMappingFailure *MappingFailure `json:"lastMappingFailure,omitempty"`
}

// MappingFailureMemory is the time after its newest failure in which a mapping counts as failing.
const MappingFailureMemory = time.Hour

// CurrentMappingFailure returns the newest failure of the current mapping; nil if there was none within
// MappingFailureMemory. It ignores a time further than that in the future, which a wrong clock has written.
func (w *WebhookIntegration) CurrentMappingFailure(now time.Time) *MappingFailure {
	failure := w.Status.LastMappingFailure
	if failure == nil || failure.ObservedGeneration != w.Generation ||
		now.Sub(failure.Time.Time).Abs() >= MappingFailureMemory {
		return nil
	}
	return failure
}

// WebhookIntegration authorizes a monitoring tool to post alerts to its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=webhookintegrations,shortName=whi,categories=tocsin
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Mapping-Valid",type=string,JSONPath=`.status.conditions[?(@.type=="MappingValid")].status`
// +kubebuilder:printcolumn:name="Last-Received",type=date,JSONPath=`.status.lastReceivedTime`
// +kubebuilder:printcolumn:name="Last-Rejection",type=string,JSONPath=`.status.lastRejection.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name may have at most 63 characters"
type WebhookIntegration struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec defines who may post alerts, and how payloads are converted to alerts.
	// +required
	Spec WebhookIntegrationSpec `json:"spec"`

	// status is the observed state. Written by the operator.
	// +optional
	Status WebhookIntegrationStatus `json:"status,omitempty,omitzero"`
}

// WebhookIntegrationList is a list of WebhookIntegrations.
//
// +kubebuilder:object:root=true
type WebhookIntegrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []WebhookIntegration `json:"items"`
}
