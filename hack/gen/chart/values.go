package main

import (
	_ "embed" // the constraints
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tocsin-dev/tocsin/hack/gen/kustomize"
)

//go:embed schema.yaml
var constraints []byte

// kubernetesTypes are the types that schema.yaml refers to.
var kubernetesTypes = []any{
	corev1.Affinity{}, corev1.EnvVar{}, corev1.LocalObjectReference{}, corev1.PodSecurityContext{}, corev1.ResourceRequirements{},
	corev1.Toleration{}, corev1.TopologySpreadConstraint{}, corev1.Volume{}, corev1.VolumeMount{},
	networkingv1.NetworkPolicyEgressRule{}, networkingv1.NetworkPolicyPeer{},
}

// value is a value of the chart that has no fields of its own.
type value struct {
	path, description string
	fallback          any // the default
}

// addValues sets the image in values.yaml, writes the schema of the values, and lists them in the README.
func (o options) addValues(files map[string]string) error {
	repository, _, err := kustomize.SplitImage(o.image)
	if err != nil {
		return err
	}
	files["values.yaml"] = strings.Replace(files["values.yaml"], "repository: tocsin\n", "repository: "+repository+"\n", 1)
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(files["values.yaml"]), &document); err != nil {
		return fmt.Errorf("reading values.yaml: %w", err)
	}
	limits := map[string]map[string]any{}
	if err := yaml.Unmarshal(constraints, &limits); err != nil {
		return fmt.Errorf("reading schema.yaml: %w", err)
	}
	s := &schemaWriter{limits: limits}
	root, err := s.object(document.Content[0], "")
	if err != nil {
		return err
	}
	for path := range limits {
		return fmt.Errorf("schema.yaml: %s is no value of the chart", path)
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$defs"] = definitions()
	// A parent chart may set these; this one does not read them.
	properties, _ := root["properties"].(map[string]any)
	properties["global"] = map[string]any{"type": "object", "description": "Values that a parent chart shares with its subcharts."}
	properties["enabled"] = map[string]any{"type": "boolean", "description": "For the condition of a parent chart."}
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return err
	}
	files["values.schema.json"] = string(text) + "\n"
	files["README.md"] = strings.Replace(files["README.md"], "VALUES\n", table(s.values), 1)
	return nil
}

// schemaWriter makes a JSON schema from values.yaml, whose comments are the descriptions, and the constraints, of which
// it removes those that it used.
type schemaWriter struct {
	limits map[string]map[string]any
	values []value
}

// object returns the schema of a mapping.
func (s *schemaWriter) object(node *yaml.Node, prefix string) (map[string]any, error) {
	properties := map[string]any{}
	for i := 0; i < len(node.Content); i += 2 {
		key, content := node.Content[i], node.Content[i+1]
		path := prefix + key.Value
		_, limited := s.limits[path]
		var schema map[string]any
		var err error
		if content.Kind == yaml.MappingNode && !limited {
			schema, err = s.object(content, path+".")
		} else {
			schema, err = s.leaf(path, strings.TrimSpace(strings.ReplaceAll("\n"+key.HeadComment, "\n# ", " ")), content)
		}
		if err != nil {
			return nil, err
		}
		properties[key.Value] = schema
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}, nil
}

// leaf returns the schema of a value: what its default and schema.yaml say of it.
func (s *schemaWriter) leaf(path, description string, node *yaml.Node) (map[string]any, error) {
	if description == "" {
		return nil, fmt.Errorf("values.yaml: %s has no comment", path)
	}
	var fallback any
	if err := node.Decode(&fallback); err != nil {
		return nil, fmt.Errorf("values.yaml: %s: %w", path, err)
	}
	schema := map[string]any{"description": description, "default": fallback}
	if name := schemaTypes[node.ShortTag()]; name != "" {
		schema["type"] = name
	}
	limits, limited := s.limits[path]
	if schema["type"] == nil && !limited {
		return nil, fmt.Errorf("schema.yaml lacks %s", path)
	}
	maps.Copy(schema, limits)
	delete(s.limits, path)
	s.values = append(s.values, value{path, description, fallback})
	return schema, nil
}

// schemaTypes are the types of a schema, by YAML's tags of values.
var schemaTypes = map[string]string{"!!str": "string", "!!bool": "boolean", "!!int": "integer", "!!seq": "array"}

// definitions returns the schemas of the Kubernetes types.
func definitions() jsonschema.Definitions {
	all, reflector := jsonschema.Definitions{}, jsonschema.Reflector{Anonymous: true, Mapper: mapType}
	for _, of := range kubernetesTypes {
		maps.Copy(all, reflector.Reflect(of).Definitions)
	}
	return all
}

// mapType returns the schemas of types that encode themselves.
func mapType(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}}}
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.FieldsV1]():
		return &jsonschema.Schema{}
	}
	return nil
}

// table returns the values as a Markdown table.
func table(values []value) string {
	var text strings.Builder
	text.WriteString("| Value | Default | Meaning |\n|---|---|---|\n")
	for _, v := range values {
		fallback, _ := json.Marshal(v.fallback)
		fmt.Fprintf(&text, "| `%s` | `%s` | %s |\n", v.path, fallback, strings.ReplaceAll(v.description, "|", `\|`))
	}
	return text.String()
}
