package v1alpha1

import "time"

const (
	// ExcludeFromBackupLabel excludes an object from Velero backups if it is "true". The operator sets it on AlertEvents:
	// the alerts of a restored queue have already been folded.
	ExcludeFromBackupLabel = "velero.io/exclude-from-backup"

	// RestoreLabel is set on every object that Velero has restored.
	RestoreLabel = "velero.io/restore-name"

	// FieldManager is the field manager of AlertEvents that store webhooks.
	FieldManager = "tocsin"

	// restoredAfter is the maximum age of an alert when its AlertEvent is created. A write times out after seconds.
	restoredAfter = time.Minute
)

// IsRestored reports whether an AlertEvent was restored from a backup, so that its alerts have already been folded.
// Velero labels restored objects. Other tools are detected by managedFields, in which the API server records when the
// operator created the object. The API server's clock also sets creationTimestamp, so no replica's clock matters.
func (e *AlertEvent) IsRestored() bool {
	if _, ok := e.Labels[RestoreLabel]; ok {
		return true
	}
	generated := IsKeyedEventName(e.Name) || IsGeneratedEventName(e.Name)
	if !generated || e.Spec.ReceivedTime.IsZero() || len(e.ManagedFields) == 0 ||
		e.CreationTimestamp.Sub(e.Spec.ReceivedTime.Time) <= restoredAfter {
		return false
	}
	for _, entry := range e.ManagedFields {
		if entry.Manager == FieldManager && entry.Time != nil &&
			e.CreationTimestamp.Sub(entry.Time.Time).Abs() <= restoredAfter {
			return false
		}
	}
	return true
}
