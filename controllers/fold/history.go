package fold

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Authors whose names are not known.
const (
	byAlert = "an alert"
	byUser  = "a user"
)

// SeverityPeriod is a continuous period in which an Incident was open with one severity.
type SeverityPeriod struct {
	Severity v1alpha1.Severity
	From     time.Time
	To       time.Time // zero if the period lasts
}

// SeverityPeriods returns the periods that a timeline tells, oldest first. A timeline keeps MaxTimeline transitions, so
// older periods are missing, and so are those that a version without Transition.severity recorded.
func SeverityPeriods(timeline []v1alpha1.Transition) []SeverityPeriod {
	var periods []SeverityPeriod
	for i := range timeline {
		entry := &timeline[i]
		switch entry.Type {
		case v1alpha1.TransitionOpened, v1alpha1.TransitionReopened, v1alpha1.TransitionSeverityChanged,
			v1alpha1.TransitionResolved:
			if last := len(periods) - 1; last >= 0 && periods[last].To.IsZero() {
				periods[last].To = entry.Time.Time
			}
			if entry.Severity != "" {
				periods = append(periods, SeverityPeriod{Severity: entry.Severity, From: entry.Time.Time})
			}
		default: // the severity stays
		}
	}
	return periods
}

// acknowledgementOf returns the acknowledgement of the current episode; nil if there is none. Of one that a version without
// status.acknowledgement wrote, it has what the condition tells: the time, and whether a user acknowledged the episode.
func acknowledgementOf(status *v1alpha1.IncidentStatus) *v1alpha1.Acknowledgement {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAcknowledged)
	if status.Acknowledgement != nil || condition == nil || condition.Status != metav1.ConditionTrue {
		return status.Acknowledgement
	}
	older := &v1alpha1.Acknowledgement{Time: v1alpha1.NewTimestamp(condition.LastTransitionTime.Time)}
	if condition.Reason == v1alpha1.ReasonAcknowledgedByUser {
		older.By = byUser
	}
	return older
}

// resolutionOf returns how the last episode was resolved; nil if it was not. Of a Resolved Incident that a version without
// status.resolution wrote, it has what the condition tells: the reason, and whether a user resolved the episode.
func resolutionOf(status *v1alpha1.IncidentStatus) *v1alpha1.Resolution {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionResolved)
	if status.Resolution != nil || condition == nil || condition.Status != metav1.ConditionTrue {
		return status.Resolution
	}
	older := &v1alpha1.Resolution{Reason: condition.Reason}
	if condition.Reason == v1alpha1.ReasonResolvedByUser {
		older.By = byUser
	}
	return older
}

// AcknowledgedBy returns who acknowledged the current episode: a user's name, "an alert", or empty if nobody did.
func AcknowledgedBy(status *v1alpha1.IncidentStatus) string {
	if acknowledgement := acknowledgementOf(status); acknowledgement != nil {
		return cmp.Or(acknowledgement.By, byAlert)
	}
	return ""
}

// StaysAcknowledged reports whether the acknowledgement of an Incident covers it: the Incident is open, and not more severe
// than it was then. An acknowledgement at an unknown severity covers nothing.
func StaysAcknowledged(status *v1alpha1.IncidentStatus) bool {
	then := status.Acknowledgement
	if status.State != v1alpha1.IncidentOpen || then == nil || then.Severity == "" {
		return false
	}
	severities := v1alpha1.Severities()
	return slices.Index(severities, status.Alert.Severity) >= slices.Index(severities, then.Severity)
}
