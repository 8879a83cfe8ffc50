package apiserver

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Expire compacts the history: running watches go on, but a watch or a page of an older state gets 410 Expired.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.expired = s.revision
	}
}

// PublishWithout has the published schema of a kind lack a property, as that of an older CustomResourceDefinition does. path
// leads to it in the schema. What is written is validated by the whole schema all the same. Without a path, all is published
// again.
func (s *Server) PublishWithout(kind string, path ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.documents)
	delete(s.unpublished, kind)
	if len(path) > 0 {
		s.unpublished[kind] = path
	}
}

// published returns the schema of a resource as the server publishes it.
func (s *Server) published(r *resource) json.RawMessage {
	path := s.unpublished[r.Kind]
	if path == nil {
		return r.schema
	}
	var schema map[string]any
	if err := json.Unmarshal(r.schema, &schema); err != nil {
		panic(err)
	}
	unstructured.RemoveNestedField(schema, path...)
	return encode(schema)
}

// Revision returns the newest resourceVersion.
func (s *Server) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// Objects returns copies of the objects of a resource, such as incidents.tocsin.dev, in the order of their keys.
func (s *Server) Objects(resource string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		if t.qualified() == resource {
			copies := make([]map[string]any, len(t.objects))
			for i, o := range t.objects {
				copies[i] = runtime.DeepCopyJSON(o.content)
			}
			return copies
		}
	}
	return nil
}
