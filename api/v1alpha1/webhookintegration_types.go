package v1alpha1

import (
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

// WebhookIntegrationStatus is what the operator says of an integration.
type WebhookIntegrationStatus struct {
	// conditions has Ready: whether posts with a token of this integration are accepted; and AlertsFolded:
	// whether the stored alerts of the namespace become part of Incidents.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime.getFullYear() > 1 && c.lastTransitionTime.getFullYear() < 9999)",message="lastTransitionTime must be an RFC 3339 time"
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastReceivedTime is when the newest alert was accepted. It is written at most once a minute.
	// +optional
	LastReceivedTime *Timestamp `json:"lastReceivedTime,omitempty,omitzero"`

	// lastRejection is the newest refused request. It is written at most once a minute.
	// +optional
	LastRejection *Rejection `json:"lastRejection,omitempty"`
}

// WebhookIntegration lets a monitoring tool post alerts into its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=webhookintegrations,shortName=whi,categories=tocsin
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
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
