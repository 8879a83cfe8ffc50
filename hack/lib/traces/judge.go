// Package traces judges what processes do by the rules of the model (hack/lib/protocol): each step that one of them takes must be
// one that the model could take.
//
// The facts are all that the API server sees: the commits, in order, with the requests that made them; the lists and reads that
// it answers; and how far each watch has come. A process does more that nobody sees: it reads its caches, decides, and settles
// events without a write. So the judge keeps what a process may have read and may know, and accepts a step if it follows from
// any of that. It needs no hook in the product.
//
// Each Incident has views of its own: an AlertEvent with alerts of several Incidents is an event of each, and may be deleted
// only when it is settled for all. That loses nothing, since no other rule of the model is about two Incidents.
//
// The package has no client, no clock and no goroutine. A finding has the step, the state before it, and the steps that were
// possible.
package traces

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/protocol"
)

// Options are what the facts do not tell.
type Options struct {
	// LooseClocks says that the clocks are wrong by which processes measure how long they wait and remember.
	LooseClocks bool

	// Say is told each step that was judged. Default: nobody.
	Say func(format string, args ...any)
}

// Judge knows what the API server has, and what each process may know of it.
type Judge struct {
	options Options

	revision  int64 // of the last commit
	incidents map[types.NamespacedName]*incident
	events    map[types.UID]*event
	named     map[types.NamespacedName][]*event // by names that come again only by mistake
	sent      map[sending]int64                 // the revision when it was first sent
	findings  []string
	steps     int
}

// New returns a judge of an empty API server.
func New(options Options) *Judge {
	return &Judge{
		options: options, incidents: map[types.NamespacedName]*incident{}, events: map[types.UID]*event{},
		named: map[types.NamespacedName][]*event{}, sent: map[sending]int64{},
	}
}

// The resources whose commits are judged.
const (
	AlertEvents = "alertevents"
	Incidents   = "incidents"
)

// Commit is a write of an AlertEvent or an Incident.
type Commit struct {
	Revision int64
	At       time.Time
	Type     watch.EventType
	Resource string
	Object   map[string]any // read-only: the state afterwards, or the last one of a deleted object

	By                *Process // nil: a user, or the API server itself
	Verb, Subresource string   // of the request
	Body              []byte   // of the request
}

// rules are those of the model; none is broken.
const rules protocol.Rule = 0

// Findings returns the steps that the model rejects.
func (j *Judge) Findings() []string { return j.findings }

// Steps returns how many steps were judged.
func (j *Judge) Steps() int { return j.steps }

// sending is what the attempts to create one AlertEvent have in common. A name that is made of an idempotency key may come again.
type sending struct {
	name     types.NamespacedName
	received string
}

// Sent notes that a process sends a request to create an AlertEvent.
func (j *Judge) Sent(name types.NamespacedName, body []byte) {
	var event struct {
		Spec struct{ ReceivedTime string }
	}
	_ = json.Unmarshal(body, &event) // what is no AlertEvent is not stored
	attempt := sending{name, event.Spec.ReceivedTime}
	if _, again := j.sent[attempt]; !again {
		j.sent[attempt] = j.revision
	}
}

// Commit judges a write, and enters it.
func (j *Judge) Commit(c *Commit) {
	j.revision = c.Revision
	if c.Resource == AlertEvents {
		j.commitEvent(c)
	} else {
		j.commitIncident(c)
	}
}

// accept notes a step that follows the rules.
func (j *Judge) accept(p *Process, format string, args ...any) {
	j.steps++
	if j.options.Say != nil {
		j.options.Say("~ %s: %s", p, fmt.Sprintf(format, args...))
	}
}

// reject notes a step that breaks the rules. before is the state that it was taken from, and possible has the steps that the
// model could take.
func (j *Judge) reject(p *Process, step, before string, possible ...string) {
	j.steps++
	if len(possible) == 0 {
		possible = []string{"none"}
	}
	j.findings = append(j.findings, fmt.Sprintf("P: the model rejects a step of %s: %s\n      before: %s\n      possible: %s",
		p, step, before, strings.Join(slices.Compact(possible), "; ")))
}

