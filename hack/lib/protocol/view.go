// Package protocol has the rules by which replicas fold AlertEvents into Incidents: which steps a process may take next.
// hack/model explores all states to which they lead, and hack/lib/traces judges by them what processes have done. So model
// and code cannot drift apart.
//
// A rule is a function of what a process knows of one Incident (View), and of no more. An AlertEvent with alerts of several
// Incidents is an event of each. Package controllers has the algorithm, and why it is right.
package protocol

import "fmt"

// Incident is an Incident, or the absence of one.
type Incident struct {
	Exists, Open, Deleting bool
	Status                 bool // its first status is written
	Version                int64
	Ledger                 Set
}

// IsEmpty reports whether the Incident was created, and nothing was written to it.
func (i Incident) IsEmpty() bool { return i.Exists && !i.Status }

// isEvictable reports whether the age or the limit of an Incident may end it.
func (i Incident) isEvictable() bool { return i.Status && !i.Open && !i.Deleting }

// View is what a process goes by in its next step for an Incident. All events have an alert of the Incident, and are numbered in
// commit order.
type View struct {
	Read    Incident // as the process has read it
	Current Incident // as the API server has it

	Listed  Set // events that exist for the Incident, by a list from the quorum that is newer than Read
	Shown   Set // those of them that the cache of the process shows
	Settled Set // events that the process knows to be settled for the Incident
	Left    Set // events that the list has and that the cache showed, and then their ends: they are settled
	Opening Set // events with an alert that opens the Incident
	Copies  Set // second copies of events that the process remembers
	Held    Set // events that may be second copies, and have to wait

	Capacity int // of a ledger
	Broken   Rule
}

func (v *View) breaks(rule Rule) bool { return v.Broken&rule != 0 }

// Kind is the kind of a step.
type Kind int8

// The kinds of steps.
const (
	StartOver Kind = iota // what was read is older than it seemed
	Create                // the Incident, with an empty status
	Write                 // the status
	Settle                // events that need no write
	Delete                // the Incident
)

// Step is what a process may do.
type Step struct {
	Kind
	Over   int64 // the version of the Incident on condition of which it is written or deleted
	Ledger Set   // after a write
	Plan
}

// Plan is what a fold decides.
type Plan struct {
	Fold      Set // events to fold now
	Unmatched Set // events that match no Incident
	Folded    Set // events that the ledger has
	create    bool
}

// Settled are the events that are settled when the plan is carried out.
func (p *Plan) Settled() Set { return p.Fold.Or(p.Unmatched).Or(p.Folded) }

// Seen reports whether a step is one that was seen from outside, which does not show the plan.
func (s *Step) Seen(seen Step) bool {
	return s.Kind == seen.Kind && s.Over == seen.Over && s.Ledger == seen.Ledger
}

// String tells the step.
func (s Step) String() string {
	switch s.Kind {
	case Create:
		return "create the Incident"
	case Write:
		return fmt.Sprintf("write over version %d, with the ledger %s", s.Over, s.Ledger)
	case Settle:
		return fmt.Sprintf("settle %s without a write", s.Settled())
	case Delete:
		return fmt.Sprintf("delete version %d of the Incident", s.Over)
	default:
		return "start over"
	}
}

// Steps appends the steps that a process may take next, once it has read the Incident and listed the events.
func (v *View) Steps(steps []Step) []Step {
	if !v.Broken.Folds(v.Read) {
		return steps
	}
	step := Step{Plan: v.decide()}
	isCurrent := v.Read.Version == v.Current.Version
	switch {
	case !step.Unmatched.IsEmpty() && (!isCurrent && !v.breaks(AbsenceByCache) || v.lacksOlder(step.Unmatched)):
		return append(steps, step)
	case step.create:
		step.Kind = Create
		return append(steps, step)
	}
	if !step.Fold.IsEmpty() || v.Read.Status { // without events to fold, for what the time changes
		write := step
		write.Kind, write.Over, write.Ledger = Write, v.Read.Version, v.ledgerAfter(&step.Plan)
		steps = append(steps, write)
	}
	if !step.Fold.IsEmpty() {
		return steps
	}
	if isCurrent && v.mayDelete() {
		steps = append(steps, Step{Kind: Delete, Over: v.Read.Version})
	}
	step.Kind = Settle
	return append(steps, step)
}

// decide folds the events in commit order, up to one that has to wait.
func (v *View) decide() Plan {
	plan := Plan{Folded: v.Read.Ledger.And(v.Shown)}
	status := v.Read.Status
	for u := range v.Shown.Without(v.Read.Ledger).Without(v.Settled).Without(v.Copies).All() {
		switch {
		case v.Held.Has(u):
			if !v.breaks(WaitingOvertaken) {
				return plan
			}
		case !status && !v.Opening.Has(u):
			plan.Unmatched = plan.Unmatched.With(u)
		case v.isFull(&plan):
			return plan
		default:
			plan.create = plan.create || !v.Read.Exists
			plan.Fold = plan.Fold.With(u)
			status = true
		}
	}
	return plan
}

// isFull reports whether a plan's ledger has no space for another event. Those from before the Incident need theirs once
// it is open.
func (v *View) isFull(plan *Plan) bool {
	used := v.Read.Ledger.And(v.Listed).Or(plan.Fold).Len()
	if !plan.Fold.IsEmpty() {
		used += v.before(plan).Len()
	}
	return used >= v.Capacity && !v.breaks(NoLedgerLimit)
}

// before returns the events that came before the Incident and still exist.
func (v *View) before(plan *Plan) Set {
	if v.Read.Status {
		return Set{}
	}
	return plan.Unmatched.Or(v.Settled.And(v.Listed)).Without(plan.Fold)
}

// ledgerAfter returns the ledger that a plan writes: the entries of events that still exist, and those folded now. The
// events from before the Incident enter it with the first one, the newest for which there is space.
func (v *View) ledgerAfter(plan *Plan) Set {
	after := v.Read.Ledger.And(v.Listed).Or(plan.Fold)
	if v.breaks(PrunedEarly) {
		after = plan.Fold
	}
	return after.Or(v.before(plan).Last(v.Capacity - after.Len()))
}

// lacksOlder reports whether the list has an event that is older than one without an Incident, and by which the
// process did not decide.
func (v *View) lacksOlder(unmatched Set) bool {
	lacks := v.Listed.Without(v.Shown.Or(v.Settled).Or(v.Left))
	for u := range unmatched.All() {
		if lacks.HasBefore(u) && !v.breaks(OlderOfCache) {
			return true
		}
	}
	return false
}

// mayDelete reports whether nothing that exists needs the Incident or its ledger. Another process may have created an empty
// one for an event that this one's cache lacks, or that only this one knows to be settled: then it stays as long as the event.
func (v *View) mayDelete() bool {
	if v.Read.IsEmpty() {
		return v.Listed.Without(v.Left).IsEmpty()
	}
	isNeeded := !v.Read.Ledger.And(v.Listed).IsEmpty() && !v.breaks(EvictedUnmarked)
	return v.Read.isEvictable() && v.Settled.Contains(v.Shown) && !isNeeded
}
