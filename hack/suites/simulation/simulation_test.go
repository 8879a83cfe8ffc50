package simulation

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

var (
	simulate = flag.Duration("simulate", 0, "TestSimulate: for how long to play stories of new seeds")
	runs     = flag.Int("runs", 1_000_000_000, "TestSimulate: the most stories to play")
	first    = flag.Uint64("first", 0, "TestSimulate: the first seed; by default one that depends on the time")
	seed     = flag.Uint64("seed", 0, "TestSimulate: play the story of this seed only")
	stop     = flag.Bool("stop", false, "TestSimulate: stop at the first failure")
	shrink   = flag.Bool("shrink", true, "TestSimulate: shorten the first story that fails")
	told     = flag.Bool("told", false, "TestSimulate: tell everything that happens in a run")
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	klog.SetOutput(io.Discard)
	// They log, and pause by a clock that all runs share.
	for i := range utilruntime.ErrorHandlers {
		utilruntime.ErrorHandlers[i] = func(context.Context, error, string, ...any) {}
	}
	os.Exit(m.Run())
}

// TestCalm plays a story without faults.
func TestCalm(t *testing.T) {
	g := NewWithT(t)
	var tally Tally
	found := Run(t, 1, calm, Watcher{Done: func(t Tally) { tally = t }})
	g.Expect(found).To(BeEmpty())
	g.Expect(tally.Posts).To(Equal(52))
	g.Expect(tally.Acknowledged).To(Equal(52))
	g.Expect(tally.Steps).To(BeNumerically(">", 52), "each alert is folded or matches nothing, and is released")
}

// TestMaintenance plays a story in which Incidents are open before, during and after a window, and the leader dies in it.
func TestMaintenance(t *testing.T) {
	g := NewWithT(t)
	fire := func(key int, severity string) operation {
		return post{tenant: 0, to: 1, times: 1, alerts: []alert{{key: key, status: "firing", severity: severity}}}
	}
	story := &Story{
		Settings: Settings{Replicas: 2, Elect: true, Writes: 8},
		Operations: []operation{
			fire(1, "warning"), wait{3 * time.Second}, maintain{0, time.Second, time.Minute}, wait{3 * time.Second},
			fire(1, "critical"), fire(2, "error"), kill{0}, wait{time.Minute}, fire(3, "error"), wait{5 * time.Second},
		},
	}
	seen := map[string]bool{}
	found := Run(t, 1, story, Watcher{Written: func(incident *v1alpha1.Incident) {
		status := &incident.Status
		text := fmt.Sprint(incident.Spec.DedupKey, " ", status.State, " ", status.Alert.Severity)
		if status.Mute != nil {
			text += fmt.Sprintf(" muted %q", status.Mute.ForwardedSeverity)
		}
		seen[text] = status.State != ""
	}})
	g.Expect(found).To(BeEmpty())
	maps.DeleteFunc(seen, func(_ string, hasState bool) bool { return !hasState })
	g.Expect(slices.Sorted(maps.Keys(seen))).To(Equal([]string{
		"key-1 Open critical", `key-1 Open critical muted "warning"`, "key-1 Open warning", `key-1 Open warning muted "warning"`,
		"key-2 Open error", `key-2 Open error muted ""`, "key-3 Open error",
	}))
}

// TestObjectLabels plays a story in which an Incident is reopened by another leader, after a user has labelled it.
func TestObjectLabels(t *testing.T) {
	g := NewWithT(t)
	say := func(status string) operation {
		return post{tenant: 0, to: 1, times: 1, alerts: []alert{{key: 1, status: status, severity: "error"}}}
	}
	story := &Story{
		Settings: Settings{Replicas: 2, Elect: true, Writes: 8},
		Operations: []operation{
			say("firing"), wait{2 * time.Second}, say("firing"), wait{2 * time.Second}, say("resolved"), wait{time.Second},
			edit{resource: "incidents"}, kill{0}, wait{time.Minute}, say("firing"), wait{2 * time.Second},
		},
	}
	var seen []string
	found := Run(t, 1, story, Watcher{Written: func(incident *v1alpha1.Incident) {
		seen = append(seen, fmt.Sprint(incident.Status.AlertCount, " ", incident.Labels["alert.tocsin.dev/seq"]))
		if incident.Status.AlertCount == 4 {
			g.Expect(incident.Labels).To(HaveKey("example.com/edited"))
		}
	}})
	g.Expect(found).To(BeEmpty())
	g.Expect(seen).To(Equal([]string{"0 1", "1 1", "2 1", "3 1", "3 4", "4 4"}), "how many alerts, and which one gave the label")
}

