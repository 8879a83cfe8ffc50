package fold

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// simFolder is a replica that leads, or takes itself for the leader: a cache that lags behind, a memory of what is settled,
// and one fold or mark under way. It takes the steps of the algorithm one by one, so anything can happen between them.
type simFolder struct {
	sim    *simulation
	cache  map[types.UID]*v1alpha1.AlertEvent
	first  map[types.UID]string // the versions under which it saw events first
	memory map[types.UID]map[string]bool
	job    *simJob

	since   int       // the version from which on it has seen every deletion
	started time.Time // when that was
}

// simJob is one fold under way, or one mark.
type simJob struct {
	name     string
	began    time.Time
	next     func() (done bool, err error)
	incident *v1alpha1.Incident
	exist    map[string]bool
	view     []*v1alpha1.AlertEvent
	before   []*v1alpha1.AlertEvent // what is passed over, being settled
	now      simMoment
	plan     Plan
	event    *v1alpha1.AlertEvent // to be marked, as it was read
}

func newSimFolder(sim *simulation) *simFolder {
	return &simFolder{
		sim: sim, cache: map[types.UID]*v1alpha1.AlertEvent{}, first: map[types.UID]string{},
		memory: map[types.UID]map[string]bool{}, since: sim.cluster.version, started: sim.now,
	}
}

// crash loses everything but what is stored. The first versions stay, so that the truth has one order: a replica that sees
// an event after an update of its metadata takes it for a newer one.
func (f *simFolder) crash() {
	first := f.first
	*f = *newSimFolder(f.sim)
	f.first = first
}

// begin starts a fold by reading the Incident, maybe an old version of it.
func (f *simFolder) begin(name string, lag int) {
	job := &simJob{name: name, began: f.sim.now, incident: f.sim.cluster.staleIncident(name, lag)}
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
	f.job.exist = f.sim.cluster.listEvents(f.job.name)
	if f.sim.bug == bugNoQuorumList {
		f.job.exist = map[string]bool{}
		for uid := range f.cache {
			f.job.exist[string(uid)] = true
		}
	}
	f.job.next = f.decide
	return false, nil
}

// remembers reports whether the replica knows an event as a second copy: it has seen the first one's deletion.
func (f *simFolder) remembers(event *v1alpha1.AlertEvent) bool {
	first := f.sim.cluster.firstOf(event)
	return first != nil && f.sim.cluster.deleted[first.UID].version > f.since
}

// holds reports whether the fold leaves out an event that may be a second copy, which another replica deletes. It goes by the time
// before its list: what was deleted since then may be in it.
func (f *simFolder) holds(event *v1alpha1.AlertEvent) bool {
	return event.Annotations[v1alpha1.RetryAnnotation] != "" && f.job.began.Before(f.started.Add(30*time.Second)) &&
		f.sim.bug != bugYoungMemory
}

// deleteCopies deletes the second copies that the replica knows.
func (f *simFolder) deleteCopies() error {
	for _, event := range f.sim.cluster.existing() {
		if f.remembers(event) && f.sim.bug != bugNoMemory {
			if err := f.sim.model.mayGo(event); err != nil {
				return err
			}
			f.sim.cluster.deleteEvent(event.UID, f.sim.now)
		}
	}
	return nil
}

// version is an event's place in commit order, as the replica knows it.
func (f *simFolder) version(event *v1alpha1.AlertEvent) string {
	if _, marked := queue.MarkOf(event); marked || f.sim.bug == bugUpdatesMove {
		return queue.CommitVersion(event)
	}
	return f.first[event.UID]
}

// mark starts to mark one of the events that the replica knows to be settled for some Incident.
func (f *simFolder) mark(n int) {
	var events []*v1alpha1.AlertEvent
	for _, event := range f.sim.cluster.existing() {
		if f.cache[event.UID] != nil && len(f.memory[event.UID]) > 0 {
			events = append(events, event)
		}
	}
	if len(events) > 0 {
		f.job = &simJob{event: events[n%len(events)]}
		f.job.next = f.writeMark
	}
}

func (f *simFolder) writeMark() (bool, error) {
	return true, f.markFor(f.job.event, slices.Collect(maps.Keys(f.memory[f.job.event.UID])))
}

// markFor marks the version of an event that was read.
func (f *simFolder) markFor(event *v1alpha1.AlertEvent, names []string) error {
	mark, ok := queue.MarkOf(event)
	if !ok {
		mark.ResourceVersion = f.version(event)
	}
	mark = mark.With(names)
	mark.All = mark.All || len(mark.Incidents) == len(incidentsOf(event))
	return f.sim.cluster.annotate(event, v1alpha1.SettledAnnotation, mark.String())
}

func (f *simFolder) remember(uid types.UID, name string) {
	if f.memory[uid] == nil {
		f.memory[uid] = map[string]bool{}
	}
	f.memory[uid][name] = true
}

