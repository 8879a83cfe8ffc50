package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxAlertsPerEvent is the most alerts that one AlertEvent holds.
const MaxAlertsPerEvent = 500

// TraceparentAnnotation of an AlertEvent is the W3C traceparent of the write that stored it, if that is traced, for the
// fold to link to.
const TraceparentAnnotation = "tocsin.dev/traceparent"

// QuarantineLabel of an AlertEvent says that its alerts could not be folded where they came, and why, in one
// CamelCase word. They were moved into this AlertEvent, which is folded apart from all others.
const QuarantineLabel = "tocsin.dev/quarantined"

// Values of QuarantineLabel.
const (
	// QuarantineUnconfirmed: the copy is made, and it is not yet certain that it was made in time. See the package
	// comment of the controllers.
	QuarantineUnconfirmed = "Unconfirmed"
	// QuarantineRejected: the API server finds the Incident invalid that the alerts make.
	QuarantineRejected = "Rejected"
	// QuarantineFoldFailed: the fold itself fails on the alerts.
	QuarantineFoldFailed = "FoldFailed"
)

// QuarantineOriginAnnotation of a quarantined AlertEvent names the AlertEvent from which its alerts were moved:
// UID, resourceVersion, the Unix time of its creation and name, separated by slashes.
const QuarantineOriginAnnotation = "tocsin.dev/quarantined-from"

// Alert is one accepted alert: the content and where it belongs.
//
// +kubebuilder:validation:XValidation:rule="has(self.incidentName) || has(self.dedupKey)",message="an alert needs incidentName or dedupKey"
// +kubebuilder:validation:XValidation:rule="self.status != 'firing' || has(self.dedupKey)",message="a firing alert needs dedupKey"
type Alert struct {
	// id tells this alert from every other one. Written by the operator; an alert made by hand needs none.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ID string `json:"id,omitempty"`

	// incidentName is the Incident that the alert belongs to, in the same namespace.
	// Default: the name derived from integrationName and dedupKey.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	IncidentName string `json:"incidentName,omitempty"`

	// dedupKey is the key that the sender gives all alerts of one incident.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	DedupKey string `json:"dedupKey,omitempty"`

	// status is firing, resolved or acknowledged.
	// +required
	Status AlertStatus `json:"status"`

	// by is who acknowledges or resolves the incident, as the creator of the AlertEvent says: the name of a
	// user, for the timeline. Absent in alerts that came as webhooks; of no effect in a firing alert.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	By string `json:"by,omitempty"`

	// comment is what they say about it, for the timeline, which has room for 256 characters of both. Of no
	// effect in a firing alert.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Comment string `json:"comment,omitempty"`

	AlertContent `json:",inline"`
}

// AlertEventSpec is what was accepted. It never changes.
//
// +kubebuilder:validation:XValidation:rule="has(self.alerts) != has(self.packedAlerts)",message="an AlertEvent has either alerts or packedAlerts"
// +kubebuilder:validation:XValidation:rule="has(self.integrationName) || has(self.alerts) && self.alerts.all(a, has(a.incidentName) && a.status != 'firing')",message="integrationName is needed for alerts that fire or have no incidentName, and for packed ones"
type AlertEventSpec struct {
	// integrationName is the WebhookIntegration that accepted the alerts, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	IntegrationName string `json:"integrationName,omitempty"`

	// receivedTime is when the alerts were accepted. Default: the time of creation.
	// +optional
	ReceivedTime Timestamp `json:"receivedTime,omitempty,omitzero"`

	// defaults are the integration's defaults at the time the alerts were accepted.
	// +optional
	Defaults *AlertDefaults `json:"defaults,omitempty"`

	// alerts are the accepted alerts, in the order in which they are folded.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	// +listType=atomic
	// +optional
	Alerts []Alert `json:"alerts,omitempty"`

	// packedAlerts are the accepted alerts when there are several: what alerts would hold, as JSON, compressed
	// with gzip, in base64. So the API server has one text to read and keep where it would have thousands of
	// fields.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	PackedAlerts string `json:"packedAlerts,omitempty"`

	// UnpackedFrom is the packedAlerts that alerts were unpacked from when the spec was read. It is never sent as a
	// field: while alerts still say the same, it is written back as packedAlerts, so that an update of the metadata
	// leaves the spec as it is. Whoever keeps many AlertEvents and writes none may clear it.
	UnpackedFrom string `json:"-"`
}

// AlertEvent is one entry of the durable queue: alerts that were accepted and are not yet released.
//
// Nobody updates an AlertEvent's spec: it has no status, no finalizer and no owner, so that no garbage
// collection can take an acknowledged alert. It is deleted when every alert in it is folded.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=alertevents,shortName=ae,categories=tocsin
// +kubebuilder:printcolumn:name="Integration",type=string,JSONPath=`.spec.integrationName`
// +kubebuilder:printcolumn:name="First-Status",type=string,JSONPath=`.spec.alerts[0].status`
// +kubebuilder:printcolumn:name="First-Incident",type=string,JSONPath=`.spec.alerts[0].incidentName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="an AlertEvent is immutable; create a new one"
type AlertEvent struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what was accepted. It never changes.
	// +required
	Spec AlertEventSpec `json:"spec"`
}

// AlertEventList is a list of AlertEvents.
//
// +kubebuilder:object:root=true
type AlertEventList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []AlertEvent `json:"items"`
}
