package schemacheck

import (
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// every returns the JSON form of a type with every field present. The values are meaningless: only the field names are
// checked.
func every(t reflect.Type) any {
	switch {
	case t.Kind() == reflect.Pointer:
		return every(t.Elem())
	case isLeaf(t):
		return ""
	case t.Kind() == reflect.Slice:
		return []any{every(t.Elem())}
	case t.Kind() == reflect.Map:
		return map[string]any{"key": every(t.Elem())}
	case t.Kind() == reflect.Struct:
		object := map[string]any{}
		addFields(object, t)
		return object
	default:
		return ""
	}
}

// addFields adds the fields of a struct and of its embedded structs.
func addFields(object map[string]any, t reflect.Type) {
	for field := range t.Fields() {
		if !field.IsExported() || field.Type == metadataType {
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case strings.Contains(options, "inline") || name == "" && field.Anonymous:
			addFields(object, field.Type)
		default:
			object[name] = every(field.Type)
		}
	}
}

var (
	metadataType  = reflect.TypeFor[metav1.ObjectMeta]()
	marshalerType = reflect.TypeFor[json.Marshaler]()
)

// isLeaf reports whether a type's JSON form is not that of its fields, such as a timestamp's. A struct with JSON tags has
// the form of its fields even if it implements json.Marshaler.
func isLeaf(t reflect.Type) bool {
	if t.Kind() == reflect.Struct {
		for field := range t.Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
				return false
			}
		}
	}
	return t.Implements(marshalerType) || reflect.PointerTo(t).Implements(marshalerType)
}
