// Package bugs looks for seeded bugs: "make verify" checks that their patches compile, and "make test-bugs" and
// "make test-simulation-bugs" that something finds each.
package bugs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// bug is a patch in hack/suites/faults/bugs, and what its head says.
type bug struct {
	name, patch string
	finder      string // the package and the test that it must fail, or "scenario" and its name; empty: it is no bug
	unmet       string // why the simulation cannot meet it
}

var (
	finderLine = regexp.MustCompile(`(?m)^Finder: (.+)$`)
	unmetLine  = regexp.MustCompile(`(?m)^Not simulated: (.+)$`)
)

// readBugs reads all patches.
func readBugs(t *testing.T) (bugs []bug) {
	t.Helper()
	patches, err := filepath.Glob(filepath.Join(testenv.Root(), "hack/suites/faults/bugs/*.patch"))
	if err != nil || len(patches) == 0 {
		t.Fatal("no patches", err)
	}
	for _, patch := range patches {
		text, err := os.ReadFile(patch)
		if err != nil {
			t.Fatal(err)
		}
		b := bug{patch: patch, name: strings.TrimSuffix(filepath.Base(patch), ".patch")}
		for line, field := range map[*regexp.Regexp]*string{finderLine: &b.finder, unmetLine: &b.unmet} {
			if match := line.FindSubmatch(text); match != nil {
				*field = string(match[1])
			}
		}
		bugs = append(bugs, b)
	}
	return bugs
}

// seed writes the file with which "go build -overlay" builds the product with the bug, and returns it and the patched packages.
func (b bug) seed(t *testing.T) (file string, packages []string) {
	t.Helper()
	file, packages, err := overlay.Write(testenv.Root(), t.TempDir(), b.patch)
	if err != nil {
		t.Fatal(err)
	}
	return file, packages
}

// TestPatchesCompile checks that the patch of every seeded bug applies to the product as it is, and compiles.
func TestPatchesCompile(t *testing.T) {
	for _, b := range readBugs(t) {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel() // one compilation keeps no second processor busy
			file, packages := b.seed(t)
			if err := testenv.Go(t.Context(), append([]string{"build", "-overlay=" + file}, packages...)...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPatchesHaveFinders checks that something finds each bug.
func TestPatchesHaveFinders(t *testing.T) {
	for _, b := range readBugs(t) {
		if b.finder == "" && b.name != "clock" {
			t.Errorf("nothing finds %s", b.name)
		}
	}
}
