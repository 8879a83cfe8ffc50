package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IntegrationSelector selects WebhookIntegrations by their labels.
// +kubebuilder:validation:MaxProperties=1
// +kubebuilder:pruning:PreserveUnknownFields
// +structType=atomic
type IntegrationSelector struct {
	// matchLabels are labels that a WebhookIntegration must have, with exactly these values.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) >= 1 && size(key) <= 317)",message="a label's name has 1 to 317 characters"
	// +mapType=atomic
	// +required
	MatchLabels map[string]IntegrationLabel `json:"matchLabels,omitempty"`
}

// IntegrationLabel is the value of a label of a WebhookIntegration.
// +kubebuilder:validation:MaxLength=63
type IntegrationLabel string

// IntegrationSelection selects WebhookIntegrations of the namespace.
// +kubebuilder:validation:MaxProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.selector)",message="integrations has either names or a selector; without integrations, the window is for all of the namespace"
// +kubebuilder:pruning:PreserveUnknownFields
// +structType=atomic
type IntegrationSelection struct {
	// names are the names of WebhookIntegrations.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Names []string `json:"names,omitempty"`

	// selector selects WebhookIntegrations by their labels.
	// +optional
	Selector *IntegrationSelector `json:"selector,omitempty,omitzero"`
}

// MaintenanceMatch selects Incidents. Its schema has no other key (hack/gen/closed).
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:pruning:PreserveUnknownFields
// +structType=atomic
type MaintenanceMatch struct {
	// severities are the severities to mute. Default: all.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	// +optional
	Severities []Severity `json:"severities,omitempty"`

	// labels are labels that an Incident must have, with exactly these values. Default: none.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) >= 1 && size(key) <= 128)",message="a label's name has 1 to 128 characters"
	// +mapType=atomic
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`
}

// SingleOpening is a time at which a window is open once.
// +kubebuilder:validation:XValidation:rule="self.endTime > self.startTime",message="endTime must be after startTime"
// +kubebuilder:validation:XValidation:rule="self.endTime - self.startTime <= duration('744h')",message="a window lasts at most 744h (31 days)"
type SingleOpening struct {
	// startTime is the time at which the window opens.
	// +required
	StartTime Timestamp `json:"startTime,omitempty,omitzero"`

	// endTime is the time at which the window ends, at most 744h (31 days) later.
	// +required
	EndTime Timestamp `json:"endTime,omitempty,omitzero"`
}

// Recurrence says when a window opens again and again.
type Recurrence struct {
	// cron is a cron expression for the times at which the window opens: minute, hour, day of the month, month and day of the
	// week, or one of @hourly, @daily, @weekly, @monthly and @yearly.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[^\s=]+( [^\s=]+){4})$`
	// +required
	Cron string `json:"cron,omitempty"`

	// duration is how long the window is open each time: a duration such as 1h30m, from 1m to 168h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be a duration from 1m to 168h, such as 1h30m"
	// +required
	Duration *metav1.Duration `json:"duration,omitempty"`

	// timeZone is the name of the time zone of the cron expression in the IANA database, such as Europe/Berlin. Default: UTC.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// skipUntil skips the openings that begin before this time. A window that is open ends.
	// +optional
	SkipUntil *Timestamp `json:"skipUntil,omitempty,omitzero"`
}

// MaintenanceWindowSpec is planned work, once or again and again.
// +kubebuilder:validation:XValidation:rule="has(self.once) != has(self.recurring)",message="a window has either once or recurring"
type MaintenanceWindowSpec struct {
	// integrations selects the WebhookIntegrations whose Incidents are muted. Default: all of the namespace.
	// +optional
	Integrations *IntegrationSelection `json:"integrations,omitempty,omitzero"`

	// match selects the Incidents that are muted, by severities, labels or both; an unknown key is rejected. Default: all.
	// +optional
	Match *MaintenanceMatch `json:"match,omitempty,omitzero"`

	// once says when a window is open that opens once.
	// +optional
	Once *SingleOpening `json:"once,omitempty,omitzero"`

	// recurring says when a window opens that opens again and again.
	// +optional
	Recurring *Recurrence `json:"recurring,omitempty,omitzero"`

	// comment is the reason for the window.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Comment string `json:"comment,omitempty"`
}

