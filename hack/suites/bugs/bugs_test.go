package main

import (
	"os/exec"
	"testing"

	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// TestPatchesCompile checks that the patch of every seeded bug applies to the product as it is, and compiles.
func TestPatchesCompile(t *testing.T) {
	patches, err := patchFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, patch := range patches {
		t.Run(nameOf(patch), func(t *testing.T) {
			t.Parallel() // one compilation keeps no second processor busy
			file, packages, err := overlay.Write(testenv.Root(), t.TempDir(), patch)
			if err != nil {
				t.Fatal(err)
			}
			command := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay=" + file}, packages...)...)
			command.Dir = testenv.Root()
			if output, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}

// TestPatchesHaveFinders compares the patches with the tables.
func TestPatchesHaveFinders(t *testing.T) {
	patches, err := patchFiles()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, patch := range patches {
		name := nameOf(patch)
		names[name] = true
		if finders[name] == "" && name != clock {
			t.Errorf("nothing finds %s", name)
		}
	}
	for _, table := range []map[string]string{finders, elsewhere} {
		for name := range table {
			if !names[name] {
				t.Errorf("%s has no patch", name)
			}
		}
	}
}
