package fold

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Results of folding one alert, in plans and metrics.
const (
	ResultOpened         = "opened"
	ResultUpdated        = "updated"
	ResultResolved       = "resolved"
	ResultReopened       = "reopened"
	ResultAcknowledged   = "acknowledged"
	ResultUnacknowledged = "unacknowledged"
	ResultSilenced       = "silenced"
	ResultLate           = "late"
	ResultNoMatch        = "nomatch"
	ResultReplayed       = "replayed"
	ResultRestored       = "restored"
	ResultInvalid        = "invalid"
)

// Input is everything that a fold depends on. Nothing in it is modified.
type Input struct {
	Name        string                 // of the Incident
	Incident    *v1alpha1.Incident     // as read; nil when there is none
	Events      []*v1alpha1.AlertEvent // those with an alert of this Incident that exist per the quorum list, in any order
	Settled     []*v1alpha1.AlertEvent // settled earlier, and not among Events
	Exists      func(uid string) bool  // whether an AlertEvent exists per the quorum list, which began after the Incident was read
	Copied      func(uid string) bool  // whether it has a quarantined copy of an AlertEvent's alerts of this Incident; nil: never
	Unconfirmed func(uid string) bool  // whether it has a quarantined AlertEvent that is not confirmed; nil: never
	Archived    IsArchived             // nil: episodes are not archived
	Policy      Policy
	Silencing   Silencing
	Now         time.Time
}

// AlertResult is the result of folding one alert.
type AlertResult struct {
	EventUID    types.UID
	Integration string
	Result      string    // one of the result constants
	Received    time.Time // when the alert was accepted
}

// Plan is the result of a fold: the writes for one Incident and their reasons.
type Plan struct {
	Create       *v1alpha1.IncidentSpec  // when not nil, there is no Incident: create it with this spec, then write the status
	Status       v1alpha1.IncidentStatus // to write
	Write        bool                    // Status differs from the stored one in more than a pruned ledger
	Urgent       bool                    // a first write or a change of state: not to be delayed
	Transitions  []v1alpha1.Transition   // in order
	Results      []AlertResult           // one for each alert that was folded now, or found without an Incident or invalid
	Settled      []types.UID             // events with no alert left for this Incident once the plan is carried out
	Unmatched    bool                    // some alert found no Incident: confirm the absence by a quorum read first
	LedgerFull   bool                    // some event has to wait for room in the ledger
	AutoResolved bool                    // the Incident resolves without an alert: make sure that no alert was missed
	Omitted      int                     // ended episodes that will not be archived: too many others wait
}

// IsIdle reports whether nothing has to be done but to settle AlertEvents that the ledger has.
func (p *Plan) IsIdle() bool { return p.Create == nil && !p.Write && len(p.Results) == 0 }

// Decide folds AlertEvents into an Incident: those that are not settled yet, in commit order. It then resolves the Incident
// if it has been silent for too long, and records whether it is silenced and how long it is to be kept.
func Decide(in Input) Plan {
	f := openFold(in)
	for _, event := range f.pending() {
		if f.isFull(event) {
			f.plan.LedgerFull = true
			break // the later ones wait too: they must not overtake
		}
		f.foldEvent(event)
	}
	f.autoResolve()
	f.updateSilenced()
	f.keepRetention()
	return f.close()
}

// folding is one fold under way.
type folding struct {
	in        Input
	spec      *v1alpha1.IncidentSpec // of the Incident; nil while there is none
	life      lifecycle
	ledger    *ledgerBook
	opens     bool                   // there was nothing but a name so far
	before    []v1alpha1.LedgerEntry // events that earlier folds found without an Incident, and that still exist
	unmatched []v1alpha1.LedgerEntry // events whose alerts came before there was an Incident
	plan      Plan
}

func openFold(in Input) *folding {
	if in.Copied == nil {
		in.Copied = func(string) bool { return false }
	}
	if in.Unconfirmed == nil {
		in.Unconfirmed = func(string) bool { return false }
	}
	f := &folding{in: in, opens: true}
	incident := in.Incident
	if incident == nil {
		incident = &v1alpha1.Incident{}
		incident.Generation = 1 // as the API server will make it
	} else {
		f.spec = &incident.Spec
		f.opens = incident.Status.State == ""
	}
	f.plan.Status = *incident.Status.DeepCopy()
	f.life = lifecycle{
		status:     &f.plan.Status,
		generation: incident.Generation,
		sizeBound:  incident.Status.Alert.EncodedSize(),
		lateWindow: f.in.Policy.LateFiringWindow,
	}
	f.ledger = openLedger(incident.Status.Ledger, incident.ResourceVersion, func(uid string) bool {
		return in.Exists(uid) || in.Copied(uid)
	})
	if f.opens {
		f.before = f.settledBefore()
	}
	f.dropArchived()
	f.life.reopening = f.keepEpisode
	return f
}

