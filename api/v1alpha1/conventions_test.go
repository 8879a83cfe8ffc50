package v1alpha1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// kubernetesFields are written by Kubernetes' own types; our conventions do not bind them.
var kubernetesFields = []string{"apiVersion", "kind", "metadata"}

// breaches lists what in a schema goes against the project's conventions, one line each.
func breaches(path string, schema *apiextensionsv1.JSONSchemaProps) []string {
	var found []string
	breach := func(format string, args ...any) {
		found = append(found, path+": "+fmt.Sprintf(format, args...))
	}
	bag := schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields
	switch schema.Type {
	case "string":
		if schema.MaxLength == nil && len(schema.Enum) == 0 && !fromCondition(path) {
			breach("a string needs maxLength or enum")
		}
	case "array":
		found = append(found, listBreaches(path, schema)...)
	case "object":
		if bag && (schema.XMapType == nil || *schema.XMapType != "atomic") {
			breach("a free-form object needs mapType=atomic")
		}
		if values := schema.AdditionalProperties; values != nil && values.Schema != nil {
			if schema.MaxProperties == nil {
				breach("a map needs maxProperties")
			}
			if !strings.HasSuffix(path, ".labels") && !strings.HasSuffix(path, ".annotations") { // alertcontent.MaxBytes bounds these
				found = append(found, breaches(path+"[*]", values.Schema)...)
			}
		}
		if !bag && schema.AdditionalProperties == nil && len(schema.Properties) == 0 {
			breach("an object needs properties")
		}
	case "integer":
		if schema.Format != "int64" {
			breach("an integer needs the format int64")
		}
	case "boolean":
	case "number":
		breach("no floats: clients round them differently")
	default:
		breach("type %q", schema.Type)
	}
	for name, property := range schema.Properties {
		field := path + "." + name
		if !described(name, property.Description) && !fromCondition(path) {
			found = append(found, field+": the description must begin with "+name)
		}
		if strings.EqualFold(name, "phase") {
			found = append(found, field+": say it with conditions and state, not with a phase")
		}
		found = append(found, breaches(field, &property)...)
	}
	return found
}

func listBreaches(path string, schema *apiextensionsv1.JSONSchemaProps) []string {
	var found []string
	if schema.MaxItems == nil {
		found = append(found, path+": a list needs maxItems")
	}
	switch {
	case schema.XListType == nil:
		found = append(found, path+": a list needs a listType")
	case *schema.XListType == "map" && len(schema.XListMapKeys) == 0:
		found = append(found, path+": listType=map needs listMapKey")
	}
	if schema.Items == nil || schema.Items.Schema == nil {
		return append(found, path+": a list needs items")
	}
	return append(found, breaches(path+"[]", schema.Items.Schema)...)
}

// fromCondition tells the fields of metav1.Condition, whose schema is not ours.
func fromCondition(path string) bool {
	return strings.Contains(path, ".conditions[]")
}

func described(name, description string) bool {
	return description == name || strings.HasPrefix(description, name+" ")
}

// crds reads the generated CustomResourceDefinitions by kind.
func crds(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testenv.Root(), "config", "crd", "bases", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
		byKind[crd.Spec.Names.Kind] = crd
	}
	return byKind
}

func TestSchemasKeepTheConventions(t *testing.T) {
	g := NewWithT(t)
	all := crds(t)
	g.Expect(all).To(HaveLen(7))
	for kind, crd := range all {
		g.Expect(crd.Spec.Versions).To(HaveLen(1))
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.DeepCopy()
		g.Expect(described(kind, schema.Description)).To(BeTrue(), "the description of %s begins with its name", kind)
		if kind != "IncidentSummary" { // which has none
			g.Expect(schema.Required).To(ContainElement("spec"))
		}
		for _, name := range kubernetesFields {
			delete(schema.Properties, name)
		}
		found := breaches(kind, schema)
		slices.Sort(found)
		g.Expect(found).To(BeEmpty())
	}
}

