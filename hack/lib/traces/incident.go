package traces

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/protocol"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// incident is an Incident, or the absence of one, and its AlertEvents.
type incident struct {
	incidentState
	name   types.NamespacedName
	basis  int64    // the revision since which the ledger is as it is: a list must not be older
	events []*event // that may be in a list or in the ledger, in commit order
	opened []*event // others that open it: the cache of a process that was suspended may show one that is gone
}

// incidentState is what the API server has.
type incidentState struct {
	known  protocol.Incident // without its ledger
	ledger map[types.UID]bool
}

// event is an AlertEvent.
type event struct {
	name         types.NamespacedName
	uid          types.UID
	parts        map[string]*part // by the name of the Incident
	stored, gone int64            // revisions; gone is 0 while it exists
	version      int64
	goneAt       time.Time
	mark         string
	deleting     bool

	earlier  []*event // deleted ones of its name, of which it may be a second copy
	keyed    bool     // its name is that of an idempotency key
	doubtful bool     // it shows that it may be a second copy
	received string   // when, see sending
	restored bool     // from a backup
}

// part is what an AlertEvent has for one Incident.
type part struct {
	opens     bool
	folded    bool  // a ledger had it
	orphaned  bool  // a user has deleted the Incident whose ledger had it
	marked    int64 // the revision of the mark, 0 if there is none
	unmatched map[*Process]bool
}

// isSettledFor reports whether a process may know that the part is settled.
func (p *part) isSettledFor(process *Process) bool {
	return p.folded || p.marked != 0 || p.unmatched[process]
}

func (e *event) incidents() []string { return slices.Sorted(maps.Keys(e.parts)) }

// settled returns the Incidents for which a process may know that the event is settled, and all of them, by their places among
// the names.
func (e *event) settled(process *Process) (settled, concerned protocol.Set) {
	for n, name := range e.incidents() {
		concerned = concerned.With(n)
		if e.parts[name].isSettledFor(process) {
			settled = settled.With(n)
		}
	}
	return settled, concerned
}

// tell tells what a process may know of the event.
func (e *event) tell(process *Process) string {
	var known []string
	for _, name := range e.incidents() {
		words := "is not settled for "
		if e.parts[name].isSettledFor(process) {
			words = "is settled for "
		}
		known = append(known, words+name)
	}
	return fmt.Sprintf("version %d %s; it is a second copy of %d, and restored: %t",
		e.version, strings.Join(known, ", "), len(e.earlier), e.restored)
}

// readIncident reads the state of an Incident that exists.
func readIncident(o *unstructured.Unstructured) incidentState {
	status, _ := o.Object["status"].(map[string]any)
	state, _ := status["state"].(string)
	ledger, _ := status["ledger"].(map[string]any)
	entries, _ := ledger["events"].([]any)
	i := incidentState{ledger: make(map[types.UID]bool, len(entries))}
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		uid, _ := fields["uid"].(string)
		i.ledger[types.UID(uid)] = true
	}
	i.known = protocol.Incident{
		Exists: true, Status: state != "", Open: state == string(v1alpha1.IncidentOpen), Deleting: o.GetDeletionTimestamp() != nil,
	}
	return i
}

func (j *Judge) incidentNamed(name types.NamespacedName) *incident {
	i := j.incidents[name]
	if i == nil {
		i = &incident{name: name}
		j.incidents[name] = i
	}
	return i
}

