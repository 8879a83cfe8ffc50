package apiserver

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// namespaceDelay is the time until the content of a deleted namespace is deleted.
const namespaceDelay = time.Second

// CreateNamespaces makes namespaces that do not exist.
func (s *Server) CreateNamespaces(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.namespaces()
	for _, name := range names {
		if t.find("", name) != nil {
			continue
		}
		s.commit(t, watch.Added, map[string]any{
			"kind": "Namespace", "apiVersion": "v1",
			"metadata": map[string]any{
				"name": name, "uid": string(s.nextUID()), "creationTimestamp": s.timestamp(),
				"labels": map[string]any{"kubernetes.io/metadata.name": name},
			},
			"spec": map[string]any{"finalizers": []any{"kubernetes"}}, "status": map[string]any{"phase": "Active"},
		}, nil, nil)
	}
}

func (s *Server) namespaces() *table { return s.table("", "v1", "namespaces") }

// checkNamespace fails if an object cannot be created because of its namespace. The lock is held.
func (s *Server) checkNamespace(r *request) error {
	if !r.table.namespaced {
		return nil
	}
	if r.Namespace == "" {
		return apierrors.NewBadRequest("an empty namespace may not be set during creation")
	}
	namespace := s.namespaces().find("", r.Namespace)
	if namespace == nil {
		return apierrors.NewNotFound(s.namespaces().groupResource(), r.Namespace)
	}
	if text(metaOf(namespace.content), "deletionTimestamp") == "" {
		return nil
	}
	err := apierrors.NewForbidden(r.table.groupResource(), r.Name, fmt.Errorf(
		"unable to create new content in namespace %s because it is being terminated", r.Namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: "NamespaceTerminating", Message: fmt.Sprintf("namespace %s is being terminated", r.Namespace),
		Field: "metadata.namespace",
	})
	return err
}

// terminate deletes the content of a namespace after a while, and the namespace when it is empty. The lock is held.
func (s *Server) terminate(name string) {
	time.AfterFunc(namespaceDelay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, t := range s.tables {
			if !t.namespaced {
				continue
			}
			for _, o := range slices.Clone(t.within(name)) {
				s.remove(t, o, nil, false)
			}
		}
		s.terminates[name] = true
		s.finishNamespace(name)
	})
}

// finishNamespace deletes a namespace whose content was deleted and is gone. The lock is held.
func (s *Server) finishNamespace(name string) {
	if !s.terminates[name] || !s.isEmpty(name) {
		return
	}
	t := s.namespaces()
	if o := t.find("", name); o != nil && len(finalizersOf(o.content)) == 0 {
		s.commit(t, watch.Deleted, nil, o, nil)
	}
}

func (s *Server) isEmpty(name string) bool {
	return !slices.ContainsFunc(s.tables, func(t *table) bool { return t.namespaced && len(t.within(name)) > 0 })
}
