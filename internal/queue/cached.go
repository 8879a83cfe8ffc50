package queue

import (
	"container/list"
	"math"
	"strings"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// maxContent bounds the memory of the content of cached AlertEvents, and contentShare is the part of it that one namespace may
// use: more than the 25,000 alerts take that 64 senders post in six seconds. Beyond it, folding them takes twice as long.
const (
	maxContent   = 128 << 20
	contentShare = 0.5
)

// MaxPendingBytes is the size of all AlertEvents from which on ingest accepts no more. A namespace has a share of it. Every
// replica keeps them in memory, and etcd keeps deleted ones until its next compaction.
//
// The cache bounds the same sizes with the same shares, so it has the alerts of all that ingest accepts. One part in marginPart
// more is for what is stored before the watches show it. People have created what is beyond it.
//
// As for ingest, what is settled and stays for its idempotency key does not count. Package release bounds its content to half of
// maxSettledBytes, and an alert has about as much beside its content.
const (
	MaxPendingBytes = 256 << 20
	marginPart      = 8
	maxSettledBytes = 128 << 20
)

// Reasons why an AlertEvent stays in the queue regardless of its Incidents.
const (
	StuckTerminating = "Terminating" // a finalizer prevents its deletion
	StuckUnreadable  = "Unreadable"  // its alerts cannot be decoded
	StuckNotCached   = "NotCached"   // its namespace has more AlertEvents than the cache holds; see Stub
)

// Stuck returns the reason why a cached AlertEvent cannot be released; empty if it can.
func Stuck(event *v1alpha1.AlertEvent) string {
	switch {
	case !event.DeletionTimestamp.IsZero():
		return StuckTerminating
	case IsStub(event):
		return StuckNotCached
	case len(event.Alerts) == 0:
		return StuckUnreadable
	}
	return ""
}

// stubAnnotation is on the cached copies that are stubs, and on nothing that the API server has.
const stubAnnotation = "tocsin.dev/stub"

// stubAnnotations are those of all stubs, since a map of its own would take a quarter of the memory of each. Never modified.
var stubAnnotations = map[string]string{stubAnnotation: ""}

// IsStub reports whether the cache has nothing of an AlertEvent but that it exists, since those of its namespace are too large
// together. It is read again when others are gone, in the order in which the stubs came (clustercache.Informers).
//
// A stub has no resourceVersion. So the AlertEvent that replaces it is an update to all who follow the informer.
func IsStub(event *v1alpha1.AlertEvent) bool {
	_, ok := event.Annotations[stubAnnotation]
	return ok && event.ResourceVersion == ""
}

// Cached decodes and condenses the AlertEvents of the cache, and keeps beside them what their copies do not tell.
//
// It bounds the memory that they take, by namespace. Of an AlertEvent that is stuck or whose content has no place, the cache has
// what identifies its Incidents, and the fold reads it again. If even that has no place, the AlertEvent is a stub.
type Cached struct {
	// Canaries is the namespace of the canaries; empty if there are none. Set before the first AlertEvent comes.
	Canaries string

	mu      sync.Mutex
	events  map[types.UID]cachedEvent
	content fair.Budget[string]   // bytes in memory, by namespace
	sizes   fair.Budget[string]   // of those that wait and are no stubs
	settled fair.Budget[string]   // sizes of those that are settled for all their Incidents
	stubs   map[string]*list.List // of Stub, by namespace, the oldest first
}

type cachedEvent struct {
	alerts     []v1alpha1.Alert // as in the cache
	unreadable error            // why the alerts cannot be decoded
	isWhole    bool             // the alerts have their content
	stub       *list.Element    // in stubs; nil if it is none
	memory     int64            // bytes that count towards content
	size       int64            // bytes that it adds to the budget counted
	counted    *fair.Budget[string]
	removed    int64 // bytes that the copy lacks
}

// Stub is an AlertEvent of which the cache knows only that it exists.
type Stub struct {
	Name types.NamespacedName
	UID  types.UID
}

// NewCached returns an empty Cached. A namespace may have a share of what ingest may store.
func NewCached(share float64) *Cached {
	return NewBoundedCached(fair.Limit{All: maxContent, Share: contentShare},
		fair.Limit{All: MaxPendingBytes + MaxPendingBytes/marginPart, Share: share})
}

// NewBoundedCached returns a Cached with other bounds of their content in memory, and of their sizes as stored.
func NewBoundedCached(content, sizes fair.Limit) *Cached {
	return &Cached{
		events:  map[types.UID]cachedEvent{},
		content: fair.Budget[string]{Limit: content}, sizes: fair.Budget[string]{Limit: sizes},
		settled: fair.Budget[string]{Limit: fair.Limit{All: maxSettledBytes, Share: 1}},
		stubs:   map[string]*list.List{},
	}
}

// Condense is the transform of the cache. Of an AlertEvent it decodes the alerts, and removes their text, the metadata that
// nothing reads, and what has no place. IsRestored returns the same for the copy.
//
// Without it, AlertEvents of one namespace would fill the memory of every replica. A second call changes nothing: client-go
// transforms an object of a list twice.
func (e *Cached) Condense(object any) (any, error) {
	event, ok := object.(*v1alpha1.AlertEvent)
	if !ok || IsStub(event) {
		return object, nil
	}
	removed := condenseMetadata(event)
	event.Namespace, event.Spec.IntegrationName = Intern(event.Namespace), Intern(event.Spec.IntegrationName)
	entry, known := e.find(event.UID)
	if !known || entry.stub != nil {
		if !e.hasPlace(event, entry.stub) {
			e.makeStub(event, removed)
			return object, nil
		}
		if entry.unreadable = Decode(event); entry.unreadable != nil {
			removed += StoredSize(&event.Spec)
		}
		entry.alerts, entry.isWhole, entry.removed = event.Alerts, true, 0
	}
	entry.removed = max(entry.removed, int64(removed))
	e.admit(event, &entry, !known || entry.stub != nil)
	event.Alerts = entry.alerts
	event.Spec.Alerts, event.Spec.Encoding, event.Spec.Count, event.Spec.Summary, event.Spec.Report = "", "", 0, "", nil
	if !entry.isWhole {
		event.Spec.Defaults = nil
	}
	return object, nil
}

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
	return isGenerated(e.Name) && e.Labels[v1alpha1.ExcludeFromBackupLabel] == "true" &&
		e.Spec.Summary != "" && (e.Spec.Encoding != "" || len(e.Spec.Alerts) < MinCompressed)
}

