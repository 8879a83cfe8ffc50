package main

import (
	"os/exec"
	"testing"

	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// TestPatchesCompile checks that the patch of every seeded bug applies to the product as it is, and compiles.
func TestPatchesCompile(t *testing.T) {
	bugs, err := readBugs()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel() // one compilation keeps no second processor busy
			file, packages, err := overlay.Write(testenv.Root(), t.TempDir(), b.patch)
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

// TestPatchesHaveFinders checks that something finds each bug.
func TestPatchesHaveFinders(t *testing.T) {
	bugs, err := readBugs()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bugs {
		if b.finder == "" && b.name != "clock" {
			t.Errorf("nothing finds %s", b.name)
		}
	}
}
