// Package baseline has the last release: its commit, its manifests, and the test that the CustomResourceDefinitions are
// compatible with it.
package baseline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/crdify/pkg/validations"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// policy is that of crdify: a change is incompatible unless crdify knows it to be compatible, with two exceptions.
var policy = config.Config{
	Conversion:           config.ConversionPolicyNone,
	UnhandledEnforcement: config.EnforcementPolicyError,
	Validations: []config.ValidationConfig{
		// A description may be worded better.
		{Name: "description", Enforcement: config.EnforcementPolicyNone},
		// Clients have to expect new values, as docs/upgrade.md says.
		{Name: "enum", Enforcement: config.EnforcementPolicyError, Configuration: map[string]any{"additionPolicy": "Allow"}},
	},
}

// compatibleRules are the rules (CEL) that were added since the baseline and reject no object that it accepts.
var compatibleRules = []string{
	"self.status != 'assigned' || has(self.assignee)", // a new status
}

// operatorOwned is the part of an object that has the operator as its only writer: who owns its fields concerns nobody else.
var operatorOwned = map[string]string{"incidents.tocsin.dev": "status", "alertevents.tocsin.dev": "spec"}

// intended are incompatibilities that users are told of.
var intended []string

// An upgrade must not invalidate a stored object or a manifest in Git. That the operator reads them, too, is for the
// upgrade in ../e2e and the versions in ../simulation to check.
func TestCompatibility(t *testing.T) {
	g := NewWithT(t)
	old, present := baselineCRDs(g), presentCRDs(g)
	g.Expect(old).NotTo(BeEmpty())
	for name := range old {
		g.Expect(present).To(HaveKey(name))
		found := slices.DeleteFunc(incompatibilities(g, old[name], present[name]), func(message string) bool {
			return slices.ContainsFunc(intended, func(part string) bool { return strings.Contains(message, part) })
		})
		g.Expect(found).To(BeEmpty(), name)
	}
}

// The check has to find what it is there for.
func TestIncompatibility(t *testing.T) {
	const incidents, integrations = "incidents.tocsin.dev", "webhookintegrations.tocsin.dev"
	type schema = apiextensionsv1.JSONSchemaProps
	type version = apiextensionsv1.CustomResourceDefinitionVersion
	for name, test := range map[string]struct {
		crd  string
		seed func(*version)
		want string // in a message; none for a compatible change
	}{
		"no change":          {incidents, func(*version) {}, ""},
		"a new description":  {incidents, at("status.state", func(s *schema) { s.Description = "other" }), ""},
		"a new field":        {incidents, at("status", func(s *schema) { s.Properties["new"] = schema{Type: "string"} }), ""},
		"a new value":        {incidents, at("status.state", func(s *schema) { s.Enum = append(s.Enum, raw(`"New"`)) }), ""},
		"a longer text":      {incidents, at("spec.dedupKey", func(s *schema) { *s.MaxLength++ }), ""},
		"a field removed":    {incidents, at("status", func(s *schema) { delete(s.Properties, "alertCount") }), "existingFieldRemoval"},
		"a value removed":    {incidents, at("status.state", func(s *schema) { s.Enum = s.Enum[1:] }), "enum"},
		"a text shortened":   {incidents, at("spec.dedupKey", func(s *schema) { *s.MaxLength-- }), "maxLength"},
		"a new minimum":      {incidents, at("status.alert.title", func(s *schema) { s.MinLength = new(int64(1)) }), "minLength"},
		"another type":       {incidents, at("status.alertCount", func(s *schema) { s.Type = "string" }), "type"},
		"a field required":   {integrations, at("spec", func(s *schema) { s.Required = []string{"preset"} }), "required"},
		"another pattern":    {integrations, at("spec.preset", func(s *schema) { s.Pattern = "^[a-z]+$" }), "unhandled"},
		"a new pattern":      {incidents, at("status.alert.title", func(s *schema) { s.Pattern = "^[a-z]+$" }), "unhandled"},
		"no unknown fields":  {incidents, at("status.alert.custom", func(s *schema) { s.XPreserveUnknownFields = nil }), "unhandled"},
		"a new rule":         {integrations, at("spec", func(s *schema) { s.XValidations = rules("has(self.preset)") }), "unhandled"},
		"one owner of all":   {integrations, at("spec", func(s *schema) { s.XMapType = new("atomic") }), "unhandled"},
		"a version removed":  {incidents, func(v *version) { v.Name = "v1" }, "is not served"},
		"a version unserved": {incidents, func(v *version) { v.Served = false }, "is not served"},
		"no subresource":     {incidents, func(v *version) { v.Subresources = nil }, "subresources"},
		"no field selector":  {incidents, func(v *version) { v.SelectableFields = v.SelectableFields[1:] }, "selectable"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			old := presentCRDs(g)[test.crd]
			changed := old.DeepCopy()
			test.seed(&changed.Spec.Versions[0])
			found := strings.Join(incompatibilities(g, old, changed), "\n")
			if test.want == "" {
				g.Expect(found).To(BeEmpty())
			} else {
				g.Expect(found).To(ContainSubstring(test.want))
			}
		})
	}
}

