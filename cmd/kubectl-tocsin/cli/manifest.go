package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/config/crd"
)

// Limits of the API server for the CEL rules of a schema, from k8s.io/apiserver/pkg/apis/cel.
const (
	celCallLimit = 1_000_000
	celBudget    = 10_000_000
)

// readManifest reads a WebhookIntegration from a file. It returns an error where the API server would reject the object or,
// with kubectl's strict field validation, would drop a field of it.
func readManifest(ctx context.Context, name string) (*v1alpha1.WebhookIntegration, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	text, err = yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	const kind = "WebhookIntegration"
	if object["kind"] != kind || object["apiVersion"] != v1alpha1.GroupVersion.String() {
		return nil, fmt.Errorf("%s contains %v %v, not a %s of %s", name, object["apiVersion"], object["kind"], kind,
			v1alpha1.GroupVersion)
	}
	mistakes, err := validateIntegration(ctx, object)
	if err != nil {
		return nil, fmt.Errorf("reading the CustomResourceDefinition: %w", err)
	}
	if len(mistakes) > 0 {
		return nil, fmt.Errorf("%s is not a valid %s: %s", name, kind, strings.Join(mistakes, "; "))
	}
	integration := &v1alpha1.WebhookIntegration{}
	return integration, runtime.DefaultUnstructuredConverter.FromUnstructured(object, integration)
}

// validateIntegration validates a WebhookIntegration by the schema of its CustomResourceDefinition, including CEL rules and
// list types, and returns what is wrong with it.
func validateIntegration(ctx context.Context, object map[string]any) (mistakes []string, err error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(crd.WebhookIntegration, definition); err != nil {
		return nil, err
	}
	properties := &apiextensions.JSONSchemaProps{}
	err = apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema, properties, nil)
	if err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(properties)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(properties)
	if err != nil {
		return nil, err
	}
	unknown := pruning.PruneWithOptions(object, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		mistakes = append(mistakes, fmt.Sprintf("unknown field %q", path))
	}
	wrong := validation.ValidateCustomResource(nil, object, validator)
	wrong = append(wrong, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
	if len(wrong) == 0 { // as in the API server, rules see only objects with valid types
		var ofRules field.ErrorList
		ofRules, _ = cel.NewValidator(structural, true, celCallLimit).
			Validate(ctx, nil, structural, object, nil, celBudget)
		wrong = append(wrong, ofRules...)
	}
	for _, mistake := range wrong {
		mistakes = append(mistakes, mistake.Error())
	}
	return mistakes, nil
}
