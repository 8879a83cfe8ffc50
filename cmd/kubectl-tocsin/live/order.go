package live

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// ByUrgency orders Incidents: open ones first, of these the severe, unacknowledged and new ones first, and of resolved ones
// those that were resolved last. The page orders its rows in the same way, in filters.js.
func ByUrgency(a, b *v1alpha1.Incident) int {
	resolved := a.Status.State == v1alpha1.IncidentResolved
	order := cmp.Compare(number(resolved), number(b.Status.State == v1alpha1.IncidentResolved))
	switch {
	case order != 0:
	case resolved:
		order = newestFirst(a.Status.ResolvedTime, b.Status.ResolvedTime)
	default:
		order = cmp.Or(
			cmp.Compare(SeverityRank(a.Status.Alert.Severity), SeverityRank(b.Status.Alert.Severity)),
			cmp.Compare(number(IsAcknowledged(a)), number(IsAcknowledged(b))),
			newestFirst(a.Status.LastAlertTime, b.Status.LastAlertTime),
		)
	}
	return cmp.Or(order, cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

var severities = v1alpha1.Severities()

// SeverityRank returns 0 for the most severe; an unknown severity comes last.
func SeverityRank(severity v1alpha1.Severity) int {
	if i := slices.Index(severities, severity); i >= 0 {
		return i
	}
	return len(severities)
}

// IsAcknowledged reports whether somebody has acknowledged the Incident.
func IsAcknowledged(incident *v1alpha1.Incident) bool {
	return meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionAcknowledged)
}

// IsSilenced reports whether a silence in Alertmanager covers the Incident.
func IsSilenced(incident *v1alpha1.Incident) bool {
	return meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionSilenced)
}

// IsMuted reports whether a maintenance window keeps the Incident from being forwarded.
func IsMuted(incident *v1alpha1.Incident) bool {
	return incident.Status.Mute != nil && incident.Status.State == v1alpha1.IncidentOpen
}

var never = &v1alpha1.Timestamp{}

func newestFirst(a, b *v1alpha1.Timestamp) int {
	return cmp.Or(b, never).Compare(cmp.Or(a, never).Time)
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
