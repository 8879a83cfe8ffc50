package mapping

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/origins"
)

// inNamespace makes an integration with a mapping of its own, which is as large as one can be if large.
func inNamespace(namespace string, i int, large bool) *v1alpha1.WebhookIntegration {
	w := &v1alpha1.WebhookIntegration{}
	w.Namespace, w.Name = namespace, fmt.Sprintf("tool-%d", i)
	w.Spec.Mapping = &v1alpha1.Mapping{Drop: v1alpha1.Expression(fmt.Sprintf("alert.x == %d", i))}
	if large {
		w.Spec.Mapping.Alerts = "payload.alerts"
		fields := reflect.ValueOf(&w.Spec.Mapping.Fields).Elem()
		for i, name := range fieldNames {
			if !origins.Field(i).IsBag() {
				isField := func(field string) bool { return strings.EqualFold(field, name) }
				fields.FieldByNameFunc(isField).SetString("dyn([" + strings.Repeat("alert.x,", 254) + "1])")
			}
		}
	}
	return w
}

func heapInUse() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// TestTheSizeOfAProgramIsNotLessThanWhatItTakes compiles mappings of several shapes.
func TestTheSizeOfAProgramIsNotLessThanWhatItTakes(t *testing.T) {
	g := NewWithT(t)
	loadedEnvironment()
	for name, expression := range map[string]string{
		"paths":       "[" + strings.Repeat("alert.x,", 250) + "1]",
		"literals":    "[" + strings.Repeat("1,", 1000) + "1]",
		"calls":       strings.Repeat("string(", 30) + "alert.x" + strings.Repeat(")", 30),
		"loops":       "[" + strings.Repeat("[1].map(a,a),", 120) + "[1]]",
		"conditions":  strings.Repeat("alert.a=='x'?'y':", 55) + "''",
		"expressions": `alert.labels.matches("^a.*b$") ? "x" : "y"`,
		"short":       "alert.a",
	} {
		const many = 10
		compile := func() []*Program {
			programs := make([]*Program, many)
			for i := range programs {
				var m v1alpha1.Mapping
				m.Fields.Title = v1alpha1.Expression("dyn(" + expression + ")")
				m.Fields.Labels = m.Fields.Title
				var err error
				programs[i], err = Compile("", &m)
				g.Expect(err).NotTo(HaveOccurred(), name)
			}
			return programs
		}
		compile()
		before := heapInUse()
		programs := compile()
		taken := (heapInUse() - before) / many
		t.Logf("%s: %d nodes take %d bytes, estimated %d", name, 2*programs[0].expressions[0].nodes, taken, programs[0].bytes+emptyProgramBytes)
		g.Expect(programs[0].bytes+emptyProgramBytes).To(BeNumerically(">=", taken), name)
	}
}

func TestIntegrationsWithOnePresetShareItsProgram(t *testing.T) {
	g := NewWithT(t)
	c := NewCache()
	programs := map[*Program]bool{}
	for i := range 10_000 {
		w := &v1alpha1.WebhookIntegration{}
		w.Namespace, w.Name, w.Spec.Preset = fmt.Sprintf("team-%d", i%100), fmt.Sprint(i), "alertmanager"
		program, err := c.Program(w)
		g.Expect(err).NotTo(HaveOccurred())
		programs[program] = true
	}
	g.Expect(programs).To(HaveLen(1))
	g.Expect(c.namespaces).To(BeEmpty())
}

// TestOneNamespaceCostsNoOtherItsPrograms fills the cache from one namespace, many times over.
func TestOneNamespaceCostsNoOtherItsPrograms(t *testing.T) {
	g := NewWithT(t)
	c := NewCache()
	small := inNamespace("small", 0, false)
	own, err := c.Program(small)
	g.Expect(err).NotTo(HaveOccurred())
	preset := &v1alpha1.WebhookIntegration{}
	preset.Spec.Preset = "grafana"
	shared, err := c.Program(preset)
	g.Expect(err).NotTo(HaveOccurred())
	one, err := Compile("", inNamespace("large", 0, true).Spec.Mapping)
	g.Expect(err).NotTo(HaveOccurred())
	count := 2*maxCacheBytes/one.bytes + 2
	for i := range count {
		_, err := c.Program(inNamespace("large", i, true))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(c.bytes.Sum()).To(BeNumerically("<=", maxCacheBytes))
	}
	t.Logf("%d of %d largest mappings are remembered, of %d bytes each", c.namespaces["large"].programs.Len(), count, one.bytes)
	g.Expect(c.namespaces["large"].programs.Len()).To(BeNumerically("<", count))
	g.Expect(c.Program(small)).To(BeIdenticalTo(own))
	g.Expect(c.Program(preset)).To(BeIdenticalTo(shared))

	t.Log("what is used stays, and what is known to compile is not compiled again to be checked")
	last := inNamespace("large", count-1, true)
	kept, err := c.Program(last)
	g.Expect(err).NotTo(HaveOccurred())
	forgotten := inNamespace("large", 0, true)
	g.Expect(c.Check(forgotten)).To(Succeed())
	g.Expect(c.namespaces["large"].get(keyOf(forgotten))).To(BeNil())
	g.Expect(c.Program(last)).To(BeIdenticalTo(kept))
}

func TestPresetsThatDoNotExistAreForgottenToo(t *testing.T) {
	g := NewWithT(t)
	c := NewCache()
	for i := range 2*maxCacheBytes/emptyProgramBytes + 2 {
		w := &v1alpha1.WebhookIntegration{}
		w.Namespace, w.Spec.Preset = "team-a", fmt.Sprintf("no-such-%d", i)
		g.Expect(c.Check(w)).To(MatchError(ContainSubstring("there is no preset")))
	}
	g.Expect(c.namespaces).To(BeEmpty())
}

func TestEachMistakeIsALine(t *testing.T) {
	c := NewCache()
	w := &v1alpha1.WebhookIntegration{}
	w.Spec.Mapping = &v1alpha1.Mapping{Drop: "foo(1)", Fields: v1alpha1.MappingFields{Title: "alrt.title"}}
	NewWithT(t).Expect(c.Check(w)).To(MatchError(MatchRegexp(`^spec\.mapping\.\S+: .+\nspec\.mapping\.\S+: .+$`)))
}

// BenchmarkCompileLargest compiles the largest mapping.
func BenchmarkCompileLargest(b *testing.B) {
	m := inNamespace("large", 0, true).Spec.Mapping
	for b.Loop() {
		if _, err := Compile("", m); err != nil {
			b.Fatal(err)
		}
	}
}
