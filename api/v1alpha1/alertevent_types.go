package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxAlertsPerEvent is the maximum number of alerts in an AlertEvent.
const MaxAlertsPerEvent = 500

const (
	// TraceparentAnnotation holds the W3C traceparent of the write that stored an AlertEvent, if it is traced. The span of the
	// fold links to it.
	TraceparentAnnotation = "tocsin.dev/traceparent"

	// SettledAnnotation is the mark of an AlertEvent that is settled for some of its Incidents, or for all, and that stays.
	// See internal/queue.
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

// AlertsText is the text of alerts. Any other JSON decodes as a text as well, its own: one object that a client cannot read would
// hide all the others from it, and before there was a text, lists of alerts were stored.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=1048576
type AlertsText string

// UnmarshalJSON decodes a string, and whatever else there is.
func (t *AlertsText) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*string)(t)); err != nil {
		*t = AlertsText(b)
	}
	return nil
}

// AlertsEncoding says how a text with alerts is encoded.
//
// +kubebuilder:validation:Enum=gzip
type AlertsEncoding string

// AlertsGzip is gzip, and base64 of that.
const AlertsGzip AlertsEncoding = "gzip"

// Report is what a person says of an Incident.
//
// +kubebuilder:validation:XValidation:rule="has(self.incidentName) || has(self.dedupKey)",message="a report needs incidentName or dedupKey"
// +kubebuilder:validation:XValidation:rule="self.status != 'firing' || has(self.dedupKey)",message="a report with status firing needs dedupKey"
// +kubebuilder:validation:XValidation:rule="self.status != 'silenced' || has(self.silenceFor)",message="a report with status silenced needs silenceFor"
// +kubebuilder:validation:XValidation:rule="self.status != 'assigned' || has(self.assignee)",message="a report with status assigned needs assignee"
type Report struct {
	// incidentName is the name of the Incident, in the same namespace.
	// Default: the name derived from integrationName and dedupKey.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	IncidentName string `json:"incidentName,omitempty"`

	// dedupKey is the key that all alerts of the incident share.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	DedupKey string `json:"dedupKey,omitempty"`

	// status is firing (reopens a Resolved Incident as it was, or opens a new one), resolved, acknowledged, unacknowledged
	// (withdraws an acknowledgement), silenced, assigned, unassigned (withdraws an assignment), or noted: a comment only.
	// +required
	Status AlertStatus `json:"status,omitempty"`

	// by is the name of the user who says it, for the timeline. The creator of the AlertEvent sets it; it is not verified,
	// unless an admission policy does so.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	By string `json:"by,omitempty"`

	// comment is the user's comment for the timeline, which keeps 256 characters of by and comment together.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Comment string `json:"comment,omitempty"`

	// assignee is the name of the person who is to work on the Incident. Nobody verifies it. Needed with status assigned; else
	// ignored.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Assignee string `json:"assignee,omitempty"`

	// silenceFor is how long the forwarding of the incident is to be silenced in Alertmanager, from 0s to 720h after the
	// report was received. 0s ends the silence that an earlier report requested. Needed with status silenced; else ignored.
	// Clients in Go write 2h as 2h0m0s, which an update of the AlertEvent cannot change.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="must be a duration from 0s to 720h, such as 2h"
	// +optional
	SilenceFor *metav1.Duration `json:"silenceFor,omitempty"`

	// acknowledgeFor is how long an acknowledgement lasts, from 1m to 720h after the report was received, whatever the integration
	// says. Ignored unless the status is acknowledged. Default: acknowledgementExpiresAfter of the integration.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="must be a duration from 1m to 720h, such as 4h"
	// +optional
	AcknowledgeFor *metav1.Duration `json:"acknowledgeFor,omitempty"`
}

// AlertEventSpec holds accepted alerts, or what a person reports. It is immutable.
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.alerts) != has(self.report)",message="an AlertEvent has either alerts or a report"
// +kubebuilder:validation:XValidation:rule="has(self.alerts) || !has(self.encoding)",message="encoding needs alerts"
// +kubebuilder:validation:XValidation:rule="!has(self.alerts) || has(self.encoding) || self.alerts.startsWith('[')",message="alerts is the text of a JSON array, which begins with ["
// +kubebuilder:validation:XValidation:rule="has(self.integrationName) || has(self.report) && has(self.report.incidentName) && self.report.status != 'firing'",message="integrationName is needed for alerts, and for a report that fires or has no incidentName"
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

	// alerts are the accepted alerts, in the order in which they are folded: the text of a JSON array of 1 to 500 objects, with
	// the fields that docs/spec describes. The API server sees one string, whatever is in it; the operator checks it when it
	// reads it.
	// +optional
	Alerts AlertsText `json:"alerts,omitempty"`

	// encoding says how alerts is encoded: gzip for base64 of gzip of the text. Default: not at all.
	// +optional
	Encoding AlertsEncoding `json:"encoding,omitempty"`

	// count is how many alerts there are, and summary tells of them in one line, both for people.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	Count int64 `json:"count,omitempty"`

	// summary tells of the alerts in one line.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Summary string `json:"summary,omitempty"`

	// report is what a person says of an Incident.
	// +optional
	Report *Report `json:"report,omitempty,omitzero"`
}

// AlertEvent is an entry of the durable queue: alerts that were accepted and are not yet released.
//
// It is immutable and has no status, no finalizer and no owner, so that garbage collection never deletes an acknowledged
// alert. It is released, that is deleted, after all its alerts have been folded.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=alertevents,shortName=ae,categories=tocsin
// +kubebuilder:printcolumn:name="Integration",type=string,JSONPath=`.spec.integrationName`
// +kubebuilder:printcolumn:name="Alerts",type=integer,JSONPath=`.spec.count`
// +kubebuilder:printcolumn:name="Report",type=string,JSONPath=`.spec.report.status`
// +kubebuilder:printcolumn:name="Summary",type=string,JSONPath=`.spec.summary`
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

	// Alerts are what the spec says, decoded: see internal/queue. They are never stored.
	Alerts []Alert `json:"-"`
}

// AlertEventList is a list of AlertEvents.
//
// +kubebuilder:object:root=true
type AlertEventList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []AlertEvent `json:"items"`
}
