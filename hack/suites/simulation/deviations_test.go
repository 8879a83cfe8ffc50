package simulation

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// deviations are ways to break the protocol, each by the patch of its name. The oracle accepts what comes of them in these
// stories, since nothing happens to be lost or counted twice. The model rejects a step.
var deviations = []struct {
	name       string
	step       string // what the finding says of the step
	settings   Settings
	operations []operation
}{
	{name: "status-patched", step: "over version 0", operations: say("firing")},
	{name: "release-whatever-the-uid", step: "whatever its UID", operations: say("firing")},
	{name: "list-from-the-watch-cache", step: "delete AlertEvent", operations: say("firing")},
	{name: "ledger-keeps-what-is-gone", step: "with the ledger [0 1]", operations: say("firing", "firing", "firing")},
	{name: "absence-by-the-first-read", step: "delete AlertEvent", operations: say("resolved")},
	{name: "mark-over-any-version", step: "mark AlertEvent", operations: []operation{
		post{times: 1, alerts: one("firing"), key: "k1"}, wait{3 * time.Second},
	}},
	{name: "list-under-way", step: " version ", // whichever fold is the first to join a list that is under way
		settings: Settings{Replicas: 1, Writes: 8}, operations: storm()},
	{name: "delete-over-any-version", step: "delete version 0",
		settings: Settings{Replicas: 2, Writes: 8, MaxIncidents: 8, Elect: true}, operations: manyResolved()},
	{name: "doubt-of-seconds", step: "write over version", settings: Settings{Replicas: 2, Writes: 8}, operations: []operation{
		wait{40 * time.Second},
		trouble{replica: 0, effect: late, target: target{"create", "alertevents"}, count: 1, delay: 50 * time.Second, d: time.Second},
		post{to: 0, times: 1, alerts: one("firing")}, wait{8 * time.Second}, kill{1}, start{1}, wait{20 * time.Second}, kill{0},
		wait{50 * time.Second},
	}},
	{name: "before-not-in-the-ledger", step: "with the ledger [1]", operations: []operation{
		slowLists(0), slowLists(1), post{times: 1, alerts: one("resolved")}, wait{time.Second}, post{times: 1, alerts: one("firing")},
		wait{15 * time.Second},
	}},
}

func one(status string) []alert { return []alert{{key: 1, status: status, severity: "error"}} }

// say posts alerts, each when the one before is folded.
func say(statuses ...string) (operations []operation) {
	for _, status := range statuses {
		operations = append(operations, post{times: 1, alerts: one(status)}, wait{3 * time.Second})
	}
	return operations
}

func slowLists(replica int) operation {
	return trouble{replica: replica, effect: slow, target: target{"list", "alertevents"}, delay: 3 * time.Second, d: 5 * time.Second}
}

// storm posts alerts of three Incidents so fast that each list is for several of them, and that one is written while the next
// list is under way.
func storm() (operations []operation) {
	const listing, lasting = 300 * time.Millisecond, 20 * time.Second
	operations = append(operations,
		trouble{replica: 0, effect: answerLate, target: target{"list", "alertevents"}, delay: listing, d: lasting},
		trouble{replica: 0, effect: slow, target: target{"update", "incidents/status"}, delay: listing * 4 / 3, d: lasting})
	for salt := range uint64(4) {
		operations = append(operations, burst{count: 60, keys: 3, over: 3 * time.Second, salt: salt}, wait{4 * time.Second})
	}
	return operations
}

// manyResolved opens and resolves more Incidents than a namespace may have, so that some are evicted.
func manyResolved() (operations []operation) {
	for key := range 9 {
		for _, status := range []string{"firing", "resolved"} {
			operations = append(operations,
				post{times: 1, alerts: []alert{{key: key, status: status, severity: "error"}}}, wait{time.Second})
		}
	}
	return append(operations, wait{30 * time.Second})
}

// TestStoriesOfDeviations plays the stories without the deviations.
func TestStoriesOfDeviations(t *testing.T) {
	for _, d := range deviations {
		t.Run(d.name, func(t *testing.T) {
			NewWithT(t).Expect(playDeviation(t, "", d.settings, d.operations, Watcher{})).To(BeEmpty())
		})
	}
}

// switchedOn is the environment variable by which the program deviates.
const switchedOn = "TOCSIN_DEVIATION"

func playDeviation(t *testing.T, name string, settings Settings, operations []operation, watcher Watcher) []string {
	t.Helper()
	if settings.Replicas == 0 {
		settings = calm.Settings
	}
	t.Setenv(switchedOn, name)
	return Run(t, 1, &Story{Settings: settings, Operations: operations}, watcher)
}

// TestDeviations plays the stories in a program with all deviations, which TestTheModelRejectsDeviations builds.
func TestDeviations(t *testing.T) {
	if os.Getenv(switchedOn) == "" {
		t.Skip("this program does not deviate")
	}
	for _, d := range deviations {
		t.Run(d.name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(playDeviation(t, d.name, d.settings, d.operations, Watcher{Untraced: true})).To(BeEmpty(), "the oracle")
			found := playDeviation(t, d.name, d.settings, d.operations, Watcher{})
			g.Expect(found).NotTo(BeEmpty(), "the model accepts all steps")
			g.Expect(found[0]).To(And(HavePrefix("P: the model rejects a step"), ContainSubstring(d.step)))
		})
	}
}

// TestTheModelRejectsDeviations builds this test with all deviations, of which a variable of the environment switches one on.
func TestTheModelRejectsDeviations(t *testing.T) {
	g := NewWithT(t)
	folder := filepath.Join(testenv.Root(), "hack/suites/simulation/deviations")
	patches, err := filepath.Glob(filepath.Join(folder, "*.patch"))
	g.Expect(err).NotTo(HaveOccurred())
	first := filepath.Join(folder, "switch.patch")
	patches = slices.DeleteFunc(patches, func(patch string) bool { return patch == first })
	var names []string
	for _, d := range deviations {
		names = append(names, filepath.Join(folder, d.name+".patch"))
	}
	g.Expect(patches).To(ConsistOf(names), "each patch has a story")
	temporary := t.TempDir()
	file, _, err := overlay.Write(testenv.Root(), temporary, append([]string{first}, patches...)...)
	g.Expect(err).NotTo(HaveOccurred(), "update the patches of what you have changed")
	if testing.Short() {
		t.Skip("building takes half a minute")
	}
	binary := filepath.Join(temporary, "deviating.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay="+file, "-o", binary, "./simulation")
	build.Dir = filepath.Join(testenv.Root(), "hack/suites")
	output, err := build.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(output))
	run := exec.CommandContext(t.Context(), binary, "-test.run=^TestDeviations$", "-test.v")
	run.Env = append(os.Environ(), switchedOn+"=one after the other")
	output, err = run.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(output))
	g.Expect(strings.Count(string(output), "--- PASS: TestDeviations/")).To(Equal(len(deviations)), string(output))
}
