// Package fold decides what alerts mean for their Incident.
//
// To fold alerts is to reduce all those of one integration and one dedup key, in commit order, into one Incident. Decide
// does it: from the Incident as it was read, the AlertEvents and the time, it returns a Plan, which package incident
// carries out. It follows docs/lifecycle.md: lifecycle.go has the states and what comes too late for them, merge.go the content,
// ledger.go the memory of what was folded, expiry.go the deadlines, forwarding.go what Alertmanager should be told. What features
// add to that is a list of rules (fold.go), each in a file of its own, or in another package (Rule). Preview shows the Incidents
// that alerts would open.
//
// Nothing here does I/O or reads a clock: the same input gives the same plan. Package controllers tells why each alert
// counts exactly once.
package fold

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
)

// Results of folding one alert, in plans and metrics.
const (
	ResultOpened         = "opened"
	ResultUpdated        = "updated"
	ResultResolved       = "resolved"
	ResultReopened       = "reopened"
	ResultAcknowledged   = "acknowledged"
	ResultUnacknowledged = "unacknowledged"
	ResultAssigned       = "assigned"
	ResultUnassigned     = "unassigned"
	ResultLate           = "late" // it changes no state: stale, overtaken, or the Incident was Resolved already
	ResultNoMatch        = "nomatch"
	ResultReplayed       = "replayed"
	ResultRestored       = "restored"
	ResultInvalid        = "invalid"
)

// Input is everything that a fold depends on. Nothing in it is modified.
type Input struct {
	Name     string                 // of the Incident
	Incident *v1alpha1.Incident     // as read; nil when there is none
	Events   []*v1alpha1.AlertEvent // those with an alert of this Incident that are listed for it, in any order
	Settled  []*v1alpha1.AlertEvent // settled earlier, and not among Events
	HasMore  bool                   // further events are not to be folded yet, all of them behind Events in commit order

	Listing    Listing
	Policy     Policy
	Forwarding KnownForwarding
	Now        time.Time // by the API server's clock, as all times that are compared with it

	ArchiveRequired bool // ended episodes are kept until the archive has them
}

// Listing knows which AlertEvents are listed for an Incident.
type Listing interface {
	// IsListed reports whether an AlertEvent is listed for this Incident: the quorum list, which began after the Incident was
	// read, has it without a mark for the Incident. A provisional plan goes by the cache instead.
	IsListed(uid string) bool

	// Version returns the place of an AlertEvent in commit order, see AllListed.
	Version(event *v1alpha1.AlertEvent) string
}

// AlertResult is the result of folding one alert.
type AlertResult struct {
	Result   string    // one of the result constants
	Received time.Time // when the alert was accepted
}

// Plan is the result of a fold: the writes for one Incident and their reasons.
type Plan struct {
	Create       *v1alpha1.IncidentSpec  // when not nil, no Incident is known: create it before deciding again
	Status       v1alpha1.IncidentStatus // to write
	Write        bool                    // Status differs from the stored one in more than a pruned ledger
	Urgent       bool                    // what people or the forwarding wait for: not to be delayed
	ObjectLabels map[string]string       // of an episode that begins, with AlertLabelPrefix; nil: none begins
	Transitions  []v1alpha1.Transition   // in order
	Results      []AlertResult           // one for each alert that was folded now, or found without an Incident or invalid
	ToSettle     []types.UID             // events that are settled for this Incident once the plan is carried out
	Unmatched    bool                    // some alert found no Incident: confirm the absence by a quorum read first
	LedgerFull   bool                    // some event has to wait for room in the ledger
	ByTime       bool                    // the time ended the episode or its acknowledgement: make sure that no alert was missed
	Omitted      int                     // ended episodes that will not be archived: too many others wait
}

// IsIdle reports whether nothing has to be done but to settle AlertEvents that the ledger has.
func (p *Plan) IsIdle() bool { return p.Create == nil && !p.Write && len(p.Results) == 0 }

