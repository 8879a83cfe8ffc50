package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// What became of one alert, as the results of a plan and the metrics name it.
const (
	resultOpened       = "opened"
	resultUpdated      = "updated"
	resultResolved     = "resolved"
	resultReopened     = "reopened"
	resultAcknowledged = "acknowledged"
	resultLate         = "late"
	resultNoMatch      = "nomatch"
	resultReplayed     = "replayed"
	resultRestored     = "restored"
	resultInvalid      = "invalid"
)

// policy is what the integration asks for its Incidents.
type policy struct {
	autoResolveAfter time.Duration // 0: never
	retention        time.Duration
	lateFiringWindow time.Duration // 0: no firing is late
	absent           bool          // there is no such integration

	silentFrom time.Time // silence is measured from then on at the earliest
	untrusted  bool      // nothing may end for its age, see Listening.silentFrom
}

// foldInput is everything that a fold depends on. Nothing in it is modified.
type foldInput struct {
	name     string                 // of the Incident
	incident *v1alpha1.Incident     // as read; nil when there is none
	events   []*v1alpha1.AlertEvent // those with an alert of this Incident that exist per the quorum list, in any order
	before   []*v1alpha1.AlertEvent // those that were settled earlier, and are not among events
	exists   func(uid string) bool  // whether an AlertEvent exists per the quorum list, which began after the Incident was read
	copied   func(uid string) bool  // whether it has a quarantined copy of an AlertEvent's alerts of this Incident; nil: never
	void     func(uid string) bool  // whether it has a quarantined AlertEvent that nobody confirmed; nil: never
	policy   policy
	now      time.Time
}

// alertResult is what became of one alert.
type alertResult struct {
	eventUID    types.UID
	integration string
	result      string    // one of the result constants
	received    time.Time // when the alert was accepted
}

// plan is what has to be done for one Incident.
type plan struct {
	create      *v1alpha1.IncidentSpec  // when not nil, there is no Incident: create it with this spec, then write the status
	status      v1alpha1.IncidentStatus // what to write
	write       bool                    // status differs from what is stored in more than a pruned ledger
	urgent      bool                    // a first write or a change of state: not to be delayed
	transitions []v1alpha1.Transition   // what happened, in order
	results     []alertResult           // one for each alert that was folded now, or found without an Incident or invalid
	settled     []types.UID             // events with no alert left for this Incident once the plan is carried out
	unmatched   bool                    // some alert found no Incident: confirm the absence by a quorum read first
	ledgerFull  bool                    // some event has to wait for room in the ledger
	silent      bool                    // the Incident resolves for silence: make sure that no alert was missed
}

// fold decides what the events mean for the Incident: it brings them into commit order, takes in each that
// is not settled yet, and then sees whether the Incident has been silent for too long, and notes how long it is to be kept.
func fold(in foldInput) plan {
	f := openFold(in)
	for _, event := range f.pending() {
		if f.isFull(event) {
			f.plan.ledgerFull = true
			break // the later ones wait too: they must not overtake
		}
		f.takeIn(event)
	}
	f.autoResolve()
	f.keepRetention()
	return f.close()
}

// folding is one fold under way.
type folding struct {
	in        foldInput
	spec      *v1alpha1.IncidentSpec // of the Incident; nil while there is none
	life      lifecycle
	ledger    *ledgerBook
	opens     bool                   // there was nothing but a name so far
	before    []v1alpha1.LedgerEntry // events that earlier folds found without an Incident, and that still exist
	unmatched []v1alpha1.LedgerEntry // events whose alerts came before there was an Incident
	plan      plan
}

func openFold(in foldInput) *folding {
	if in.copied == nil {
		in.copied = func(string) bool { return false }
	}
	if in.void == nil {
		in.void = func(string) bool { return false }
	}
	f := &folding{in: in, opens: true}
	incident := in.incident
	if incident == nil {
		incident = &v1alpha1.Incident{}
		incident.Generation = 1 // as the API server will make it
	} else {
		f.spec = &incident.Spec
		f.opens = incident.Status.State == ""
	}
	f.plan.status = *incident.Status.DeepCopy()
	f.life = lifecycle{
		status:     &f.plan.status,
		generation: incident.Generation,
		sizeBound:  incident.Status.Alert.EncodedSize(),
		lateWindow: f.in.policy.lateFiringWindow,
	}
	f.ledger = openLedger(incident.Status.Ledger, incident.ResourceVersion, func(uid string) bool {
		return in.exists(uid) || in.copied(uid)
	})
	if f.opens {
		f.before = f.settledBefore()
	}
	return f
}

