package simulation

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/traces"
)

// Watcher is told what happens in a run. Its functions are optional.
type Watcher struct {
	Say   func(line string) // operations, answers and the log of the replicas
	Trace func(call string) // every phase of every call
	Done  func(Tally)

	Untraced bool // the model does not judge the steps

	Written func(*v1alpha1.Incident)                    // every write of an Incident by a replica
	Missed  func(namespace string, since time.Duration) // a heartbeat is missed so long after its last ping

	Archived   func(*archiveJudge)       // at the end
	Conditions func(kind, reason string) // of integrations, whenever one is written
}

// Tally counts what happened in a run.
type Tally struct {
	Posts, Acknowledged, Commits int
	Steps                        int // that the model has judged
	Simulated                    time.Duration
}

const (
	startTime = 4 * time.Second           // from the start of the replicas to the first operation
	pause     = 10*time.Millisecond + odd // between operations
	odd       = 1_237_411                 // nanoseconds: replicas that begin together would do the same at the same instants
	endTime   = 3 * time.Second           // from the last operation to the end of the faults
	// drainTime is for what goes on after the end of a process: the time stands still when a bubble's function ends.
	drainTime = 2 * time.Minute
)

// Run plays a story and returns what the oracle finds. A panic is a goroutine that does not end.
func Run(t *testing.T, seed uint64, story *Story, watcher Watcher) (findings []string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { findings = play(seed, story, watcher) })
	return findings
}

func play(seed uint64, story *Story, watcher Watcher) []string {
	began := time.Now()
	w, err := newWorld(seed, story)
	if err != nil {
		return []string{"the simulation failed: " + err.Error()}
	}
	w.network.trace, w.pings.missed = watcher.Trace, watcher.Missed
	w.judge.mutes.written, w.judge.mutes.conditions = watcher.Written, watcher.Conditions
	if watcher.Say != nil {
		w.judge.say = w.note
		w.says = func(format string, args ...any) { watcher.Say(fmt.Sprintf(format, args...)) }
		w.log = func(replica string) logr.Logger {
			return funcr.New(func(prefix, args string) { w.note("%s %s %s", replica, prefix, args) }, funcr.Options{Verbosity: 1})
		}
	}
	if !watcher.Untraced {
		w.network.tracer.begin(story, w.judge.say)
	}
	defer func(before []func(context.Context, any)) { utilruntime.PanicHandlers = before }(utilruntime.PanicHandlers)
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, v any) { w.judge.panicked(v) }}
	w.calm.add("", began, began.Add(calmAfter/2))
	for _, r := range w.replicas {
		if err := r.start(); err != nil {
			return []string{"the simulation failed: " + err.Error()}
		}
		time.Sleep(odd)
	}
	for _, a := range w.archive.archivers {
		a.start()
		time.Sleep(odd)
	}
	time.Sleep(startTime)
	stop := make(chan struct{})
	var pinging sync.WaitGroup
	for _, namespace := range tenants {
		pinging.Go(func() { w.sendPings(namespace, stop) })
	}
	findings := w.perform()
	close(stop)
	pinging.Wait()
	if err := w.stop(); err != nil {
		findings = append(findings, "F: "+err.Error())
	}
	w.senders.busy.Wait()
	if watcher.Archived != nil {
		watcher.Archived(w.archive.judge)
	}
	if watcher.Done != nil {
		watcher.Done(w.tally(time.Since(began)))
	}
	time.Sleep(drainTime)
	return findings
}

// perform performs the operations until the first finding, ends all faults, and judges what became of everything.
func (w *world) perform() []string {
	for _, o := range w.story.Operations {
		w.note("* %s", literal(reflect.ValueOf(o)))
		w.calm.note(o)
		if w.pager != nil {
			w.pager.note(o)
		}
		o.do(w)
		time.Sleep(pause)
		if found := w.judge.findings(); len(found) > 0 {
			return append(found, w.end()...)
		}
	}
	time.Sleep(endTime)
	if found := w.end(); len(found) > 0 {
		return found
	}
	healed := time.Now()
	time.Sleep(healTime + time.Second)
	for _, judge := range []func() oracle.Findings{
		func() oracle.Findings { return w.judge.check(w.senders.records, healed) },
		w.judgeArchive, w.judgeStatuses, w.judgeForwarding, w.emptyNamespaces, w.endQuietly,
	} {
		if found := judge(); len(found) > 0 {
			return found
		}
	}
	return nil
}

// end ends all faults and waits for the answers to all requests.
func (w *world) end() []string {
	w.note("* heal")
	w.calm.add("", time.Now(), time.Now().Add(calmAfter))
	if err := w.heal(); err != nil {
		return []string{"the simulation failed: " + err.Error()}
	}
	w.senders.busy.Wait()
	return nil
}

func (w *world) tally(simulated time.Duration) Tally {
	t := Tally{Posts: len(w.senders.records), Commits: int(w.server.Revision()), Simulated: simulated}
	w.network.tracer.tell(func(j *traces.Judge) { t.Steps = j.Steps() })
	for _, r := range w.senders.records {
		if r.Outcome().String() == "acknowledged" {
			t.Acknowledged++
		}
	}
	return t
}

// kind is the guarantee that findings break, so that a story shrinks to one that breaks the same.
func kind(findings []string) string {
	if len(findings) == 0 {
		return ""
	}
	letter, _, _ := strings.Cut(findings[0], ":")
	return letter
}
