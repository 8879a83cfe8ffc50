// Command bugs builds the product with each seeded bug, and checks that the test or the scenario that finders names fails then.
//
//	bugs                 all of them
//	bugs --run=ledger    those that match
//	bugs --stories       play stories of the simulation instead, until one fails that does not fail without the bug
package main

import (
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

// finder looks for a bug in the product, which is built with the overlay, and returns the first finding. The folder is empty.
type finder func(ctx context.Context, name, overlay, folder string) (finding string, err error)

func main() {
	run := flag.String("run", "", "regular expression of the bugs to run")
	stories := flag.Bool("stories", false, "play stories of the simulation")
	runs := flag.Int("runs", 400, "the most stories for each bug")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := runAll(ctx, *run, *stories, *runs)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bugs:", err)
	}
	if missed > 0 || err != nil {
		os.Exit(1)
	}
}

// runAll runs the bugs that match, and returns how many were missed.
func runAll(ctx context.Context, pattern string, stories bool, runs int) (missed int, err error) {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return 0, err
	}
	folder, err := os.MkdirTemp("", "tocsin-bugs-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	find, skipped := finder(findByTest), map[string]string{clock: elsewhere[clock]}
	if stories {
		h := hunter{sound: filepath.Join(folder, "sound"), runs: runs}
		find, skipped = h.hunt, elsewhere
		if err := buildSimulation(ctx, h.sound); err != nil {
			return 0, err
		}
	}
	patches, err := patchFiles()
	if err != nil {
		return 0, err
	}
	fmt.Println("| Seeded bug | First finding |\n|---|---|")
	for _, patch := range patches {
		name := nameOf(patch)
		if !wanted.MatchString(name) {
			continue
		}
		if reason := skipped[name]; reason != "" {
			fmt.Printf("| %s | not run: %s |\n", name, reason)
			continue
		}
		finding, err := seed(ctx, patch, filepath.Join(folder, name), find)
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
		fmt.Printf("| %s | %s |\n", name, finding)
	}
	return missed, nil
}

// seed has a bug looked for.
func seed(ctx context.Context, patch, folder string, find finder) (finding string, err error) {
	file, _, err := overlay.Write(testenv.Root(), folder, patch)
	if err != nil {
		return "", err
	}
	return find(ctx, nameOf(patch), file, folder)
}

// patchFiles returns the paths of all patches.
func patchFiles() ([]string, error) {
	return filepath.Glob(filepath.Join(testenv.Root(), "hack/suites/faults/bugs/*.patch"))
}

// nameOf returns the name of a patch's bug.
func nameOf(patch string) string { return strings.TrimSuffix(filepath.Base(patch), ".patch") }

// The lines of what fails.
var (
	failedTest  = regexp.MustCompile(`--- FAIL: \S+`)
	faultsFound = regexp.MustCompile(`(?m)^ {7}[ABCDF]: .*$`)
)

// findByTest is the finder that runs the bug's test, or its scenario up to three times.
func findByTest(ctx context.Context, name, overlay, folder string) (finding string, err error) {
	what, which, _ := strings.Cut(finders[name], " ")
	if what != scenario {
		return command(ctx, failedTest, "go", "test", "-overlay="+overlay, "-run=^"+which+"$", what)
	}
	manager := filepath.Join(folder, "manager")
	if err := testenv.BuildManager(ctx, manager, "-overlay="+overlay); err != nil {
		return "", err
	}
	for try := 0; try < 3 && finding == ""; try++ {
		finding, err = command(ctx, faultsFound,
			"go", "run", "-C", "hack/suites", "./faults", "--manager="+manager, "--run=^"+which+"$")
	}
	return strings.TrimSpace(finding), err
}

// command runs a command, and returns the first line of a failure that it prints.
func command(ctx context.Context, failure *regexp.Regexp, name string, arguments ...string) (string, error) {
	c := exec.CommandContext(ctx, name, arguments...)
	c.Dir = testenv.Root()
	output, err := c.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return "", err
	}
	if found := failure.FindString(string(output)); err == nil || found != "" {
		return found, nil
	}
	return "", fmt.Errorf("%s fails without a finding: %s", name, output)
}
