package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/gen/kustomize"
)

const changelog = `# Changelog

## Unreleased

- Not yet.

## [v1.2.0] - 2026-01-01

### Added

- A [thing](https://example.com/thing), which has
  two lines.

### Fixed

- A fault.

## v1.1.0

- Old.
`

func TestChangesOfAVersion(t *testing.T) {
	g := NewWithT(t)
	g.Expect(changes(changelog, "1.2.0")).To(Equal([]map[string]string{
		{"kind": "added", "description": "A thing, which has two lines."},
		{"kind": "fixed", "description": "A fault."},
	}))
	g.Expect(changes(changelog, "1.1.0")).To(Equal([]map[string]string{{"kind": "changed", "description": "Old."}}))
	g.Expect(changes(changelog, "1.3.0")).To(BeEmpty())
}

func TestVersionAndImage(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "CHANGELOG.md")
	g.Expect(os.WriteFile(path, []byte(changelog), 0o600)).To(Succeed())
	o := options{image: "registry.example.com:5000/t/tocsin:v1.2.0", changelog: path}
	files := map[string]string{}
	for _, name := range []string{"Chart.yaml", "values.yaml"} {
		text, err := fixed.ReadFile("fixed/" + name)
		g.Expect(err).NotTo(HaveOccurred())
		files[name] = strings.Replace(string(text), "\nversion: 0.1.0\n", "\nversion: 1.2.0\n", 1)
	}
	g.Expect(o.describe(files, nil)).To(Succeed())
	g.Expect(o.addValues(files)).To(Succeed())
	var chart struct {
		Version, AppVersion string
		Annotations         map[string]string
	}
	g.Expect(yaml.Unmarshal([]byte(files["Chart.yaml"]), &chart)).To(Succeed())
	g.Expect(chart.Version).To(Equal("1.2.0"))
	g.Expect(chart.AppVersion).To(Equal("v1.2.0"))
	g.Expect(chart.Annotations).To(HaveKeyWithValue("artifacthub.io/changes", ContainSubstring("description: A fault.\n  kind: fixed")))
	g.Expect(chart.Annotations).To(HaveKeyWithValue("artifacthub.io/images", ContainSubstring("image: "+o.image)))
	g.Expect(files["values.yaml"]).To(ContainSubstring("  repository: registry.example.com:5000/t/tocsin\n"))
	_, _, err := kustomize.SplitImage("registry.example.com:5000/tocsin")
	g.Expect(err).To(MatchError(ContainSubstring("has no tag")))
}
