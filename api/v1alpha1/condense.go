package v1alpha1

import (
	"errors"
	"strconv"
	"strings"
)

// condensedAnnotation is on cached AlertEvents only: how many bytes of the stored object Condense dropped.
const condensedAnnotation = "tocsin.dev/condensed-bytes"

// unreadablePrefix begins the packedAlerts of a condensed AlertEvent; the reason follows. It is not in the
// alphabet of base64.
const unreadablePrefix = "!"

// maxOriginBytes bounds the QuarantineOriginAnnotation: a UID, a resourceVersion, a time and a name.
const maxOriginBytes = 512

// maxCondensedBytes bounds what condensedAnnotation is believed: no object in etcd is larger.
const maxCondensedBytes = 2 << 20

// Reasons for which an AlertEvent stays in the queue whatever is done about its Incidents.
const (
	StuckTerminating = "Terminating" // it is deleted, and a finalizer keeps it
	StuckUnreadable  = "Unreadable"  // its packed alerts cannot be decoded
	StuckQuarantined = "Quarantined" // its alerts cannot be folded
)

// Stuck returns the reason for which the AlertEvent cannot drain, empty when it can.
func (e *AlertEvent) Stuck() string {
	switch {
	case !e.DeletionTimestamp.IsZero():
		return StuckTerminating
	case len(e.Spec.Alerts) == 0:
		return StuckUnreadable
	case e.Labels[QuarantineLabel] != "":
		return StuckQuarantined
	}
	return ""
}

// Condense makes the AlertEvent small for a cache: it drops annotations and labels that nobody reads, packed
// alerts that cannot be decoded, of which it keeps the reason, and the content of alerts that are stuck, of
// which it keeps what tells to which Incident they belong. CondensedBytes says how much that was.
//
// A namespace's AlertEvents that cannot drain would otherwise fill the memory of every replica.
func (e *AlertEvent) Condense() {
	dropped := e.condenseMetadata()
	e.Spec.UnpackedFrom = "" // only those who write the AlertEvent need it
	stuck := e.Stuck()
	switch {
	case stuck == "":
	case len(e.Spec.Alerts) == 0:
		dropped += len(e.Spec.PackedAlerts)
		reason := "packedAlerts: missing"
		if err := e.Spec.CheckPacked(); err != nil {
			reason = err.Error()
		}
		e.Spec.PackedAlerts = unreadablePrefix + reason
	default:
		for i := range e.Spec.Alerts {
			alert := &e.Spec.Alerts[i]
			before := alert.EncodedSize() + len(alert.Comment)
			*alert = Alert{ID: alert.ID, IncidentName: alert.IncidentName, DedupKey: alert.DedupKey, Status: alert.Status, By: alert.By}
			dropped += before - alert.EncodedSize()
		}
	}
	if dropped == 0 {
		return
	}
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	e.Annotations[condensedAnnotation] = strconv.Itoa(dropped)
}

// condenseMetadata returns how many bytes it dropped.
func (e *AlertEvent) condenseMetadata() (dropped int) {
	e.ManagedFields = nil
	kept := map[string]string{}
	for key, value := range e.Annotations {
		if key == TraceparentAnnotation || key == QuarantineOriginAnnotation && len(value) <= maxOriginBytes {
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
		if !strings.HasPrefix(key, "tocsin.dev/") {
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

// IsCondensed says whether the content of the alerts has to be read from the API server.
func (e *AlertEvent) IsCondensed() bool {
	return e.Annotations[condensedAnnotation] != "" && e.Stuck() != ""
}

// CondensedBytes returns how many bytes of the stored AlertEvent are not in this copy of it.
func (e *AlertEvent) CondensedBytes() int64 {
	dropped, _ := strconv.ParseInt(e.Annotations[condensedAnnotation], 10, 64)
	return min(max(0, dropped), maxCondensedBytes)
}

// condensedReason is why packed alerts could not be decoded, as Condense left it.
func condensedReason(packed string) error {
	reason, ok := strings.CutPrefix(packed, unreadablePrefix)
	if !ok {
		return nil
	}
	return errors.New(reason)
}
