package fold

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Messages of the timeline that tell severities. SeverityPeriods reads them.
const (
	openedInfix      = " with severity "
	changedPrefix    = "Severity changed from "
	changedSeparator = " to "

	openedFormat          = "%s" + openedInfix + "%s: %s"
	severityChangedFormat = changedPrefix + "%s" + changedSeparator + "%s"
)

// acknowledgedFormat is the message of the timeline that Acknowledgement reads.
const acknowledgedFormat = "Acknowledged by %s"

// userAcknowledged follows the user's name in the message of the condition Acknowledged.
const userAcknowledged = " acknowledged the incident."

// SeverityPeriod is a continuous period in which an Incident was open with one severity.
type SeverityPeriod struct {
	Severity v1alpha1.Severity
	From     time.Time // zero if the timeline begins later
	To       time.Time // zero if the period lasts
}

// SeverityPeriods returns the periods that a timeline tells, oldest first. A timeline keeps MaxTimeline transitions, so
// older periods are missing.
func SeverityPeriods(timeline []v1alpha1.Transition) []SeverityPeriod {
	var periods []SeverityPeriod
	end := func(at time.Time) {
		if last := len(periods) - 1; last >= 0 && periods[last].To.IsZero() {
			periods[last].To = at
		}
	}
	for i := range timeline {
		entry := &timeline[i]
		switch entry.Type {
		case v1alpha1.TransitionResolved:
			end(entry.Time.Time)
		case v1alpha1.TransitionOpened, v1alpha1.TransitionReopened:
			end(entry.Time.Time)
			_, rest, _ := strings.Cut(entry.Message, openedInfix)
			if severity, _, ok := strings.Cut(rest, ":"); ok {
				periods = append(periods, SeverityPeriod{Severity: v1alpha1.Severity(severity), From: entry.Time.Time})
			}
		case v1alpha1.TransitionSeverityChanged:
			before, after, ok := strings.Cut(strings.TrimPrefix(entry.Message, changedPrefix), changedSeparator)
			if !ok {
				continue
			}
			if len(periods) == 0 {
				periods = append(periods, SeverityPeriod{Severity: v1alpha1.Severity(before)})
			}
			end(entry.Time.Time)
			periods = append(periods, SeverityPeriod{Severity: v1alpha1.Severity(after), From: entry.Time.Time})
		default: // the severity stays
		}
	}
	return periods
}

// AcknowledgedBy returns who acknowledged the current episode: a user's name, "an alert", or empty if nobody did.
func AcknowledgedBy(status *v1alpha1.IncidentStatus) string {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAcknowledged)
	switch {
	case condition == nil || condition.Status != metav1.ConditionTrue:
		return ""
	case condition.Reason == v1alpha1.ReasonAcknowledgedByUser:
		return strings.TrimSuffix(condition.Message, userAcknowledged)
	default:
		return "an alert"
	}
}

// Acknowledgement returns who acknowledged the current episode and their comment.
func Acknowledgement(status *v1alpha1.IncidentStatus) (by, comment string) {
	by = AcknowledgedBy(status)
	for i := range slices.Backward(status.Timeline) {
		if entry := &status.Timeline[i]; entry.Type == v1alpha1.TransitionAcknowledged {
			comment, _ = strings.CutPrefix(entry.Message, fmt.Sprintf(acknowledgedFormat, by)+": ")
			if comment == entry.Message {
				comment = "" // without a comment, or of another user
			}
			break
		}
	}
	return by, comment
}