// Read notes that a process has read an Incident from the quorum. If none has been opened, the process may settle the events that
// match nothing.
func (j *Judge) Read(p *Process, name types.NamespacedName, at time.Time) {
	i := j.incidents[name]
	if i == nil || i.known.Status || i.known.Deleting {
		return
	}
	i.forget(at)
	oldest := i.oldestFor(p)
	if oldest == nil {
		return
	}
	var unmatched protocol.Set
	for _, strict := range []bool{false, true} {
		for v := range j.views(p, i, guess{now: true, strict: strict, at: at, since: oldest.stored}) {
			for _, step := range v.Steps(nil) {
				if step.Kind == protocol.Settle || step.Kind == protocol.Write || step.Kind == protocol.Create {
					unmatched = unmatched.Or(step.Unmatched)
				}
			}
		}
	}
	i.settleUnmatched(p, unmatched)
	if !unmatched.IsEmpty() {
		j.accept(p, "settle %s as matching no Incident %s", unmatched, name)
	}
}

// commitIncident judges a write of an Incident.
func (j *Judge) commitIncident(c *Commit) {
	i := j.incidentNamed(nameOf(c.Object))
	after := readIncident(c.Object)
	after.known.Version = c.Revision
	begins := !i.known.Deleting && (c.Type == watch.Deleted || after.known.Deleting)
	if c.By != nil {
		switch {
		case c.Type == watch.Added:
			j.judgeCreate(c, i)
		case c.Verb == "delete" && begins:
			j.judgeStep(c, i, protocol.Step{Kind: protocol.Delete, Over: Over(c.Body)}, nil)
		case c.Subresource == "status":
			j.judgeWrite(c, i, after.ledger)
		case c.Verb == "patch":
			j.judgeLabels(c, i)
		default:
			j.reject(c.By, fmt.Sprintf("%s %s %s", c.Verb, i.name, c.Subresource), i.String(), "no such write")
		}
	}
	if c.Type == watch.Deleted {
		after = incidentState{known: protocol.Incident{Version: c.Revision}}
	}
	if c.Type != watch.Modified || c.Subresource == "status" {
		i.basis = c.Revision
	}
	i.incidentState = after
	i.forget(c.At)
}

func (j *Judge) judgeCreate(c *Commit, i *incident) {
	var opening, shown protocol.Set
	for n, e := range slices.Concat(i.events, i.opened) {
		if e.parts[i.name.Name].opens {
			opening = opening.With(n)
		}
		if e.stored <= c.By.shown(i.name.Namespace) {
			shown = shown.With(n)
		}
	}
	if step := "create Incident " + i.name.String(); protocol.Creates(opening, shown) {
		j.accept(c.By, "%s", step)
	} else {
		j.reject(c.By, step, fmt.Sprintf("%s; its cache shows %s, of which %s open it", i, shown, opening.And(shown)))
	}
}

// judgeLabels judges a change of an Incident's metadata: it is of the version that was read, or the status that follows would be
// written over what somebody else wrote.
func (j *Judge) judgeLabels(c *Commit, i *incident) {
	step := fmt.Sprintf("label Incident %s over version %d", i.name, Over(c.Body))
	if Over(c.Body) == i.known.Version {
		j.accept(c.By, "%s", step)
	} else {
		j.reject(c.By, step, i.String(), fmt.Sprintf("label over version %d", i.known.Version))
	}
}

// judgeWrite judges a write of the status, which leads to a ledger.
func (j *Judge) judgeWrite(c *Commit, i *incident, ledger map[types.UID]bool) {
	seen := protocol.Step{Kind: protocol.Write, Over: Over(c.Body)}
	added := map[types.UID]bool{}
	for n, e := range i.events {
		if !ledger[e.uid] {
			continue
		}
		seen.Ledger = seen.Ledger.With(n)
		if !i.ledger[e.uid] {
			added[e.uid] = true
		}
	}
	if seen.Ledger.Len() == len(ledger) {
		j.judgeStep(c, i, seen, added)
	} else {
		j.reject(c.By, fmt.Sprintf("%s, %s, and AlertEvents that have no alert of it, or are long gone", i.name, seen), i.String())
	}
	for _, e := range i.events {
		if added[e.uid] {
			e.parts[i.name.Name].folded = true
		}
	}
}

