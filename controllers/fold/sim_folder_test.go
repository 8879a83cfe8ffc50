package fold

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// simFolder is a leader of the simulation: a cache that lags behind, a memory of what is settled, and one
// fold under way. It takes the steps of the algorithm one by one, so anything can happen between them.
type simFolder struct {
	sim    *simulation
	cache  map[types.UID]*v1alpha1.AlertEvent
	memory map[types.UID]map[string]bool
	job    *simJob
}

// simJob is one fold under way.
type simJob struct {
	name     string
	next     func() (done bool, err error)
	incident *v1alpha1.Incident
	exist    map[string]bool
	copies   map[string]map[string]string // labels of quarantined events that exist, by name
	void     map[string]bool              // those of them that nobody confirmed, by UID
	view     []*v1alpha1.AlertEvent
	before   []*v1alpha1.AlertEvent // what is passed over, being settled
	now      simMoment
	plan     Plan

	// Of a quarantine: the event, and its copy once it is known.
	event, moved *v1alpha1.AlertEvent
}

func newSimFolder(sim *simulation) *simFolder {
	return &simFolder{sim: sim, cache: map[types.UID]*v1alpha1.AlertEvent{}, memory: map[types.UID]map[string]bool{}}
}

// crash loses everything but what is stored.
func (f *simFolder) crash() { *f = *newSimFolder(f.sim) }

// begin starts a fold by reading the Incident, maybe an old version of it.
func (f *simFolder) begin(name string, lag int) {
	job := &simJob{name: name, incident: f.sim.cluster.staleIncident(name, lag)}
	job.next = f.list
	f.job = job
}

// step takes the next step of the fold under way.
func (f *simFolder) step() error {
	if f.job == nil {
		return nil
	}
	done, err := f.job.next()
	if done {
		f.job = nil
	}
	if errors.Is(err, errSimConflict) || errors.Is(err, errSimExists) {
		f.job = nil // start over
		return nil
	}
	return err
}

func (f *simFolder) run() error {
	for f.job != nil {
		if err := f.step(); err != nil {
			return err
		}
	}
	return nil
}

func (f *simFolder) list() (bool, error) {
	f.job.exist = f.sim.cluster.listEvents()
	if f.sim.bug == bugNoQuorumList {
		f.job.exist = map[string]bool{}
		for uid := range f.cache {
			f.job.exist[string(uid)] = true
		}
	}
	f.job.copies, f.job.void = map[string]map[string]string{}, map[string]bool{}
	for uid, event := range f.sim.cluster.events {
		if v1alpha1.IsQuarantineName(event.Name) {
			f.job.copies[event.Name] = f.sim.cluster.labels[uid]
			f.job.void[string(uid)] = IsUnconfirmed(f.sim.cluster.labels[uid])
		}
	}
	f.job.next = f.decide
	return false, nil
}

// copied reports whether the quorum list has a copy of the event's alerts for the Incident.
func (j *simJob) copied(uid string) bool {
	_, ok := j.copies[v1alpha1.QuarantineName(uid, j.name)]
	return ok
}

// isCopyOfMoved reports whether the event is a second copy of one that the cache has in quarantine for the Incident.
func (f *simFolder) isCopyOfMoved(event *v1alpha1.AlertEvent) bool {
	for _, moved := range f.cache {
		from, ok := OriginOf(moved)
		if ok && slices.Contains(incidentsOf(moved), f.job.name) && v1alpha1.IsGeneratedEventName(event.Name) &&
			from.Name == event.Name && from.UID != string(event.UID) {
			f.remember(event.UID, f.job.name)
			return true
		}
	}
	return false
}

