package queue

import (
	"math"
	"time"
	"unique"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Intern returns one copy of equal strings: thousands of cached objects have the same few.
func Intern(s string) string { return unique.Make(s).Value() }

// usedAnnotations are the annotations of an AlertEvent that are used, with the bytes that each may have. ReduceMark reduces a
// mark.
var usedAnnotations = map[string]int{
	v1alpha1.TraceparentAnnotation: 64, v1alpha1.RetryAnnotation: len("true"), v1alpha1.SettledAnnotation: math.MaxInt,
}

// condenseMetadata removes the metadata that nothing reads, and returns how many bytes of it the API server has. The only label
// that stays, or comes, is that of an AlertEvent that was restored: without it, IsRestored would not recognize the cached copy.
func condenseMetadata(event *v1alpha1.AlertEvent) (removed int) {
	restored := IsRestored(event)
	for key, value := range event.Labels {
		if key != v1alpha1.RestoreLabel {
			removed += len(key) + len(value)
		}
	}
	event.Labels = nil
	if restored {
		event.Labels = map[string]string{v1alpha1.RestoreLabel: ""}
	}
	var kept map[string]string
	for key, value := range event.Annotations {
		if most, isUsed := usedAnnotations[key]; !isUsed || len(value) > most {
			removed += len(key) + len(value)
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value
	}
	event.Annotations = kept
	for _, finalizer := range event.Finalizers {
		removed += len(finalizer)
	}
	for _, owner := range event.OwnerReferences {
		removed += len(owner.APIVersion) + len(owner.Kind) + len(owner.Name) + len(owner.UID)
	}
	event.ManagedFields, event.Finalizers, event.OwnerReferences, event.GenerateName = nil, nil, nil, ""
	return removed
}

// restoredAfter is the maximum age of an alert when its AlertEvent is created. A write times out after seconds.
const restoredAfter = time.Minute

// IsRestored reports whether an AlertEvent was restored from a backup, so that its alerts have already been folded: Velero labels
// what it restores; what another tool restores is in all as the operator wrote it, but the operator did not create it.
//
// The API server records in managedFields when the operator created an object. Its clock also sets creationTimestamp. Only a
// replica whose clock is ahead may hide a restore, by a time of receipt that seems recent.
func IsRestored(e *v1alpha1.AlertEvent) bool {
	if _, ok := e.Labels[v1alpha1.RestoreLabel]; ok {
		return true
	}
	if !isAsWritten(e) || e.Spec.ReceivedTime.IsZero() || len(e.ManagedFields) == 0 ||
		e.CreationTimestamp.Sub(e.Spec.ReceivedTime.Time) <= restoredAfter {
		return false
	}
	for _, entry := range e.ManagedFields {
		if entry.Manager == v1alpha1.FieldManager && entry.Time != nil &&
			e.CreationTimestamp.Sub(entry.Time.Time).Abs() <= restoredAfter {
			return false
		}
	}
	return true
}

// isAsWritten reports whether an AlertEvent, as the API server has it, has the name, the label, the summary and the encoding
// that the operator gives its own. What a person recovers from a damaged one lacks at least one of them, and must be folded.
func isAsWritten(e *v1alpha1.AlertEvent) bool {
	return (v1alpha1.IsKeyedEventName(e.Name) || v1alpha1.IsGeneratedEventName(e.Name)) &&
		e.Labels[v1alpha1.ExcludeFromBackupLabel] == "true" &&
		e.Spec.Summary != "" && (e.Spec.Encoding != "" || len(e.Spec.Alerts) < MinCompressed)
}
