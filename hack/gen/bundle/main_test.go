package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// validators are all but those that are deprecated, and one that has Docker pull the image.
var validators = interfaces.Validators{
	validation.ClusterServiceVersionValidator, validation.CustomResourceDefinitionValidator, validation.BundleValidator,
	validation.OperatorHubV2Validator, validation.StandardCategoriesValidator, validation.StandardCapabilitiesValidator,
	validation.ObjectValidator, validation.CommunityOperatorValidator, validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
}

// accepted are the warnings of the validators that the bundle has for a reason.
var accepted = []string{
	"provided API should have an example annotation", // of Incidents: only the manager creates one
	"Migrate the API(s) for events",                  // a rule names no version, and the manager uses v1
}

// loadBundle loads the committed bundle.
func loadBundle(t *testing.T) *manifests.Bundle {
	t.Helper()
	bundle, err := manifests.GetBundleFromDir(filepath.Join(testenv.Root(), "bundle"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return bundle
}

// validate returns the errors and warnings of all validators that apply to a bundle.
func validate(bundle *manifests.Bundle) (problems []string) {
	objects := []any{bundle, bundle.CSV, map[string]string{"k8s-version": "1.31"}}
	for _, definition := range bundle.V1CRDs {
		objects = append(objects, definition)
	}
	for _, object := range bundle.Objects {
		objects = append(objects, object)
	}
	for _, result := range validators.Validate(objects...) {
		for _, problem := range slices.Concat(result.Errors, result.Warnings) {
			problems = append(problems, problem.Error())
		}
	}
	return problems
}

// TestBundleIsValid runs the validators of the Operator Framework, those of OperatorHub.io among them.
func TestBundleIsValid(t *testing.T) {
	found := map[string]bool{}
	for _, problem := range validate(loadBundle(t)) {
		i := slices.IndexFunc(accepted, func(text string) bool { return strings.Contains(problem, text) })
		if i < 0 {
			t.Error(problem)
			continue
		}
		found[accepted[i]] = true
	}
	NewWithT(t).Expect(found).To(HaveLen(len(accepted)), "every accepted warning is one that there is")
}

// TestValidatorsRefuse breaks the bundle: the validators see it, so their silence says something.
func TestValidatorsRefuse(t *testing.T) {
	for sentence, test := range map[string]struct {
		damage  func(*manifests.Bundle)
		message string
	}{
		"no icon": {func(b *manifests.Bundle) { b.CSV.Spec.Icon = nil }, "csv.Spec.Icon"},
		"a description of a definition that is not there": {func(b *manifests.Bundle) {
			b.CSV.Spec.CustomResourceDefinitions.Owned[0].Kind = "Siren"
		}, "Siren"},
		"an unknown category":   {func(b *manifests.Bundle) { b.CSV.Annotations["categories"] = "Sirens" }, "Sirens"},
		"an unknown capability": {func(b *manifests.Bundle) { b.CSV.Annotations["capabilities"] = "Everything" }, "Everything"},
		"no provider":           {func(b *manifests.Bundle) { b.CSV.Spec.Provider.Name = "" }, "csv.Spec.Provider.Name"},
		"a bad example":         {func(b *manifests.Bundle) { b.CSV.Annotations["alm-examples"] = "[" }, "invalid example"},
	} {
		t.Run(sentence, func(t *testing.T) {
			bundle := loadBundle(t)
			test.damage(bundle)
			NewWithT(t).Expect(validate(bundle)).To(ContainElement(ContainSubstring(test.message)))
		})
	}
}

// TestLabelsOfTheImage compares them with what the bundle says of itself.
func TestLabelsOfTheImage(t *testing.T) {
	g := NewWithT(t)
	dockerfile, err := os.ReadFile(filepath.Join(testenv.Root(), "bundle.Dockerfile"))
	g.Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "bundle", "metadata", "annotations.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var metadata struct{ Annotations map[string]string }
	g.Expect(yaml.UnmarshalStrict(text, &metadata)).To(Succeed())
	g.Expect(metadata.Annotations).NotTo(BeEmpty())
	for name, value := range metadata.Annotations {
		g.Expect(string(dockerfile)).To(ContainSubstring("\nLABEL " + name + "=" + value + "\n"))
	}
}

// TestDescriptors compares the descriptors with the schemas: each field of spec and status has one.
func TestDescriptors(t *testing.T) {
	g := NewWithT(t)
	bundle := loadBundle(t)
	owned := bundle.CSV.Spec.CustomResourceDefinitions.Owned
	g.Expect(owned).To(HaveLen(len(bundle.V1CRDs)))
	for _, definition := range bundle.V1CRDs {
		i := slices.IndexFunc(owned, func(d v1alpha1.CRDDescription) bool { return d.Name == definition.Name })
		g.Expect(i).To(BeNumerically(">=", 0))
		schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		var paths []string
		for _, d := range owned[i].SpecDescriptors {
			paths = append(paths, "spec."+d.Path)
			g.Expect(d.Description).NotTo(BeEmpty(), d.Path)
		}
		for _, d := range owned[i].StatusDescriptors {
			paths = append(paths, "status."+d.Path)
			g.Expect(d.Description).NotTo(BeEmpty(), d.Path)
			if d.Path == "conditions" {
				g.Expect(d.XDescriptors).To(ConsistOf(conditions))
			}
		}
		for _, part := range []string{"spec", "status"} {
			for name := range schema.Properties[part].Properties {
				g.Expect(paths).To(ContainElement(part + "." + name))
			}
		}
	}
	g.Expect(displayName("autoResolveAfter")).To(Equal("Auto Resolve After"))
	g.Expect(descriptors("severity", apiextensionsv1.JSONSchemaProps{
		Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"critical"`)}},
	})).To(ConsistOf(uiSelect + "critical"))
}
