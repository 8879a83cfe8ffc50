package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HeartbeatSchedule says when signals are expected.
type HeartbeatSchedule struct {
	// cron is a cron expression: minute, hour, day of the month, month and day of the week, or one of @hourly, @daily, @weekly,
	// @monthly and @yearly.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[^\s=]+( [^\s=]+){4})$`
	// +required
	Cron string `json:"cron,omitempty"`

	// timeZone is the name of the time zone of the cron expression in the IANA database, such as Europe/Berlin. Default: UTC.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// HeartbeatMatch tells which requests or alerts are signals of a heartbeat that is not pinged.
// +kubebuilder:validation:XValidation:rule="has(self.dedupKey) != (has(self.anyRequest) && self.anyRequest)",message="match has either dedupKey or anyRequest: true; without match, pings are the signals"
type HeartbeatMatch struct {
	// dedupKey is the dedup key of the alerts that are signals while they fire, such as those of a watchdog. They open no Incident.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	DedupKey string `json:"dedupKey,omitempty"`

	// anyRequest says that every request of the integration that is accepted is a signal.
	// +optional
	AnyRequest bool `json:"anyRequest,omitempty"` //nolint:kubeapilinter // there is no third way
}

// HeartbeatIncident is what the Incident of a heartbeat says.
type HeartbeatIncident struct {
	// severity is the severity. Default: critical.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// title is the title. Default: the name of the heartbeat, and that it is missed, has failed or takes too long.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Title string `json:"title,omitempty"`

	// labels are the labels, beside those of the defaults of the integration.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) >= 1 && size(key) <= 128)",message="a label's name has 1 to 128 characters"
	// +mapType=atomic
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// runbook is the address of a page that says what to do. It is the annotation runbook_url of the Incident.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://\S+$`
	// +optional
	Runbook string `json:"runbook,omitempty"`
}

// HeartbeatSpec says when signals are expected, and what happens if they do not come.
// +kubebuilder:validation:XValidation:rule="has(self.every) != has(self.schedule)",message="a heartbeat has either every or schedule"
type HeartbeatSpec struct {
	// integrationName is the name of the WebhookIntegration whose requests are the signals, and whose Incident opens. It cannot be
	// changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="integrationName cannot be changed"
	// +required
	IntegrationName string `json:"integrationName,omitempty"`

	// every is the longest time between two signals: a duration such as 5m, from 1m to 720h (30 days).
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="must be a duration from 1m to 720h, such as 5m"
	// +optional
	Every *metav1.Duration `json:"every,omitempty"`

	// schedule says when signals are expected, as a cron job sends them.
	// +optional
	Schedule *HeartbeatSchedule `json:"schedule,omitempty,omitzero"`

	// grace is how much later a signal may come: a duration such as 30s, from 10s to 720h. Default: a fifth of every, or 15m after
	// a time of the schedule.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('720h')",message="must be a duration from 10s to 720h, such as 30s"
	// +optional
	Grace *metav1.Duration `json:"grace,omitempty"`

	// maxDuration is how long after a start, a ping to the path /start, its success may come: a duration such as 2h, from 1m to
	// 720h. Default: a start says nothing about the end.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="must be a duration from 1m to 720h, such as 2h"
	// +optional
	MaxDuration *metav1.Duration `json:"maxDuration,omitempty"`

	// match tells which requests or alerts are signals. Default: pings, requests to the path heartbeat/ and the name, after the
	// address of the integration.
	// +optional
	Match *HeartbeatMatch `json:"match,omitempty,omitzero"`

	// incident is what the Incident of the heartbeat says.
	// +optional
	Incident *HeartbeatIncident `json:"incident,omitempty,omitzero"`

	// required says that the heartbeat is missed also if its first signal does not come. Default: false, it waits for the first one.
	// +optional
	Required bool `json:"required,omitempty"` //nolint:kubeapilinter // there is no third way

	// suspend says that no signal is expected. An Incident of the heartbeat resolves. Default: false.
	// +optional
	Suspend bool `json:"suspend,omitempty"` //nolint:kubeapilinter // there is no third way
}

// SignalKind is what a signal says.
// +kubebuilder:validation:Enum=Success;Start;Failure
type SignalKind string

// The kinds of signals.
const (
	SignalSuccess SignalKind = "Success"
	SignalStart   SignalKind = "Start"
	SignalFailure SignalKind = "Failure"
)

// HeartbeatSignal is a signal of a heartbeat.
type HeartbeatSignal struct {
	// time is the time at which it came.
	// +required
	Time Timestamp `json:"time,omitempty,omitzero"`

	// kind is what it says: Success, Start or Failure.
	// +required
	Kind SignalKind `json:"kind,omitempty"`

	// exitCode is the exit code of a failure. Absent if it had none.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	ExitCode *int64 `json:"exitCode,omitempty"`

	// duration is how long after its start the success or the failure came. Absent without a start.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('87600h')",message="must be a duration of at most 87600h"
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// HeartbeatStatus is what is known of a heartbeat. Every replica writes the signals and their times, and the leader the rest.
type HeartbeatStatus struct {
	// conditions has the type Heard: the heartbeat is not missed, and its last signal was no failure.
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.observedGeneration) || type(c.observedGeneration) == int)",message="observedGeneration must be an integer"
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime.getFullYear() > 1 && c.lastTransitionTime.getFullYear() < 9999)",message="lastTransitionTime must be an RFC 3339 time"
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the conditions describe.
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// observedTime is the time since which signals are expected: at which the operator first saw the heartbeat, or saw that it is
	// suspended no longer.
	// +optional
	ObservedTime *Timestamp `json:"observedTime,omitempty,omitzero"`

	// lastSignalTime is the time of the last success or failure, or of one at most a third of the expected time before it. Absent
	// before the first.
	// +optional
	LastSignalTime *Timestamp `json:"lastSignalTime,omitempty,omitzero"`

	// lastStartTime is the time of the last start.
	// +optional
	LastStartTime *Timestamp `json:"lastStartTime,omitempty,omitzero"`

	// lastDuration is how long after its start the last success or failure came. Absent if it had none.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('87600h')",message="must be a duration of at most 87600h"
	// +optional
	LastDuration *metav1.Duration `json:"lastDuration,omitempty"`

	// nextDueTime is the time at which the heartbeat is missed unless a signal comes, grace included. Absent while none is expected.
	// +optional
	NextDueTime *Timestamp `json:"nextDueTime,omitempty,omitzero"`

	// signals are the newest ten signals that were written, newest first.
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	// +optional
	Signals []HeartbeatSignal `json:"signals,omitempty"`

	// failedTime is the time of the last failure. It is a signal as well.
	// +optional
	FailedTime *Timestamp `json:"failedTime,omitempty,omitzero"`

	// exitCode is the exit code of that failure. Absent if it had none.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	ExitCode *int64 `json:"exitCode,omitempty"`

	// missedTime is the time at which the heartbeat was found to be missed. Absent unless it is missed.
	// +optional
	MissedTime *Timestamp `json:"missedTime,omitempty,omitzero"`

	// missedUntilTime is the time at which it was last found to be missed no longer.
	// +optional
	MissedUntilTime *Timestamp `json:"missedUntilTime,omitempty,omitzero"`

	// missedAfterTime is the time of the last signal before it was missed: a later one ends that.
	// +optional
	MissedAfterTime *Timestamp `json:"missedAfterTime,omitempty,omitzero"`

	// alertTime is the missedTime or failedTime that the last alert which the operator stored is about. Absent before the first.
	// +optional
	AlertTime *Timestamp `json:"alertTime,omitempty,omitzero"`

	// alertStatus is the status of that alert: firing or resolved.
	// +optional
	AlertStatus AlertStatus `json:"alertStatus,omitempty"`
}