func (j *Judge) store(c *Commit) *event {
	object := &v1alpha1.AlertEvent{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c.Object, object); err != nil {
		panic(err)
	}
	_ = queue.Decode(object) // one that cannot be decoded has no alerts
	e := &event{
		name: types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, uid: object.UID,
		parts: map[string]*part{}, stored: c.Revision, version: c.Revision, mark: object.Annotations[v1alpha1.SettledAnnotation],
		keyed: v1alpha1.IsKeyedEventName(object.Name), restored: queue.IsRestored(object),
	}
	e.received, _, _ = unstructured.NestedString(c.Object, "spec", "receivedTime")
	j.events[e.uid] = e
	for a := range object.Alerts {
		alert := &object.Alerts[a]
		name, integration := object.IncidentNameFor(alert), object.Spec.IntegrationName
		if e.parts[name] == nil {
			e.parts[name] = &part{unmatched: map[*Process]bool{}}
		}
		e.parts[name].opens = e.parts[name].opens || alert.Status == v1alpha1.AlertFiring && integration != "" &&
			alert.DedupKey != "" && v1alpha1.IncidentName(integration, alert.DedupKey) == name
	}
	for name := range e.parts {
		i := j.incidentNamed(types.NamespacedName{Namespace: e.name.Namespace, Name: name})
		i.events = append(i.events, e)
	}
	if e.keyed || v1alpha1.IsGeneratedEventName(object.Name) {
		received := object.Spec.ReceivedTime.Time
		isLate := !received.IsZero() && object.CreationTimestamp.Sub(received) > time.Second
		e.doubtful = isLate || object.Annotations[v1alpha1.RetryAnnotation] != ""
		e.earlier = slices.Clone(j.named[e.name])
		j.named[e.name] = append(j.named[e.name], e)
	}
	return e
}

// forgetAfter is how long after its end no fold is under way any more that has listed an AlertEvent.
const forgetAfter = 10 * time.Minute

// forget drops the events that no list can have that the next step goes by, nor the ledger.
func (i *incident) forget(now time.Time) {
	isLongGone := func(e *event) bool { return e.gone != 0 && now.Sub(e.goneAt) > forgetAfter }
	i.opened = slices.DeleteFunc(i.opened, isLongGone)
	i.events = slices.DeleteFunc(i.events, func(e *event) bool {
		part := e.parts[i.name.Name]
		isUnlisted := e.gone != 0 && e.gone <= i.basis || part.marked != 0 && part.marked <= i.basis
		if i.ledger[e.uid] || !isUnlisted && !isLongGone(e) {
			return false
		}
		if part.opens && !isLongGone(e) {
			i.opened = append(i.opened, e)
		}
		return true
	})
}

// orphan notes that the Incident is gone, and by whom it was deleted.
func (i *incident) orphan(byUser bool) {
	for _, e := range i.events {
		part := e.parts[i.name.Name]
		part.orphaned = part.orphaned || byUser && part.folded
	}
}

// oldestFor returns the oldest event that exists and is not settled as far as a process may know.
func (i *incident) oldestFor(p *Process) *event {
	for _, e := range i.events {
		if e.gone == 0 && !e.parts[i.name.Name].isSettledFor(p) {
			return e
		}
	}
	return nil
}

func (i *incident) settleUnmatched(p *Process, unmatched protocol.Set) {
	for n := range unmatched.All() {
		i.events[n].parts[i.name.Name].unmatched[p] = true
	}
}

// guess is what the facts leave open about a view.
type guess struct {
	at     time.Time
	since  int64              // the list is no older than this
	added  map[types.UID]bool // the process has added these to the ledger, so its cache showed them
	now    bool               // its cache shows what it shows by now, rather than when the list began
	left   int64              // its cache has shown the ends of events up to this revision, though the list has them
	strict bool               // no other event waits or is a second copy but those that must

	copiesWait bool // second copies may wait, too, unless the process must know the first one
	unaware    bool // it does not know what was folded into an Incident that a user has deleted
}

// guesses returns what the facts leave open about the views of a step.
func (i *incident) guesses(g guess) []guess {
	all := []guess{g}
	for _, e := range i.events {
		if e.gone != 0 {
			g.left = e.gone
			all = append(all, g)
		}
	}
	unaware := g
	g.left, g.copiesWait = 0, true
	unaware.left, unaware.unaware = 0, true
	return append(all, g, unaware)
}

