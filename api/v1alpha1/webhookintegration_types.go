package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token is one secret that may be used to post alerts. Only its hash is stored.
type Token struct {
	// name tells the tokens of an integration apart.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name"`

	// sha256 is the SHA-256 of the token, as 64 lower-case hexadecimal digits.
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +required
	SHA256 string `json:"sha256"`

	// expiresAt is when the token ceases to work. Default: never.
	// +optional
	ExpiresAt *Timestamp `json:"expiresAt,omitempty,omitzero"`
}

// WebhookIntegrationSpec says who may post, and how their alerts are read.
type WebhookIntegrationSpec struct {
	// tokens are the hashes of the tokens that may be used to post. To rotate a token, add the new hash,
	// change the sender, and remove the old hash; both work meanwhile.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	Tokens []Token `json:"tokens,omitempty"`

	// suspend makes every post answer 403. Default: false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// defaults are used for what the alerts of an incident do not say.
	// +optional
	Defaults *AlertDefaults `json:"defaults,omitempty"`

	// preset is the name of a mapping that ships with the operator, for the payloads of one tool.
	// Default: none; the payloads are read by the rules for payloads.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	// +optional
	Preset string `json:"preset,omitempty"`

	// mapping says how payloads are read as alerts. It overrides the preset field by field.
	// +optional
	Mapping *Mapping `json:"mapping,omitempty"`

	// lateFiringWindow is for how long after a resolve an alert that fires with a startsAt of the episode that has
	// ended is a late duplicate: it counts, and the Incident stays resolved. Afterwards it reopens the Incident.
	// Minutes and seconds such as 1m30s, from 0s (no alert is late) to 24h. Default: that of the preset, else 30s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="must be a time from 0s to 24h, such as 30s"
	// +optional
	LateFiringWindow *metav1.Duration `json:"lateFiringWindow,omitempty"`

	// autoResolveAfter resolves an Incident for which no alert came for so long: hours, minutes and
	// seconds such as 1h30m, from 1m to 87600h. Default: never.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('87600h')",message="must be a time from 1m to 87600h, such as 1h30m"
	// +optional
	AutoResolveAfter *metav1.Duration `json:"autoResolveAfter,omitempty"`

	// retention is how long a resolved Incident is kept: hours, minutes and seconds such as 72h, up to
	// 87600h. Default: 168h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('87600h')",message="must be a time from 0s to 87600h, such as 168h"
	// +optional
	Retention *metav1.Duration `json:"retention,omitempty"`
}

// TokenClaimState is what became of an integration's claim to a token.
// +kubebuilder:validation:Enum=Held;Refused
type TokenClaimState string

const (
	// TokenHeld means that the integration held the hash first, and owns the token.
	TokenHeld TokenClaimState = "Held"
	// TokenRefused means that another integration held the hash first. It stays so until the hash leaves this
	// integration's spec.
	TokenRefused TokenClaimState = "Refused"
)

// TokenClaim is the operator's record of one hash in spec.tokens.
type TokenClaim struct {
	// sha256 is the hash, as in spec.tokens.
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +required
	SHA256 string `json:"sha256"`

	// state is Held or Refused. A refused claim gets no alerts, also after the owner of the token has been deleted.
	// A token that carries the tag of its integration is not affected.
	// +required
	State TokenClaimState `json:"state"`
}

// Rejection is a request that bore a token of the integration and was refused.
type Rejection struct {
	// reason is why the request was refused, in one CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason"`

	// message says more, without anything of the request's content.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// time is when it was refused.
	// +required
	Time Timestamp `json:"time"`
}

// MappingFailure is an expression of the mapping that failed on an alert that was posted.
type MappingFailure struct {
	// field is what the expression gives: a field of an alert as in spec.mapping.fields, alerts or drop. If
	// several expressions fail it is the one that matters most.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Field string `json:"field"`

	// expression is the expression, or the beginning of a long one.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Expression string `json:"expression"`

	// message is why it failed. It may quote the alert.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// count is about how often expressions of the mapping have failed since they began to.
	// +kubebuilder:validation:Minimum=1
	// +required
	Count int64 `json:"count"`

	// time is when the newest failure was seen.
	// +required
	Time Timestamp `json:"time"`

	// observedGeneration is the generation of the spec whose mapping failed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WebhookIntegrationStatus is what the operator says of an integration.
type WebhookIntegrationStatus struct {
	// conditions has Ready: whether posts with a token of this integration are accepted; MappingValid: whether its
	// mapping compiles and can be evaluated; and AlertsFolded: whether the stored alerts of the namespace become
	// part of Incidents.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime.getFullYear() > 1 && c.lastTransitionTime.getFullYear() < 9999)",message="lastTransitionTime must be an RFC 3339 time"
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// tokens record for each hash in spec.tokens whether this integration owns it. Written by the operator.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=sha256
	// +optional
	Tokens []TokenClaim `json:"tokens,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastReceivedTime is when the newest alert was accepted. It is written at most once a minute.
	// +optional
	LastReceivedTime *Timestamp `json:"lastReceivedTime,omitempty,omitzero"`

	// lastRejection is the newest refused request. It is written at most once a minute.
	// +optional
	LastRejection *Rejection `json:"lastRejection,omitempty"`

	// lastMappingFailure is the newest failure of an expression of the mapping. It is written at most once a
	// minute, by the replica that saw it.
	// +optional
	LastMappingFailure *MappingFailure `json:"lastMappingFailure,omitempty"`
}

// MappingFailureMemory is how long after its newest failure a mapping counts as failing.
const MappingFailureMemory = time.Hour

// CurrentMappingFailure returns the newest failure of the mapping as it is now, nil when none was seen for
// MappingFailureMemory. A time further in the future than that is one of a wrong clock and does not count.
func (w *WebhookIntegration) CurrentMappingFailure(now time.Time) *MappingFailure {
	failure := w.Status.LastMappingFailure
	if failure == nil || failure.ObservedGeneration != w.Generation ||
		now.Sub(failure.Time.Time).Abs() >= MappingFailureMemory {
		return nil
	}
	return failure
}

// WebhookIntegration lets a monitoring tool post alerts into its namespace.
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

	// spec says who may post, and how their alerts are read.
	// +required
	Spec WebhookIntegrationSpec `json:"spec"`

	// status is written by the operator.
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
