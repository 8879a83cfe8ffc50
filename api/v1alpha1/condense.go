package v1alpha1

import (
	"errors"
	"strings"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unreadablePrefix precedes the reason in the packedAlerts of a condensed AlertEvent. It is not in the base64 alphabet.
const unreadablePrefix = "!"

// Reasons why an AlertEvent stays in the queue regardless of its Incidents.
const (
	StuckTerminating = "Terminating" // a finalizer prevents its deletion
	StuckUnreadable  = "Unreadable"  // its packed alerts cannot be decoded
)

// Stuck returns the reason why the AlertEvent cannot be released; empty if it can.
func (e *AlertEvent) Stuck() string {
	switch {
	case !e.DeletionTimestamp.IsZero():
		return StuckTerminating
	case len(e.Spec.Alerts) == 0:
		return StuckUnreadable
	}
	return ""
}

// Condense reduces the size of a cached AlertEvent: it removes unused annotations and labels, replaces packedAlerts that
// cannot be decoded by the reason, and reduces stuck alerts to the fields that identify their Incidents. CondensedBytes
// is how many bytes it removed. IsRestored returns the same as before.
//
// Without it, stuck AlertEvents of one namespace would fill the memory of every replica. A second call changes nothing:
// client-go transforms an object twice when the initial list of its cache comes by a watch.
func (e *AlertEvent) Condense() {
	if e.Spec.Condensed {
		return
	}
	e.Spec.Condensed = true
	dropped := e.condenseMetadata()
	e.Spec.UnpackedFrom = "" // needed for writes only
	stuck := e.Stuck()
	if len(e.Spec.Alerts) == 0 {
		dropped += len(e.Spec.PackedAlerts)
		reason := "packedAlerts: missing"
		if err := e.Spec.CheckPacked(); err != nil {
			reason = err.Error()
		}
		e.Spec.PackedAlerts = unreadablePrefix + reason
		e.Spec.ContentDropped = true
	}
	e.Spec.CondensedBytes = int64(dropped)
	if stuck != "" {
		e.DropContent()
	}
}

// DropContent removes the content of the alerts, with which Condense has left them. A second call changes nothing.
func (e *AlertEvent) DropContent() {
	if e.Spec.ContentDropped {
		return
	}
	e.Spec.ContentDropped = true
	alerts := make([]Alert, len(e.Spec.Alerts)) // others may share the old ones
	for i := range e.Spec.Alerts {
		alert := &e.Spec.Alerts[i]
		alerts[i] = Alert{ID: alert.ID, IncidentName: alert.IncidentName, DedupKey: alert.DedupKey, Status: alert.Status, By: alert.By}
		e.Spec.CondensedBytes += int64(alert.EncodedSize() + len(alert.Comment) - alerts[i].EncodedSize())
	}
	e.Spec.Alerts, e.Spec.Defaults = alerts, nil
}

// Memory returns about how many bytes the alerts take when they are decoded.
func (e *AlertEvent) Memory() int64 {
	bytes := len(e.Spec.PackedAlerts)
	for i := range e.Spec.Alerts {
		alert := &e.Spec.Alerts[i]
		bytes += int(unsafe.Sizeof(*alert)) + len(alert.Comment) + alert.EncodedSize() + entryBytes*alert.Keys()
	}
	return int64(bytes)
}

// condenseMetadata returns how many bytes it removed.
func (e *AlertEvent) condenseMetadata() (dropped int) {
	e.condenseManagedFields()
	kept := map[string]string{}
	for key, value := range e.Annotations {
		if key == TraceparentAnnotation || key == RetryAnnotation || key == SettledAnnotation && len(value) <= maxMarkBytes {
			kept[key] = value
			continue
		}
		dropped += len(key) + len(value)
	}
	e.Annotations = kept
	if len(kept) == 0 {
		e.Annotations = nil
	}
	for key, value := range e.Labels {
		if !strings.HasPrefix(key, "tocsin.dev/") && key != RestoreLabel {
			dropped += len(key) + len(value)
			delete(e.Labels, key)
		}
	}
	for _, finalizer := range e.Finalizers {
		dropped += len(finalizer)
	}
	e.Finalizers = nil
	return dropped
}

// condenseManagedFields removes the managed fields. Of an AlertEvent that was restored, one manager stays, by whose name alone
// IsRestored recognizes it.
func (e *AlertEvent) condenseManagedFields() {
	var kept []metav1.ManagedFieldsEntry
	if len(e.ManagedFields) > 0 && e.IsRestored() {
		kept = []metav1.ManagedFieldsEntry{{Manager: e.ManagedFields[0].Manager}}
	}
	e.ManagedFields = kept
}

// IsCondensed reports whether the content of the alerts must be read from the API server.
func (e *AlertEvent) IsCondensed() bool {
	return e.Spec.ContentDropped
}

// condensedReason returns the reason that Condense has stored in packedAlerts; nil if there is none.
func condensedReason(packed string) error {
	reason, ok := strings.CutPrefix(packed, unreadablePrefix)
	if !ok {
		return nil
	}
	return errors.New(reason)
}
