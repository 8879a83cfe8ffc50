package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// Values that the API server might accept and Go's types might not be able to read.
var (
	hostileTimes = []string{
		`"2026-05-04t10:00:00Z"`, `"2026-05-04T10:00:00z"`, `"2026-05-04 10:00:00Z"`, `"2026-05-04T10:00:00"`,
		`"2026-05-04T23:59:60Z"`, `"2026-05-04T24:00:00Z"`, `"2026-05-04T10:60:00Z"`, `"2026-02-30T10:00:00Z"`,
		`"0000-01-01T00:00:00Z"`, `"0000-01-01T00:00:00+01:00"`, `"0001-01-01T00:00:00Z"`, `"0001-01-01T00:00:00-01:00"`,
		`"0100-01-01T00:00:00+01:00"`, `"9999-12-31T23:59:59Z"`, `"9999-12-31T23:59:59-23:00"`, `"12026-05-04T10:00:00Z"`,
		`"2026-05-04T10:00:00+24:00"`, `"2026-05-04T10:00:00+99:99"`, `"2026-05-04T10:00:00-00:00"`, `"2026-05-04T10:00:00+0200"`,
		`"2026-05-04T10:00:00.Z"`, `"2026-05-04T10:00:00,5Z"`, `"2026-05-04T10:00:00.1234567890123Z"`, `"2026-05-04T10:00:00Ztail"`,
		`"2026-05-04T10:00:00.5Z\n"`, `""`, `"now"`, `1777888800`, `null`, `{}`,
	}
	hostileIntegers = []string{
		`1.0`, `1e3`, `1.0000000001`, `1000000000.5`, `9007199254740991.0`, `9007199254740993`, `1e18`,
		`9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `1e400`, `-0`, `-0.0`, `"1"`, `null`,
	}
	hostileDurations = []string{
		`"1d"`, `"1h30m"`, `"99999999999h"`, `"2562047h47m16s"`, `"2562048h"`, `"1.5.5h"`, `"1"`, `"0"`, `"1us"`, `"1µs"`, `"1ns"`,
		`"-1h"`, `"+1h"`, `".5h"`, `"1.h"`, `"1h 1m"`, `"87600h"`, `"0.0000000000000000000000001h"`, `"1H"`, `""`, `60`, `null`,
	}
	hostileStrings = []string{`"\u0000"`, `"\ud800"`, `"\ufeff\u202e"`, "\"\xff\xfe\"", `""`, `1.5`, `true`, `null`, `[]`, `{}`}
	hostileOthers  = []string{`null`, `[]`, `{}`, `[null]`, `{"":null}`, `1`, `"x"`, `false`}
)

func hostileValues(path string, schema *apiextensionsv1.JSONSchemaProps) []string {
	switch {
	case schema.Format == "date-time":
		return hostileTimes
	case strings.HasSuffix(path, "utoResolveAfter") || strings.HasSuffix(path, "retention"),
		strings.HasSuffix(path, "lateFiringWindow"), strings.HasSuffix(path, "silenceFor"), strings.HasSuffix(path, "uration"),
		strings.HasSuffix(path, "every"), strings.HasSuffix(path, "grace"), strings.HasSuffix(path, "acknowledgeFor"),
		strings.HasSuffix(path, "ExpiresAfter"), strings.Contains(path, "forwardAfter."), strings.HasSuffix(path, "flapping.period"), strings.HasSuffix(path, "keepFiringFor"):
		return hostileDurations
	case schema.Type == "integer":
		return hostileIntegers
	case schema.Type == "string":
		return hostileStrings
	}
	return hostileOthers
}

// visit calls f for every value of a full object, with what sets it to another.
func visit(path string, schema *apiextensionsv1.JSONSchemaProps, value any, set func(any),
	f func(path string, schema *apiextensionsv1.JSONSchemaProps, old any, set func(any)),
) {
	f(path, schema, value, set)
	switch value := value.(type) {
	case []any:
		visit(path+"[0]", schema.Items.Schema, value[0], func(v any) { value[0] = v }, f)
	case object:
		for name, property := range schema.Properties {
			if isAlternative(value, name) {
				continue
			}
			visit(path+"."+name, &property, value[name], func(v any) { value[name] = v }, f)
		}
	}
}

// An informer lists all objects of a kind: one that it cannot decode hides all the others, from every
// namespace. So whatever the API server accepts, from whomever, Go must read, and must be able to write
// back: an Incident that can no longer be written is stuck.
func TestGoReadsWhateverIsAccepted(t *testing.T) {
	all := crds(t)
	decoder := serializer.NewCodecFactory(testenv.Scheme()).UniversalDeserializer()
	for _, test := range []struct{ file, part string }{
		{"webhookintegration.yaml", "spec"},
		{"webhookintegration.yaml", "status"},
		{"alertevent.yaml", "spec"},
		{"alertevent-report.yaml", "spec"},
		{"maintenancewindow.yaml", "spec"},
		{"maintenancewindow.yaml", "status"},
		{"maintenancewindow-recurring.yaml", "spec"},
		{"heartbeat.yaml", "spec"},
		{"heartbeat.yaml", "status"},
		{"heartbeat-schedule.yaml", "spec"},
		{"incident.yaml", "spec"},
		{"incident.yaml", "status"},
		{"incidentsummary.yaml", "status"},
	} {
		t.Run(test.file+" "+test.part, func(t *testing.T) {
			g := NewWithT(t)
			namespace := schemaNamespace(t)
			whole := full(t, test.file)
			kind, name := whole["kind"].(string), nameOf(whole)
			create := func(o object, options ...string) ([]byte, error) {
				request := schemaClient.Post().Namespace(namespace).Resource(resources[kind])
				return sendRaw(request, must(json.Marshal(o)), "application/json", options...)
			}
			if test.part == "status" {
				_, err := create(without(whole, "status"))
				g.Expect(err).NotTo(HaveOccurred())
			}
			write := func(content any) ([]byte, error) {
				if test.part == "status" {
					return sendRaw(schemaClient.Patch(types.MergePatchType).Namespace(namespace).Resource(resources[kind]).
						Name(name).SubResource("status"), must(json.Marshal(object{"status": content})),
						string(types.MergePatchType), dryRun)
				}
				o := without(whole, "status")
				o["spec"] = content
				return create(o, dryRun)
			}
			accepted, rejected := 0, 0
			schema := all[kind].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[test.part]
			visit(test.part, &schema, whole[test.part], func(v any) { whole[test.part] = v }, func(
				path string, schema *apiextensionsv1.JSONSchemaProps, old any, set func(any),
			) {
				for _, value := range hostileValues(path, schema) {
					set(json.RawMessage(value))
					answer, err := write(whole[test.part])
					set(old)
					if err != nil {
						rejected++
						continue
					}
					accepted++
					what := fmt.Sprintf("%s = %s", path, value)
					read, _, err := decoder.Decode(answer, nil, nil)
					g.Expect(err).NotTo(HaveOccurred(), "reading "+what)
					_, err = write(part(read, test.part))
					g.Expect(err).NotTo(HaveOccurred(), "writing back "+what)
				}
			})
			g.Expect(accepted).To(BeNumerically(">", 2))
			g.Expect(rejected).To(BeNumerically(">", 2))
		})
	}
}

// part is the spec or the status of a typed object.
func part(o runtime.Object, name string) any {
	switch o := o.(type) {
	case *v1alpha1.Heartbeat:
		return map[string]any{"spec": o.Spec, "status": o.Status}[name]
	case *v1alpha1.MaintenanceWindow:
		return map[string]any{"spec": o.Spec, "status": o.Status}[name]
	case *v1alpha1.WebhookIntegration:
		return map[string]any{"spec": o.Spec, "status": o.Status}[name]
	case *v1alpha1.AlertEvent:
		return o.Spec
	case *v1alpha1.RequestCapture:
		return o.Spec
	case *v1alpha1.IncidentSummary:
		return o.Status
	case *v1alpha1.Incident:
		return map[string]any{"spec": o.Spec, "status": o.Status}[name]
	}
	panic(fmt.Sprintf("a %T", o))
}
