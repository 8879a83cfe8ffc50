package clustercache

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/marks"
	"github.com/tocsin-dev/tocsin/internal/packing"
)

// maxCachedLabels bounds the labels of a cached WebhookIntegration. The API server bounds each of them, but not their number.
const maxCachedLabels = 64

// Condense is the transform of the cache for Incidents and WebhookIntegrations: it removes the metadata that nothing reads, of
// which a tenant could write 1 MiB on each object and so fill the memory of every replica. Of the labels of a WebhookIntegration,
// by which the forwarding selects it, the first maxCachedLabels in the order of their names stay. A second call changes nothing.
// Events has the transform of AlertEvents.
func Condense(object any) (any, error) {
	switch object := object.(type) {
	case *v1alpha1.Incident:
		object.ManagedFields, object.Annotations, object.Labels = nil, nil, nil
		object.Finalizers, object.OwnerReferences, object.GenerateName = nil, nil, ""
		object.Namespace = intern(object.Namespace)
		object.Spec.IntegrationName = intern(object.Spec.IntegrationName)
		alertcontent.LimitKeys(&object.Status.Alert) // an earlier version did not
	case *v1alpha1.WebhookIntegration:
		object.ManagedFields, object.Annotations, object.Finalizers, object.OwnerReferences = nil, nil, nil, nil
		if len(object.Labels) > maxCachedLabels {
			kept := make(map[string]string, maxCachedLabels)
			for _, name := range slices.Sorted(maps.Keys(object.Labels))[:maxCachedLabels] {
				kept[name] = object.Labels[name]
			}
			object.Labels = kept
		}
	}
	return object, nil
}

// intern returns one copy of equal strings: thousands of Incidents have the same few.
func intern(s string) string { return unique.Make(s).Value() }

// maxContent bounds the memory of the content of cached AlertEvents, and contentShare is the part of it that one namespace may
// use: more than the 25,000 alerts take that 64 senders post in six seconds. Beyond it, folding them takes twice as long.
//
// maxIdentities bounds what the cache has of all AlertEvents, which is more than the endpoint lets wait. People have created
// what is beyond it, and it waits until others are gone and the process begins anew.
const (
	maxContent    = 128 << 20
	contentShare  = 0.5
	maxIdentities = 256 << 20
)

var errTooMany = errors.New("too many alerts of the namespace wait, and Tocsin has not stored them")

// Reasons why an AlertEvent stays in the queue regardless of its Incidents.
const (
	StuckTerminating = "Terminating" // a finalizer prevents its deletion
	StuckUnreadable  = "Unreadable"  // its packed alerts cannot be decoded
)

// Stuck returns the reason why a cached AlertEvent cannot be released; empty if it can.
func Stuck(event *v1alpha1.AlertEvent) string {
	switch {
	case !event.DeletionTimestamp.IsZero():
		return StuckTerminating
	case len(event.Spec.Alerts) == 0:
		return StuckUnreadable
	}
	return ""
}

// Events unpacks and condenses the AlertEvents of the cache, and keeps beside them what their copies do not tell.
//
// It bounds the memory that their content takes. The queue bounds what the endpoint stores, but not what people create, and
// that stays while its Incidents cannot be written. Of an AlertEvent that is stuck or has no place, the cache has what identifies
// its Incidents; the fold reads it again.
type Events struct {
	mu         sync.Mutex
	events     map[types.UID]cachedEvent
	budget     fair.Budget[string] // of the bytes of all content, by namespace
	identities fair.Budget[string] // of the bytes of what identifies Incidents
}

type cachedEvent struct {
	alerts     []v1alpha1.Alert // as in the cache
	unreadable error            // why packedAlerts cannot be unpacked
	isWhole    bool             // the alerts have their content
	memory     int64            // bytes that count towards the budget
	identity   int64            // bytes that count towards identities
	removed    int64            // bytes that the copy lacks
}

// NewEvents returns Events without any.
func NewEvents() *Events {
	return NewBoundedEvents(fair.Limit{All: maxContent, Share: contentShare}, fair.Limit{All: maxIdentities, Share: contentShare})
}

// NewBoundedEvents returns Events with other bounds of their content, and of what identifies their Incidents.
func NewBoundedEvents(content, identities fair.Limit) *Events {
	return &Events{
		events: map[types.UID]cachedEvent{},
		budget: fair.Budget[string]{Limit: content}, identities: fair.Budget[string]{Limit: identities},
	}
}

