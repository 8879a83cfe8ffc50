//go:build slow

package bugs

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var (
	stories = flag.Bool("stories", false, "play stories of the simulation, until one fails that does not fail without the bug")
	runs    = flag.Int("runs", 400, "the most stories for each bug")
)

// TestBugs builds the product with each seeded bug, and checks that the finder that its patch names fails then: a test, or a
// scenario of the fault suite.
func TestBugs(t *testing.T) {
	find := findByFinder
	if *stories {
		sound := filepath.Join(t.TempDir(), "sound")
		must(t, buildSimulation(t.Context(), sound))
		find = func(t *testing.T, _ bug, overlay string) string {
			t.Helper()
			return findByStories(t, sound, overlay)
		}
	}
	for _, b := range readBugs(t) {
		t.Run(b.name, func(t *testing.T) {
			if b.unmet != "" && (*stories || b.finder == "") {
				t.Skip(b.unmet)
			}
			file, _ := b.seed(t)
			finding := find(t, b, file)
			if finding == "" {
				t.Fatal("the bug is missed")
			}
			t.Log(finding)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The lines of what fails.
var (
	failedTest  = regexp.MustCompile(`--- FAIL: \S+`)
	faultsFound = regexp.MustCompile(`_test\.go:\d+: [ABCDF]: .*`)
)

// findByFinder runs the bug's test, or its scenario up to three times, and returns the first finding.
func findByFinder(t *testing.T, b bug, overlay string) (finding string) {
	t.Helper()
	what, which, _ := strings.Cut(b.finder, " ")
	if what != "scenario" {
		finding, err := goTest(t.Context(), failedTest, "-overlay="+overlay, "-run=^"+which+"$", what)
		must(t, err)
		return finding
	}
	manager := filepath.Join(t.TempDir(), "manager")
	err := testenv.BuildManager(t.Context(), manager, "-overlay="+overlay)
	must(t, err)
	for try := 0; try < 3 && finding == ""; try++ {
		finding, err = goTest(t.Context(), faultsFound, "-C", "hack/suites", "-count=1", "-tags=slow", "-timeout=0",
			"-run=^TestFaults$/^"+which+"$", "./faults", "-manager="+manager)
	}
	must(t, err)
	return finding
}

// goTest runs a test, and returns the first line of a failure that it prints.
func goTest(ctx context.Context, failure *regexp.Regexp, arguments ...string) (string, error) {
	err := testenv.Go(ctx, append([]string{"test"}, arguments...)...)
	if err == nil {
		return "", nil
	}
	if found := failure.FindString(err.Error()); found != "" {
		return found, nil
	}
	return "", fmt.Errorf("a failure without a finding: %w", err)
}

// findByStories plays stories with a bug until one fails that does not fail without it.
func findByStories(t *testing.T, sound, overlay string) (finding string) {
	t.Helper()
	buggy := filepath.Join(t.TempDir(), "buggy")
	must(t, buildSimulation(t.Context(), buggy, "-overlay="+overlay))
	for played := 0; played < *runs; {
		seed, finding := play(t, buggy, fmt.Sprintf("-first=%d", played+1), "-stop", fmt.Sprintf("-runs=%d", *runs-played))
		if finding == "" {
			return ""
		}
		if _, without := play(t, sound, fmt.Sprintf("-first=%d", seed), "-runs=1"); without == "" {
			return fmt.Sprintf("%s (after %d stories)", finding, seed)
		}
		played = seed
	}
	return ""
}

func buildSimulation(ctx context.Context, path string, flags ...string) error {
	args := append([]string{"test", "-C", "hack/suites", "-c", "-o", path}, flags...)
	return testenv.Go(ctx, append(args, "./simulation")...)
}

var (
	failure  = regexp.MustCompile(`FAILED seed (\d+)`)
	findings = regexp.MustCompile(`(?m)^ *findings:\n *(.*)$`)
	lastSeed = regexp.MustCompile(`(?m)^seed (\d+)$`)
)

// play plays stories and returns the seed of the first that fails, and what was found.
func play(t *testing.T, binary string, flags ...string) (seed int, finding string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary,
		append(flags, "-simulate=1h", "-test.run=^TestSimulate$", "-shrink=false", "-test.timeout=0")...)
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, ""
	case !errors.As(err, &exit):
		t.Fatal(err)
	}
	text := string(output)
	if match := failure.FindStringSubmatch(text); match != nil {
		_, _ = fmt.Sscan(match[1], &seed)
		if found := findings.FindStringSubmatch(text); found != nil {
			return seed, found[1]
		}
		return seed, "a failure"
	}
	seeds := lastSeed.FindAllStringSubmatch(text, -1)
	if len(seeds) == 0 {
		t.Fatalf("the simulation failed: %s", text)
	}
	_, _ = fmt.Sscan(seeds[len(seeds)-1][1], &seed)
	return seed, "the process crashed"
}