// TestHeartbeats has a sender go quiet, and the leader be killed meanwhile. The other sender goes on.
func TestHeartbeats(t *testing.T) {
	g := NewWithT(t)
	story := &Story{
		Settings: Settings{Replicas: 2, Elect: true, Writes: 8},
		Operations: []operation{
			wait{2 * time.Minute}, hush{0, hushFor}, wait{30 * time.Second}, kill{0}, wait{3 * time.Minute}, start{0}, wait{2 * time.Minute},
		},
	}
	var states []string
	var missed []time.Duration
	found := Run(t, 1, story, Watcher{
		Written: func(incident *v1alpha1.Incident) {
			if state := string(incident.Status.State); state != "" {
				states = append(states, incident.Namespace+" "+incident.Spec.DedupKey+" "+state)
			}
		},
		Missed: func(namespace string, since time.Duration) {
			g.Expect(namespace).To(Equal(tenantName(0)))
			missed = append(missed, since)
		},
	})
	g.Expect(found).To(BeEmpty())
	g.Expect(slices.Compact(states)).To(Equal([]string{"tenant-a heartbeat/pinged Open", "tenant-a heartbeat/pinged Resolved"}))
	g.Expect(missed).To(ConsistOf(And(
		BeNumerically(">=", beatInterval*6/5), BeNumerically("<", beatInterval*6/5+30*time.Second))))
}

// TestAHeartbeatThatIsDefinedByAWrongClock makes an integration again while all clocks are an hour behind. Its silence is found
// no later for that.
func TestAHeartbeatThatIsDefinedByAWrongClock(t *testing.T) {
	const wrong = integrationAway + 2*time.Second
	g := NewWithT(t)
	story := &Story{
		Settings: Settings{Replicas: 2, Elect: true, Writes: 8},
		Operations: []operation{
			wait{20 * time.Second}, setClock{0, -time.Hour, wrong}, setClock{1, -time.Hour, wrong},
			remove{tenant: 0, resource: "webhookintegrations"},
			wait{15 * time.Second}, hush{0, hushFor}, wait{hushFor},
		},
	}
	missed := 0
	found := Run(t, 1, story, Watcher{Missed: func(_ string, since time.Duration) {
		missed++
		g.Expect(since).To(BeNumerically("<", grace+beatPeriod+findTime))
	}})
	g.Expect(found).To(BeEmpty())
	g.Expect(missed).To(Equal(1))
}

// TestTheAPIServersClockIsSetBack makes an integration again while the clock of the API server is an hour ahead. When that is set
// right, the times of its status are of the future. Its silence is found no later for that.
func TestTheAPIServersClockIsSetBack(t *testing.T) {
	const wrong = time.Minute
	g := NewWithT(t)
	story := &Story{
		Settings: Settings{Replicas: 2, Elect: true, Writes: 8},
		Operations: []operation{
			wait{20 * time.Second}, setServerClock{time.Hour, wrong}, wait{15 * time.Second},
			remove{tenant: 0, resource: "webhookintegrations"}, wait{wrong}, hush{0, hushFor + grace}, wait{hushFor + grace},
		},
	}
	missed := 0
	found := Run(t, 1, story, Watcher{Missed: func(_ string, since time.Duration) {
		missed++
		g.Expect(since).To(BeNumerically("<", grace+beatPeriod+findTime))
	}})
	g.Expect(found).To(BeEmpty())
	g.Expect(missed).To(Equal(1))
}

// TestSummaries has Incidents open, rise and end while leaders die, a user deletes the summary, and a watch of the next leader is
// late. The judge recounts at the end of each story.
func TestSummaries(t *testing.T) {
	g := NewWithT(t)
	say := func(tenant, key int, status, severity string) operation {
		return post{tenant: tenant, to: 1, times: 1, alerts: []alert{{key: key, status: status, severity: severity}}}
	}
	operations := []operation{
		say(0, 1, "firing", "warning"), say(1, 1, "firing", "critical"), wait{3 * time.Second}, kill{0},
		say(0, 1, "firing", "critical"), say(1, 1, "resolved", "critical"), say(0, 2, "firing", "error"), start{0},
		remove{tenant: 0, resource: "incidentsummaries"}, wait{40 * time.Second},
		trouble{replica: 1, effect: lag, target: target{"watch", "incidents"}, delay: 3 * time.Second, d: 20 * time.Second},
		remove{tenant: 1, resource: "incidentsummaries"}, say(0, 3, "firing", "info"), say(0, 2, "resolved", "error"), kill{1},
		report{tenant: 0, key: 1, status: "acknowledged"}, wait{40 * time.Second}, say(0, 3, "firing", "critical"), wait{time.Second},
	}
	for _, end := range []operation{wait{time.Second}, remove{tenant: 1, resource: "webhookintegrations"}, deleteNamespace{1}} {
		story := &Story{Settings: Settings{Replicas: 2, Elect: true, Writes: 8}, Operations: append(slices.Clone(operations), end)}
		g.Expect(Run(t, 1, story, Watcher{})).To(BeEmpty(), "%T", end)
	}
}

