package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaintenanceMatch selects Incidents.
// +kubebuilder:validation:XValidation:rule="has(self.severities) && size(self.severities) > 0 || has(self.labels) && size(self.labels) > 0",message="match needs severities or labels; a window without match mutes all Incidents of the integration"
type MaintenanceMatch struct {
	// severities are the severities to mute. Default: all.
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	// +optional
	Severities []Severity `json:"severities,omitempty"`

	// labels are labels that an Incident must have, with exactly these values. Default: none.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) >= 1 && size(key) <= 128)",message="a label's name has 1 to 128 characters"
	// +mapType=atomic
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`
}

// MaintenanceWindow is planned work, once or again and again. While it is open, Incidents are muted: they are not forwarded to
// Alertmanager.
// +kubebuilder:validation:XValidation:rule="has(self.schedule) ? has(self.duration) && !has(self.startTime) && !has(self.endTime) : has(self.startTime) && has(self.endTime) && !has(self.duration) && !has(self.timeZone)",message="a window has startTime and endTime, or schedule and duration"
// +kubebuilder:validation:XValidation:rule="has(self.schedule) || !has(self.skipUntil)",message="only a window with a schedule has skipUntil"
// +kubebuilder:validation:XValidation:rule="!has(self.startTime) || !has(self.endTime) || self.endTime > self.startTime",message="endTime must be after startTime"
// +kubebuilder:validation:XValidation:rule="!has(self.startTime) || !has(self.endTime) || self.endTime - self.startTime <= duration('744h')",message="a window lasts at most 744h (31 days)"
type MaintenanceWindow struct {
	// name identifies the window within the integration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name,omitempty"`

	// startTime is the start of a window that is open once.
	// +optional
	StartTime *Timestamp `json:"startTime,omitempty,omitzero"`

	// endTime is the end of that window, at most 744h (31 days) after its start.
	// +optional
	EndTime *Timestamp `json:"endTime,omitempty,omitzero"`

	// schedule is a cron expression for the times at which a recurring window opens: minute, hour, day of the month, month and
	// day of the week, or one of @hourly, @daily, @weekly, @monthly and @yearly.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[^\s=]+( [^\s=]+){4})$`
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// duration is how long a recurring window is open: a duration such as 1h30m, from 1m to 168h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be a duration from 1m to 168h, such as 1h30m"
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`

	// timeZone is the name of the time zone of the schedule in the IANA database, such as Europe/Berlin. Default: UTC.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// skipUntil skips the openings of a recurring window that begin before this time. One that is open ends.
	// +optional
	SkipUntil *Timestamp `json:"skipUntil,omitempty,omitzero"`

	// comment is the reason for the window.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Comment string `json:"comment,omitempty"`

	// match selects the Incidents that are muted. Default: all of the integration.
	// +optional
	Match *MaintenanceMatch `json:"match,omitempty,omitzero"`
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

// ConditionMaintenanceValid tells whether all maintenance windows of a WebhookIntegration can be evaluated, and which are open.
// It is absent without windows.
const ConditionMaintenanceValid = "MaintenanceValid"

// Reasons of a WebhookIntegration's MaintenanceValid condition.
const (
	ReasonWindowOpen    = "WindowOpen"    // Incidents that match an open window are muted
	ReasonNoWindowOpen  = "NoWindowOpen"  // no Incident is muted
	ReasonInvalidWindow = "InvalidWindow" // a window has an invalid schedule or time zone, and mutes nothing; others may be open
)
