package v1alpha1

import (
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condense reduces the size of a cached Incident. It removes the metadata that no decision depends on. Of the status of a
// Resolved Incident, it keeps the state, the times, the severity, and the conditions and the silence that decide what becomes
// of it, and what identifies its ended episodes in an archive; it removes the rest: the content, the timeline and the entries
// of the ledger. It marks such a status as Condensed.
//
// Resolved Incidents are most of all Incidents, and every replica caches all of them. Whoever needs the whole of one reads
// it from the API server. To condense an Incident twice changes nothing.
func (i *Incident) Condense() {
	if i.Status.Condensed {
		return
	}
	i.ManagedFields, i.Annotations, i.Labels, i.Finalizers, i.OwnerReferences = nil, nil, nil, nil, nil
	i.GenerateName = ""
	i.Namespace = intern(i.Namespace)
	i.Spec.IntegrationName = intern(i.Spec.IntegrationName)
	s := &i.Status
	s.State, s.Alert.Severity = intern(s.State), intern(s.Alert.Severity)
	if s.State != IncidentResolved {
		s.Alert.LimitKeys() // an earlier version did not
		return
	}
	i.Status = IncidentStatus{
		Condensed:          true,
		State:              s.State,
		Conditions:         decisiveConditions(s.Conditions),
		ObservedGeneration: s.ObservedGeneration,
		Alert:              AlertContent{Severity: s.Alert.Severity, StartsAt: s.Alert.StartsAt, EndsAt: s.Alert.EndsAt},
		AlertCount:         s.AlertCount,
		Episode:            s.Episode,
		ResolvedTime:       s.ResolvedTime,
		LastAlertTime:      s.LastAlertTime,
		Silence:            s.Silence,
		Retention:          s.Retention,
		OrphanedTime:       s.OrphanedTime,
		UnarchivedEpisodes: unpackedEpisodes(s.UnarchivedEpisodes),
		Ledger:             Ledger{Digest: s.Ledger.Digest},
	}
	if s.ResolvedTime != nil {
		i.Status.LastAlertTime = nil // it decides only for want of the other
	}
}

// unpackedEpisodes returns the episodes without their packed records.
func unpackedEpisodes(episodes []UnarchivedEpisode) []UnarchivedEpisode {
	kept := slices.Clone(episodes)
	for i := range kept {
		kept[i].Packed = ""
	}
	return kept
}

// decisiveConditions returns the conditions of a Resolved Incident that decide about later alerts and silences: Silenced,
// and Resolved if no alert resolved the Incident.
func decisiveConditions(conditions []metav1.Condition) []metav1.Condition {
	var kept []metav1.Condition
	if silenced := meta.FindStatusCondition(conditions, ConditionSilenced); silenced != nil {
		kept = append(kept, *silenced)
	}
	resolved := meta.FindStatusCondition(conditions, ConditionResolved)
	if resolved != nil && (resolved.Reason == ReasonAutoResolved || resolved.Reason == ReasonExpired) {
		kept = append(kept, *resolved)
	}
	return slices.Clip(kept)
}

// intern returns one copy of equal strings: thousands of Incidents have the same few.
func intern[S ~string](s S) S { return unique.Make(s).Value() }