// Heartbeat is a signal that a sender is expected to send again and again. If it does not come, an Incident opens; when it comes
// again, the Incident resolves.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=heartbeats,shortName=hb,categories=tocsin
// +kubebuilder:selectablefield:JSONPath=`.spec.integrationName`
// +kubebuilder:printcolumn:name="Heard",type=string,JSONPath=`.status.conditions[?(@.type=="Heard")].status`
// +kubebuilder:printcolumn:name="Last-Signal",type=date,JSONPath=`.status.lastSignalTime`
// +kubebuilder:printcolumn:name="Due",type=string,JSONPath=`.status.nextDueTime`
// +kubebuilder:printcolumn:name="Integration",type=string,JSONPath=`.spec.integrationName`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Heard")].reason`,priority=1
// +kubebuilder:printcolumn:name="Last-Duration",type=string,JSONPath=`.status.lastDuration`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name may have at most 63 characters"
type Heartbeat struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec says when signals are expected, and what happens if they do not come.
	// +required
	Spec HeartbeatSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. Written by the operator.
	// +optional
	Status HeartbeatStatus `json:"status,omitempty,omitzero"`
}

// HeartbeatList is a list of Heartbeats.
//
// +kubebuilder:object:root=true
type HeartbeatList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []Heartbeat `json:"items"`
}

// IsPing reports whether pings are the signals.
func (h *Heartbeat) IsPing() bool { return h.Spec.Match == nil }

// IsAnyRequest reports whether every request is a signal.
func (h *Heartbeat) IsAnyRequest() bool { return h.Spec.Match != nil && h.Spec.Match.AnyRequest }

// HasFailed reports whether the last signal was a failure.
func (s *HeartbeatStatus) HasFailed() bool {
	return s.FailedTime != nil && s.LastSignalTime != nil && !s.LastSignalTime.After(s.FailedTime.Time)
}

// heartbeatKeyPrefix is the prefix of the dedup keys of heartbeats.
const heartbeatKeyPrefix = "heartbeat/"

// HeartbeatKey returns the dedup key of the Incident of a heartbeat.
func HeartbeatKey(name string) string { return heartbeatKeyPrefix + name }

// HeartbeatOfKey returns the name of the heartbeat that a dedup key may be of; ok is false if it is of none.
func HeartbeatOfKey(dedupKey string) (name string, ok bool) {
	return strings.CutPrefix(dedupKey, heartbeatKeyPrefix)
}

// LinkLabel marks the Heartbeat that the operator has created for the link of a federated integration.
const LinkLabel = "tocsin.dev/link"

// ConditionHeard tells whether a heartbeat is heard.
const ConditionHeard = "Heard"

// Reasons of a Heartbeat's Heard condition.
const (
	ReasonHeard           = "Heard"           // True
	ReasonMissed          = "Missed"          // False: no signal came in time
	ReasonTooLong         = "TooLong"         // False: no success came within maxDuration after a start
	ReasonFailed          = "Failed"          // False: the last signal was a failure
	ReasonWaiting         = "Waiting"         // Unknown: it waits for its first signal, or one is overdue that may have been lost
	ReasonPingsUnsigned   = "PingsUnsigned"   // Unknown: it waits for pings, which spec.verify of the integration refuses
	ReasonInvalidSchedule = "InvalidSchedule" // Unknown: the schedule cannot be evaluated; no signal is expected
	ReasonNoIntegration   = "NoIntegration"   // Unknown: there is no such WebhookIntegration; nobody judges
)
