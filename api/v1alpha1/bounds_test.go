package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// variant is one field of a full object changed.
type variant struct {
	path    string
	value   any
	message string // what the API server must say; "" when it must accept
	old     any
	set     func(value any)
}

// variants goes over a schema and a full object side by side and breaks, and exhausts, each bound once.
func variants(path string, schema *apiextensionsv1.JSONSchemaProps, value any, set func(any)) []variant {
	var found []variant
	try := func(broken any, message string) {
		found = append(found, variant{path: path, value: broken, message: message, old: value, set: set})
	}
	switch value := value.(type) {
	case string:
		switch {
		case len(schema.Enum) > 0:
			try("nonsense", "Unsupported value: \"nonsense\": supported values:")
			for _, option := range schema.Enum {
				var word string
				_ = json.Unmarshal(option.Raw, &word)
				try(word, "")
			}
		case schema.MaxLength != nil:
			try(strings.Repeat("a", int(*schema.MaxLength)+1), fmt.Sprint("Too long: may not be more than ", *schema.MaxLength))
			if schema.Pattern == "" {
				try(strings.Repeat("é", int(*schema.MaxLength)), "")
			} else {
				least := int64(1)
				if schema.MinLength != nil {
					least = max(least, *schema.MinLength)
				}
				try(strings.Repeat("Ä", int(least)), "should match '"+schema.Pattern+"'")
			}
		}
		if schema.MinLength != nil {
			try("", fmt.Sprintf("should be at least %d chars long", *schema.MinLength))
		}
		try(17, "must be of type ")
	case []any:
		items := schema.Items.Schema
		many := make([]any, *schema.MaxItems+1)
		for i := range many {
			many[i] = value[0]
		}
		try(many, fmt.Sprintf("must have at most %d item", *schema.MaxItems))
		if schema.MinItems != nil {
			try([]any{}, fmt.Sprintf("should have at least %d items", *schema.MinItems))
		}
		if !strings.HasSuffix(path, ".conditions") {
			found = append(found, variants(path+"[0]", items, value[0], func(v any) { value[0] = v })...)
		}
	case object:
		for name, property := range schema.Properties {
			if _, ok := value[name]; !ok {
				if isAlternative(value, name) {
					continue
				}
				panic(path + "." + name + " is missing in testdata")
			}
			old := value[name]
			found = append(found, variants(path+"."+name, &property, old, func(v any) { value[name] = v })...)
		}
		for _, name := range schema.Required {
			try(without(value, name), "Required value")
		}
		if schema.XPreserveUnknownFields != nil && schema.Properties != nil {
			more := maps.Clone(value)
			more["unknown"] = "v"
			message := "must validate one and only one schema (oneOf)"
			if schema.MaxProperties != nil {
				message = fmt.Sprintf("must have at most %d item", *schema.MaxProperties)
			}
			try(more, message)
		} else if schema.MaxProperties != nil {
			many := object{}
			for i := range *schema.MaxProperties + 1 {
				many[fmt.Sprint("k", i)] = "v"
			}
			try(many, fmt.Sprintf("must have at most %d items", *schema.MaxProperties))
			if most := schema.AdditionalProperties.Schema.MaxLength; most != nil {
				try(object{"key": strings.Repeat("a", int(*most)+1)}, fmt.Sprint("Too long: may not be more than ", *most))
			}
			try(object{"key": 1}, "must be of type string: \"integer\"")
		}
		try([]any{}, "must be of type object: \"array\"")
	case float64:
		if schema.Minimum != nil {
			try(*schema.Minimum-1, fmt.Sprint("should be greater than or equal to ", *schema.Minimum))
		}
		try("17", "must be of type integer: \"string\"")
	case bool:
		try("true", "must be of type boolean: \"string\"")
	default:
		panic(fmt.Sprintf("%s is a %T", path, value))
	}
	return found
}

// isAlternative says whether a full object lacks a field because it has the other of two.
func isAlternative(o object, field string) bool {
	other := map[string]string{
		"alerts": "report", "encoding": "report", "count": "report", "summary": "report", "report": "alerts",
		"once": "recurring", "recurring": "once", "names": "selector", "selector": "names",
		"every": "schedule", "schedule": "every", "anyRequest": "dedupKey", "dedupKey": "anyRequest",
	}[field]
	_, ok := o[other]
	return ok
}

func TestEveryBound(t *testing.T) {
	all := crds(t)
	for _, test := range []struct{ file, part string }{
		{"webhookintegration.yaml", "spec"},
		{"webhookintegration.yaml", "status"},
		{"alertevent.yaml", "spec"},
		{"alertevent-report.yaml", "spec"},
		{"maintenancewindow.yaml", "spec"},
		{"maintenancewindow.yaml", "status"},
		{"maintenancewindow-recurring.yaml", "spec"},
		{"requestcapture.yaml", "spec"},
		{"heartbeat.yaml", "spec"},
		{"heartbeat.yaml", "status"},
		{"heartbeat-schedule.yaml", "spec"},
		{"incident.yaml", "spec"},
		{"incident.yaml", "status"},
		{"incidentsummary.yaml", "status"},
	} {
		t.Run(test.file+" "+test.part, func(t *testing.T) {
			g := NewWithT(t)
			namespace := testenv.Namespace(t, apiClient)
			whole := full(t, test.file)
			kind := whole["kind"].(string)
			write := func() error {
				_, err := post(namespace, without(whole, "status"), dryRun)
				return err
			}
			if test.part == "status" {
				_, err := post(namespace, without(whole, "status"))
				g.Expect(err).NotTo(HaveOccurred())
				write = func() error {
					_, err := patchStatus(namespace, kind, nameOf(whole), string(must(json.Marshal(whole["status"]))), dryRun)
					return err
				}
			}
			g.Expect(write()).To(Succeed(), "the full object")

			schema := all[kind].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[test.part]
			for _, v := range variants(test.part, &schema, whole[test.part], func(v any) { whole[test.part] = v }) {
				v.set(v.value)
				err := write()
				v.set(v.old)
				what := fmt.Sprintf("%s = %.60q", v.path, fmt.Sprint(v.value))
				if v.message == "" {
					g.Expect(err).NotTo(HaveOccurred(), what)
				} else {
					older := strings.Replace(v.message, "may not be more than", "may not be longer than", 1) // Kubernetes 1.31
					g.Expect(err).To(MatchError(Or(ContainSubstring(v.message), ContainSubstring(older))), what)
				}
			}
		})
	}
}
