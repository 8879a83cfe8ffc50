package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// resource describes one served resource.
type resource struct {
	schema.GroupVersionKind
	plural        string
	namespaced    bool
	custom        bool // defined by a CustomResourceDefinition
	status        bool // has the status subresource
	unconditional bool // may be updated without a resourceVersion
	ephemeral     bool // accepted, not stored
	fields        map[string][]string
	schema        json.RawMessage
	validation    *schemaValidation // nil: not validated
}

// groupResource names the resource in errors.
func (r *resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.plural}
}

// qualified is the name of the resource in Objects, Commit and quotas: plural.group, or the plural alone.
func (r *resource) qualified() string { return r.groupResource().String() }

// serves reports whether the objects have a subresource, or are themselves meant.
func (r *resource) serves(subresource string) bool {
	return subresource == "" || subresource == "status" && (r.status || r.Kind == "Namespace")
}

// builtin are the resources that need no CustomResourceDefinition.
func builtin() []*resource {
	v1 := func(group, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
	}
	return []*resource{
		{GroupVersionKind: v1("", "Namespace"), plural: "namespaces", unconditional: true,
			fields: map[string][]string{"status.phase": {"status", "phase"}}},
		{GroupVersionKind: v1("", "ConfigMap"), plural: "configmaps", namespaced: true, unconditional: true},
		{GroupVersionKind: v1("", "Secret"), plural: "secrets", namespaced: true, unconditional: true},
		{GroupVersionKind: v1("coordination.k8s.io", "Lease"), plural: "leases", namespaced: true},
		{GroupVersionKind: v1("", "Event"), plural: "events", namespaced: true, ephemeral: true},
		{GroupVersionKind: v1("events.k8s.io", "Event"), plural: "events", namespaced: true, ephemeral: true},
	}
}

// Definitions are CustomResourceDefinitions with their compiled validation. Servers may share them, also across bubbles.
type Definitions struct{ resources []*resource }

// Define compiles CustomResourceDefinitions. The first served version of each is the one that is stored.
func Define(crds ...apiextensionsv1.CustomResourceDefinition) (*Definitions, error) {
	d := &Definitions{}
	for i := range crds {
		r, err := customResource(&crds[i])
		if err != nil {
			return nil, fmt.Errorf("reading the CustomResourceDefinition %s: %w", crds[i].Name, err)
		}
		d.resources = append(d.resources, r)
	}
	slices.SortFunc(d.resources, func(a, b *resource) int { return cmp.Compare(a.qualified(), b.qualified()) })
	return d, nil
}

// ReadDefinitions compiles the CustomResourceDefinitions of the YAML files of a folder, such as os.DirFS("config/crd/bases").
func ReadDefinitions(folder fs.FS) (*Definitions, error) {
	names, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return nil, err
	}
	crds := make([]apiextensionsv1.CustomResourceDefinition, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, err
		}
		if err := yaml.UnmarshalStrict(text, &crds[i]); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
	}
	return Define(crds...)
}

func customResource(crd *apiextensionsv1.CustomResourceDefinition) (*resource, error) {
	at := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
	if at < 0 {
		return nil, errors.New("no version is served")
	}
	version := &crd.Spec.Versions[at]
	r := &resource{
		GroupVersionKind: schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind},
		plural:           crd.Spec.Names.Plural,
		namespaced:       crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		custom:           true,
		status:           version.Subresources != nil && version.Subresources.Status != nil,
		fields:           map[string][]string{},
	}
	for _, field := range version.SelectableFields {
		path := strings.TrimPrefix(field.JSONPath, ".")
		r.fields[path] = strings.Split(path, ".")
	}
	if version.Schema == nil {
		return r, nil
	}
	var err error
	if r.validation, err = newValidation(r.GroupVersionKind, version.Schema.OpenAPIV3Schema); err != nil {
		return nil, err
	}
	r.schema = r.validation.published()
	return r, nil
}
