package main

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestCheck(t *testing.T) {
	const page = "# The title\n\n## What `x` is, exactly\n"
	const guide, doc = "CONTRIBUTING.md", "hack/doc.go"
	cases := map[string]struct {
		text string
		dead bool
		file string // from.md if empty
	}{
		"a link to a file":                     {"[a](page.md)", false, ""},
		"a link to a folder":                   {"[a](sub)", false, ""},
		"a link to a heading":                  {"[a](page.md#what-x-is-exactly)", false, ""},
		"a link to a heading of its own":       {"# Here\n[a](#here)", false, ""},
		"a link to the network":                {"[a](https://example.com/nowhere.md)", false, ""},
		"a link to a file that is missing":     {"[a](missing.md)", true, ""},
		"a link to a heading that is missing":  {"[a](page.md#missing)", true, ""},
		"what looks like a link in code":       {"`[a](missing.md)`\n```\n[a](missing.md)\n```\n", false, ""},
		"a missing heading that is in a fence": {"```\n# here\n```\n[a](#here)", true, ""},
		"a target":                             {"`make test` or\nmake test", false, ""},
		"a target with variables":              {"`make A=1 B=x-y test`", false, ""},
		"a target that is missing":             {"`make tests`", true, ""},
		"a target that is missing, in a fence": {"```sh\nmake IMG=x tests\n```", true, ""},
		"a sentence":                           {"These make tests fail.", false, ""},
		"a file of the project":                {"see `hack/run.sh`", false, ""},
		"a file that is missing":               {"see hack/old/run.sh.", true, ""},
		"a test":                               {"`TestRun`, and `TestRun/a case of it`", false, ""},
		"a test that is missing":               {"`TestRuns`", true, ""},
		"a method":                             {"`hack.runner.run`", false, guide},
		"a method that is missing":             {"`hack.runner.walk`", true, guide},
		"a file beside a package comment":      {"// It runs (run_test.go).\npackage hack", false, doc},
		"a file that is not beside it":         {"// It runs (runs.go).\npackage hack", true, doc},
		"the same in another file of Go":       {"// It runs (runs.go).\npackage hack", true, "hack/walk.go"},
		"a file in another comment":            {"// It runs.\npackage hack\n\n// As runs.go did.", false, "hack/walk.go"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			g.Expect(os.Mkdir(filepath.Join(folder, "sub"), 0o700)).To(Succeed())
			g.Expect(os.Mkdir(filepath.Join(folder, "hack"), 0o700)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(folder, "hack", "run.sh"), nil, 0o600)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(folder, "hack", "run_test.go"), []byte("\nfunc TestRun(t *testing.T) {\nfunc (r *runner) run() {"), 0o600)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(folder, "Makefile"), []byte("test: build\n\tgo test\n"), 0o600)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(folder, "page.md"), []byte(page), 0o600)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(folder, cmp.Or(c.file, "from.md")), []byte(c.text), 0o600)).To(Succeed())
			dead, err := check(folder)
			g.Expect(err).NotTo(HaveOccurred())
			if c.dead {
				g.Expect(dead).To(HaveLen(1))
			} else {
				g.Expect(dead).To(BeEmpty())
			}
		})
	}
}