// isFull reports whether the ledger has no space for the event, and its origin if it is quarantined. Events from before the
// Incident enter it with the first event that opens it, and need their space from then on.
func (f *folding) isFull(event *v1alpha1.AlertEvent) bool {
	reserved := len(ledgerEntries(event))
	if f.opens && f.plan.Write {
		reserved += len(f.before) + len(f.unmatched)
	}
	return f.ledger.present+reserved > v1alpha1.MaxLedger
}

// ledgerEntries are the entries by which a ledger knows an event: its own, and behind a quarantined one's that of the
// event from which its alerts were moved.
func ledgerEntries(event *v1alpha1.AlertEvent) []v1alpha1.LedgerEntry {
	entries := []v1alpha1.LedgerEntry{{UID: string(event.UID), Name: event.Name}}
	if from, ok := OriginOf(event); ok {
		entries = append(entries, v1alpha1.LedgerEntry{UID: from.UID, Name: from.Name})
	}
	return entries
}

// pending returns the events that are not settled, in commit order, and notes those that are.
func (f *folding) pending() []*v1alpha1.AlertEvent {
	var pending []*v1alpha1.AlertEvent
	seen := map[types.UID]bool{}
	for _, event := range f.in.Events {
		uid := string(event.UID)
		if seen[event.UID] || !f.in.Exists(uid) || f.in.Copied(uid) || !f.concerns(event) {
			continue
		}
		seen[event.UID] = true
		pending = append(pending, event)
	}
	slices.SortFunc(pending, InCommitOrder)
	return slices.DeleteFunc(pending, func(event *v1alpha1.AlertEvent) bool {
		settled := f.isSettled(event)
		if settled {
			f.plan.Settled = append(f.plan.Settled, event.UID)
		}
		return settled
	})
}

// isSettled reports whether the ledger has an event or, for a quarantined one, the event from which its alerts were moved.
// A quarantined one that was not confirmed while its origin existed was made too late: its alerts were folded before.
func (f *folding) isSettled(event *v1alpha1.AlertEvent) bool {
	entries := ledgerEntries(event)
	if len(entries) > 1 && f.in.Unconfirmed(string(event.UID)) && !f.in.Exists(entries[1].UID) {
		return true
	}
	return slices.ContainsFunc(entries, func(entry v1alpha1.LedgerEntry) bool { return f.ledger.has(entry.UID) })
}

// concerns reports whether an event has an alert of this Incident.
func (f *folding) concerns(event *v1alpha1.AlertEvent) bool {
	for i := range event.Spec.Alerts {
		if event.IncidentNameFor(&event.Spec.Alerts[i]) == f.in.Name {
			return true
		}
	}
	return false
}

// settledBefore are the events that earlier folds found without an Incident and that still exist.
func (f *folding) settledBefore() []v1alpha1.LedgerEntry {
	var entries []v1alpha1.LedgerEntry
	for _, event := range f.in.Settled {
		if uid := string(event.UID); !f.in.Exists(uid) || f.in.Copied(uid) {
			continue // gone, or to be settled by its copy
		}
		for _, entry := range ledgerEntries(event) {
			if !f.ledger.has(entry.UID) {
				entries = append(entries, entry)
			}
		}
	}
	return entries
}

// foldEvent settles an event: all its alerts of this Incident, in their order.
func (f *folding) foldEvent(event *v1alpha1.AlertEvent) {
	entries := ledgerEntries(event)
	first := entries[len(entries)-1]
	isCopy, version := f.ledger.isCopy(first.UID, first.Name), CommitVersion(event)
	arrived := receivedAlert{
		received:  ReceivedTime(event),
		heard:     heardTime(event),
		defaults:  event.Spec.Defaults,
		overtaken: f.ledger.isLate(version),
	}
	unmatched, enters := false, isCopy
	for i := range event.Spec.Alerts {
		arrived.Alert = &event.Spec.Alerts[i]
		if event.IncidentNameFor(arrived.Alert) != f.in.Name {
			continue
		}
		result := ResultReplayed
		if !isCopy {
			result = f.foldAlert(event, arrived)
		}
		switch result {
		case ResultInvalid, ResultReplayed:
		case ResultNoMatch:
			unmatched = true
		default:
			enters = true
			f.ledger.count(AlertID(event, i))
			f.ledger.advance(version)
		}
		f.plan.Results = append(f.plan.Results, AlertResult{
			EventUID:    event.UID,
			Integration: cmp.Or(event.Spec.IntegrationName, f.integration()),
			Result:      result,
			Received:    arrived.received,
		})
	}
	switch {
	case enters:
		for _, entry := range slices.Backward(entries) {
			f.ledger.add(entry.UID, entry.Name, f.in.Exists(entry.UID))
		}
		f.plan.Write = true
	case unmatched:
		f.unmatched = append(f.unmatched, entries...)
	}
	f.plan.Unmatched = f.plan.Unmatched || unmatched
	f.plan.Settled = append(f.plan.Settled, event.UID)
}

