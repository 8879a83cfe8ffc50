// Command bugs plays stories with each seeded bug in the product, until one fails that does not fail without the bug.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// elsewhere are the bugs of the fault suite that the simulation cannot meet, and why.
var elsewhere = map[string]string{
	"clock":                         "not a bug: it sets the clocks of the fault suite",
	"a-rise-leaves-the-gate-open":   "each alert changes the title too, so the summary is counted anew",
	"archived-without-turns":        "its namespaces have few episodes, which one batch takes",
	"authorization-captured":        "no integration captures requests",
	"content-taken-from-readers":    "no namespace uses up its memory for content",
	"eviction-forgets-writes":       "a count that the next list corrects",
	"federated-expiry-as-sent":      "no alert comes from another cluster",
	"flapping-end-forgotten":        "its ends are kept back for a minute",
	"forwarded-alerts-return":       "no Alertmanager sends alerts",
	"high-water-mark":               "its watches keep the order of commits, as those of one API server do",
	"hops-unbounded":                "no alert comes from another cluster",
	"known-since-the-future":        "its API server's clock is at most 20 s off, but for one story of a test",
	"mark-of-the-cache-ignored":     "no namespace uses up its memory for content",
	"leads-under-older-definitions": "keepChecked ends its terms before they fold, and nobody judges who has the lease",
	"expiry-ignored":                "no alert has an expiry",
	"muted-until-written":           "what is forwarded is judged at the end, when statuses are written",
	"note-over-any-version":         "a race of a note with two reopenings, which TestEpisodesAreArchived plays",
	"queues-across-namespaces":      "a decision of the intake: the fault suite's",
	"recovery-unnoticed":            "integrations change within a minute; TestAConditionThatEndsQuietlyIsCorrected plays it",
	"release-unnoticed":             "a leader's end disturbs all namespaces for a minute; TestTakeovers plays it",
	"reopened-is-evicted":           "a race of an eviction with a fold, which TestAnIncidentThatIsReopenedIsNotEvicted plays",
	"retries-not-awaited":           "a race of a fold with a deletion, which TestASecondCopyCountsOnce plays",
	"signatures-unchecked":          "no integration has a key",
	"slow-answers-end-terms":        "two leaders at once do no harm; TestNoTermEndsWhileLeasesAreSlow plays it",
	"stored-is-folded":              "its leaders can fold, or cannot store either",
	"the-limit-is-a-kill-switch":    "queues are far from their limit",
	"times-stay-in-the-future":      "its API server's clock is at most 20 s off, but for one story of a test",
	"token-tag-ignored":             "no tenant lists the hash of another one's token",
	"wish-of-a-mark-is-lost":        "a mark that comes seconds later harms nobody in time",
}

func main() {
	run := flag.String("run", "", "regular expression of the bugs to run")
	runs := flag.Int("runs", 400, "the most stories for each bug")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := runAll(ctx, *run, *runs)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bugs:", err)
		os.Exit(1)
	}
	if missed > 0 {
		os.Exit(1)
	}
}

// runAll runs the bugs that match, and returns how many were missed.
func runAll(ctx context.Context, pattern string, runs int) (missed int, err error) {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return 0, err
	}
	folder, err := os.MkdirTemp("", "tocsin-simulation-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	sound := filepath.Join(folder, "sound")
	if err := build(ctx, sound); err != nil {
		return 0, err
	}
	patches, err := filepath.Glob(filepath.Join(testenv.Root(), "hack/suites/faults/bugs/*.patch"))
	if err != nil {
		return 0, err
	}
	fmt.Println("| Seeded bug | Runs | First finding |\n|---|---|---|")
	for _, patch := range patches {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		switch reason := elsewhere[name]; {
		case !wanted.MatchString(name):
			continue
		case reason != "":
			fmt.Printf("| %s | | not simulated: %s |\n", name, reason)
			continue
		}
		played, finding, err := hunt(ctx, sound, filepath.Join(folder, name), patch, runs)
		switch {
		case ctx.Err() != nil:
			return missed, ctx.Err()
		case err != nil:
			fmt.Fprintf(os.Stderr, "bugs: %s: %v\n", name, err)
			finding = "NOT RUN"
			missed++
		case finding == "":
			finding = "MISSED"
			missed++
		}
		fmt.Printf("| %s | %d | %s |\n", name, played, finding)
	}
	return missed, nil
}

// hunt plays stories with a bug until one fails that does not fail without it, and returns how many it played and what was
// found.
func hunt(ctx context.Context, sound, folder, patch string, runs int) (played int, finding string, err error) {
	file, _, err := overlay.Write(testenv.Root(), folder, patch)
	if err != nil {
		return 0, "", err
	}
	buggy := filepath.Join(folder, "buggy")
	if err := build(ctx, buggy, "-overlay="+file); err != nil {
		return 0, "", err
	}
	for played < runs {
		seed, finding, err := play(ctx, buggy, fmt.Sprintf("-first=%d", played+1), "-simulate=1h", "-stop",
			fmt.Sprintf("-runs=%d", runs-played))
		if err != nil || finding == "" {
			return runs, "", err
		}
		played = seed
		_, without, err := play(ctx, sound, fmt.Sprintf("-first=%d", seed), "-simulate=1h", "-runs=1")
		if err != nil {
			return played, "", err
		}
		if without == "" {
			return played, finding, nil
		}
	}
	return runs, "", nil
}

// build builds the simulation.
func build(ctx context.Context, path string, flags ...string) error {
	arguments := append([]string{"test", "-C", "hack/suites", "-c", "-o", path}, flags...)
	command := exec.CommandContext(ctx, "go", append(arguments, "./simulation")...)
	command.Dir = testenv.Root()
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

var (
	failure  = regexp.MustCompile(`FAILED seed (\d+)`)
	findings = regexp.MustCompile(`(?m)^ *findings:\n *(.*)$`)
	lastSeed = regexp.MustCompile(`(?m)^seed (\d+)$`)
)

// play plays stories and returns the seed of the first that fails, and what was found.
func play(ctx context.Context, binary string, flags ...string) (seed int, finding string, err error) {
	command := exec.CommandContext(ctx, binary, append(flags, "-test.run=^TestSimulate$", "-shrink=false", "-test.timeout=0")...)
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err = command.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, "", nil
	case ctx.Err() != nil || !errors.As(err, &exit):
		return 0, "", errors.Join(err, ctx.Err())
	}
	text := output.String()
	if match := failure.FindStringSubmatch(text); match != nil {
		_, _ = fmt.Sscan(match[1], &seed)
		if found := findings.FindStringSubmatch(text); found != nil {
			return seed, found[1], nil
		}
		return seed, "a failure", nil
	}
	seeds := lastSeed.FindAllStringSubmatch(text, -1)
	if len(seeds) == 0 {
		return 0, "", fmt.Errorf("the simulation failed: %s", text)
	}
	_, _ = fmt.Sscan(seeds[len(seeds)-1][1], &seed)
	return seed, "the process crashed", nil
}