// quarantine starts to move the alerts that an event in the cache has for an Incident, at fault or not.
func (f *simFolder) quarantine(name string, n int) {
	var events []*v1alpha1.AlertEvent
	for uid, event := range f.cache {
		// A second copy is settled by what became of the first, and is not moved itself.
		isSecond := slices.ContainsFunc(f.sim.cluster.all, func(other *v1alpha1.AlertEvent) bool {
			return other.Name == event.Name && v1alpha1.IsGeneratedEventName(event.Name) && other.UID != uid
		})
		if _, ok := OriginOf(event); !ok && !isSecond && slices.Contains(incidentsOf(event), name) && !f.memory[uid][name] {
			events = append(events, event)
		}
	}
	if len(events) == 0 {
		return
	}
	slices.SortFunc(events, func(a, b *v1alpha1.AlertEvent) int { return commitNumber(a) - commitNumber(b) })
	f.job = &simJob{name: name, event: events[n%len(events)]}
	f.job.next = f.createCopy
	if f.sim.bug == bugSettleBeforeCopy {
		f.remember(f.job.event.UID, name)
	}
}

func (f *simFolder) createCopy() (bool, error) {
	f.job.next = f.confirmCopy
	moved := QuarantineCopy(f.job.event, f.job.name)
	moved.CreationTimestamp = metav1.NewTime(f.sim.now)
	if f.sim.cluster.createEvent(moved) != nil {
		for _, event := range f.sim.cluster.events {
			if event.Name == moved.Name {
				moved = event
			}
		}
	}
	f.job.moved = moved
	if f.sim.cluster.labels[moved.UID] == nil {
		f.sim.cluster.labels[moved.UID] = moved.Labels
	}
	return false, nil
}

func (f *simFolder) confirmCopy() (bool, error) {
	f.job.next = f.labelCopy
	return f.sim.cluster.events[f.job.event.UID] == nil && f.sim.bug != bugNoConfirmation, nil
}

func (f *simFolder) labelCopy() (bool, error) {
	if f.sim.cluster.events[f.job.moved.UID] == nil {
		return true, nil
	}
	f.sim.cluster.labels[f.job.moved.UID] = map[string]string{v1alpha1.QuarantineLabel: v1alpha1.QuarantineRejected}
	f.remember(f.job.event.UID, f.job.name)
	return true, nil
}

func (f *simFolder) remember(uid types.UID, name string) {
	if f.memory[uid] == nil {
		f.memory[uid] = map[string]bool{}
	}
	f.memory[uid][name] = true
}

func (f *simFolder) decide() (bool, error) {
	job := f.job
	for uid, event := range f.cache {
		switch {
		case !slices.Contains(incidentsOf(event), job.name), !job.exist[string(uid)]:
		case f.sim.bug != bugNoMove && job.copied(string(uid)):
			if !IsUnconfirmed(job.copies[v1alpha1.QuarantineName(string(uid), job.name)]) {
				f.remember(uid, job.name)
			}
		case f.isCopyOfMoved(event):
		case f.sim.passOver && f.memory[uid][job.name]:
			job.before = append(job.before, event)
		default:
			job.view = append(job.view, event)
		}
	}
	job.now = simMoment{clock: f.sim.now, listening: f.sim.listening, untrusted: f.sim.untrusted}
	incident := job.incident.DeepCopy()
	in := Input{
		Name: job.name, Incident: job.incident, Events: job.view, Settled: job.before, Now: job.now.clock,
		Policy: Policy{
			AutoResolveAfter: f.sim.model.autoResolve, Retention: time.Hour, LateFiringWindow: f.sim.model.window,
			SilentFrom: f.sim.listening, Untrusted: f.sim.untrusted,
		},
		Exists:      func(uid string) bool { return job.exist[uid] },
		Copied:      job.copied,
		Unconfirmed: func(uid string) bool { return f.sim.bug != bugNoConfirmation && job.void[uid] },
	}
	if f.sim.bug == bugNoMove {
		in.Copied = nil
	}
	f.sim.bug.spoil(&in)
	job.plan = Decide(in)
	if f.sim.bug == bugHighWaterMark {
		for _, event := range job.view {
			job.plan.Settled = append(job.plan.Settled, event.UID) // what is below the mark counts as seen
		}
	}
	if !reflect.DeepEqual(incident, job.incident) {
		return true, fmt.Errorf("the fold modified the Incident that it read")
	}
	if err := checkCondensed(in, job.plan); err != nil {
		return true, err
	}
	job.next = f.confirm
	if f.sim.bug == bugDeleteBeforeFold {
		f.settle()
	}
	return false, nil
}

