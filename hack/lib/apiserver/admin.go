package apiserver

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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
	delete(s.unpublished, kind)
	if len(path) > 0 {
		s.unpublished[kind] = path
	}
}

// published returns the schema of a resource as the server publishes it.
func (s *Server) published(r *resource) json.RawMessage {
	s.mu.Lock()
	path := s.unpublished[r.Kind]
	s.mu.Unlock()
	if path == nil {
		return r.schema
	}
	var schema map[string]any
	if err := json.Unmarshal(r.schema, &schema); err != nil {
		panic(err)
	}
	within := schema
	for _, name := range path[:len(path)-1] {
		within, _ = within[name].(map[string]any)
	}
	delete(within, path[len(path)-1])
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

// Snapshot is a backup of all objects.
type Snapshot struct{ objects []*object }

// Snapshot returns a backup of all objects.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := &Snapshot{}
	for _, t := range s.tables {
		snapshot.objects = append(snapshot.objects, t.objects...)
	}
	return snapshot
}

// RestoreOptions say what is restored.
type RestoreOptions struct {
	// Manager is the backup tool's name in managedFields. Default: velero-server.
	Manager string
	// Status restores the status, too.
	Status bool
	// Include selects objects by their resource and content, which is read-only. nil: all.
	Include func(resource string, object map[string]any) bool
}

// Restore creates the objects of a backup that do not exist and whose namespace does, as a backup tool does: with new UIDs and
// resourceVersions, and with the tool as their only manager. It returns how many it created. Neither quotas nor policies apply.
func (s *Server) Restore(snapshot *Snapshot, options RestoreOptions) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if options.Manager == "" {
		options.Manager = "velero-server"
	}
	restored := 0
	for _, saved := range snapshot.objects {
		name := saved.resource.qualified()
		t := s.table(saved.resource.Group, saved.resource.Version, saved.resource.plural)
		switch {
		case t == nil, t.find(saved.namespace, saved.name) != nil:
			continue
		case t.namespaced && s.namespaces().find("", saved.namespace) == nil:
			continue
		case options.Include != nil && !options.Include(name, saved.content):
			continue
		}
		content := shallow(saved.content)
		content["metadata"] = shallow(metaOf(content))
		status, hasStatus := content["status"]
		r := &request{Call: &Call{Client: options.Manager}, table: t, manager: options.Manager}
		s.prepareCreate(r, content)
		o := s.commit(t, watch.Added, content, nil, r)
		if options.Status && t.status && hasStatus {
			r.Subresource = "status"
			content = withStatus(o.content, status)
			metaOf(content)["managedFields"] = managedFields(metaOf(content)["managedFields"], r, []string{"status"}, s.timestamp())
			s.commit(t, watch.Modified, content, o, r)
		}
		restored++
	}
	return restored
}
