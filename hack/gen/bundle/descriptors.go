package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Descriptors that consoles know, see https://github.com/openshift/console, x-descriptors.
const (
	conditions = "urn:alm:descriptor:io.kubernetes.conditions"
	uiText     = "urn:alm:descriptor:com.tectonic.ui:text"
	uiNumber   = "urn:alm:descriptor:com.tectonic.ui:number"
	uiSwitch   = "urn:alm:descriptor:com.tectonic.ui:booleanSwitch"
	uiSelect   = "urn:alm:descriptor:com.tectonic.ui:select:"
)

// addDefinition describes a CustomResourceDefinition and the fields of its spec and status.
func (b *builder) addDefinition(definition *apiextensionsv1.CustomResourceDefinition) {
	for i := range definition.Spec.Versions {
		served := &definition.Spec.Versions[i]
		schema := served.Schema.OpenAPIV3Schema
		description := v1alpha1.CRDDescription{
			Name: definition.Name, Version: served.Name, Kind: definition.Spec.Names.Kind,
			DisplayName: displayName(definition.Spec.Names.Kind), Description: firstParagraph(schema.Description),
			SpecDescriptors: fields(schema.Properties["spec"], ""),
		}
		for _, f := range fields(schema.Properties["status"], "") {
			description.StatusDescriptors = append(description.StatusDescriptors, v1alpha1.StatusDescriptor(f))
		}
		owned := &b.csv.Spec.CustomResourceDefinitions.Owned
		*owned = append(*owned, description)
	}
}

// fields describes the fields of an object, and of the objects in it.
func fields(schema apiextensionsv1.JSONSchemaProps, prefix string) (list []v1alpha1.SpecDescriptor) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		list = append(list, v1alpha1.SpecDescriptor{
			Path: prefix + name, DisplayName: displayName(name), Description: firstParagraph(field.Description),
			XDescriptors: descriptors(name, field),
		})
		list = append(list, fields(field, prefix+name+".")...)
	}
	return list
}

// descriptors returns how a console shows a field; none for lists and objects, but for conditions.
func descriptors(name string, field apiextensionsv1.JSONSchemaProps) (list []string) {
	switch {
	case name == "conditions":
		return []string{conditions}
	case field.Type == "boolean":
		return []string{uiSwitch}
	case field.Type == "integer", field.Type == "number":
		return []string{uiNumber}
	case len(field.Enum) > 0:
		for _, option := range field.Enum {
			var text string
			if json.Unmarshal(option.Raw, &text) == nil {
				list = append(list, uiSelect+text)
			}
		}
		return list
	case field.Type == "string":
		return []string{uiText}
	}
	return nil
}

// word matches where a word of a name begins.
var word = regexp.MustCompile(`([a-z])([A-Z])`)

// displayName makes words of a name such as autoResolveAfter.
func displayName(name string) string {
	return strings.ToUpper(name[:1]) + word.ReplaceAllString(name[1:], "$1 $2")
}

// firstParagraph returns the first paragraph of a description, as one line.
func firstParagraph(text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	return strings.Join(strings.Fields(text), " ")
}
