package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxAlertsPerEvent is the maximum number of alerts in an AlertEvent.
const MaxAlertsPerEvent = 500

const (
	// TraceparentAnnotation holds the W3C traceparent of the write that stored an AlertEvent, if it is traced. The span of the
	// fold links to it.
	TraceparentAnnotation = "tocsin.dev/traceparent"

	// SettledAnnotation is the mark of an AlertEvent that is settled for some of its Incidents, or for all, and that stays.
	// See internal/marks.
	SettledAnnotation = "tocsin.dev/settled"

	// RetryAnnotation is "true" on an AlertEvent whose creation was tried before under the same name, without a response: it
	// may be a second copy.
	RetryAnnotation = "tocsin.dev/retry"

	// ExcludeFromBackupLabel excludes an object from Velero backups if it is "true". The operator sets it on AlertEvents:
	// the alerts of a restored queue have already been folded.
	ExcludeFromBackupLabel = "velero.io/exclude-from-backup"

	// RestoreLabel is set on every object that Velero has restored.
	RestoreLabel = "velero.io/restore-name"

	// FieldManager is the field manager of AlertEvents that store webhooks.
	FieldManager = "tocsin"
)

// Alert is an accepted alert: its content and the Incident that it belongs to.
//
// +kubebuilder:validation:XValidation:rule="has(self.incidentName) || has(self.dedupKey)",message="an alert needs incidentName or dedupKey"
// +kubebuilder:validation:XValidation:rule="self.status != 'firing' || has(self.dedupKey)",message="a firing alert needs dedupKey"
// +kubebuilder:validation:XValidation:rule="self.status != 'silenced' || has(self.silenceFor)",message="an alert with status silenced needs silenceFor"
type Alert struct {
	// id uniquely identifies the alert. Written by the operator; optional in alerts created by hand.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ID string `json:"id,omitempty"`

	// incidentName is the name of the Incident that the alert belongs to, in the same namespace.
	// Default: the name derived from integrationName and dedupKey.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	IncidentName string `json:"incidentName,omitempty"`

	// dedupKey is the key that all alerts of an incident share.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	DedupKey string `json:"dedupKey,omitempty"`

	// status is firing, resolved, acknowledged, unacknowledged (withdraws an acknowledgement), silenced, or noted: a comment
	// or content for an incident whose state does not change. Senders cannot set the last three.
	// +required
	Status AlertStatus `json:"status,omitempty"`

	// by is the name of the user who acknowledges, unacknowledges, resolves, silences, reopens or notes something on the incident,
	// for the timeline. The creator of the AlertEvent sets it; it is not verified. Absent in alerts from webhooks; ignored in
	// firing alerts that open nothing.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	By string `json:"by,omitempty"`

	// comment is the user's comment for the timeline, which keeps 256 characters of by and comment together. Ignored in
	// firing alerts that open nothing.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Comment string `json:"comment,omitempty"`

	// silenceFor is how long the forwarding of the incident is to be silenced in Alertmanager, from 0s to 720h after the
	// alert was received. 0s ends the silence that an earlier alert requested. Needed with status silenced; else ignored.
	// Clients in Go write 2h as 2h0m0s, which an update of the AlertEvent cannot change.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="must be a duration from 0s to 720h, such as 2h"
	// +optional
	SilenceFor *metav1.Duration `json:"silenceFor,omitempty"`

	// leaseEndTime is the time at which the alert ends unless the sender repeats it, as reported by the sender. See
	// status.lease of an Incident. Ignored in alerts that do not fire.
	// +optional
	LeaseEndTime *Timestamp `json:"leaseEndTime,omitempty,omitzero"`

	AlertContent `json:",inline"`
}

// PackedAlert is what a column shows of an alert in packedAlerts.
type PackedAlert struct {
	// incidentName is the name of the Incident that the alert belongs to.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	IncidentName string `json:"incidentName,omitempty"`

	// status is the status of the alert.
	// +optional
	Status AlertStatus `json:"status,omitempty"`
}

// AlertEventSpec holds accepted alerts. It is immutable.
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.alerts) != has(self.packedAlerts)",message="an AlertEvent has either alerts or packedAlerts"
// +kubebuilder:validation:XValidation:rule="has(self.packedAlerts) || !has(self.packedFirst)",message="packedFirst needs packedAlerts"
// +kubebuilder:validation:XValidation:rule="has(self.integrationName) || has(self.alerts) && self.alerts.all(a, has(a.incidentName) && a.status != 'firing')",message="integrationName is needed for alerts that fire or have no incidentName, and for packed ones"
type AlertEventSpec struct {
	// integrationName is the name of the WebhookIntegration that accepted the alerts, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	IntegrationName string `json:"integrationName,omitempty"`

	// receivedTime is the time at which the alerts were accepted. Default: the time of creation.
	// +optional
	ReceivedTime Timestamp `json:"receivedTime,omitempty,omitzero"`

	// defaults is a copy of the integration's defaults at the time at which the alerts were accepted.
	// +optional
	Defaults *AlertDefaults `json:"defaults,omitempty"`

	// alerts are the accepted alerts, in the order in which they are folded.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	// +listType=atomic
	// +optional
	Alerts []Alert `json:"alerts,omitempty"`

	// packedAlerts replaces alerts if there are several: the JSON of alerts, compressed with gzip and encoded in
	// base64. The API server processes one string instead of thousands of fields. So the API server, admission webhooks and
	// policies cannot see what is in it; the operator checks it against the schema of alerts when it reads it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	PackedAlerts string `json:"packedAlerts,omitempty"`

	// packedFirst tells of the first of packedAlerts, for the columns of kubectl get. Nothing else depends on it.
	// +kubebuilder:validation:MaxItems=1
	// +listType=atomic
	// +optional
	PackedFirst []PackedAlert `json:"packedFirst,omitempty"` //nolint:kubeapilinter // a column shows what there is
}

// AlertEvent is an entry of the durable queue: alerts that were accepted and are not yet released.
//
// It is immutable and has no status, no finalizer and no owner, so that garbage collection never deletes an acknowledged
// alert. It is released, that is deleted, after all its alerts have been folded.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=alertevents,shortName=ae,categories=tocsin
// +kubebuilder:printcolumn:name="Integration",type=string,JSONPath=`.spec.integrationName`
// +kubebuilder:printcolumn:name="First-Status",type=string,JSONPath=`.spec['alerts','packedFirst'][0].status`
// +kubebuilder:printcolumn:name="First-Incident",type=string,JSONPath=`.spec['alerts','packedFirst'][0].incidentName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="an AlertEvent is immutable; create a new one"
type AlertEvent struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec holds the accepted alerts. It is immutable.
	// +required
	Spec AlertEventSpec `json:"spec,omitempty,omitzero"`
}

// AlertEventList is a list of AlertEvents.
//
// +kubebuilder:object:root=true
type AlertEventList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []AlertEvent `json:"items"`
}
