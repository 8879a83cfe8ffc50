package controllers

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
	view     []*v1alpha1.AlertEvent
	before   []*v1alpha1.AlertEvent // what is passed over, being settled
	now      simMoment
	plan     plan
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
	f.job.next = f.decide
	return false, nil
}

func (f *simFolder) decide() (bool, error) {
	job := f.job
	for uid, event := range f.cache {
		switch {
		case !slices.Contains(incidentsOf(event), job.name), !job.exist[string(uid)]:
		case f.sim.passOver && f.memory[uid][job.name]:
			job.before = append(job.before, event)
		default:
			job.view = append(job.view, event)
		}
	}
	job.now = simMoment{clock: f.sim.now, listening: f.sim.listening, deaf: f.sim.deaf}
	incident := job.incident.DeepCopy()
	in := foldInput{
		name: job.name, incident: job.incident, events: job.view, before: job.before, now: job.now.clock,
		policy: policy{
			autoResolveAfter: f.sim.model.autoResolve, retention: time.Hour, lateFiringWindow: f.sim.model.window,
			silentFrom: f.sim.listening, untrusted: f.sim.deaf,
		},
		exists: func(uid string) bool { return job.exist[uid] },
	}
	f.sim.bug.spoil(&in)
	job.plan = fold(in)
	if f.sim.bug == bugHighWaterMark {
		for _, event := range job.view {
			job.plan.settled = append(job.plan.settled, event.UID) // what is below the mark counts as seen
		}
	}
	if !reflect.DeepEqual(incident, job.incident) {
		return true, fmt.Errorf("the fold modified the Incident that it read")
	}
	job.next = f.confirm
	if f.sim.bug == bugDeleteBeforeFold {
		f.settle()
	}
	return false, nil
}

func (f *simFolder) confirm() (bool, error) {
	job := f.job
	job.next = f.create
	if !job.plan.unmatched {
		return false, nil
	}
	now := f.sim.cluster.incident(job.name)
	if (now == nil) != (job.incident == nil) || now != nil && now.ResourceVersion != job.incident.ResourceVersion {
		return true, nil
	}
	if now != nil && now.Status.State != "" {
		return true, fmt.Errorf("%s is %s, and an alert of it matches nothing", job.name, now.Status.State)
	}
	for _, result := range job.plan.results {
		if result.result == resultNoMatch {
			f.sim.model.unmatched[string(result.eventUID)+"/"+job.name] = true
		}
	}
	return false, nil
}

func (f *simFolder) create() (bool, error) {
	job := f.job
	job.next = f.write
	if job.plan.create == nil {
		return false, nil
	}
	incident, err := f.sim.cluster.createIncident(job.name, *job.plan.create, metav1.NewTime(f.sim.now))
	job.incident = incident
	return false, err
}

func (f *simFolder) write() (bool, error) {
	job := f.job
	job.next = f.finish
	if !job.plan.write {
		return false, nil
	}
	written, err := f.sim.cluster.updateStatus(job.incident, job.plan.status)
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
	for _, uid := range f.job.plan.settled {
		if f.memory[uid] == nil {
			f.memory[uid] = map[string]bool{}
		}
		f.memory[uid][f.job.name] = true
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