// Decide folds AlertEvents into an Incident: those that are not settled yet, in commit order. It then resolves the Incident if
// no alert has come for too long, records its retention, and has the rules complete the status.
func Decide(in Input) Plan {
	f := openFold(in)
	for _, event := range f.pending() {
		if f.isFull() {
			f.plan.LedgerFull = true
			break // the later ones wait too: they must not overtake
		}
		f.foldEvent(event)
	}
	before := f.currentState()
	f.autoResolve()
	f.keepRetention()
	f.closeLedger()
	for _, r := range f.rules {
		r.finish(f, before)
	}
	if f.plan.Write {
		f.status.ObservedGeneration = f.in.Incident.Generation
	}
	return f.plan // it shares nothing with the input: openFold copies the status, and merging copies alerts
}

// folding is one fold under way.
type folding struct {
	in              Input                    // with an empty Incident if there is none
	rules           []rule                   // as Policy.allRules returns them
	spec            v1alpha1.IncidentSpec    // of the Incident; empty while there is none
	status          *v1alpha1.IncidentStatus // of the plan
	sizeBound       int                      // the content is not larger than this
	ledger          *ledgerBook
	unmatchedEvents []v1alpha1.LedgerEntry // events that match nothing, as there is no Incident; none if it has a status
	plan            Plan
}

// rule is what a feature adds to the life cycle, at certain moments of a fold. All that the feature decides lies in the file of
// its rule; what others must know of holds, flapping and muting, in forwarding.go, and what a missing sender keeps open, in
// policy.go. A rule embeds noRule for the other moments.
type rule interface {
	begin(f *folding)                                      // before the first alert
	opens(f *folding)                                      // an episode is about to open; the status still has the last one, if any
	ends(f *folding)                                       // the episode has ended
	alert(f *folding, a receivedAlert, before stateBefore) // an alert has been folded
	finish(f *folding, beforeTime stateBefore)             // all alerts have been folded, and the time may have ended the episode

	// takeReport folds a report that the life cycle does not know, and returns its result; empty for all other alerts.
	takeReport(f *folding, a receivedAlert) (result string)

	// due returns when the rule changes the Incident if no alert comes until then; zero if it does not. It is folded at that time,
	// even if it is Resolved. The rule must change it then: otherwise it is folded again and again.
	due(status *v1alpha1.IncidentStatus, p *Policy) time.Time

	// muted returns what a status notes that mutes the Incident; nil if it notes nothing.
	muted(status *v1alpha1.IncidentStatus) *Muted

	// bare adapts a status whose content is left out.
	bare(status, stored *v1alpha1.IncidentStatus, p *Policy, now time.Time)
}

// rules are those of all features. The order matters where a rule reads what an earlier one has decided in the same fold.
var rules = [...]rule{
	acknowledgementRule{}, // acknowledgements expire
	holdRule{},            // an episode is not forwarded yet
	flappingRule{},        // the end of an episode that was forwarded is not forwarded yet
	muteRule{},            // a maintenance window mutes the Incident
	forwardingRule{},      // whether people are told: not of what a silence covers, is held back or muted
	archiveRule{},         // ended episodes wait for the archive, in the version that the whole fold makes of them
	assignmentRule{},      // who works on the episode; as the next one opens, the rules before still see it
	clockRule{},           // times of the future become now, after the rules that look for them; of an acknowledgement, at once
}

// stateBefore is what an Incident was before an alert was folded, or before the time changed it.
type stateBefore struct {
	isOpen    bool
	forwarded v1alpha1.Severity // the severity with which it is forwarded, unless it is muted; empty while it is held back
}

// currentState returns what the Incident is now, to be compared with what it becomes.
func (f *folding) currentState() stateBefore {
	s := stateBefore{f.status.State == v1alpha1.IncidentOpen, ForwardedSeverity(f.status)}
	if s.isOpen && f.isNotForwarded() {
		s.forwarded = ""
	}
	return s
}

func openFold(in Input) *folding {
	if in.Incident == nil {
		in.Incident = &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Generation: 1}} // as the API server will make it
	}
	stored := &in.Incident.Status
	f := &folding{in: in, spec: in.Incident.Spec, sizeBound: alertcontent.Size(&stored.Alert)}
	f.plan.Status, f.status = *stored.DeepCopy(), &f.plan.Status
	f.rules = in.Policy.allRules()
	f.ledger = openLedger(stored.Ledger, in.Incident.ResourceVersion, in.Listing)
	if stored.State == "" {
		f.unmatchedEvents = f.settledUnmatched()
	}
	for _, r := range f.rules {
		r.begin(f)
	}
	return f
}

