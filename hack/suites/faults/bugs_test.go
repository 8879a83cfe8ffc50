package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// TestPatchesCompile checks that the patches of every seeded bug apply to the product as it is, and compile.
func TestPatchesCompile(t *testing.T) {
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel() // one compilation keeps no second processor busy
			patches, err := b.patches()
			if err != nil {
				t.Fatal(err)
			}
			file, packages, err := overlay.Write(testenv.Root(), t.TempDir(), patchFiles(patches)...)
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

// TestPatchesAreUsed finds patches that no bug needs.
func TestPatchesAreUsed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testenv.Root(), patchFolder, "*.patch"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d patches: %v", len(files), err)
	}
	var used []string
	for _, b := range bugs {
		patches, err := b.patches()
		if err != nil {
			t.Fatal(err)
		}
		used = append(used, patchFiles(patches)...)
	}
	for _, file := range files {
		if !slices.Contains(used, file) {
			t.Errorf("no bug needs %s", file)
		}
	}
}
