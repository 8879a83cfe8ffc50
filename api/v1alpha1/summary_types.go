package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SummaryName is the name of every IncidentSummary: a namespace has one.
const SummaryName = "current"

// SeverityCounts are numbers of Incidents.
type SeverityCounts struct {
	// critical is the number of critical Incidents.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	Critical int64 `json:"critical"`

	// error is the number of Incidents of the severity error.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	Error int64 `json:"error"`

	// warning is the number of Incidents of the severity warning.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	Warning int64 `json:"warning"`

	// info is the number of Incidents of the severity info.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	Info int64 `json:"info"`

	// total is the number of all of them.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	Total int64 `json:"total"`
}

// SummarizedIncident is one Incident, as a summary names it.
type SummarizedIncident struct {
	// name is the name of the Incident.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`

	// title is the title of the Incident.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Title string `json:"title,omitempty"`

	// openedTime is the time at which the alert that opened the episode was received.
	// +optional
	OpenedTime *Timestamp `json:"openedTime,omitempty,omitzero"`
}

// IncidentSummaryStatus counts the Incidents of a namespace.
type IncidentSummaryStatus struct {
	// conditions has the type Clear: True if no Incident of the severity error or critical is Open, and the condition AlertsFolded
	// of no WebhookIntegration is False.
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.observedGeneration) || type(c.observedGeneration) == int)",message="observedGeneration must be an integer"
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime.getFullYear() > 1 && c.lastTransitionTime.getFullYear() < 9999)",message="lastTransitionTime must be an RFC 3339 time"
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the object that the status describes.
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// open counts the Incidents that are Open, also those that are acknowledged, silenced or muted.
	// +optional
	Open *SeverityCounts `json:"open,omitempty,omitzero"`

	// unacknowledged counts those of them that nobody has acknowledged, or not as severe as they are.
	// +optional
	Unacknowledged *SeverityCounts `json:"unacknowledged,omitempty,omitzero"`

	// newestCritical is the critical Incident that was opened last of those that are Open. Absent if there is none.
	// +optional
	NewestCritical *SummarizedIncident `json:"newestCritical,omitempty,omitzero"`
}

// IncidentSummary counts the Incidents of its namespace, for programs that go on only while nothing severe is open. The operator
// creates the one of a namespace that has WebhookIntegrations or Incidents that are Open. It has no spec.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=incidentsummaries,shortName=incsum,categories=tocsin
// +kubebuilder:printcolumn:name="Clear",type=string,JSONPath=`.status.conditions[?(@.type=="Clear")].status`
// +kubebuilder:printcolumn:name="Critical",type=integer,JSONPath=`.status.open.critical`
// +kubebuilder:printcolumn:name="Error",type=integer,JSONPath=`.status.open.error`
// +kubebuilder:printcolumn:name="Warning",type=integer,JSONPath=`.status.open.warning`
// +kubebuilder:printcolumn:name="Info",type=integer,JSONPath=`.status.open.info`
// +kubebuilder:printcolumn:name="Unacknowledged",type=integer,JSONPath=`.status.unacknowledged.total`
// +kubebuilder:printcolumn:name="Newest-Critical",type=string,JSONPath=`.status.newestCritical.title`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'current'",message="the name must be current"
type IncidentSummary struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// status counts the Incidents. Written by the operator only.
	// +optional
	Status IncidentSummaryStatus `json:"status,omitempty,omitzero"`
}

// IncidentSummaryList is a list of IncidentSummaries.
//
// +kubebuilder:object:root=true
type IncidentSummaryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []IncidentSummary `json:"items"`
}

// ConditionClear tells whether no severe Incident of the namespace is Open.
const ConditionClear = "Clear"

// ManagedByLabel has the value FieldManager on an IncidentSummary that the operator has created. It deletes no other when its
// namespace has nothing to count.
const ManagedByLabel = "app.kubernetes.io/managed-by"

// Reasons of an IncidentSummary's Clear condition.
const (
	ReasonNoSevereIncident   = "NoSevereIncident"   // True: none of the severity error or critical is Open
	ReasonSevereIncidentOpen = "SevereIncidentOpen" // False: the message has the counts
	ReasonAlertsNotFolded    = "AlertsNotFolded"    // Unknown: alerts for an integration do not become Incidents
)
