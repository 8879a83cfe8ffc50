package v1alpha1

// Expression is one expression in the Common Expression Language (CEL).
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=2048
type Expression string

// Mapping converts the payloads of a tool to alerts. The payload rules apply to everything that it does not set.
//
// Expressions can use the variables payload (the body as sent), alert (the current alert in the payload, or the payload
// itself if it is not a list) and headers (the request headers, with names in lower case).
type Mapping struct {
	// alerts evaluates to the list of alerts in a payload. Default: the payload is one alert or, if it is a list,
	// each element is one.
	// +optional
	Alerts Expression `json:"alerts,omitempty"`

	// drop evaluates to true for an alert to accept but not store. Default: every alert is stored.
	// +optional
	Drop Expression `json:"drop,omitempty"`

	// fields has an expression for each field of an alert.
	// +optional
	Fields MappingFields `json:"fields,omitempty,omitzero"`
}

// MappingFields has an expression for each field of an alert. Null, an empty string and an absent optional value leave the
// field to the payload rules.
type MappingFields struct {
	// title evaluates to one line that describes the problem.
	// +optional
	Title Expression `json:"title,omitempty"`

	// description evaluates to a text that explains the alert; it may have several lines.
	// +optional
	Description Expression `json:"description,omitempty"`

	// severity evaluates to critical, error, warning or info, or a synonym.
	// +optional
	Severity Expression `json:"severity,omitempty"`

	// status evaluates to firing, resolved or acknowledged.
	// +optional
	Status Expression `json:"status,omitempty"`

	// dedupKey evaluates to the key that all alerts of an incident share.
	// +optional
	DedupKey Expression `json:"dedupKey,omitempty"`

	// link evaluates to a URL with more information.
	// +optional
	Link Expression `json:"link,omitempty"`

	// hostname evaluates to the affected host.
	// +optional
	Hostname Expression `json:"hostname,omitempty"`

	// region evaluates to the location of the host or service.
	// +optional
	Region Expression `json:"region,omitempty"`

	// startTime evaluates to the start time of the problem, as a timestamp or in any format that the payload rules accept.
	// +optional
	StartTime Expression `json:"startTime,omitempty"`

	// endTime evaluates to the end time of the problem, in the same formats.
	// +optional
	EndTime Expression `json:"endTime,omitempty"`

	// expiryTime evaluates to the time at which a firing alert ends unless the sender repeats it, in the same formats.
	// +optional
	ExpiryTime Expression `json:"expiryTime,omitempty"`

	// labels evaluates to an object that identifies the subject of the alert.
	// +optional
	Labels Expression `json:"labels,omitempty"`

	// annotations evaluates to an object that explains the alert.
	// +optional
	Annotations Expression `json:"annotations,omitempty"`

	// values evaluates to an object with measured values.
	// +optional
	Values Expression `json:"values,omitempty"`

	// type evaluates to the class of the alert.
	// +optional
	Type Expression `json:"type,omitempty"`

	// custom evaluates to an object with additional data. Everything unmapped is added to it.
	// +optional
	Custom Expression `json:"custom,omitempty"`
}