// Condense is the transform of the cache. Of an AlertEvent it unpacks the alerts, and removes the metadata that nothing reads,
// packedAlerts that cannot be unpacked, and the content that has no place. IsRestored returns the same as before.
//
// Without it, AlertEvents of one namespace would fill the memory of every replica. A second call changes nothing: client-go
// transforms an object of a list twice.
func (e *Events) Condense(object any) (any, error) {
	event, ok := object.(*v1alpha1.AlertEvent)
	if !ok {
		return object, nil
	}
	removed := condenseMetadata(event)
	entry, known := e.find(event.UID)
	if !known {
		packed := len(event.Spec.PackedAlerts)
		if entry = (cachedEvent{isWhole: true, unreadable: e.unpack(event)}); entry.unreadable != nil {
			removed += packed + int(packing.Memory(event.Spec.Alerts))
			event.Spec.Alerts = nil
		}
		entry.alerts = event.Spec.Alerts
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if newer, known := e.events[event.UID]; known {
		entry = newer
	}
	entry.removed = max(entry.removed, int64(removed))
	e.admit(event, &entry)
	event.Spec.Alerts, event.Spec.PackedAlerts, event.Spec.PackedFirst = entry.alerts, "", nil
	if !entry.isWhole {
		event.Spec.Defaults = nil
	}
	return object, nil
}

// unpack unpacks the alerts of an AlertEvent, unless its namespace has no place for what identifies more of them.
func (e *Events) unpack(event *v1alpha1.AlertEvent) error {
	e.mu.Lock()
	fits := e.identities.Allows(event.Namespace)
	e.mu.Unlock()
	if !fits {
		return errTooMany
	}
	return packing.Unpack(&event.Spec)
}

// admit reduces the alerts of an AlertEvent that is stuck or has no place. What is reduced stays so until Forget.
func (e *Events) admit(event *v1alpha1.AlertEvent, entry *cachedEvent) {
	stuck := !event.DeletionTimestamp.IsZero() || entry.unreadable != nil
	if _, known := e.events[event.UID]; !known {
		stuck = stuck || !e.budget.Allows(event.Namespace)
		if !stuck {
			entry.memory = packing.Memory(entry.alerts)
		}
		entry.identity = packing.Identity(entry.alerts)
		e.budget.Add(event.Namespace, entry.memory)
		e.identities.Add(event.Namespace, entry.identity)
	}
	if entry.isWhole && stuck {
		entry.isWhole = false
		alerts := make([]v1alpha1.Alert, len(entry.alerts)) // readers of the cache have the old ones
		for i := range entry.alerts {
			alert := &entry.alerts[i]
			alerts[i] = v1alpha1.Alert{
				ID: alert.ID, IncidentName: alert.IncidentName, DedupKey: alert.DedupKey, Status: alert.Status, By: alert.By,
			}
			removed := alertcontent.Size(&alert.AlertContent) - alertcontent.Size(&alerts[i].AlertContent)
			entry.removed += int64(removed + len(alert.Comment))
		}
		entry.alerts = alerts
	}
	e.events[event.UID] = *entry
}

func (e *Events) find(uid types.UID) (entry cachedEvent, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry, known = e.events[uid]
	return entry, known
}

// IsWhole reports whether the alerts of a cached AlertEvent have their content. If not, it must be read from the API server.
func (e *Events) IsWhole(event *v1alpha1.AlertEvent) bool {
	entry, _ := e.find(event.UID)
	return entry.isWhole
}

// Unreadable returns the reason why the alerts of an AlertEvent cannot be unpacked; nil if they can.
func (e *Events) Unreadable(event *v1alpha1.AlertEvent) error {
	entry, _ := e.find(event.UID)
	return entry.unreadable
}

// Removed returns how many bytes of a stored AlertEvent the cache lacks: of nil Events, none.
func (e *Events) Removed(event *v1alpha1.AlertEvent) int64 {
	if e == nil {
		return 0
	}
	entry, _ := e.find(event.UID)
	return entry.removed
}

// Forget forgets an AlertEvent that is gone.
func (e *Events) Forget(event *v1alpha1.AlertEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.budget.Add(event.Namespace, -e.events[event.UID].memory)
	e.identities.Add(event.Namespace, -e.events[event.UID].identity)
	delete(e.events, event.UID)
}

// usedAnnotations are the annotations of an AlertEvent that are used, with the bytes that each may have.
var usedAnnotations = map[string]int{
	v1alpha1.TraceparentAnnotation: 64, v1alpha1.RetryAnnotation: len("true"), v1alpha1.SettledAnnotation: marks.MaxBytes,
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

// isAsWritten reports whether an AlertEvent, as the API server has it, has the name, the label and the form that the operator gives
// its own: several alerts are packed. What a person recovers from a damaged one lacks at least one of them, and must be folded.
func isAsWritten(e *v1alpha1.AlertEvent) bool {
	return (v1alpha1.IsKeyedEventName(e.Name) || v1alpha1.IsGeneratedEventName(e.Name)) &&
		e.Labels[v1alpha1.ExcludeFromBackupLabel] == "true" && len(e.Spec.Alerts) <= 1
}
