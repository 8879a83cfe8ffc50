package v1alpha1

import (
	"regexp"
	"time"
)

const (
	// ExcludeFromBackupLabel makes Velero leave an object out of backups when it is "true". AlertEvents that the operator
	// writes have it: the queue of yesterday is of no use, and its alerts are counted in Incidents since.
	ExcludeFromBackupLabel = "velero.io/exclude-from-backup"

	// RestoreLabel is on every object that Velero has restored.
	RestoreLabel = "velero.io/restore-name"

	// FieldManager is the name in managedFields of who writes AlertEvents for webhooks.
	FieldManager = "tocsin"

	// restoredAfter is how much older than its object an alert may be that was stored when it was received. A write is
	// given up after seconds.
	restoredAfter = time.Minute
)

// uuidPattern matches the names that the operator gives.
var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// IsRestored reports whether an AlertEvent is a copy from a backup: its alerts were folded long ago. Velero labels what
// it restores. Other copies of what the operator wrote show in their managed fields: the API server notes there when the
// operator created the object, by the same clock as in creationTimestamp, so that no replica's clock matters.
func (e *AlertEvent) IsRestored() bool {
	if _, ok := e.Labels[RestoreLabel]; ok {
		return true
	}
	made := IsKeyedEventName(e.Name) || uuidPattern.MatchString(e.Name)
	if !made || e.Spec.ReceivedTime.IsZero() || len(e.ManagedFields) == 0 ||
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
