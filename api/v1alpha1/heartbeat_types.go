package v1alpha1

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HeartbeatMatch tells which requests are signals of a heartbeat.
// +kubebuilder:validation:XValidation:rule="has(self.dedupKey) != (has(self.ping) && self.ping)",message="match has either dedupKey or ping: true"
type HeartbeatMatch struct {
	// dedupKey is the dedup key of the alerts that are signals while they fire, such as those of a watchdog. They open no Incident.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	DedupKey string `json:"dedupKey,omitempty"`

	// ping says that requests to the path heartbeat/ and the name, after the address of the integration, are the signals.
	// +optional
	Ping bool `json:"ping,omitempty"` //nolint:kubeapilinter // there is no third way
}

// Heartbeat is a signal that a sender is expected to send again and again. If it does not come, an Incident opens.
type Heartbeat struct {
	// name identifies the heartbeat within the integration. The Incident has the dedup key heartbeat/ and the name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name,omitempty"`

	// interval is the longest time between two signals: a duration such as 5m, from 1m to 720h (30 days).
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="must be a duration from 1m to 720h, such as 5m"
	// +required
	Interval *metav1.Duration `json:"interval,omitempty"`

	// grace is how much later than the interval a signal may come: a duration such as 30s, from 10s to 720h. Default: a
	// fifth of the interval.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('720h')",message="must be a duration from 10s to 720h, such as 30s"
	// +optional
	Grace *metav1.Duration `json:"grace,omitempty"`

	// severity is the severity of the Incident. Default: critical.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// title is the title of the Incident. Default: the name of the heartbeat, and that it is missed or failed.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Title string `json:"title,omitempty"`

	// required says that the heartbeat is missed also if its first signal does not come. Default: false, it waits for the first one.
	// +optional
	Required bool `json:"required,omitempty"` //nolint:kubeapilinter // there is no third way

	// match tells which requests are signals. Default: every request of the integration that is accepted.
	// +optional
	Match *HeartbeatMatch `json:"match,omitempty,omitzero"`
}

// HeartbeatStatus is what is known of a heartbeat. Every replica writes lastSignalTime and failedTime, and the leader the rest.
type HeartbeatStatus struct {
	// name is the name of the heartbeat.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name,omitempty"`

	// observedTime is the time at which the operator first saw the heartbeat in the spec.
	// +optional
	ObservedTime *Timestamp `json:"observedTime,omitempty,omitzero"`

	// lastSignalTime is the time of the last signal, or of one at most a third of the interval before it. Absent before the first.
	// +optional
	LastSignalTime *Timestamp `json:"lastSignalTime,omitempty,omitzero"`

	// failedTime is the time of the last ping that reported a failure. It is a signal as well.
	// +optional
	FailedTime *Timestamp `json:"failedTime,omitempty,omitzero"`

	// exitCode is the exit code of that ping. Absent if it had none.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	// +optional
	ExitCode *int64 `json:"exitCode,omitempty"`

	// missedTime is the time at which the heartbeat was found to be missed. Absent unless it is missed.
	// +optional
	MissedTime *Timestamp `json:"missedTime,omitempty,omitzero"`

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

// Period is how long after a signal the heartbeat is missed.
func (h *Heartbeat) Period() time.Duration {
	interval := h.Every()
	if h.Grace != nil {
		return interval + h.Grace.Duration
	}
	return interval + interval/5
}

// Every is the interval.
func (h *Heartbeat) Every() time.Duration {
	if h.Interval == nil {
		return time.Minute // the schema does not allow it
	}
	return h.Interval.Duration
}

// IsPing reports whether pings are the signals.
func (h *Heartbeat) IsPing() bool { return h.Match != nil && h.Match.Ping }

// HasFailed reports whether the last signal was a failure.
func (s *HeartbeatStatus) HasFailed() bool {
	return s.FailedTime != nil && s.LastSignalTime != nil && !s.LastSignalTime.After(s.FailedTime.Time)
}

// heartbeatKeyPrefix is the prefix of the dedup keys of heartbeats.
const heartbeatKeyPrefix = "heartbeat/"

// HeartbeatKey returns the dedup key of the Incident of a heartbeat.
func HeartbeatKey(name string) string { return heartbeatKeyPrefix + name }

// IsHeartbeatKey reports whether a dedup key may be that of a heartbeat.
func IsHeartbeatKey(dedupKey string) bool { return strings.HasPrefix(dedupKey, heartbeatKeyPrefix) }

// FindHeartbeat returns the status of a heartbeat, nil if there is none.
func FindHeartbeat(heartbeats []HeartbeatStatus, name string) *HeartbeatStatus {
	for i := range heartbeats {
		if heartbeats[i].Name == name {
			return &heartbeats[i]
		}
	}
	return nil
}

// ConditionHeartbeatsHeard tells whether the heartbeats of a WebhookIntegration are heard. It is absent without heartbeats.
const ConditionHeartbeatsHeard = "HeartbeatsHeard"

// Reasons of a WebhookIntegration's HeartbeatsHeard condition.
const (
	ReasonHeard   = "Heard"   // every heartbeat is heard
	ReasonWaiting = "Waiting" // so it is, but some wait for their first signal
	ReasonMissed  = "Missed"  // a heartbeat is missed; the message has the names
)