// isFull says that the ledger has no room for the event, and its origin if it is quarantined. What came before the
// Incident enters it with the first event that opens it, and so has its place from then on.
func (f *folding) isFull(event *v1alpha1.AlertEvent) bool {
	reserved := len(ledgerEntries(event))
	if f.opens && f.plan.write {
		reserved += len(f.before) + len(f.unmatched)
	}
	return f.ledger.present+reserved > v1alpha1.MaxLedger
}

// ledgerEntries are the entries by which a ledger knows an event: its own, and behind a quarantined one's that of the
// event from which its alerts were moved.
func ledgerEntries(event *v1alpha1.AlertEvent) []v1alpha1.LedgerEntry {
	entries := []v1alpha1.LedgerEntry{{UID: string(event.UID), Name: event.Name}}
	if from, ok := originOf(event); ok {
		entries = append(entries, v1alpha1.LedgerEntry{UID: from.uid, Name: from.name})
	}
	return entries
}

// pending returns the events that are not settled, in commit order, and notes those that are.
func (f *folding) pending() []*v1alpha1.AlertEvent {
	var pending []*v1alpha1.AlertEvent
	seen := map[types.UID]bool{}
	for _, event := range f.in.events {
		uid := string(event.UID)
		if seen[event.UID] || !f.in.exists(uid) || f.in.copied(uid) || !f.concerns(event) {
			continue
		}
		seen[event.UID] = true
		pending = append(pending, event)
	}
	slices.SortFunc(pending, inCommitOrder)
	return slices.DeleteFunc(pending, func(event *v1alpha1.AlertEvent) bool {
		settled := f.isSettled(event)
		if settled {
			f.plan.settled = append(f.plan.settled, event.UID)
		}
		return settled
	})
}

// isSettled says whether the ledger has an event or, of a quarantined one, that from which its alerts were moved. A
// quarantined one that nobody confirmed while its origin existed was made too late: what it holds was folded before.
func (f *folding) isSettled(event *v1alpha1.AlertEvent) bool {
	entries := ledgerEntries(event)
	if len(entries) > 1 && f.in.void(string(event.UID)) && !f.in.exists(entries[1].UID) {
		return true
	}
	return slices.ContainsFunc(entries, func(entry v1alpha1.LedgerEntry) bool { return f.ledger.has(entry.UID) })
}

// concerns says whether an event has an alert of this Incident.
func (f *folding) concerns(event *v1alpha1.AlertEvent) bool {
	for i := range event.Spec.Alerts {
		if event.IncidentNameFor(&event.Spec.Alerts[i]) == f.in.name {
			return true
		}
	}
	return false
}