// isFull reports whether the ledger has no space for another event. AlertEvents that matched nothing before are entered
// when the Incident opens, so they need space, too.
func (f *folding) isFull() bool {
	needed := 1
	if f.plan.Write {
		needed += len(f.unmatchedEvents)
	}
	return f.ledger.space() < needed
}

// pending returns the events that are not settled, in commit order, and notes those that are.
func (f *folding) pending() []versionedEvent {
	var pending []versionedEvent
	seen := map[types.UID]bool{}
	for _, event := range f.in.Events {
		uid := string(event.UID)
		switch {
		case seen[event.UID] || !f.in.Listing.IsListed(uid) || !f.concerns(event):
			continue
		case f.ledger.has(uid):
			f.plan.ToSettle = append(f.plan.ToSettle, event.UID)
		default:
			pending = append(pending, versionedEvent{event, f.in.Listing.Version(event)})
		}
		seen[event.UID] = true
	}
	slices.SortFunc(pending, inCommitOrder)
	return pending
}

// concerns reports whether an event has an alert of this Incident.
func (f *folding) concerns(event *v1alpha1.AlertEvent) bool {
	for i := range event.Alerts {
		if event.IncidentNameFor(&event.Alerts[i]) == f.in.Name {
			return true
		}
	}
	return false
}

// settledUnmatched returns the events that earlier folds found without an Incident and that still exist.
func (f *folding) settledUnmatched() []v1alpha1.LedgerEntry {
	var entries []v1alpha1.LedgerEntry
	for _, event := range f.in.Settled {
		if entry := entryOf(event); f.in.Listing.IsListed(entry.UID) && !f.ledger.has(entry.UID) {
			entries = append(entries, entry)
		}
	}
	return entries
}

// foldEvent folds an event: all its alerts of this Incident, in their order.
func (f *folding) foldEvent(event versionedEvent) {
	arrived := receivedAlert{
		received:    ReceivedTime(event.AlertEvent),
		quietSince:  quietSince(event.AlertEvent),
		stored:      storedTime(event.AlertEvent),
		defaults:    event.Spec.Defaults,
		integration: cmp.Or(event.Spec.IntegrationName, f.spec.IntegrationName),
		overtaken:   f.ledger.isOvertaken(event.version),
	}
	unmatched, enters := false, false
	for i := range event.Alerts {
		arrived.Alert = &event.Alerts[i]
		if event.IncidentNameFor(arrived.Alert) != f.in.Name {
			continue
		}
		result := f.foldAlert(arrived)
		switch result {
		case ResultInvalid:
		case ResultNoMatch:
			unmatched = true
		default:
			enters = true
			f.ledger.digest.Add(AlertID(event.AlertEvent, i))
		}
		f.plan.Results = append(f.plan.Results, AlertResult{Result: result, Received: arrived.received})
	}
	switch {
	case enters:
		f.ledger.add(entryOf(event.AlertEvent))
		f.ledger.advance(event.version)
		f.plan.Write = true
	case unmatched:
		f.unmatchedEvents = append(f.unmatchedEvents, entryOf(event.AlertEvent))
	}
	f.plan.Unmatched = f.plan.Unmatched || unmatched
	f.plan.ToSettle = append(f.plan.ToSettle, event.UID)
}

// foldAlert folds one alert and returns its result.
func (f *folding) foldAlert(a receivedAlert) string {
	switch {
	case f.spec.IntegrationName != "": // what the alert tells of the Incident must be right
		if a.integration != f.spec.IntegrationName || a.DedupKey != "" && a.DedupKey != f.spec.DedupKey {
			return ResultInvalid
		}
	case isFollowUp(a.Status), a.integration == "", a.DedupKey == "":
		return ResultNoMatch
	case v1alpha1.IncidentName(a.integration, a.DedupKey) != f.in.Name:
		return ResultInvalid
	default:
		f.plan.Create = &v1alpha1.IncidentSpec{IntegrationName: a.integration, DedupKey: a.DedupKey}
		f.spec = *f.plan.Create
	}
	before := f.currentState()
	result := f.apply(a)
	for _, r := range f.rules {
		r.alert(f, a, before)
	}
	return result
}

