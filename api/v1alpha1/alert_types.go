package v1alpha1

import (
	"encoding/json"
	"time"
)

// Severity is the severity of an alert.
// +kubebuilder:validation:Enum=critical;error;warning;info
type Severity string

// The severities, most severe first.
const (
	SeverityCritical Severity = "critical"
	SeverityError    Severity = "error"
	SeverityWarning  Severity = "warning"
	SeverityInfo     Severity = "info"
)

// Severities returns all severities, most severe first.
func Severities() []Severity {
	return []Severity{SeverityCritical, SeverityError, SeverityWarning, SeverityInfo}
}

// AlertStatus is the status that an alert reports.
// +kubebuilder:validation:Enum=firing;resolved;acknowledged;unacknowledged;noted;silenced;assigned;unassigned
type AlertStatus string

// The statuses of an alert.
const (
	AlertFiring       AlertStatus = "firing"
	AlertResolved     AlertStatus = "resolved"
	AlertAcknowledged AlertStatus = "acknowledged"

	// Only alerts created by hand and requests of Opsgenie's API have these. As words of a payload, they mean that the alert is
	// firing: nobody has acknowledged the problem.
	AlertUnacknowledged AlertStatus = "unacknowledged" // withdraws an acknowledgement
	AlertNoted          AlertStatus = "noted"          // adds a comment, and content to an Open Incident; changes no state
	AlertSilenced       AlertStatus = "silenced"       // requests a silence; only users create it
	AlertAssigned       AlertStatus = "assigned"       // says who works on an Open Incident; only users create it
	AlertUnassigned     AlertStatus = "unassigned"     // withdraws that; only users create it
)

// Limits of an alert's content in characters, equal to those of the schema.
const (
	MaxLineChars        = 1024 // of a title, type, hostname or region
	MaxLinkChars        = 2048
	MaxDescriptionChars = 16384
	MaxCommentChars     = 1024
	MaxOriginsChars     = 192 // and bytes
)

// MaxSilence is the longest silence that an alert may request, equal to that of the schema.
const MaxSilence = 720 * time.Hour

// MaxAcknowledgement is the longest time that a report may acknowledge an Incident for, equal to that of the schema.
const MaxAcknowledgement = 720 * time.Hour

// Bag is a JSON object from the sender. Its values are kept unchanged.
type Bag map[string]json.RawMessage

// AlertContent is the content of an alert. Every field is optional: an absent field does not change the value of earlier
// alerts of the same incident.
type AlertContent struct {
	// title is one line that describes the problem.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Title string `json:"title,omitempty"`

	// description explains the alert; it may have several lines.
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	Description string `json:"description,omitempty"`

	// severity is one of critical, error, warning and info.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// type is the sender's class of the alert.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Type string `json:"type,omitempty"`

	// link is a URL with more information.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Link string `json:"link,omitempty"`

	// hostname is the affected host.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Hostname string `json:"hostname,omitempty"`

	// region is the location of the host or service.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Region string `json:"region,omitempty"`

	// preset is the preset that read the sender's payload, however it was chosen: its late window counts, and whether its alerts are
	// forwarded. Absent if none did. Written by the operator.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Preset string `json:"preset,omitempty"`

	// origins says which key of the payload or which expression of a mapping gave which field, as "kubectl tocsin explain incident"
	// explains it, and what was not taken as sent: letters, digests of mappings and names of fields, but no values. In an Incident,
	// it is about its newest alert. Absent if that was not read from a payload. Written by the operator.
	// +kubebuilder:validation:MaxLength=192
	// +optional
	Origins string `json:"origins,omitempty"`

	// labels identify the subject of the alert. Values of a payload that are no strings are their JSON text.
	// +kubebuilder:validation:MaxProperties=256
	// +mapType=atomic
	// +optional
	Labels Texts `json:"labels,omitempty"`

	// annotations explain the alert. Values of a payload that are no strings are their JSON text.
	// +kubebuilder:validation:MaxProperties=256
	// +mapType=atomic
	// +optional
	Annotations Texts `json:"annotations,omitempty"`

	// values are measured values. They may be any JSON.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +mapType=atomic
	// +optional
	Values Bag `json:"values,omitempty"`

	// custom holds everything else that the sender sent. The values may be any JSON.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +mapType=atomic
	// +optional
	Custom Bag `json:"custom,omitempty"`

	// startTime is the start time of the problem, as reported by the sender.
	// +optional
	StartTime *Timestamp `json:"startTime,omitempty,omitzero"`

	// endTime is the end time of the problem, as reported by the sender.
	// +optional
	EndTime *Timestamp `json:"endTime,omitempty,omitzero"`
}

// Texts are texts by their names. Values that are no strings are decoded as their JSON: one object that was stored before the
// schema forbade them must not prevent an informer from decoding all others.
type Texts map[string]string

// UnmarshalJSON decodes a JSON object.
func (t *Texts) UnmarshalJSON(b []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(b, &values); err != nil || values == nil {
		return err
	}
	*t = make(Texts, len(values))
	for name, value := range values {
		text := string(value)
		if err := json.Unmarshal(value, &text); err != nil {
			text = string(value)
		}
		(*t)[name] = text
	}
	return nil
}

// AlertDefaults apply to fields that no alert of an incident sets.
type AlertDefaults struct {
	// severity applies to alerts without a known severity. Default: warning.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// type applies to alerts without a type. Default: webhook.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Type string `json:"type,omitempty"`

	// title applies to alerts with neither title nor description.
	// Default: "Alert from" and the name of the integration.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Title string `json:"title,omitempty"`

	// labels are added to the labels of an alert. Labels of the alert take precedence.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) >= 1 && size(key) <= 128)",message="a label's name has 1 to 128 characters"
	// +mapType=atomic
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`
}

// LabelValue is the value of a default label.
// +kubebuilder:validation:MaxLength=256
type LabelValue string
