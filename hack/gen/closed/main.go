// Command closed has the API server reject unknown keys of the objects that Go types mark, in CustomResourceDefinitions that
// controller-gen has written: closed FILE...
//
// A schema cannot list the keys that an object may have: the API server drops others before it validates. An object that keeps
// unknown keys (+kubebuilder:pruning:PreserveUnknownFields), has optional properties of its own and says how few keys it has
// (MinProperties) is given a oneOf with one entry for each set of keys that it may have: they are required, and there are no
// more.
package main

import (
	"fmt"
	"maps"
	"math/bits"
	"os"
	"slices"

	"sigs.k8s.io/yaml"
)

// maxKeys bounds the keys of an object: there is an entry for each set of them.
const maxKeys = 4

func main() {
	for _, file := range os.Args[1:] {
		if err := rewrite(file); err != nil {
			fmt.Fprintf(os.Stderr, "closed: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func rewrite(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	closed, err := closeSchemas(text)
	if err != nil {
		return err
	}
	return os.WriteFile(file, closed, 0o644)
}

// closeSchemas returns a CustomResourceDefinition with the objects closed that are to be.
func closeSchemas(text []byte) ([]byte, error) {
	var definition map[string]any
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return nil, fmt.Errorf("reading the CustomResourceDefinition: %w", err)
	}
	objects := marked(definition)
	if len(objects) == 0 {
		return text, nil
	}
	for _, object := range objects {
		properties, _ := object["properties"].(map[string]any)
		if len(properties) > maxKeys {
			return nil, fmt.Errorf("%d keys make too many sets", len(properties))
		}
		least, _ := object["minProperties"].(float64)
		object["oneOf"] = sets(slices.Sorted(maps.Keys(properties)), int(least))
	}
	closed, err := yaml.Marshal(definition)
	return append([]byte("---\n"), closed...), err
}

// marked returns the schemas below a node that are to be closed.
func marked(node any) (objects []map[string]any) {
	switch node := node.(type) {
	case []any:
		for _, item := range node {
			objects = append(objects, marked(item)...)
		}
	case map[string]any:
		for _, item := range node {
			objects = append(objects, marked(item)...)
		}
		if node["properties"] != nil && node["minProperties"] != nil && node["x-kubernetes-preserve-unknown-fields"] == true {
			objects = append(objects, node)
		}
	}
	return objects
}

// sets returns a schema for each set of keys with at least so many of them.
func sets(keys []string, least int) (all []any) {
	for set := range uint(1) << len(keys) {
		size := bits.OnesCount(set)
		if size < least {
			continue
		}
		entry := map[string]any{"maxProperties": size}
		var required []any
		for i, key := range keys {
			if set&(1<<i) != 0 {
				required = append(required, key)
			}
		}
		if len(required) > 0 {
			entry["required"] = required
		}
		all = append(all, entry)
	}
	return all
}
