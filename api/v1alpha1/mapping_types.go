package v1alpha1

// Expression is one expression in the Common Expression Language (CEL).
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=2048
type Expression string

// Mapping says how the payloads of a tool are read as alerts. What it leaves out is read by the rules for
// payloads.
//
// The expressions may use the variables payload (the body as sent), alert (the one alert in it that is
// being read, the payload itself when it is not a list) and headers (those of the request, the names in
// lower case).
type Mapping struct {
	// alerts gives the list of alerts in a payload. Default: the payload is the only alert, or, if it is a
	// list, each element of it is one.
	// +optional
	Alerts Expression `json:"alerts,omitempty"`

	// drop is true for an alert that is accepted but not stored. Default: every alert is stored.
	// +optional
	Drop Expression `json:"drop,omitempty"`

	// fields give what the fields of an alert hold.
	// +optional
	Fields MappingFields `json:"fields,omitempty,omitzero"`
}

// MappingFields has an expression for each field of an alert. Null, an empty string and a missing optional
// value count as absent, which leaves the field to the rules for payloads.
type MappingFields struct {
	// title gives one line that says what is wrong.
	// +optional
	Title Expression `json:"title,omitempty"`

	// description gives a text that explains the alert; it may have several lines.
	// +optional
	Description Expression `json:"description,omitempty"`

	// severity gives one of critical, error, warning and info, or a synonym of one.
	// +optional
	Severity Expression `json:"severity,omitempty"`

	// status gives firing, resolved or acknowledged.
	// +optional
	Status Expression `json:"status,omitempty"`

	// dedupKey gives the key that all alerts of one incident have in common.
	// +optional
	DedupKey Expression `json:"dedupKey,omitempty"`

	// link gives an address to look at for more.
	// +optional
	Link Expression `json:"link,omitempty"`

	// hostname gives the host that the alert is about.
	// +optional
	Hostname Expression `json:"hostname,omitempty"`

	// region gives where that host or service is.
	// +optional
	Region Expression `json:"region,omitempty"`

	// startsAt gives when the trouble began, as a timestamp or in any form that the rules for payloads read.
	// +optional
	StartsAt Expression `json:"startsAt,omitempty"`

	// endsAt gives when the trouble ended, in the same forms.
	// +optional
	EndsAt Expression `json:"endsAt,omitempty"`

	// labels give an object that identifies what the alert is about.
	// +optional
	Labels Expression `json:"labels,omitempty"`

	// annotations give an object that explains the alert.
	// +optional
	Annotations Expression `json:"annotations,omitempty"`

	// values give an object with what was measured.
	// +optional
	Values Expression `json:"values,omitempty"`

	// type gives the class of the alert.
	// +optional
	Type Expression `json:"type,omitempty"`

	// custom gives an object of whatever else is worth keeping. What became no field as a whole is added to it.
	// +optional
	Custom Expression `json:"custom,omitempty"`
}
