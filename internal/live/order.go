package live

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// ByUrgency orders Incidents: open ones first, of these the severe, unacknowledged and new ones first, and of resolved ones
// those that were resolved last. The page orders its rows in the same way, in filters.js.
func ByUrgency(a, b *v1alpha1.Incident) int {
	rankA, timeA := urgency(a)
	rankB, timeB := urgency(b)
	return cmp.Or(cmp.Compare(rankA, rankB), timeB.Compare(timeA.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// urgency returns the rank of an Incident, 0 for the most urgent, and the time by which those of a rank are ordered.
func urgency(incident *v1alpha1.Incident) (rank int, at *v1alpha1.Timestamp) {
	status := &incident.Status
	if status.State == v1alpha1.IncidentResolved {
		return math.MaxInt, cmp.Or(status.ResolvedTime, &v1alpha1.Timestamp{})
	}
	rank = 2 * SeverityRank(status.Alert.Severity)
	if IsAcknowledged(incident) {
		rank++
	}
	return rank, cmp.Or(status.LastAlertTime, &v1alpha1.Timestamp{})
}

var severities = v1alpha1.Severities()

// SeverityRank returns 0 for the most severe; an unknown severity comes last.
func SeverityRank(severity v1alpha1.Severity) int {
	if i := slices.Index(severities, severity); i >= 0 {
		return i
	}
	return len(severities)
}

// IsAcknowledged reports whether an acknowledgement covers the Incident as it is now. One that was given before an open Incident
// became more severe does not: nobody may have seen how severe it is.
func IsAcknowledged(incident *v1alpha1.Incident) bool {
	return HasAcknowledgement(incident) &&
		(incident.Status.State != v1alpha1.IncidentOpen || fold.StaysAcknowledged(&incident.Status))
}

// HasAcknowledgement reports whether somebody has acknowledged the Incident, perhaps at a lower severity.
func HasAcknowledgement(incident *v1alpha1.Incident) bool {
	return meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionAcknowledged)
}

// Untold returns why people are not told of an open Incident by an Alertmanager. It is empty if they are, and while that is not
// known.
func Untold(incident *v1alpha1.Incident) v1alpha1.ForwardingReason {
	forwarding := incident.Status.Forwarding
	switch {
	case incident.Status.State != v1alpha1.IncidentOpen:
		return ""
	case forwarding != nil && forwarding.Reason != v1alpha1.ForwardingPosted:
		return forwarding.Reason
	case meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionSilenced):
		return v1alpha1.ForwardingSilenced
	default:
		return ""
	}
}
