package mapping

import (
	"fmt"
	"reflect"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// TestEachFieldOfAMappingCountsForItsProgram changes one field after the other of an integration's preset and mapping, also those that
// a later version adds. The cache has another program then, as without a cache.
func TestEachFieldOfAMappingCountsForItsProgram(t *testing.T) {
	g, cache := NewWithT(t), NewCache()
	integration := &v1alpha1.WebhookIntegration{}
	integration.Namespace, integration.Spec.Mapping = "team", &v1alpha1.Mapping{Alerts: "payload.alerts"}
	base, err := cache.Program(integration)
	g.Expect(err).NotTo(HaveOccurred())
	seen := map[*Program]string{base: "nothing"}
	compare := func(what string) {
		program, err := cache.Program(integration)
		_, without := Compile(PresetOf(&integration.Spec), integration.Spec.Mapping)
		g.Expect(fmt.Sprint(err)).To(Equal(fmt.Sprint(without)), what)
		if err == nil {
			g.Expect(seen).NotTo(HaveKey(program), "%s: it has the program of %s", what, seen[program])
			seen[program] = what
		}
	}
	changed := 0
	var visit func(path string, value reflect.Value)
	visit = func(path string, value reflect.Value) {
		switch value.Kind() {
		case reflect.Struct:
			for i := range value.NumField() {
				visit(path+"."+value.Type().Field(i).Name, value.Field(i))
			}
		case reflect.String:
			before := value.String()
			value.SetString(`payload["` + path + `"]`)
			compare(path)
			value.SetString(before)
			changed++
		default:
			t.Errorf("%s is of a kind that this test does not change: %s", path, value.Kind())
		}
	}
	visit("mapping", reflect.ValueOf(integration.Spec.Mapping).Elem())
	g.Expect(changed).To(BeNumerically(">", 10))
	integration.Spec.Preset = "grafana"
	compare("preset")
	integration.Namespace = "other"
	compare("namespace")
}