// MaintenanceWindowStatus is the observed state of a window.
type MaintenanceWindowStatus struct {
	// conditions has the types Valid (the window can be evaluated; one that is not mutes nothing) and Open (it mutes Incidents
	// now).
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.observedGeneration) || type(c.observedGeneration) == int)",message="observedGeneration must be an integer"
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime.getFullYear() > 1 && c.lastTransitionTime.getFullYear() < 9999)",message="lastTransitionTime must be an RFC 3339 time"
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status describes.
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// startTime is the time at which the window has opened, or opens next. Of one that is over, it is the last time.
	// +optional
	StartTime *Timestamp `json:"startTime,omitempty,omitzero"`

	// endTime is the time at which that opening ends.
	// +optional
	EndTime *Timestamp `json:"endTime,omitempty,omitzero"`

	// integrations says for which WebhookIntegrations the window is: all, none, or the names of those that exist.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Integrations string `json:"integrations,omitempty"`
}

// MaintenanceWindow is planned work. While it is open, the Incidents that it selects are muted: they are not forwarded to
// Alertmanager. Those that are open when it ends are forwarded then.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=maintenancewindows,shortName=mw,categories=tocsin
// +kubebuilder:printcolumn:name="Open",type=string,JSONPath=`.status.conditions[?(@.type=="Open")].status`
// +kubebuilder:printcolumn:name="Starts",type=string,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Ends",type=string,JSONPath=`.status.endTime`
// +kubebuilder:printcolumn:name="Integrations",type=string,JSONPath=`.status.integrations`
// +kubebuilder:printcolumn:name="Comment",type=string,JSONPath=`.spec.comment`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Open")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name may have at most 63 characters"
type MaintenanceWindow struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec says when the window is open, and what it mutes.
	// +required
	Spec MaintenanceWindowSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. Written by the operator.
	// +optional
	Status MaintenanceWindowStatus `json:"status,omitempty,omitzero"`
}

// MaintenanceWindowList is a list of MaintenanceWindows.
//
// +kubebuilder:object:root=true
type MaintenanceWindowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []MaintenanceWindow `json:"items"`
}

// Mute says that a maintenance window keeps an Incident from being forwarded to Alertmanager.
type Mute struct {
	// startTime is the time at which the Incident was muted.
	// +required
	StartTime Timestamp `json:"startTime,omitempty,omitzero"`

	// window is the name of the open maintenance window, or of the one that ends last. Absent if the Incident was resolved while
	// it was muted.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Window string `json:"window,omitempty"`

	// endTime is the time at which the Incident is forwarded if it is still open. Absent if that is not known, because windows
	// follow each other without a break, or if the Incident was resolved.
	// +optional
	EndTime *Timestamp `json:"endTime,omitempty,omitzero"`

	// forwardedSeverity is the severity at which the Incident was forwarded when it was muted. It stays forwarded with this
	// severity. Absent if the Incident was opened while the window was open: it is not forwarded at all.
	// +optional
	ForwardedSeverity Severity `json:"forwardedSeverity,omitempty"`
}

// The conditions of a MaintenanceWindow.
const (
	ConditionWindowValid = "Valid" // the window can be evaluated
	ConditionWindowOpen  = "Open"  // it mutes Incidents
)

// Reasons of a MaintenanceWindow's conditions.
const (
	ReasonWindowValid   = "Valid"         // of Valid: the schedule can be evaluated
	ReasonInvalidWindow = "InvalidWindow" // of both: it cannot, and the window mutes nothing
	ReasonWindowOpen    = "WindowOpen"    // of Open: the Incidents that the window selects are muted
	ReasonScheduled     = "Scheduled"     // of Open: it opens later
	ReasonOver          = "Over"          // of Open: it does not open again
)
