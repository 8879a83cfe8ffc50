package main

import (
	"bytes"
	"os"
	"testing"

	. "github.com/onsi/gomega"
)

func TestNotes(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n### Added\n\n- New.\n\n" +
		"## [v0.2.0] - 2026-02-01\n\n- Two.\n\n## v0.1.0\n\n- One.\n\n## v0.0.1\n"
	g := NewWithT(t)
	for version, want := range map[string]string{
		"v0.3.0-dev+abc": "### Added\n\n- New.\n",
		"v0.2.0":         "- Two.\n",
		"v0.1.0":         "- One.\n",
	} {
		g.Expect(notes(changelog, version)).To(Equal(want), version)
	}
	for _, missing := range []string{"v0.0.1", "v0.0.2", "v0.2"} {
		_, err := notes(changelog, missing)
		g.Expect(err).To(MatchError(ContainSubstring("there is no section")), missing)
	}
}

// The project's own list must have the form that notes are cut from.
func TestNotesOfTheProject(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	g.Expect(run(t.Context(), []string{"notes", "-changelog", "../../CHANGELOG.md", "v0.0.0-dev"}, &out)).To(Succeed())
	g.Expect(out.String()).To(HavePrefix("### "))
	content, err := os.ReadFile("../../CHANGELOG.md")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(ContainSubstring("\n## Unreleased\n"))
}
