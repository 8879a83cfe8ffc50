package traces

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/internal/queue"
)

// Process is one run of the program: what it has listed, and what its watch of AlertEvents has shown it.
type Process struct {
	name    string
	watches map[string]*watched // by namespace, an empty one for all
}

// watched is what a process gets of the AlertEvents of a namespace. Its slices are in the order of revisions.
type watched struct {
	lists []list     // from the quorum
	shown []delivery // to the cache
	since int64      // the revision of the last list of the cache: its watch has had no gap since
}

// list is a list from the quorum.
type list struct {
	revision int64
	shown    int64 // how far the watch had come by then: the process decides later
}

// delivery is how far the cache of a process has come.
type delivery struct {
	revision, since int64
	listed          bool // rather than watched
	at              time.Time
}

// NewProcess returns a process that has just started.
func NewProcess(name string) *Process { return &Process{name: name, watches: map[string]*watched{}} }

// String returns the name of the process.
func (p *Process) String() string { return p.name }

func (p *Process) of(namespace string) *watched {
	w := p.watches[namespace]
	if w == nil {
		w = &watched{}
		p.watches[namespace] = w
	}
	return w
}

// in returns what concerns a namespace: the watch of all, or its own.
func (p *Process) in(namespace string) []*watched {
	var all []*watched
	for _, name := range []string{metav1.NamespaceAll, namespace} {
		if w := p.watches[name]; w != nil {
			all = append(all, w)
		}
	}
	return all
}

// Listed notes that the process gets a list of the AlertEvents of a namespace from the quorum, of this revision.
func (p *Process) Listed(namespace string, revision int64) {
	w := p.of(namespace)
	w.lists = append(w.lists, list{revision, p.shown(namespace)})
}

// Shown notes that a watch of AlertEvents has shown the process what was committed at this revision. listed says that it is a
// list of its cache: the watch begins, or had a gap.
func (p *Process) Shown(namespace string, revision int64, listed bool, at time.Time) {
	w := p.of(namespace)
	if listed {
		w.since = revision
	}
	if len(w.shown) > 0 && w.shown[len(w.shown)-1].revision >= revision && !listed {
		return
	}
	w.shown = append(w.shown, delivery{revision, w.since, listed, at})
}

// shown returns how far the cache of a namespace's AlertEvents has come.
func (p *Process) shown(namespace string) int64 {
	revision := int64(0)
	for _, w := range p.in(namespace) {
		if len(w.shown) > 0 {
			revision = max(revision, w.shown[len(w.shown)-1].revision)
		}
	}
	return revision
}

// delivered returns when the cache first showed what was committed at a revision.
func (p *Process) delivered(namespace string, revision int64) (first delivery, ok bool) {
	for _, w := range p.in(namespace) {
		n, _ := slices.BinarySearchFunc(w.shown, revision, func(d delivery, r int64) int { return cmp.Compare(d.revision, r) })
		if n < len(w.shown) && (!ok || w.shown[n].at.Before(first.at)) {
			first, ok = w.shown[n], true
		}
	}
	return first, ok
}

// mayRemember reports whether the cache has shown the process the end of an earlier AlertEvent of the same name. A list tells the
// end of what was shown before.
func (p *Process) mayRemember(e *event) bool {
	return slices.ContainsFunc(e.earlier, func(first *event) bool {
		end, ok := p.delivered(e.name.Namespace, first.gone)
		begin, _ := p.delivered(e.name.Namespace, first.stored)
		return ok && (!end.listed || begin.revision < end.revision)
	})
}

// replayWindow is how long processes remember names, as in package queue, without what nobody can tell to a second.
const replayWindow = 2*time.Minute - 5*time.Second

// remembers reports whether the process must know an AlertEvent as a second copy. Whether a request with an idempotency key is
// a new one, nobody can tell from the name.
func (p *Process) remembers(e *event) bool {
	second, ok := p.delivered(e.name.Namespace, e.stored)
	return ok && !e.keyed && slices.ContainsFunc(e.earlier, func(first *event) bool {
		d, ok := p.delivered(e.name.Namespace, first.gone)
		return ok && !d.listed && d.revision == first.gone && second.at.Sub(d.at) < replayWindow
	})
}

// mustWait reports whether the process must not fold an AlertEvent yet: it may be the second copy of one whose end this process
// does not remember.
func (p *Process) mustWait(e *event, firstSent int64, at time.Time) bool {
	d, ok := p.delivered(e.name.Namespace, e.stored)
	return ok && rules.Waits(e.doubtful, d.since <= firstSent, at.Sub(d.at) >= queue.CopyDoubt)
}
