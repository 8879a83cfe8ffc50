package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"pgregory.net/rapid"

	archiving "github.com/tocsin-dev/tocsin/cmd/tocsin-archiver/archiver"
	options "github.com/tocsin-dev/tocsin/internal/process"
)

// archive is the bucket of a story, its archivers, if it has some, and what judges them.
type archive struct {
	*bucket
	archivers []*archiver
	judge     *archiveJudge
}

const (
	// retention is that of the integrations of a story with archivers. It is longer than their late window, and so short that
	// Incidents are deleted in the midst of the story.
	retention = 40 * time.Second

	// restartTime is how long after its end an archiver is started again.
	restartTime = 10 * time.Second
)

// archiverPrefix begins the names of archivers at the API server.
const archiverPrefix = "archiver-"

func archiverName(i int) string { return fmt.Sprint(archiverPrefix, i) }

// newArchive makes the archivers of a story, and has the commits judged if it has some. None runs yet.
func (w *world) newArchive() {
	a := &w.archive
	a.bucket = newBucket()
	a.judge = newArchiveJudge(a.bucket)
	for i := range w.story.Archivers {
		a.archivers = append(a.archivers, &archiver{world: w, bucket: a.bucket, name: archiverName(i)})
	}
	if w.story.Archivers > 0 {
		w.server.OnCommit(a.judge.commit)
	}
}

// archiver is a place for one process of the archiver after another. One that ends is started again, as by a Deployment.
type archiver struct {
	world  *world
	bucket *bucket
	name   string

	mu      sync.Mutex
	process *process // nil: none runs
	all     []*process
	stopped bool // no further one is started
}

// start starts a process, unless one runs.
func (a *archiver) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process != nil || a.stopped {
		return
	}
	w := a.world
	p := &process{link: newLink(w.network, a.name), ended: make(chan struct{})} // it listens to nothing
	config := w.server.Config(a.name, p.link)
	config.Transport = &transport{p.link, config.Transport}
	log := logr.Discard()
	if w.log != nil {
		log = w.log(a.name)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	a.process, a.all = p, append(a.all, p)
	flags := &options.Options{
		LeaderElect: true, LeaseNamespace: leaseNamespace,
		MetricsAddress: options.Off, ProbeAddress: options.Off, PprofAddress: options.Off,
	}
	go func() {
		err := archiving.Run(ctx, config, log, flags, access{bucket: a.bucket, link: p.link}.open)
		stop()
		w.note("- %s has ended: %v", a.name, err)
		close(p.ended)
		if a.end(p) { // by itself: it has lost its lease
			time.Sleep(restartTime)
			a.start()
		}
	}()
}

// end notes that a process does not run any more, and reports whether it was the one that did.
func (a *archiver) end(p *process) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p == nil || a.process != p { // another one may have been started meanwhile
		return false
	}
	a.process = nil
	return true
}

// running returns the process that runs, nil if none does.
func (a *archiver) running() *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.process
}

func (a *archiver) heal() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.all {
		p.heal()
		p.thaw()
	}
}

// terminate ends the process as SIGTERM does, and starts no other one.
func (a *archiver) terminate() {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	if p := a.running(); a.end(p) {
		p.thaw()
		p.stop()
	}
}

// archiverFault is what goes wrong with an archiver.
type archiverFault string

const (
	isKilled       archiverFault = "is killed"
	isStopped      archiverFault = "is stopped"
	isFrozen       archiverFault = "is frozen"
	isCutOff       archiverFault = "is cut off"       // from the API server
	losesNotes     archiverFault = "loses notes"      // the API server takes them, and the response is lost
	readsLate      archiverFault = "reads late"       // Incidents
	seesNothingNew archiverFault = "sees nothing new" // its watch is silent
)

// disturbArchiver disturbs an archiver for a while.
type disturbArchiver struct {
	which int
	fault archiverFault
	d     time.Duration
}

func (o disturbArchiver) do(w *world) {
	if o.which >= len(w.archive.archivers) {
		return
	}
	a := w.archive.archivers[o.which]
	p := a.running()
	if p == nil {
		return
	}
	f := fault{until: time.Now().Add(o.d), left: -1}
	switch o.fault {
	case isKilled, isStopped:
		if !a.end(p) {
			return
		}
		if o.fault == isKilled {
			p.kill()
		}
		p.stop()
		w.later(o.d, a.start)
		return
	case isFrozen:
		p.freeze()
		w.later(o.d, p.thaw)
		return
	case isCutOff:
		f.effect = refuse
	case losesNotes:
		f.effect, f.target = lose, target{"patch", "incidents/status"}
	case readsLate:
		f.effect, f.target, f.delay = answerLate, target{"get", "incidents"}, 4*time.Second
	case seesNothingNew:
		f.effect, f.target = stall, target{"watch", "incidents"}
	}
	p.add(f)
}

// drawArchive draws the archivers of a story, none in most of them, and what disturbs them. It comes last and lets the operations
// be as they are: a seed has the same ones with archivers and without.
func (d *drawer) drawArchive(t *rapid.T, s *Story) {
	s.Archivers = oneOf(t, "archivers", 0, 0, 0, 0, 0, 0, 1, 2)
	if s.Archivers == 0 || s.Older {
		s.Archivers = 0
		return
	}
	places := &seededReader{state: rapid.Uint64Range(0, 9999).Draw(t, "places")}
	for _, o := range rapid.SliceOfN(rapid.Custom(d.disturbArchive), 0, 10).Draw(t, "the archive") {
		at := places.number(len(s.Operations) + 1)
		s.Operations = slices.Insert(s.Operations, at, o)
	}
}

func (d *drawer) disturbArchive(t *rapid.T) operation {
	lasting := oneOf(t, "for", 12*time.Second, time.Second, 35*time.Second, 2*time.Minute)
	if rapid.Bool().Draw(t, "bucket") {
		return breakBucket{oneOf(t, "failure", fails, hangs, storesOnly, isSlow), lasting}
	}
	faults := []archiverFault{isKilled, isStopped, isFrozen, isCutOff, losesNotes, readsLate, seesNothingNew}
	return disturbArchiver{rapid.IntRange(0, 1).Draw(t, "archiver"), oneOf(t, "fault", faults...), lasting}
}
