package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// files are a package whose tests notice some of its mutants.
var files = map[string]string{
	"go.mod": "module example.com/a/limits\n\ngo 1.26\n",
	"limits.go": `package limits

type limit struct{ most, used int }

func (l *limit) allows(more int) bool { return l.used+more <= l.most && more > 0 }

func (l *limit) add(more int) string {
	if l.allows(more) {
		l.used += more
	}
	return "used " + string(rune('0'+l.used))
}

func unused(a, b int) int { return max(a, b) }
`,
	"limits_test.go": `package limits

import "testing"

func TestAdd(t *testing.T) {
	l := &limit{most: 3}
	for _, step := range []struct {
		more int
		want string
	}{{2, "used 2"}, {2, "used 2"}, {1, "used 3"}} {
		if got := l.add(step.more); got != step.want {
			t.Fatal(got)
		}
	}
}
`,
}

func TestMutantsThatNoTestNotices(t *testing.T) {
	g, folder := NewWithT(t), t.TempDir()
	for name, text := range files {
		g.Expect(os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)).To(Succeed())
	}
	o := &options{every: 1, jobs: 2}
	tried, survivors, err := o.try(t.Context(), []string{folder})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(tried).To(Equal(12))
	g.Expect(survivors).To(ConsistOf(
		"limits.go:5: && left only", "limits.go:5: > → >=", "limits.go:14: max → min (not executed)",
	))
	o.only = "^limits.go:5: <="
	tried, survivors, err = o.try(t.Context(), []string{folder})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(tried).To(Equal(2))
	g.Expect(survivors).To(BeEmpty())
}