// checkCondensed checks what a fold that reads the Incident condensed, as the cache has it, decides: it never finds less to
// do, and its status is marked as one that must not be written.
func checkCondensed(in Input, whole Plan) error {
	if in.Incident == nil || in.Incident.Status.State != v1alpha1.IncidentResolved {
		return nil
	}
	in.Incident = in.Incident.DeepCopy()
	in.Incident.Condense()
	plan := Decide(in)
	switch {
	case plan.IsIdle() && !whole.IsIdle(), whole.Write && !plan.Write, whole.Urgent && !plan.Urgent:
		return fmt.Errorf("the condensed Incident does not tell that there is something to do: %+v instead of %+v", plan, whole)
	case !plan.Status.Condensed:
		return errors.New("a status computed from a condensed one is not marked")
	}
	return nil
}

func (f *simFolder) confirm() (bool, error) {
	job := f.job
	job.next = f.create
	if !job.plan.Unmatched {
		return false, nil
	}
	now := f.sim.cluster.incident(job.name)
	if (now == nil) != (job.incident == nil) || now != nil && now.ResourceVersion != job.incident.ResourceVersion {
		return true, nil
	}
	if now != nil && now.Status.State != "" {
		return true, fmt.Errorf("%s is %s, and an alert of it matches nothing", job.name, now.Status.State)
	}
	for _, result := range job.plan.Results {
		if result.Result == ResultNoMatch {
			f.sim.model.unmatched[string(f.sim.model.original(f.sim.cluster.find(result.EventUID)).UID)+"/"+job.name] = true
		}
	}
	return false, nil
}

func (f *simFolder) create() (bool, error) {
	job := f.job
	job.next = f.write
	if job.plan.Create == nil {
		return false, nil
	}
	incident, err := f.sim.cluster.createIncident(job.name, *job.plan.Create, metav1.NewTime(f.sim.now))
	job.incident = incident
	return false, err
}

func (f *simFolder) write() (bool, error) {
	job := f.job
	job.next = f.finish
	if !job.plan.Write {
		return false, nil
	}
	written, err := f.sim.cluster.updateStatus(job.incident, job.plan.Status)
	if err != nil {
		return false, err
	}
	// A copy that was made too late is not to be counted; mayGo sees to it that its alerts are accounted for.
	view := slices.DeleteFunc(slices.Clone(job.view), func(event *v1alpha1.AlertEvent) bool {
		from, ok := OriginOf(event)
		return ok && job.void[string(event.UID)] && !job.exist[from.UID]
	})
	f.sim.model.wrote(written, view, job.before, job.now)
	if n := len(written.Status.Ledger.Events); n > v1alpha1.MaxLedger {
		return true, fmt.Errorf("the ledger has %d entries", n)
	}
	return false, f.sim.model.compare(written)
}

func (f *simFolder) finish() (bool, error) {
	f.settle()
	return true, nil
}

func (f *simFolder) settle() {
	for _, uid := range f.job.plan.Settled {
		f.remember(uid, f.job.name)
	}
}

// release deletes one event that is settled for all its Incidents; false when there is none.
func (f *simFolder) release() (bool, error) {
	for _, event := range f.sim.cluster.existing() {
		settled := f.cache[event.UID] != nil
		for _, name := range incidentsOf(event) {
			settled = settled && f.memory[event.UID][name]
		}
		if !settled {
			continue
		}
		if err := f.sim.model.mayGo(event); err != nil {
			return false, err
		}
		delete(f.sim.cluster.events, event.UID)
		return true, nil
	}
	return false, nil
}

// watch brings the cache up to date: with the n-th event that it lacks, out of order, or with all of them,
// and with the deletions or without.
func (f *simFolder) watch(n int, all, deletions bool) {
	var missing []*v1alpha1.AlertEvent
	for _, event := range f.sim.cluster.existing() {
		if f.cache[event.UID] == nil {
			missing = append(missing, event)
		}
	}
	switch {
	case all:
		for _, event := range missing {
			f.cache[event.UID] = event
		}
	case len(missing) > 0:
		event := missing[n%len(missing)]
		f.cache[event.UID] = event
	}
	for uid := range f.cache {
		if deletions && f.sim.cluster.events[uid] == nil {
			delete(f.cache, uid)
		}
	}
}