func TestConventionsCanBeBroken(t *testing.T) {
	for name, test := range map[string]struct {
		schema string
		breach string
	}{
		"a field without a description": {
			`{type: string, maxLength: 1}`, "Kind.spec.field: the description must begin with field"},
		"a description that begins with the Go name": {
			`{type: string, maxLength: 1, description: Field is}`, "Kind.spec.field: the description must begin with field"},
		"a string without a bound": {
			`{type: string, description: field is}`, "Kind.spec.field: a string needs maxLength or enum"},
		"a date-time without a bound": {
			`{type: string, format: date-time, description: field is}`, "Kind.spec.field: a string needs maxLength or enum"},
		"a list without a bound": {
			`{type: array, description: field is, x-kubernetes-list-type: atomic, items: {type: boolean}}`,
			"Kind.spec.field: a list needs maxItems"},
		"a list without a type": {
			`{type: array, description: field is, maxItems: 1, items: {type: boolean}}`,
			"Kind.spec.field: a list needs a listType"},
		"a map list without a key": {
			`{type: array, description: field is, maxItems: 1, x-kubernetes-list-type: map, items: {type: boolean}}`,
			"Kind.spec.field: listType=map needs listMapKey"},
		"a string without a bound in a list": {
			`{type: array, description: field is, maxItems: 1, x-kubernetes-list-type: set, items: {type: string}}`,
			"Kind.spec.field[]: a string needs maxLength or enum"},
		"a bag that is not atomic": {
			`{type: object, description: field is, x-kubernetes-preserve-unknown-fields: true}`,
			"Kind.spec.field: a free-form object needs mapType=atomic"},
		"an object that loses all it is given": {
			`{type: object, description: field is}`, "Kind.spec.field: an object needs properties"},
		"a map without a bound": {
			`{type: object, description: field is, additionalProperties: {type: boolean}}`,
			"Kind.spec.field: a map needs maxProperties"},
		"a map of strings without a bound": {
			`{type: object, description: field is, maxProperties: 1, additionalProperties: {type: string}}`,
			"Kind.spec.field[*]: a string needs maxLength or enum"},
		"a float": {
			`{type: number, description: field is}`, "Kind.spec.field: no floats: clients round them differently"},
		"an integer of a size that depends on the reader": {
			`{type: integer, description: field is}`, "Kind.spec.field: an integer needs the format int64"},
		"a value of any type": {
			`{x-kubernetes-preserve-unknown-fields: true, description: field is}`, `Kind.spec.field: type ""`},
		"a phase": {
			`{type: object, description: field is, properties: {phase: {type: boolean, description: phase is}}}`,
			"Kind.spec.field.phase: say it with conditions and state, not with a phase"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			root := `{type: object, properties: {spec: {type: object, description: spec is, properties: {field: ` + test.schema + `}}}}`
			schema := &apiextensionsv1.JSONSchemaProps{}
			g.Expect(yaml.UnmarshalStrict([]byte(root), schema)).To(Succeed())
			g.Expect(breaches("Kind", schema)).To(ConsistOf(test.breach))
		})
	}
}

func TestFreeFormBags(t *testing.T) {
	g := NewWithT(t)
	all := crds(t)
	incident := all["Incident"].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["alert"]
	for _, name := range []string{"labels", "annotations", "values", "custom"} {
		g.Expect(incident.Properties[name].XMapType).To(HaveValue(Equal("atomic")), name)
	}
	for _, name := range []string{"values", "custom"} {
		g.Expect(incident.Properties[name].XPreserveUnknownFields).To(HaveValue(BeTrue()), name)
	}
	for _, name := range []string{"labels", "annotations"} {
		g.Expect(incident.Properties[name].AdditionalProperties.Schema.Type).To(Equal("string"), name)
	}
}

