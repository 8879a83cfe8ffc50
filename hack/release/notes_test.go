package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// notes returns what the script below the folder prints.
func notes(t *testing.T, root, version string) (string, error) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "release", "notes.sh"), version).CombinedOutput()
	return string(output), err
}

func TestNotes(t *testing.T) {
	g := NewWithT(t)
	tree := t.TempDir()
	copyScript(t, tree, "notes.sh")
	write(t, tree, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n### Added\n\n- New.\n\n"+
		"## [v0.2.0] - 2026-02-01\n\n- Two.\n\n## v0.1.0\n\n- One.\n\n## v0.0.1\n")
	for version, want := range map[string]string{
		"v0.3.0-dev+abc": "### Added\n\n- New.\n",
		"v0.2.0":         "- Two.\n",
		"v0.1.0":         "- One.\n",
	} {
		g.Expect(notes(t, tree, version)).To(Equal(want), version)
	}
	for _, missing := range []string{"v0.0.1", "v0.0.2", "v0.2"} {
		said, err := notes(t, tree, missing)
		g.Expect(err).To(HaveOccurred(), missing)
		g.Expect(said).To(ContainSubstring("there is no section"), missing)
	}
}

// The project's own list must have the form that notes are cut from.
func TestNotesOfTheProject(t *testing.T) {
	g := NewWithT(t)
	g.Expect(notes(t, "../..", "v0.0.0-dev")).To(HavePrefix("### "))
	content, err := os.ReadFile("../../CHANGELOG.md")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(ContainSubstring("\n## Unreleased\n"))
}
