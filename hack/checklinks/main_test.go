package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestCheck(t *testing.T) {
	const page = "# The title\n\n## What `x` is, exactly\n"
	cases := map[string]struct {
		text string
		dead bool
	}{
		"a link to a file":                     {"[a](page.md)", false},
		"a link to a folder":                   {"[a](sub)", false},
		"a link to a heading":                  {"[a](page.md#what-x-is-exactly)", false},
		"a link to a heading of its own":       {"# Here\n[a](#here)", false},
		"a link to the network":                {"[a](https://example.com/nowhere.md)", false},
		"a link to a file that is missing":     {"[a](missing.md)", true},
		"a link to a heading that is missing":  {"[a](page.md#missing)", true},
		"what looks like a link in code":       {"`[a](missing.md)`\n```\n[a](missing.md)\n```\n", false},
		"a missing heading that is in a fence": {"```\n# here\n```\n[a](#here)", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			g.Expect(os.Mkdir(filepath.Join(folder, "sub"), 0o700)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(folder, "page.md"), []byte(page), 0o600)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(folder, "from.md"), []byte(c.text), 0o600)).To(Succeed())
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