// hasWaitingAlerts reports whether alerts of the Incident are still to be folded, so that nothing may end for its age.
func (f *folding) hasWaitingAlerts() bool { return f.plan.LedgerFull || f.in.HasMore }

// autoResolve resolves an Open Incident whose deadline has come or whose expiry has ended, unless alerts of it still wait.
func (f *folding) autoResolve() {
	if f.hasWaitingAlerts() || f.status.State != v1alpha1.IncidentOpen {
		return
	}
	at, expires := openDeadline(f.written(), &f.in.Policy)
	if at.IsZero() || f.in.Now.Before(at) {
		return
	}
	reason, message := v1alpha1.ReasonAutoResolved, messageAutoResolved
	entry := v1alpha1.Transition{Type: v1alpha1.TransitionResolved, Time: *timestamp(f.in.Now)}
	entry.Message = fmt.Sprintf("Resolved after %s without an alert", f.in.Policy.AutoResolveAfter)
	if expires {
		reason, message = v1alpha1.ReasonExpired, messageExpired
		entry.Message = fmt.Sprintf("Expired: the sender did not repeat the alert for %s", boundExpiry(f.status.Expiry.Duration))
	}
	f.resolve(reason, message, entry)
	f.plan.Write, f.plan.ByTime = true, true
}

// keepRetention records in the status what decides on the Incident's deletion once its integration is deleted. The retention is
// written with the next change, and at the latest when the integration goes: a change of it costs no writes, however many
// Incidents there are. orphanedTime is written once, when the retention is over: so an integration that is deleted costs none
// before that.
func (f *folding) keepRetention() {
	status, p := f.status, &f.in.Policy
	if status.State == "" {
		return
	}
	if (!p.Absent || p.RetentionKnown) && durationOr(status.Retention, DefaultRetention) != p.Retention {
		status.Retention = &metav1.Duration{Duration: p.Retention}
		f.plan.Write = f.plan.Write || p.Absent
	}
	switch {
	case !p.Absent:
		if isSet(status.OrphanedTime) {
			status.OrphanedTime = nil
			f.plan.Write = true
		}
	case status.State == v1alpha1.IncidentResolved && !isSet(status.OrphanedTime):
		if at, ok := Deadline(f.written(), *p); ok && !f.in.Now.Before(at) {
			status.OrphanedTime = timestamp(f.in.Now)
			f.plan.Write = true
		}
	}
}

// written is the Incident as it is to be written.
func (f *folding) written() *v1alpha1.Incident {
	return &v1alpha1.Incident{ObjectMeta: f.in.Incident.ObjectMeta, Spec: f.spec, Status: *f.status}
}

// closeLedger writes the ledger to the status.
func (f *folding) closeLedger() {
	if f.plan.Write {
		// What came before the Incident is settled with it, and must not be found again as its own.
		f.ledger.addBefore(f.unmatchedEvents)
	}
	f.status.Ledger = f.ledger.close()
}

// AlertID tells an alert from every other one; the one made by hand gets its place as its id.
func AlertID(event *v1alpha1.AlertEvent, index int) string {
	if id := event.Alerts[index].ID; id != "" {
		return id
	}
	return fmt.Sprintf("%s/%d", event.UID, index)
}

// Due is when a rule changes an Incident if no alert comes until then; zero if none does.
func Due(incident *v1alpha1.Incident, p *Policy) (first time.Time) {
	for _, r := range p.allRules() {
		if at := r.due(&incident.Status, p); first.IsZero() || !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	return first
}

// noRule adds nothing.
type noRule struct{}

func (noRule) begin(*folding)                                             {}
func (noRule) opens(*folding)                                             {}
func (noRule) ends(*folding)                                              {}
func (noRule) alert(*folding, receivedAlert, stateBefore)                 {}
func (noRule) finish(*folding, stateBefore)                               {}
func (noRule) takeReport(*folding, receivedAlert) string                  { return "" }
func (noRule) due(*v1alpha1.IncidentStatus, *Policy) (never time.Time)    { return never }
func (noRule) muted(*v1alpha1.IncidentStatus) *Muted                      { return nil }
func (noRule) bare(_, _ *v1alpha1.IncidentStatus, _ *Policy, _ time.Time) {}