// gather sorts the cached events of the Incident by their treatment. waiting reports that some are held back, and the later
// ones with them.
func (f *simFolder) gather() (waiting bool) {
	job, held := f.job, ""
	for uid, event := range f.cache {
		switch {
		case !slices.Contains(incidentsOf(event), job.name), !job.exist[string(uid)]:
		case f.remembers(event) && f.sim.bug != bugNoMemory:
		case f.sim.passOver && f.memory[uid][job.name]:
			job.before = append(job.before, event)
		default:
			job.view = append(job.view, event)
			if f.holds(event) && (held == "" || queue.NewerVersion(held, f.version(event))) {
				held = f.version(event)
			}
		}
	}
	if held != "" {
		job.view = slices.DeleteFunc(job.view, func(event *v1alpha1.AlertEvent) bool { return !queue.NewerVersion(held, f.version(event)) })
	}
	return held != ""
}

func (f *simFolder) decide() (bool, error) {
	job := f.job
	if f.sim.bug == bugMarksIgnored {
		job.exist = f.sim.cluster.listEvents("")
	}
	waiting := f.gather()
	job.now = simMoment{clock: f.sim.now, quietFrom: f.sim.quietFrom, mayEnd: !f.sim.unknown && !waiting}
	incident := job.incident.DeepCopy()
	in := Input{
		Name: job.name, Incident: job.incident, Events: job.view, Settled: job.before, Now: job.now.clock,
		Policy: Policy{
			AutoResolveAfter: f.sim.model.autoResolve, Retention: time.Hour, LateFiringWindow: f.sim.model.window,
			QuietFrom: f.sim.quietFrom,
		},
		Exists:  func(uid string) bool { return job.exist[uid] },
		Version: f.version,
		Waiting: waiting,
	}
	if f.sim.unknown {
		in.Policy.QuietFrom = in.Now // as package incident has it
	}
	f.sim.bug.spoil(&in, f.sim.cluster)
	job.plan = Decide(in)
	if f.sim.bug == bugHighWaterMark {
		for _, event := range job.view {
			job.plan.Settled = append(job.plan.Settled, event.UID) // what is below the mark counts as seen
		}
	}
	if !reflect.DeepEqual(incident, job.incident) {
		return true, fmt.Errorf("the fold modified the Incident that it read")
	}
	if err := checkUncached(in, job.plan); err != nil {
		return true, err
	}
	job.next = f.confirm
	if f.sim.bug == bugDeleteBeforeFold {
		f.settle()
	}
	if f.sim.bug == bugMarkBeforeWrite {
		for _, uid := range job.plan.Settled {
			if event := f.sim.cluster.events[uid]; event != nil {
				_ = f.markFor(event, []string{job.name})
			}
		}
	}
	return false, nil
}

// checkUncached checks what a fold decides that does not see a Resolved Incident, since the cache has none: it never finds less to
// do.
func checkUncached(in Input, whole Plan) error {
	if in.Incident == nil || in.Incident.Status.State != v1alpha1.IncidentResolved || len(in.Events) == 0 {
		return nil
	}
	in.Incident = nil
	if plan := Decide(in); plan.IsIdle() && !whole.IsIdle() {
		return fmt.Errorf("without the Incident there is nothing to do: %+v instead of %+v", plan, whole)
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
			f.sim.model.unmatched[string(result.EventUID)+"/"+job.name] = true
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
	f.sim.model.wrote(written, job.view, job.before, job.now)
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
		f.sim.cluster.deleteEvent(event.UID, f.sim.now)
		return true, nil
	}
	return false, nil
}

// watch brings the cache up to date: with the n-th event that it lacks, out of order, or with all of them,
// and with the deletions and updates or without.
func (f *simFolder) watch(n int, all, deletions bool) {
	var missing []*v1alpha1.AlertEvent
	for _, event := range f.sim.cluster.existing() {
		if f.cache[event.UID] == nil || deletions {
			missing = append(missing, event)
		}
	}
	switch {
	case all:
		for _, event := range missing {
			f.see(event)
		}
	case len(missing) > 0:
		f.see(missing[n%len(missing)])
	}
	for uid := range f.cache {
		if deletions && f.sim.cluster.events[uid] == nil {
			delete(f.cache, uid)
		}
	}
}

// see shows the replica an event. A mark says what is settled.
func (f *simFolder) see(event *v1alpha1.AlertEvent) {
	f.cache[event.UID] = event
	if f.first[event.UID] == "" {
		f.first[event.UID] = f.sim.cluster.find(event.UID).ResourceVersion
	}
	if mark, ok := queue.MarkOf(event); ok && f.sim.bug != bugMarksIgnored {
		for _, name := range incidentsOf(event) {
			if mark.Settles(name) {
				f.remember(event.UID, name)
			}
		}
	}
}
