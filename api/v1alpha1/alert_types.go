package v1alpha1

// Severity says how bad an alert is.
// +kubebuilder:validation:Enum=critical;error;warning;info
type Severity string

// The severities, worst first.
const (
	SeverityCritical Severity = "critical"
	SeverityError    Severity = "error"
	SeverityWarning  Severity = "warning"
	SeverityInfo     Severity = "info"
)

// AlertStatus says what an alert reports of its incident.
// +kubebuilder:validation:Enum=firing;resolved;acknowledged
type AlertStatus string

// The statuses of an alert.
const (
	AlertFiring       AlertStatus = "firing"
	AlertResolved     AlertStatus = "resolved"
	AlertAcknowledged AlertStatus = "acknowledged"
)

// AlertContent is what an alert says. Every field is optional: an absent field leaves what an earlier
// alert of the same incident said.
type AlertContent struct {
	// title is one line that says what is wrong.
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

	// link is an address to look at for more.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Link string `json:"link,omitempty"`

	// hostname is the host that the alert is about.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Hostname string `json:"hostname,omitempty"`

	// region is where that host or service is.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Region string `json:"region,omitempty"`

	// labels identify what the alert is about. The values may be any JSON.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +mapType=atomic
	// +optional
	Labels Bag `json:"labels,omitempty"`

	// annotations explain the alert. The values may be any JSON.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +mapType=atomic
	// +optional
	Annotations Bag `json:"annotations,omitempty"`

	// values are what was measured. The values may be any JSON.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +mapType=atomic
	// +optional
	Values Bag `json:"values,omitempty"`

	// custom holds whatever else the sender sent. The values may be any JSON.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +mapType=atomic
	// +optional
	Custom Bag `json:"custom,omitempty"`

	// startsAt is when the trouble began, as the sender says.
	// +optional
	StartsAt *Timestamp `json:"startsAt,omitempty,omitzero"`

	// endsAt is when the trouble ended, as the sender says.
	// +optional
	EndsAt *Timestamp `json:"endsAt,omitempty,omitzero"`
}

// AlertDefaults are used for what no alert of an incident has said.
type AlertDefaults struct {
	// severity is used for an alert without a known severity. Default: warning.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// type is used for an alert without a type. Default: webhook.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Type string `json:"type,omitempty"`

	// title is used for an alert with neither title nor description.
	// Default: "Alert from" and the name of the integration.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Title string `json:"title,omitempty"`

	// labels are added to those of an alert; a label that the alert has itself wins.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) >= 1 && size(key) <= 128)",message="a label's name has 1 to 128 characters"
	// +mapType=atomic
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`
}

// LabelValue is the value of a default label.
// +kubebuilder:validation:MaxLength=256
type LabelValue string