// judgeStep judges a step for an Incident. It follows from some view that the process may have had: one in which it shows
// what it has added to the ledger.
func (j *Judge) judgeStep(c *Commit, i *incident, seen protocol.Step, added map[types.UID]bool) {
	var before, possible []string
	for g := range j.guesses(i, guess{added: added, at: c.At}) {
		for v := range j.views(c.By, i, g) {
			for _, step := range v.Steps(nil) {
				if step.Seen(seen) {
					i.settleUnmatched(c.By, step.Unmatched)
					j.accept(c.By, "%s, %s", i.name, step)
					return
				}
				possible = append(possible, step.String())
			}
			if len(before) < maxViews {
				before = append(before, i.tell(v))
			}
		}
	}
	if len(before) == 0 {
		before, possible = []string{"it has listed nothing since then"}, []string{"list the AlertEvents"}
	}
	slices.Sort(possible)
	j.reject(c.By, fmt.Sprintf("%s, %s", i.name, seen), i.String()+"; "+strings.Join(before, ", or "), possible...)
}

// guesses yields what the facts leave open about the views of a step.
func (j *Judge) guesses(i *incident, g guess) iter.Seq[guess] {
	return func(yield func(guess) bool) {
		for _, left := range append([]int64{0}, i.ends()...) {
			g := g
			if g.left = left; !yield(g) {
				return
			}
		}
		g := g
		g.copiesWait = true
		yield(g)
	}
}

// maxViews is how many views a finding tells.
const maxViews = 3

// Over returns the resourceVersion on condition of which a request writes or deletes, 0 if there is none.
func Over(body []byte) int64 {
	var request struct {
		Metadata      struct{ ResourceVersion string }
		Preconditions struct{ ResourceVersion string }
	}
	if json.Unmarshal(body, &request) != nil {
		return 0
	}
	version, err := strconv.ParseInt(cmp.Or(request.Metadata.ResourceVersion, request.Preconditions.ResourceVersion), 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// commitEvent judges a write of an AlertEvent.
func (j *Judge) commitEvent(c *Commit) {
	meta := metaOf(c.Object)
	uid, _ := meta["uid"].(string)
	e := j.events[types.UID(uid)]
	if c.Type == watch.Added {
		e = j.store(c)
	}
	if e == nil {
		return
	}
	j.commitMark(c, e, meta)
	if _, marked := meta["deletionTimestamp"]; !e.deleting && (marked || c.Type == watch.Deleted) {
		e.deleting = true
		if c.By != nil {
			j.judgeRelease(c, e)
		}
	}
	if c.Type == watch.Deleted {
		e.gone, e.goneAt = c.Revision, c.At
	}
	e.version = c.Revision
}

// commitMark judges a mark, and enters it.
func (j *Judge) commitMark(c *Commit, e *event, meta map[string]any) {
	annotations, _ := meta["annotations"].(map[string]any)
	text, _ := annotations[v1alpha1.SettledAnnotation].(string)
	_, names, _ := strings.Cut(text, "/")
	if text == e.mark || c.Type != watch.Modified {
		return
	}
	e.mark = text
	marked := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		marked[name] = true
	}
	settled, _ := e.settled(c.By)
	step := fmt.Sprintf("mark AlertEvent %s over version %d: %s", e.name, Over(c.Body), text)
	if c.By != nil && Over(c.Body) != e.version {
		j.reject(c.By, step, e.tell(c.By), fmt.Sprintf("mark over version %d", e.version))
	} else if c.By != nil {
		j.accept(c.By, "%s", step)
	}
	for n, name := range e.incidents() {
		part := e.parts[name]
		if part.marked != 0 || !marked["*"] && !marked[name] {
			continue
		}
		if c.By != nil && !rules.Marks(settled, n) {
			j.reject(c.By, step, e.tell(c.By))
		}
		part.marked = c.Revision
	}
}

// judgeRelease judges the deletion of an AlertEvent: it is settled for all its Incidents, it is a second copy, or it comes from a
// backup.
func (j *Judge) judgeRelease(c *Commit, e *event) {
	var options metav1.DeleteOptions
	_ = json.Unmarshal(c.Body, &options) // else it has no preconditions
	step := "delete AlertEvent " + e.name.String()
	settled, concerned := e.settled(c.By)
	switch {
	case options.Preconditions == nil || options.Preconditions.UID == nil:
		j.reject(c.By, step+", whatever its UID", e.tell(c.By), "delete it on condition of its UID")
	case e.restored, rules.Releases(settled, concerned), rules.DeletesCopy(c.By.mayRemember(e)):
		j.accept(c.By, "%s", step)
	default:
		j.reject(c.By, step, e.tell(c.By))
	}
}
