package archive

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// book knows what is archived, and which Incidents have episodes that are not. It has entries for existing Incidents only.
type book struct {
	mu        sync.Mutex
	versions  map[types.UID][]version                // archived, of the episodes that the Incident describes
	unchecked map[string]map[types.UID]incidentNamed // by day: it is not known yet whether the archive has their episodes
	waiting   map[types.NamespacedName]*wait
	queues    map[string][]types.NamespacedName // of waiting by namespace, oldest first; may have some that wait no more
	turns     []string                          // the namespaces that have a queue
}

// wait is the state of an Incident with episodes to be archived.
type wait struct {
	since   time.Time
	changes int // events of the Incident since then
}

// version is a version of an episode.
type version struct {
	number int64
	digest string
}

// incidentNamed is an Incident with the versions of its ended episodes.
type incidentNamed struct {
	name     types.NamespacedName
	versions []version
}

func newBook() *book {
	return &book{
		versions:  map[types.UID][]version{},
		unchecked: map[string]map[types.UID]incidentNamed{},
		waiting:   map[types.NamespacedName]*wait{},
		queues:    map[string][]types.NamespacedName{},
	}
}

func (b *book) archived(incident types.UID, number int64, digest string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.versions[incident], version{number, digest})
}

// see takes in the state of an Incident. An initial one, which existed when the term began, is looked up in the archive
// before it waits.
func (b *book) see(incident *v1alpha1.Incident, initial bool, now time.Time) {
	ended := fold.EndedEpisodes(&incident.Status)
	name := types.NamespacedName{Namespace: incident.Namespace, Name: incident.Name}
	b.mu.Lock()
	defer b.mu.Unlock()
	current := make([]version, len(ended))
	for i, e := range ended {
		current[i] = version{e.Number, e.Digest}
	}
	known := b.versions[incident.UID]
	known = slices.DeleteFunc(known, func(v version) bool { return !slices.Contains(current, v) })
	if len(known) == 0 {
		delete(b.versions, incident.UID)
	} else {
		b.versions[incident.UID] = known
	}
	switch {
	case len(known) == len(current):
		delete(b.waiting, name)
	case initial:
		for _, e := range ended {
			day := records.Day(e.Resolved)
			if b.unchecked[day] == nil {
				b.unchecked[day] = map[types.UID]incidentNamed{}
			}
			b.unchecked[day][incident.UID] = incidentNamed{name, current}
		}
	default:
		b.enter(name, now)
	}
}

// enter has an Incident archived. The caller holds the lock.
func (b *book) enter(name types.NamespacedName, now time.Time) {
	if b.waiting[name] == nil {
		b.waiting[name] = &wait{since: now}
		b.queue(name)
	}
	b.waiting[name].changes++
}

// queue adds an Incident to the queue of its namespace. The caller holds the lock.
func (b *book) queue(name types.NamespacedName) {
	if len(b.queues[name.Namespace]) == 0 {
		b.turns = append(b.turns, name.Namespace)
	}
	b.queues[name.Namespace] = append(b.queues[name.Namespace], name)
}

// forget removes a deleted Incident. One of the same name that was created since waits by itself.
func (b *book) forget(incident *v1alpha1.Incident) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.versions, incident.UID)
	delete(b.waiting, types.NamespacedName{Namespace: incident.Namespace, Name: incident.Name})
}

// mark notes that versions of an Incident's episodes are stored.
func (b *book) mark(incident types.UID, stored ...version) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range stored {
		if !slices.Contains(b.versions[incident], v) {
			b.versions[incident] = append(b.versions[incident], v)
		}
	}
}

// task is an Incident to be read and archived.
type task struct {
	name    types.NamespacedName
	changes int // at the time
}

// next returns up to n Incidents to be archived: namespaces take turns, so that one with very many does not hold up the
// others. The caller passes each to done or again.
func (b *book) next(n int) []task {
	b.mu.Lock()
	defer b.mu.Unlock()
	var tasks []task
	for len(tasks) < n && len(b.turns) > 0 {
		namespace := b.turns[0]
		name := b.queues[namespace][0]
		b.turns = b.turns[1:]
		if b.queues[namespace] = b.queues[namespace][1:]; len(b.queues[namespace]) > 0 {
			b.turns = append(b.turns, namespace)
		} else {
			delete(b.queues, namespace)
		}
		if waiting := b.waiting[name]; waiting != nil {
			tasks = append(tasks, task{name, waiting.changes})
		}
	}
	return tasks
}

// done notes that everything is archived that the Incidents showed when they were read. One that has changed since waits
// further.
func (b *book) done(tasks []task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, task := range tasks {
		switch waiting := b.waiting[task.name]; {
		case waiting == nil:
		case waiting.changes == task.changes:
			delete(b.waiting, task.name)
		default:
			b.queue(task.name)
		}
	}
}

// again returns Incidents that were not archived to those that wait.
func (b *book) again(tasks []task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, task := range tasks {
		b.queue(task.name)
	}
}

// load returns how many Incidents wait, and for how long the first one has waited.
func (b *book) load(now time.Time) (waiting int, oldest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, waiting := range b.waiting {
		oldest = max(oldest, now.Sub(waiting.since))
	}
	return len(b.waiting), oldest
}

// uncheckedDays returns the days in which episodes of Incidents have to be looked up: the newest of each namespace, then the
// second newest, and so on. Users can forge the times of their alerts, so a namespace may have very many days.
func (b *book) uncheckedDays() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	byNamespace := map[string][]string{}
	for _, day := range slices.Backward(slices.Sorted(maps.Keys(b.unchecked))) {
		seen := map[string]bool{}
		for _, named := range b.unchecked[day] {
			if namespace := named.name.Namespace; !seen[namespace] {
				seen[namespace] = true
				byNamespace[namespace] = append(byNamespace[namespace], day)
			}
		}
	}
	ranks := make(map[string]int, len(b.unchecked)) // the place of the day in its namespace
	for _, days := range byNamespace {
		for rank, day := range days {
			if known, ok := ranks[day]; !ok || rank < known {
				ranks[day] = rank
			}
		}
	}
	return slices.SortedFunc(maps.Keys(ranks), func(a, b string) int {
		return cmp.Or(cmp.Compare(ranks[a], ranks[b]), strings.Compare(b, a))
	})
}

// found notes a record of the archive if it is that of an Incident to be looked up.
func (b *book) found(day string, incident types.UID, v version) {
	b.mu.Lock()
	named, ok := b.unchecked[day][incident]
	b.mu.Unlock()
	if ok && slices.Contains(named.versions, v) {
		b.mark(incident, v)
	}
}

// checked notes that a day was read: what it did not have waits.
func (b *book) checked(day string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, named := range b.unchecked[day] {
		if len(b.versions[uid]) < len(named.versions) {
			b.enter(named.name, now)
		}
	}
	delete(b.unchecked, day)
}