// foldAlert settles one alert and returns its result.
func (f *folding) foldAlert(event *v1alpha1.AlertEvent, a receivedAlert) string {
	switch {
	case f.spec != nil:
		if !belongs(event, a.Alert, f.spec) {
			return ResultInvalid
		}
	case isReport(a.Status), event.Spec.IntegrationName == "", a.DedupKey == "":
		return ResultNoMatch
	case v1alpha1.IncidentName(event.Spec.IntegrationName, a.DedupKey) != f.in.Name:
		return ResultInvalid
	default:
		f.plan.Create = &v1alpha1.IncidentSpec{IntegrationName: event.Spec.IntegrationName, DedupKey: a.DedupKey}
		f.spec = f.plan.Create
	}
	a.integration = f.spec.IntegrationName
	return f.life.apply(a)
}

// belongs reports whether the integration and the key of an alert, if given, are those of the Incident.
func belongs(event *v1alpha1.AlertEvent, alert *v1alpha1.Alert, spec *v1alpha1.IncidentSpec) bool {
	integration := event.Spec.IntegrationName
	return (integration == "" || integration == spec.IntegrationName) &&
		(alert.DedupKey == "" || alert.DedupKey == spec.DedupKey)
}

// autoResolve resolves an Open Incident whose deadline has come or whose lease has ended, unless alerts of it still wait.
func (f *folding) autoResolve() {
	if f.plan.LedgerFull || f.in.Policy.Untrusted || f.plan.Status.State != v1alpha1.IncidentOpen {
		return
	}
	at, expires, ok := openDeadline(f.written(), f.in.Policy)
	if !ok || f.in.Now.Before(at) {
		return
	}
	if expires {
		f.life.expire(f.in.Now)
	} else {
		f.life.autoResolve(f.in.Now, f.in.Policy.AutoResolveAfter)
	}
	f.plan.Write, f.plan.AutoResolved = true, true
}

// keepRetention records in the status what decides on the Incident's deletion once its integration is deleted: the retention,
// and, if its time is up, when that was. The latter is written once, when the Incident would be deleted otherwise, so an
// integration that goes costs no writes, however many Incidents it leaves behind.
func (f *folding) keepRetention() {
	status, p := &f.plan.Status, &f.in.Policy
	switch {
	case status.State == "":
	case !p.Absent:
		if retentionOf(status) != p.Retention {
			status.Retention = &metav1.Duration{Duration: p.Retention}
			f.plan.Write = true
		}
		if isSet(status.OrphanedTime) {
			status.OrphanedTime = nil
			f.plan.Write = true
		}
	case status.State == v1alpha1.IncidentResolved && !p.Untrusted && !isSet(status.OrphanedTime):
		if at, ok := Deadline(f.written(), f.in.Policy); ok && !f.in.Now.Before(at) {
			status.OrphanedTime = timestamp(f.in.Now)
			f.plan.Write = true
		}
	}
}

// written is the Incident as it is to be written.
func (f *folding) written() *v1alpha1.Incident {
	incident := &v1alpha1.Incident{Status: f.plan.Status}
	if f.in.Incident != nil {
		incident.CreationTimestamp = f.in.Incident.CreationTimestamp
	}
	return incident
}

// close completes the plan. It shares nothing with the input: openFold copies the status, and merging copies alerts.
func (f *folding) close() Plan {
	if f.opens && f.plan.Write {
		// What came before the Incident is settled with it, and must not be found again as its own.
		f.ledger.addBefore(slices.Concat(f.before, f.unmatched))
	}
	f.plan.Status.Ledger = f.ledger.close()
	if f.plan.Write {
		f.plan.Status.ObservedGeneration = f.life.generation
	}
	f.plan.Urgent = f.life.urgent
	f.plan.Transitions = f.life.transitions
	return f.plan
}

func (f *folding) integration() string {
	if f.spec == nil {
		return ""
	}
	return f.spec.IntegrationName
}

// AlertID tells an alert from every other one; the one made by hand gets its place as its id.
func AlertID(event *v1alpha1.AlertEvent, index int) string {
	if id := event.Spec.Alerts[index].ID; id != "" {
		return id
	}
	return fmt.Sprintf("%s/%d", event.UID, index)
}