func TestResourceNamesAndScope(t *testing.T) {
	for kind, want := range map[string]struct {
		plural, shortName string
		status            bool
	}{
		"WebhookIntegration": {"webhookintegrations", "whi", true},
		"AlertEvent":         {"alertevents", "ae", false},
		"Heartbeat":          {"heartbeats", "hb", true},
		"Incident":           {"incidents", "inc", true},
		"IncidentSummary":    {"incidentsummaries", "incsum", true},
		"MaintenanceWindow":  {"maintenancewindows", "mw", true},
		"RequestCapture":     {"requestcaptures", "rcap", false},
	} {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			crd := crds(t)[kind]
			g.Expect(crd.Name).To(Equal(want.plural + ".tocsin.dev"))
			g.Expect(crd.Spec.Group).To(Equal("tocsin.dev"))
			g.Expect(crd.Spec.Scope).To(Equal(apiextensionsv1.NamespaceScoped))
			g.Expect(crd.Spec.Names.Plural).To(Equal(want.plural))
			g.Expect(crd.Spec.Names.ShortNames).To(ConsistOf(want.shortName))
			if kind == "RequestCapture" {
				g.Expect(crd.Spec.Names.Categories).To(BeEmpty(), "viewers may not list it")
			} else {
				g.Expect(crd.Spec.Names.Categories).To(ConsistOf("tocsin"), "never all")
			}
			version := crd.Spec.Versions[0]
			g.Expect(version.Name).To(Equal("v1alpha1"))
			g.Expect(version.Served && version.Storage).To(BeTrue())
			hasStatus := version.Subresources != nil && version.Subresources.Status != nil
			g.Expect(hasStatus).To(Equal(want.status), "status subresource")
			_, inSchema := version.Schema.OpenAPIV3Schema.Properties["status"]
			g.Expect(inSchema).To(Equal(want.status), "status in the schema")
		})
	}
}

func TestPrinterColumnsAndSelectableFields(t *testing.T) {
	g := NewWithT(t)
	all := crds(t)
	columns := func(kind string) (narrow, wide []string) {
		for _, column := range all[kind].Spec.Versions[0].AdditionalPrinterColumns {
			if column.Priority == 0 {
				narrow = append(narrow, column.Name)
			} else {
				wide = append(wide, column.Name)
			}
		}
		return narrow, wide
	}
	narrow, wide := columns("Incident")
	g.Expect(narrow).To(Equal([]string{"State", "Severity", "Ack", "Forwarding", "Count", "Last-Seen", "Title"}))
	g.Expect(wide).To(Equal([]string{"Assignee", "Integration", "Dedup-Key", "Host", "Muted", "Muted-Until", "Flapping", "Age"}))
	narrow, wide = columns("Heartbeat")
	g.Expect(narrow).To(Equal([]string{"Heard", "Last-Signal", "Due", "Integration"}))
	g.Expect(wide).To(Equal([]string{"Reason", "Last-Duration", "Age"}))
	narrow, wide = columns("MaintenanceWindow")
	g.Expect(narrow).To(Equal([]string{"Open", "Starts", "Ends", "Integrations", "Comment"}))
	g.Expect(wide).To(Equal([]string{"Reason", "Age"}))
	narrow, wide = columns("IncidentSummary")
	g.Expect(narrow).To(Equal([]string{"Clear", "Critical", "Error", "Warning", "Info", "Unacknowledged"}))
	g.Expect(wide).To(Equal([]string{"Newest-Critical", "Age"}))
	narrow, _ = columns("AlertEvent")
	g.Expect(narrow).To(ContainElements("Integration", "Age"))
	narrow, _ = columns("WebhookIntegration")
	g.Expect(narrow).To(ContainElements("Ready", "Last-Received", "Age"))

	var selectable []string
	for _, field := range all["Incident"].Spec.Versions[0].SelectableFields {
		selectable = append(selectable, field.JSONPath)
	}
	g.Expect(selectable).To(ConsistOf(".status.state", ".status.alert.severity", ".status.archive.state", ".spec.integrationName"))
}

func TestConditionTypesOfAnIncident(t *testing.T) {
	g := NewWithT(t)
	conditions := crds(t)["Incident"].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["conditions"]
	g.Expect(conditions.Description).To(And(ContainSubstring("Resolved"), ContainSubstring("Acknowledged")))
	g.Expect(conditions.Description).NotTo(ContainSubstring("Ready"), "an Incident is never ready")
	g.Expect(conditions.XListMapKeys).To(ConsistOf("type"))
}
