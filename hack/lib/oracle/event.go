package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// event is an AlertEvent from its first commit on.
type event struct {
	namespace, name, uid string
	order                int // of the first commit
	until                int // of the commit that deleted it; 0 while it exists
	ended                time.Time
	committed            time.Time
	received, heard      time.Time
	integration          string
	defaults             map[string]any
	alerts               map[string][]told // by the name of their Incident
	seqs                 map[string]string // Seq by id
	byUser               bool              // created by hand
	restored             bool
	copyOf               *event // an earlier one with the same ids

	deleting  bool // deleted, and gone once it has no finalizer
	removed   bool // by a user
	excused   bool // a user deleted it, or forged its mark: it may count or not
	forgotten bool // a second copy, and no replica remembers the first

	again map[string]bool // Incidents that it may count in again: a user deleted the one that had it, and no mark told of it

	settled   map[string]settlement // by the name of the Incident
	settledAt time.Time             // the last of them
	marked    map[string]bool       // names in v1alpha1.SettledAnnotation
}

// settlement is how the alerts of an AlertEvent for an Incident came to their end.
type settlement int

const (
	pending   settlement = iota
	unmatched            // the Incident was absent, and nothing older could open it
	folded               // into a life
)

func newEvent(c *Commit, stored *storedEvent, alerts []alert, order int) *event {
	e := &event{
		namespace: c.Namespace, name: c.Name, uid: stored.Metadata.UID, order: order,
		committed: c.At, received: stored.received(), heard: stored.heard(),
		integration: stored.Spec.IntegrationName, defaults: stored.Spec.Defaults,
		alerts: map[string][]told{}, seqs: map[string]string{}, byUser: c.ByUser,
		restored: c.Restored || stored.Metadata.Labels[v1alpha1.RestoreLabel] != "",
		settled:  map[string]settlement{}, marked: map[string]bool{}, again: map[string]bool{},
	}
	for i, a := range alerts {
		name := a.incidentName(e.integration)
		id := cmp.Or(a.text("id"), fmt.Sprintf("%s/%d", e.uid, i))
		e.seqs[id] = a.seq()
		e.alerts[name] = append(e.alerts[name], told{
			alert: a, id: id, order: order, received: e.received, heard: e.heard, defaults: e.defaults,
		})
	}
	return e
}

func (e *event) String() string { return e.namespace + "/" + e.name }

// incidents are the names of the Incidents that it has alerts of, sorted.
func (e *event) incidents() []string { return slices.Sorted(maps.Keys(e.alerts)) }

// mustNotCount says whether an earlier AlertEvent counts in its place, or a backup tool restored it.
func (e *event) mustNotCount(name string) bool {
	return e.restored || e.copyOf != nil && !e.mayCount(name)
}

// mayCount says whether it is right to count it, and right not to count it.
func (e *event) mayCount(name string) bool {
	if e.restored {
		return false
	}
	first := e.copyOf
	if e.again[name] || e.forgotten || first != nil && first.freesItsKey() {
		return true
	}
	return first == nil && e.excused || first != nil && first.excused && first.settled[name] != folded
}

// freesItsKey says whether a user deleted it before a mark told that all its alerts are settled. Its key may come again: nobody
// can tell whether the alerts were folded, and to count them twice is better than to lose them.
func (e *event) freesItsKey() bool {
	return e.removed && v1alpha1.IsKeyedEventName(e.name) && !e.isMarkedForAll()
}

// canOpen says whether it has an alert that opens the Incident.
func (e *event) canOpen(name string) bool {
	return slices.ContainsFunc(e.alerts[name], func(a told) bool { return a.opens(e.integration, name) })
}

// fits says whether an alert of it can be one of this Incident at all.
func (e *event) fits(a told, name string) bool {
	key := a.text("dedupKey")
	return (e.integration == "" || v1alpha1.IsIncidentName(name, e.integration)) &&
		(e.integration == "" || key == "" || v1alpha1.IncidentName(e.integration, key) == name)
}

// isSettled says whether the operator may be done with its alerts of the Incident.
func (e *event) isSettled(name string) bool {
	if e.settled[name] != pending || e.mustNotCount(name) || e.mayCount(name) {
		return true
	}
	return !slices.ContainsFunc(e.alerts[name], func(a told) bool { return e.fits(a, name) })
}

func (e *event) unsettled() []string {
	return slices.DeleteFunc(e.incidents(), e.isSettled)
}

func (e *event) isMarked(name string) bool { return e.marked["*"] || e.marked[name] }

func (e *event) isMarkedForAll() bool {
	return !slices.ContainsFunc(e.incidents(), func(name string) bool { return !e.isMarked(name) })
}

func (e *event) settle(name string, how settlement, at time.Time) {
	e.settled[name] = how
	e.settledAt = latest(e.settledAt, at)
}

func parseMark(annotations map[string]string) map[string]bool {
	marked := map[string]bool{}
	_, names, ok := strings.Cut(annotations[v1alpha1.SettledAnnotation], "/")
	if !ok {
		return marked
	}
	for name := range strings.SplitSeq(names, ",") {
		marked[name] = true
	}
	return marked
}

func (e *event) isGone() bool { return e.until > 0 }

// lingers says whether it stays for its idempotency key after it is settled. A second copy may do so in the place of a
// first one that a user deleted, but it need not.
func (e *event) lingers() bool {
	return v1alpha1.IsKeyedEventName(e.name) && !e.restored && (e.copyOf == nil || e.copyOf.removed)
}
