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
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
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
	AlertEvents = "alertevents.tocsin.dev"
	Incidents   = "incidents.tocsin.dev"
)

// Commit is a write of an AlertEvent or an Incident.
type Commit struct {
	apiserver.Commit
	At time.Time
	By *Process // nil: a user, or the API server itself
}

// over returns the resourceVersion on condition of which the request writes or deletes, 0 if there is none.
func (c *Commit) over() int64 {
	var request struct {
		Metadata      struct{ ResourceVersion string }
		Preconditions struct{ ResourceVersion string }
	}
	if c.Call != nil {
		_ = json.Unmarshal(c.Call.Body, &request) // else it has none
	}
	version, _ := strconv.ParseInt(cmp.Or(request.Metadata.ResourceVersion, request.Preconditions.ResourceVersion), 10, 64)
	return version
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

func (j *Judge) commitIncident(c *Commit) {
	o := unstructured.Unstructured{Object: c.Object}
	i := j.incidentNamed(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
	after := readIncident(&o)
	after.known.Version = c.Revision
	isStatus := c.By != nil && c.Call.Subresource == "status"
	begins := !i.known.Deleting && (c.Type == watch.Deleted || after.known.Deleting)
	if c.By != nil {
		switch {
		case c.Type == watch.Added:
			j.judgeCreate(c, i)
		case c.Call.Verb == "delete" && begins:
			j.judgeStep(c, i, protocol.Step{Kind: protocol.Delete, Over: c.over()}, nil)
		case isStatus:
			j.judgeWrite(c, i, after.ledger)
		case c.Call.Verb == "patch":
			j.judgeLabels(c, i)
		default:
			j.reject(c.By, fmt.Sprintf("%s %s %s", c.Call.Verb, i.name, c.Call.Subresource), i.String(), "no such write")
		}
	}
	if c.Type == watch.Deleted {
		i.orphan(c.By == nil)
		after = incidentState{known: protocol.Incident{Version: c.Revision}}
	}
	if c.Type != watch.Modified || isStatus {
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
	step := fmt.Sprintf("label Incident %s over version %d", i.name, c.over())
	if c.over() == i.known.Version {
		j.accept(c.By, "%s", step)
	} else {
		j.reject(c.By, step, i.String(), fmt.Sprintf("label over version %d", i.known.Version))
	}
}

// judgeWrite judges a write of the status, which leads to a ledger.
func (j *Judge) judgeWrite(c *Commit, i *incident, ledger map[types.UID]bool) {
	seen := protocol.Step{Kind: protocol.Write, Over: c.over()}
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
	for _, g := range i.guesses(guess{added: added, at: c.At}) {
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

// maxViews is how many views a finding tells.
const maxViews = 3

func (j *Judge) commitEvent(c *Commit) {
	o := unstructured.Unstructured{Object: c.Object}
	e := j.events[o.GetUID()]
	if c.Type == watch.Added {
		e = j.store(c)
	}
	if e == nil {
		return
	}
	if mark := o.GetAnnotations()[v1alpha1.SettledAnnotation]; mark != e.mark && c.Type == watch.Modified {
		j.commitMark(c, e, mark)
	}
	if !e.deleting && (o.GetDeletionTimestamp() != nil || c.Type == watch.Deleted) {
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

func (j *Judge) commitMark(c *Commit, e *event, text string) {
	e.mark = text
	_, names, _ := strings.Cut(text, "/")
	marked := strings.Split(names, ",")
	settled, _ := e.settled(c.By)
	step := fmt.Sprintf("mark AlertEvent %s over version %d: %s", e.name, c.over(), text)
	if c.By != nil && c.over() != e.version {
		j.reject(c.By, step, e.tell(c.By), fmt.Sprintf("mark over version %d", e.version))
	} else if c.By != nil {
		j.accept(c.By, "%s", step)
	}
	for n, name := range e.incidents() {
		part := e.parts[name]
		if part.marked != 0 || !slices.Contains(marked, "*") && !slices.Contains(marked, name) {
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
	_ = json.Unmarshal(c.Call.Body, &options) // else it has no preconditions
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
