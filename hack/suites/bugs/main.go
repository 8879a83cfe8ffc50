// Command bugs builds the product with each seeded bug, and checks that the finder that its patch names fails then: a
// test, or a scenario of the fault suite.
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

// bug is a patch in hack/suites/faults/bugs, and what its head says.
type bug struct {
	name, patch string
	finder      string // the package and the test that it must fail, or "scenario" and its name; empty: it is no bug
	unmet       string // why the simulation cannot meet it
}

// find looks for a bug in the product, which is built with the overlay, and returns the first finding. The folder is empty.
type find func(ctx context.Context, b bug, overlay, folder string) (finding string, err error)

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
	look := find(findByFinder)
	if stories {
		h := hunter{sound: filepath.Join(folder, "sound"), runs: runs}
		look = h.hunt
		if err := buildSimulation(ctx, h.sound); err != nil {
			return 0, err
		}
	}
	bugs, err := readBugs()
	if err != nil {
		return 0, err
	}
	fmt.Println("| Seeded bug | First finding |\n|---|---|")
	for _, b := range bugs {
		if !wanted.MatchString(b.name) {
			continue
		}
		if b.unmet != "" && (stories || b.finder == "") {
			fmt.Printf("| %s | not run: %s |\n", b.name, b.unmet)
			continue
		}
		finding, err := b.seed(ctx, filepath.Join(folder, b.name), look)
		switch {
		case ctx.Err() != nil:
			return missed, ctx.Err()
		case err != nil:
			fmt.Fprintf(os.Stderr, "bugs: %s: %v\n", b.name, err)
			finding = "NOT RUN"
			missed++
		case finding == "":
			finding = "MISSED"
			missed++
		}
		fmt.Printf("| %s | %s |\n", b.name, finding)
	}
	return missed, nil
}

// seed has the bug looked for.
func (b bug) seed(ctx context.Context, folder string, look find) (finding string, err error) {
	file, _, err := overlay.Write(testenv.Root(), folder, b.patch)
	if err != nil {
		return "", err
	}
	return look(ctx, b, file, folder)
}

var (
	finderLine = regexp.MustCompile(`(?m)^Finder: (.+)$`)
	unmetLine  = regexp.MustCompile(`(?m)^Not simulated: (.+)$`)
)

// readBugs reads all patches.
func readBugs() (bugs []bug, err error) {
	patches, err := filepath.Glob(filepath.Join(testenv.Root(), "hack/suites/faults/bugs/*.patch"))
	for _, patch := range patches {
		text, err := os.ReadFile(patch)
		if err != nil {
			return nil, err
		}
		b := bug{patch: patch, name: strings.TrimSuffix(filepath.Base(patch), ".patch")}
		for line, field := range map[*regexp.Regexp]*string{finderLine: &b.finder, unmetLine: &b.unmet} {
			if match := line.FindSubmatch(text); match != nil {
				*field = string(match[1])
			}
		}
		bugs = append(bugs, b)
	}
	return bugs, err
}

// The lines of what fails.
var (
	failedTest  = regexp.MustCompile(`--- FAIL: \S+`)
	faultsFound = regexp.MustCompile(`(?m)^ {7}[ABCDF]: .*$`)
)

// findByFinder runs the bug's test, or its scenario up to three times.
func findByFinder(ctx context.Context, b bug, overlay, folder string) (finding string, err error) {
	what, which, _ := strings.Cut(b.finder, " ")
	if what != "scenario" {
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
