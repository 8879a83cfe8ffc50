package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
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

	decodedOnce sync.Once
	decoded     metav1.ObjectMeta
}

// newObject makes the state that a commit stores. The content becomes the object's: its metadata is changed.
func newObject(r *resource, content map[string]any, revision int64) *object {
	meta := metaOf(content)
	meta["resourceVersion"] = strconv.FormatInt(revision, 10)
	o := &object{resource: r, namespace: text(meta, "namespace"), name: text(meta, "name"), uid: text(meta, "uid"),
		revision: revision, content: content, full: encode(content)}
	o.key = keyOf(o.namespace, o.name)
	o.labels, _, _ = unstructured.NestedStringMap(meta, "labels")
	return o
}

// at returns the same state under another resourceVersion.
func (o *object) at(revision int64) *object {
	return newObject(o.resource, copyOf(o.content), revision)
}

func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// encoded returns the JSON of the object, or of its metadata alone. Each is encoded once.
func (o *object) encoded(asMetadata bool) []byte {
	if !asMetadata {
		return o.full
	}
	o.metadataOnce.Do(func() { o.metadata = encodeAs(o.content, true) })
	return o.metadata
}

// decodedMetadata returns the metadata of the object, which readers share. It is decoded once.
func (o *object) decodedMetadata() *metav1.ObjectMeta {
	o.decodedOnce.Do(func() {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(metaOf(o.content), &o.decoded); err != nil {
			panic(fmt.Sprintf("decoding the metadata of an object: %v", err))
		}
	})
	return &o.decoded
}

// encodeAs returns the JSON of an object, or of its metadata alone.
func encodeAs(content map[string]any, asMetadata bool) []byte {
	if asMetadata {
		content = map[string]any{
			"kind": "PartialObjectMetadata", "apiVersion": metav1.SchemeGroupVersion.String(), "metadata": content["metadata"],
		}
	}
	return encode(content)
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
	value, _, _ := unstructured.NestedFieldNoCopy(o.content, o.resource.fields[name]...)
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

// copyOf copies an object without the values of its fields and of its metadata.
func copyOf(content map[string]any) map[string]any {
	c := shallow(content)
	c["metadata"] = shallow(metaOf(content))
	return c
}

// set sets a field; nil removes it.
func set(m map[string]any, name string, value any) {
	if m[name] = value; value == nil {
		delete(m, name)
	}
}

// finalizersOf returns metadata.finalizers.
func finalizersOf(content map[string]any) []string {
	finalizers, _, _ := unstructured.NestedStringSlice(content, "metadata", "finalizers")
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