// incompatibilities returns what in the new definition breaks a user of the old one.
func incompatibilities(g *WithT, old, present *apiextensionsv1.CustomResourceDefinition) (found []string) {
	checker, err := runner.New(&policy, runner.DefaultRegistry())
	g.Expect(err).NotTo(HaveOccurred())
	results := checker.Run(normalized(old), normalized(present))
	add := func(path string, results []validations.ComparisonResult) {
		for _, result := range results {
			for _, message := range result.Errors {
				found = append(found, fmt.Sprintf("%s: %s: %s", path, result.Name, message))
			}
		}
	}
	add("", results.CRDValidation)
	for version, properties := range results.SameVersionValidation {
		for path, results := range properties {
			add(version+" "+path, results)
		}
	}
	// What crdify does not compare.
	for _, was := range old.Spec.Versions {
		i := slices.IndexFunc(present.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == was.Name && v.Served == was.Served
		})
		if i < 0 {
			found = append(found, was.Name+" is not served")
			continue
		}
		is := present.Spec.Versions[i]
		if !equality.Semantic.DeepEqual(is.Subresources, was.Subresources) {
			found = append(found, was.Name+" has other subresources")
		}
		for _, field := range was.SelectableFields {
			if !slices.Contains(is.SelectableFields, field) {
				found = append(found, fmt.Sprintf("%s: %s is not selectable", was.Name, field.JSONPath))
			}
		}
	}
	if !equality.Semantic.DeepEqual(old.Spec.Names, present.Spec.Names) {
		found = append(found, "other names")
	}
	return found
}

// normalized returns a copy without the messages of the rules, without compatibleRules and without the ownership of what is
// operatorOwned: to crdify, every change of these is incompatible.
func normalized(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd = crd.DeepCopy()
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema = withoutRules(*crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
		if path, ok := operatorOwned[crd.Name]; ok {
			at(path, func(schema *apiextensionsv1.JSONSchemaProps) { schema.XMapType = nil })(&crd.Spec.Versions[i])
		}
	}
	return crd
}

func withoutRules(schema apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	schema.XValidations = slices.DeleteFunc(schema.XValidations, func(rule apiextensionsv1.ValidationRule) bool {
		return slices.Contains(compatibleRules, rule.Rule)
	})
	for i := range schema.XValidations {
		schema.XValidations[i].Message = ""
	}
	for name, property := range schema.Properties {
		schema.Properties[name] = *withoutRules(property)
	}
	if schema.Items != nil {
		schema.Items.Schema = withoutRules(*schema.Items.Schema)
	}
	return &schema
}

// at returns a change of the schema at the path, such as spec.dedupKey.
func at(path string, change func(*apiextensionsv1.JSONSchemaProps)) func(*apiextensionsv1.CustomResourceDefinitionVersion) {
	return func(version *apiextensionsv1.CustomResourceDefinitionVersion) {
		changeAt(version.Schema.OpenAPIV3Schema, strings.Split(path, "."), change)
	}
}

func changeAt(schema *apiextensionsv1.JSONSchemaProps, path []string, change func(*apiextensionsv1.JSONSchemaProps)) {
	if len(path) == 0 {
		change(schema)
		return
	}
	property := schema.Properties[path[0]]
	changeAt(&property, path[1:], change)
	schema.Properties[path[0]] = property
}

func raw(text string) apiextensionsv1.JSON { return apiextensionsv1.JSON{Raw: []byte(text)} }

func rules(rule string) apiextensionsv1.ValidationRules {
	return apiextensionsv1.ValidationRules{{Rule: rule}}
}

// baselineCRDs returns the CustomResourceDefinitions of the last release, by name.
func baselineCRDs(g *WithT) map[string]*apiextensionsv1.CustomResourceDefinition {
	return crds(g, filepath.Join(testenv.Root(), "hack", "suites", "baseline", "manifests.yaml"))
}

// presentCRDs returns those of this tree.
func presentCRDs(g *WithT) map[string]*apiextensionsv1.CustomResourceDefinition {
	files, err := filepath.Glob(filepath.Join(testenv.Root(), "config", "crd", "bases", "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	return crds(g, files...)
}

func crds(g *WithT, files ...string) map[string]*apiextensionsv1.CustomResourceDefinition {
	found := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		for {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			err := documents.Decode(crd)
			if errors.Is(err, io.EOF) {
				break
			}
			g.Expect(err).NotTo(HaveOccurred())
			if crd.Kind == "CustomResourceDefinition" {
				found[crd.Name] = crd
			}
		}
	}
	return found
}