// Intern returns one copy of equal strings: thousands of cached objects have the same few.
func Intern(s string) string { return unique.Make(s).Value() }

// IsCanary reports whether a name is that of a canary, or of the Incident that canaries belong to.
func (e *Cached) IsCanary(name types.NamespacedName) bool {
	return e.Canaries != "" && name.Namespace == e.Canaries && strings.HasPrefix(name.Name, v1alpha1.CanaryName)
}

// hasPlace reports whether the cache may have what identifies the Incidents of an AlertEvent. It may not while an older one of
// the namespace is a stub: the alerts of an Incident would be folded in another order. Canaries, which are small reports, and
// what is settled have no order; and a leader that folds no canary gives the lease up.
func (e *Cached) hasPlace(event *v1alpha1.AlertEvent, own *list.Element) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	isCanary := e.IsCanary(client.ObjectKeyFromObject(event)) && event.Spec.Report != nil
	if mark, _ := MarkOf(event); isCanary || mark.All && e.settled.Allows(event.Namespace) {
		return true
	}
	stubs := e.stubs[event.Namespace]
	return (stubs == nil || stubs.Front() == own) && e.sizes.Allows(event.Namespace)
}

func (e *Cached) makeStub(event *v1alpha1.AlertEvent, removed int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry := e.events[event.UID]
	if entry.stub == nil {
		if e.stubs[event.Namespace] == nil {
			e.stubs[event.Namespace] = list.New()
		}
		entry.stub = e.stubs[event.Namespace].PushBack(Stub{client.ObjectKeyFromObject(event), event.UID})
	}
	entry.removed = int64(removed + StoredSize(&event.Spec))
	entry.size = entry.removed
	e.events[event.UID] = entry
	event.Spec = v1alpha1.AlertEventSpec{IntegrationName: event.Spec.IntegrationName, ReceivedTime: event.Spec.ReceivedTime}
	event.ResourceVersion, event.Annotations = "", stubAnnotations
}

