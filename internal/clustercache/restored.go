package clustercache

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// restoredAfter is the maximum age of an alert when its AlertEvent is created. A write times out after seconds.
const restoredAfter = time.Minute

// IsRestored reports whether an AlertEvent was restored from a backup, so that its alerts have already been folded.
// Velero labels restored objects. Other tools are detected by managedFields, in which the API server records when the
// operator created the object. The API server's clock also sets creationTimestamp, so no replica's clock matters.
func IsRestored(e *v1alpha1.AlertEvent) bool {
	if _, ok := e.Labels[v1alpha1.RestoreLabel]; ok {
		return true
	}
	generated := v1alpha1.IsKeyedEventName(e.Name) || v1alpha1.IsGeneratedEventName(e.Name)
	if !generated || e.Spec.ReceivedTime.IsZero() || len(e.ManagedFields) == 0 ||
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
