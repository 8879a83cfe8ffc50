package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// object is one stored state of an object. It never changes: its maps and bytes are shared by all readers.
type object struct {
	resource        *resource
	key             string // namespace/name, or the name: the order of lists
	namespace, name string
	uid             string
	revision        int64
	content         map[string]any
	labels          labels.Set
	full            []byte // JSON

	metadataOnce sync.Once
	metadata     []byte // JSON as PartialObjectMetadata
}

// newObject makes the state that a commit stores. The content becomes the object's: its metadata is changed.
func newObject(r *resource, content map[string]any, revision int64) *object {
	meta := metaOf(content)
	meta["resourceVersion"] = strconv.FormatInt(revision, 10)
	o := &object{resource: r, namespace: text(meta, "namespace"), name: text(meta, "name"), uid: text(meta, "uid"),
		revision: revision, content: content, full: encode(content)}
	o.key = keyOf(o.namespace, o.name)
	if set, _ := meta["labels"].(map[string]any); len(set) > 0 {
		o.labels = make(labels.Set, len(set))
		for name, value := range set {
			o.labels[name], _ = value.(string)
		}
	}
	return o
}

// at returns the same state under another resourceVersion.
func (o *object) at(revision int64) *object {
	content := shallow(o.content)
	content["metadata"] = shallow(metaOf(o.content))
	return newObject(o.resource, content, revision)
}

func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// variant is a form in which a client gets objects.
type variant int

const (
	variantFull variant = iota
	variantMetadata
)

// variantOf returns the form that a client asks for.
func variantOf(accept string) variant {
	first, _, _ := strings.Cut(accept, ",")
	if strings.Contains(first, "as=PartialObjectMetadata") {
		return variantMetadata
	}
	return variantFull
}

// encoded returns the JSON of the object in a form. Each form is encoded once.
func (o *object) encoded(v variant) []byte {
	if v == variantFull {
		return o.full
	}
	o.metadataOnce.Do(func() { o.metadata = encodeMetadata(o.content) })
	return o.metadata
}

func encodeMetadata(content map[string]any) []byte {
	return encode(map[string]any{
		"kind": "PartialObjectMetadata", "apiVersion": metav1.SchemeGroupVersion.String(), "metadata": content["metadata"],
	})
}

// Has implements fields.Fields.
func (o *object) Has(string) bool { return true }

// Get implements fields.Fields.
func (o *object) Get(name string) string {
	switch name {
	case "metadata.name":
		return o.name
	case "metadata.namespace":
		return o.namespace
	}
	var value any = o.content
	for _, step := range o.resource.fields[name] {
		parent, _ := value.(map[string]any)
		value = parent[step]
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// metaOf returns the metadata of an object, which it makes if it is absent.
func metaOf(content map[string]any) map[string]any {
	meta, ok := content["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		content["metadata"] = meta
	}
	return meta
}

func text(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}

// shallow copies a map without its values.
func shallow(m map[string]any) map[string]any {
	c := make(map[string]any, len(m)+1)
	maps.Copy(c, m)
	return c
}

// finalizersOf returns metadata.finalizers.
func finalizersOf(content map[string]any) []string {
	list, _ := metaOf(content)["finalizers"].([]any)
	finalizers := make([]string, 0, len(list))
	for _, value := range list {
		finalizer, _ := value.(string)
		finalizers = append(finalizers, finalizer)
	}
	return finalizers
}

// encode returns JSON with keys in order. What is stored was decoded from JSON, so that it can be encoded.
func encode(value any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("encoding an object: %v", err))
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
}