// admit counts an AlertEvent that is no stub, or counts it anew. It reduces the alerts of one that is stuck or whose content has
// no place. What is reduced stays so until Forget.
func (e *Cached) admit(event *v1alpha1.AlertEvent, entry *cachedEvent, isNew bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	stuck := !event.DeletionTimestamp.IsZero() || entry.unreadable != nil
	if isNew {
		e.removeStub(event.Namespace, entry)
		stuck = stuck || !e.content.Allows(event.Namespace)
		if !stuck {
			entry.memory = MemorySize(event)
		}
		e.content.Add(event.Namespace, entry.memory)
	}
	if entry.isWhole && stuck {
		entry.reduce()
	}
	ReduceMark(event, entry.alerts)
	e.uncount(event.Namespace, entry)
	entry.size, entry.counted = int64(EncodedSize(entry.alerts))+entry.removed, &e.sizes
	if mark, _ := MarkOf(event); mark.All && e.settled.Allows(event.Namespace) {
		entry.counted = &e.settled
	}
	entry.counted.Add(event.Namespace, entry.size)
	e.events[event.UID] = *entry
}

func (e *Cached) uncount(namespace string, entry *cachedEvent) {
	if entry.counted != nil {
		entry.counted.Add(namespace, -entry.size)
	}
}

func (c *cachedEvent) reduce() {
	c.isWhole = false
	alerts := make([]v1alpha1.Alert, len(c.alerts)) // readers of the cache have the old ones
	for i := range c.alerts {
		alert := &c.alerts[i]
		alerts[i] = v1alpha1.Alert{
			ID: alert.ID, IncidentName: alert.IncidentName, DedupKey: alert.DedupKey, Status: alert.Status,
			IsReport: alert.IsReport, By: alert.By,
		}
	}
	c.removed += int64(EncodedSize(c.alerts) - EncodedSize(alerts))
	c.alerts = alerts
}

func (e *Cached) removeStub(namespace string, entry *cachedEvent) {
	if entry.stub == nil {
		return
	}
	stubs := e.stubs[namespace]
	stubs.Remove(entry.stub)
	if entry.stub = nil; stubs.Len() == 0 {
		delete(e.stubs, namespace)
	}
}

// NextStub returns the oldest stub of a namespace that has a place for it; ok is false if there is none.
func (e *Cached) NextStub(isOwn func(namespace string) bool) (next Stub, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for namespace, stubs := range e.stubs {
		if isOwn(namespace) && e.sizes.Allows(namespace) {
			return stubs.Front().Value.(Stub), true
		}
	}
	return next, false
}

// PostponeStub has other stubs of the namespace read before.
func (e *Cached) PostponeStub(s Stub) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if entry := e.events[s.UID]; entry.stub != nil {
		e.stubs[s.Name.Namespace].MoveToBack(entry.stub)
	}
}

func (e *Cached) find(uid types.UID) (entry cachedEvent, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry, known = e.events[uid]
	return entry, known
}

// IsWhole reports whether the alerts of a cached AlertEvent have their content. If not, it must be read from the API server.
func (e *Cached) IsWhole(event *v1alpha1.AlertEvent) bool {
	entry, _ := e.find(event.UID)
	return entry.isWhole
}

// Unreadable returns the reason why the alerts of an AlertEvent cannot be decoded; nil if they can.
func (e *Cached) Unreadable(event *v1alpha1.AlertEvent) error {
	entry, _ := e.find(event.UID)
	return entry.unreadable
}

// StoredSize returns about how many bytes the API server stores of an AlertEvent: of a nil Cached, those of its alerts.
func (e *Cached) StoredSize(event *v1alpha1.AlertEvent) int64 {
	if e != nil {
		if entry, known := e.find(event.UID); known {
			return entry.size
		}
	}
	return int64(EncodedSize(event.Alerts))
}

// Forget forgets an AlertEvent that is gone.
func (e *Cached) Forget(event *v1alpha1.AlertEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry := e.events[event.UID]
	e.content.Add(event.Namespace, -entry.memory)
	e.uncount(event.Namespace, &entry)
	e.removeStub(event.Namespace, &entry)
	delete(e.events, event.UID)
}