// calm is a story without faults.
var calm = &Story{
	Settings: Settings{Replicas: 2, Elect: true, Writes: 8},
	Operations: []operation{
		post{tenant: 0, to: 0, times: 1, alerts: []alert{{key: 1, status: "firing", severity: "error"}, {key: 2, status: "firing"}}},
		wait{time.Second},
		post{tenant: 0, to: 1, times: 1, alerts: []alert{{key: 1, status: "resolved"}}},
		burst{tenant: 1, count: 50, keys: 3, over: 5 * time.Second, salt: 7},
		wait{5 * time.Second},
	},
}

// TestFindsWhatIsLost has a user delete an AlertEvent behind the oracle's back: the checks are no decoration.
func TestFindsWhatIsLost(t *testing.T) {
	g := NewWithT(t)
	story := &Story{Settings: calm.Settings, Operations: []operation{
		trouble{replica: 0, effect: refuse, target: target{"", "incidents"}, d: 30 * time.Second},
		trouble{replica: 1, effect: refuse, target: target{"", "incidents"}, d: 30 * time.Second},
		post{tenant: 0, to: 0, times: 1, alerts: []alert{{key: 1, status: "firing"}}},
		wait{time.Second},
		theft{},
	}}
	found := Run(t, 1, story, Watcher{})
	g.Expect(found).To(ContainElement(HavePrefix("A: the operator deleted AlertEvent")))
}

// theft deletes all AlertEvents of the first tenant in the name of a replica.
type theft struct{}

func (theft) do(w *world) {
	thief, err := w.newClient(replicaName(0))
	if err != nil {
		panic(err)
	}
	w.users = thief
	remove{tenant: 0, resource: "alertevents"}.do(w)
}

// TestSomeSeeds plays a few stories, always the same.
func TestSomeSeeds(t *testing.T) {
	for seed := range uint64(12) {
		if _, failure := explore(t, seed+1, false, Watcher{}); failure != nil {
			t.Error(failure)
		}
	}
}

// TestSimulate plays the stories of new seeds for as long as -simulate says, or the one of -seed.
func TestSimulate(t *testing.T) {
	if *seed != 0 {
		replay(t)
		return
	}
	began, next := time.Now(), *first
	if next == 0 {
		next = uint64(began.UnixNano()) // of the seeds of two processes, few are the same
	}
	var total Tally
	played, failed := 0, 0
	for ; time.Since(began) < *simulate && played < *runs && (!*stop || failed == 0); next++ {
		_, _ = fmt.Fprintf(os.Stderr, "seed %d\n", next) // the last one is that of a crash
		shortest, original := explore(t, next, *shrink && failed == 0, Watcher{Done: total.add})
		played++
		if original == nil {
			continue
		}
		failed++
		t.Errorf("FAILED %s", original)
		if *shrink && failed == 1 {
			t.Errorf("the shortest that was found: %s", shortest)
		}
		t.Errorf("to replay it: SEED=%d make simulate", next)
	}
	if played > 0 {
		fmt.Printf("simulation: %d runs of %s in %s, %d failed: %d requests, %d acknowledged, %d commits, %d steps\n", played,
			total.Simulated.Round(time.Second), time.Since(began).Round(time.Second), failed,
			total.Posts, total.Acknowledged, total.Commits, total.Steps)
	}
}

// add adds what happened in one run. Those of a story that is shortened count as well.
func (t *Tally) add(run Tally) {
	t.Posts += run.Posts
	t.Acknowledged += run.Acknowledged
	t.Commits += run.Commits
	t.Steps += run.Steps
	t.Simulated += run.Simulated
}

// replay plays the story of -seed.
func replay(t *testing.T) {
	t.Helper()
	var watcher Watcher
	if *told {
		watcher.Say = func(line string) { fmt.Println(line) }
	}
	shortest, original := explore(t, *seed, *shrink, watcher)
	if original == nil {
		fmt.Println("nothing is wrong with seed", *seed)
		return
	}
	t.Error(original)
	if *shrink {
		t.Errorf("the shortest that was found: %s", shortest)
	}
}

// trace returns the calls of a run, each with its time.
func trace(t *testing.T, seed uint64) []string {
	t.Helper()
	var mu sync.Mutex
	var calls []string
	story := drawn(seed)
	Run(t, seed, story, Watcher{Trace: func(call string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, call)
	}})
	slices.Sort(calls) // by time: the order of those of one instant is nothing
	return calls
}

// TestRepeats reports how much of a run is repeated by its seed.
func TestRepeats(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		a, b := trace(t, seed), trace(t, seed)
		same := 0
		for same < min(len(a), len(b)) && a[same] == b[same] {
			same++
		}
		t.Logf("seed %d: the first %d of %d calls are the same", seed, same, len(a))
	}
}
