package apiserver

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of the API server for the CEL rules of a schema, from k8s.io/apiserver/pkg/apis/cel.
const (
	celCallLimit = 1_000_000
	celBudget    = 10_000_000
)

// schemaValidation validates the objects of a custom resource by its schema, with the code of the API server.
type schemaValidation struct {
	kind   schema.GroupVersionKind
	object *part
	status *part // nil: the schema has no status
}

// part validates an object, or its status.
type part struct {
	path       *field.Path
	structural *structuralschema.Structural
	schema     crdvalidation.SchemaValidator
	rules      *cel.Validator
}

func newValidation(kind schema.GroupVersionKind, properties *apiextensionsv1.JSONSchemaProps) (*schemaValidation, error) {
	internal := &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(properties, internal, nil)
	if err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, err
	}
	v := &schemaValidation{kind: kind}
	if v.object, err = newPart(nil, structural, internal); err != nil {
		return nil, err
	}
	if status, ok := internal.Properties["status"]; ok {
		ofStatus := structural.Properties["status"]
		v.status, err = newPart(field.NewPath("status"), &ofStatus, &status)
	}
	return v, err
}

func newPart(
	path *field.Path, structural *structuralschema.Structural, properties *apiextensions.JSONSchemaProps,
) (*part, error) {
	validator, _, err := crdvalidation.NewSchemaValidator(properties)
	return &part{path, structural, validator, cel.NewValidator(structural, path == nil, celCallLimit)}, err
}

// published returns the schema as OpenAPI, without descriptions: they are most of its bytes, and clients read it once a minute.
func (v *schemaValidation) published() json.RawMessage {
	structural := v.object.structural.DeepCopy()
	dropDescription := func(s *structuralschema.Structural) bool {
		s.Description = ""
		return true
	}
	(&structuralschema.Visitor{Structural: dropDescription}).Visit(structural)
	return encode(structural.ToKubeOpenAPI())
}

// prune drops the fields that the schema does not know and returns their paths.
func (v *schemaValidation) prune(object map[string]any) []string {
	paths := pruning.PruneWithOptions(object, v.object.structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	slices.Sort(paths)
	return paths
}

// validate returns what is wrong with an object, in addition to what is known to be wrong. old is nil for a new one. Of the
// update of a status, only the status is validated, and what rules say of the whole object: the rest is as it was.
func (v *schemaValidation) validate(object, old map[string]any, ofStatus bool, wrong field.ErrorList) field.ErrorList {
	var before any // an old object that is nil is none
	if old != nil {
		before = old
	}
	if ofKind := v.validateKind(object); len(ofKind) > 0 {
		return v.object.validateRules(object, before, append(wrong, ofKind...))
	}
	if !ofStatus {
		return v.object.validate(object, before, wrong)
	}
	if status, ok := object["status"]; ok && v.status != nil {
		wrong = v.status.validate(status, old["status"], wrong)
	}
	if len(v.object.structural.XValidations) > 0 {
		wrong = v.object.validateRules(object, before, wrong)
	}
	return wrong
}

// validate adds what is wrong by the schema and its rules.
func (p *part) validate(content, old any, wrong field.ErrorList) field.ErrorList {
	return p.validateRules(content, old, append(wrong, crdvalidation.ValidateCustomResource(p.path, content, p.schema)...))
}

// validateRules adds what is wrong by the types of lists and by the CEL rules.
func (p *part) validateRules(content, old any, wrong field.ErrorList) field.ErrorList {
	object, ok := content.(map[string]any)
	if !ok {
		return wrong // by the schema
	}
	wrong = append(wrong, listtype.ValidateListSetsAndMaps(p.path, p.structural, object)...)
	if p.rules == nil {
		return wrong
	}
	if slices.ContainsFunc(wrong, blocksRules) {
		return append(wrong, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; "+
			"correct the existing errors to complete validation"))
	}
	ofRules, _ := p.rules.Validate(context.Background(), p.path, p.structural, content, old, celBudget)
	return append(wrong, ofRules...)
}

func (v *schemaValidation) validateKind(object map[string]any) field.ErrorList {
	var wrong field.ErrorList
	if object["kind"] != v.kind.Kind {
		wrong = append(wrong, field.Invalid(field.NewPath("kind"), object["kind"], "must be "+v.kind.Kind))
	}
	if version := v.kind.GroupVersion().String(); object["apiVersion"] != version {
		wrong = append(wrong, field.Invalid(field.NewPath("apiVersion"), object["apiVersion"], "must be "+version))
	}
	return wrong
}

// blocksRules reports whether the API server does not evaluate CEL rules because of an error.
func blocksRules(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
		field.ErrorTypeTypeInvalid:
		return true
	default:
		return false
	}
}