// settledBefore are the events that earlier folds found without an Incident and that still exist.
func (f *folding) settledBefore() []v1alpha1.LedgerEntry {
	var entries []v1alpha1.LedgerEntry
	for _, event := range f.in.before {
		if uid := string(event.UID); !f.in.exists(uid) || f.in.copied(uid) {
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

// takeIn settles an event: all its alerts of this Incident, in their order.
func (f *folding) takeIn(event *v1alpha1.AlertEvent) {
	entries := ledgerEntries(event)
	first := entries[len(entries)-1]
	isCopy, version := f.ledger.isCopy(first.UID, first.Name), commitVersion(event)
	arrived := arrivedAlert{
		received:  receivedTime(event),
		heard:     heardTime(event),
		defaults:  event.Spec.Defaults,
		overtaken: f.ledger.isLate(version),
	}
	unmatched, enters := false, isCopy
	for i := range event.Spec.Alerts {
		arrived.Alert = &event.Spec.Alerts[i]
		if event.IncidentNameFor(arrived.Alert) != f.in.name {
			continue
		}
		result := resultReplayed
		if !isCopy {
			result = f.takeInAlert(event, arrived)
		}
		switch result {
		case resultInvalid, resultReplayed:
		case resultNoMatch:
			unmatched = true
		default:
			enters = true
			f.ledger.count(alertID(event, i))
			f.ledger.advance(version)
		}
		f.plan.results = append(f.plan.results, alertResult{
			eventUID:    event.UID,
			integration: cmp.Or(event.Spec.IntegrationName, f.integration()),
			result:      result,
			received:    arrived.received,
		})
	}
	switch {
	case enters:
		for _, entry := range slices.Backward(entries) {
			f.ledger.add(entry.UID, entry.Name, f.in.exists(entry.UID))
		}
		f.plan.write = true
	case unmatched:
		f.unmatched = append(f.unmatched, entries...)
	}
	f.plan.unmatched = f.plan.unmatched || unmatched
	f.plan.settled = append(f.plan.settled, event.UID)
}

// takeInAlert settles one alert and returns its result.
func (f *folding) takeInAlert(event *v1alpha1.AlertEvent, a arrivedAlert) string {
	switch {
	case f.spec != nil:
		if !belongs(event, a.Alert, f.spec) {
			return resultInvalid
		}
	case isReport(a.Status), event.Spec.IntegrationName == "", a.DedupKey == "":
		return resultNoMatch
	case v1alpha1.IncidentName(event.Spec.IntegrationName, a.DedupKey) != f.in.name:
		return resultInvalid
	default:
		f.plan.create = &v1alpha1.IncidentSpec{IntegrationName: event.Spec.IntegrationName, DedupKey: a.DedupKey}
		f.spec = f.plan.create
	}
	a.integration = f.spec.IntegrationName
	return f.life.apply(a)
}

// belongs says whether what an alert tells of its integration and key agrees with the Incident.
func belongs(event *v1alpha1.AlertEvent, alert *v1alpha1.Alert, spec *v1alpha1.IncidentSpec) bool {
	integration := event.Spec.IntegrationName
	return (integration == "" || integration == spec.IntegrationName) &&
		(alert.DedupKey == "" || alert.DedupKey == spec.DedupKey)
}

// autoResolve resolves an Open Incident whose deadline has come, unless alerts of it still wait.
func (f *folding) autoResolve() {
	if f.plan.ledgerFull || f.in.policy.untrusted || f.plan.status.State != v1alpha1.IncidentOpen {
		return
	}
	if at, ok := f.deadline(); ok && !f.in.now.Before(at) {
		f.life.autoResolve(f.in.now, f.in.policy.autoResolveAfter)
		f.plan.write, f.plan.silent = true, true
	}
}

// keepRetention notes in the status what the Incident's deletion goes by when its integration is gone: the retention,
// and, if its time is up, when that was. The latter is written once, when the Incident would be deleted otherwise, so an
// integration that goes costs no writes, however many Incidents it leaves behind.
func (f *folding) keepRetention() {
	status, p := &f.plan.status, &f.in.policy
	switch {
	case status.State == "":
	case !p.absent:
		if retentionOf(status) != p.retention {
			status.Retention = &metav1.Duration{Duration: p.retention}
			f.plan.write = true
		}
		if isSet(status.OrphanedTime) {
			status.OrphanedTime = nil
			f.plan.write = true
		}
	case status.State == v1alpha1.IncidentResolved && !p.untrusted && !isSet(status.OrphanedTime):
		if at, ok := f.deadline(); ok && !f.in.now.Before(at) {
			status.OrphanedTime = timestamp(f.in.now)
			f.plan.write = true
		}
	}
}

// deadline is that of the Incident as it is to be written.
func (f *folding) deadline() (at time.Time, ok bool) {
	incident := v1alpha1.Incident{Status: f.plan.status}
	if f.in.incident != nil {
		incident.CreationTimestamp = f.in.incident.CreationTimestamp
	}
	return deadline(&incident, f.in.policy)
}

// close completes the plan. What it holds is shared with no input.
func (f *folding) close() plan {
	if f.opens && f.plan.write {
		// What came before the Incident is settled with it, and must not be found again as its own.
		f.ledger.addBefore(slices.Concat(f.before, f.unmatched))
	}
	f.plan.status.Ledger = f.ledger.close()
	if f.plan.write {
		f.plan.status.ObservedGeneration = f.life.generation
		f.plan.status.Alert = *f.plan.status.Alert.DeepCopy()
	}
	f.plan.urgent = f.life.urgent
	f.plan.transitions = f.life.transitions
	return f.plan
}

func (f *folding) integration() string {
	if f.spec == nil {
		return ""
	}
	return f.spec.IntegrationName
}

// alertID tells an alert from every other one; the one made by hand gets its place as its id.
func alertID(event *v1alpha1.AlertEvent, index int) string {
	if id := event.Spec.Alerts[index].ID; id != "" {
		return id
	}
	return fmt.Sprintf("%s/%d", event.UID, index)
}