// views yields what a process may have gone by in a step for an Incident, the newest list first. Lists between which no event
// came, went or was marked are the same to it, but for what the cache shows: the first of them needs the least.
func (j *Judge) views(p *Process, i *incident, g guess) iter.Seq[*protocol.View] {
	since := max(i.basis, g.since)
	changes := []int64{since}
	for _, e := range i.events {
		for _, revision := range []int64{e.stored, e.gone, e.parts[i.name.Name].marked} {
			if revision > since {
				changes = append(changes, revision)
			}
		}
	}
	slices.Sort(changes)
	return func(yield func(*protocol.View) bool) {
		for _, w := range p.in(i.name.Namespace) {
			end := len(w.lists)
			for _, from := range slices.Backward(changes) {
				first := sort.Search(end, func(n int) bool { return w.lists[n].revision >= from })
				if first < end && !yield(j.view(p, i, w.lists[first], g)) {
					return
				}
				end = first
			}
		}
	}
}

// view returns what a process may have gone by if it used this list.
func (j *Judge) view(p *Process, i *incident, l list, g guess) *protocol.View {
	shown := p.shown(i.name.Namespace)
	known := i.known
	v := &protocol.View{Capacity: v1alpha1.MaxLedger}
	for n, e := range i.events {
		put := func(to *protocol.Set, has bool) {
			if has {
				*to = to.With(n)
			}
		}
		put(&known.Ledger, i.ledger[e.uid])
		part := e.parts[i.name.Name]
		if e.restored || !e.existed(part, l.revision) {
			continue
		}
		isAdded := g.added[e.uid]
		isCopy, waits := j.doubts(p, e, g)
		put(&v.Listed, true)
		put(&v.Opening, part.opens)
		hasLeft := e.gone != 0 && e.gone <= min(g.left, shown)
		put(&v.Left, hasLeft)
		put(&v.Shown, !hasLeft && (e.stored <= l.shown || (isAdded || g.now) && e.stored <= shown))
		isKnown := !g.unaware || !part.orphaned || part.marked != 0
		put(&v.Settled, !hasLeft && !isAdded && part.isSettledFor(p) && isKnown)
		put(&v.Copies, isCopy)
		put(&v.Held, waits)
	}
	v.Read, v.Current = known, known
	return v
}

// existed reports whether the event existed for the Incident of a part at a revision.
func (e *event) existed(p *part, revision int64) bool {
	return e.stored <= revision && (e.gone == 0 || e.gone > revision) && (p.marked == 0 || p.marked > revision)
}

// doubts reports whether a process takes an event for a second copy, and whether it has the event wait: those that it has folded
// only if it must, of others also those that it may.
func (j *Judge) doubts(p *Process, e *event, g guess) (isCopy, waits bool) {
	switch {
	case !g.added[e.uid] && !g.strict && g.copiesWait:
		return p.remembers(e), e.doubtful
	case !g.added[e.uid] && !g.strict:
		return len(e.earlier) > 0, e.doubtful
	case j.options.LooseClocks:
		return false, false
	default:
		return p.remembers(e), p.mustWait(e, j.firstSent(e), g.at)
	}
}

// firstSent returns the revision when the first request to create an AlertEvent was sent. Only the webhook servers' are known.
func (j *Judge) firstSent(e *event) int64 {
	if revision, ok := j.sent[sending{e.name, e.received}]; ok {
		return revision
	}
	return e.stored
}

// String tells what the API server has.
func (i *incident) String() string {
	text := "Incident " + i.name.String() + " does not exist"
	if i.known.Exists {
		text = fmt.Sprintf("Incident %s has version %d (open: %t, being deleted: %t, empty: %t)",
			i.name, i.known.Version, i.known.Open, i.known.Deleting, i.known.IsEmpty())
	}
	return fmt.Sprintf("%s, and its ledger is of revision %d", text, i.basis)
}

// tell tells what a process may have gone by.
func (i *incident) tell(v *protocol.View) string {
	var names []string
	for n, e := range i.events {
		names = append(names, fmt.Sprintf("%d=%s", n, e.name.Name))
	}
	return fmt.Sprintf("with the ledger %s, it listed %s, its cache showed %s, %s are settled, %s open, %s are second copies, "+
		"%s wait (%s)", v.Read.Ledger, v.Listed, v.Shown, v.Settled, v.Opening, v.Copies, v.Held, strings.Join(names, " "))
}
