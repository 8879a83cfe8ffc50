package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// delete deletes an object, or marks it if it has finalizers.
func (s *Server) delete(r *request) (*reply, error) {
	options, err := deleteOptions(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := r.table.find(r.Namespace, r.Name)
	if o == nil {
		return nil, apierrors.NewNotFound(r.table.groupResource(), r.Name)
	}
	if err := checkPreconditions(r, o, options.Preconditions); err != nil {
		return nil, err
	}
	if err := s.admit(r, o.content); err != nil {
		return nil, err
	}
	after := s.remove(r.table, o, r, r.dryRun)
	if after != nil {
		return written(r, http.StatusOK, after), nil
	}
	success := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: o.name, Group: r.table.Group, Kind: r.table.plural, UID: types.UID(o.uid)},
	}
	return &reply{code: http.StatusOK, body: encode(&success)}, nil
}

// deleteCollection deletes the selected objects, in the order of their keys.
func (s *Server) deleteCollection(r *request) (*reply, error) {
	options, err := deleteOptions(r)
	if err != nil {
		return nil, err
	}
	selected, err := selectionOf(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var chosen []*object
	for _, o := range r.table.within(r.Namespace) {
		if selected.matches(o) {
			chosen = append(chosen, o)
		}
	}
	for _, o := range chosen {
		if err := checkPreconditions(r, o, options.Preconditions); err != nil {
			return nil, err
		}
		if err := s.admit(r, o.content); err != nil {
			return nil, err
		}
		s.remove(r.table, o, r, r.dryRun)
	}
	meta := metav1.ListMeta{ResourceVersion: fmt.Sprint(s.revision)}
	return encodeList(r, meta, chosen), nil
}

// deleteOptions returns the options of a deletion, from its body. They count only then, as in a real server: with a body, the
// parameters are ignored.
func deleteOptions(r *request) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	if len(r.Body) == 0 {
		return options, nil
	}
	content, err := decode(r)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, options); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	r.dryRun = r.dryRun || len(options.DryRun) > 0
	return options, nil
}

func checkPreconditions(r *request, o *object, preconditions *metav1.Preconditions) error {
	if preconditions == nil {
		return nil
	}
	byKind := schema.GroupResource{Group: r.table.Group, Resource: r.table.Kind} // as a real server has it
	if uid := preconditions.UID; uid != nil && string(*uid) != o.uid {
		return apierrors.NewConflict(byKind, o.name, fmt.Errorf("the UID in the precondition (%s) does not match "+
			"the UID in record (%s). The object might have been deleted and then recreated", *uid, o.uid))
	}
	if revision := preconditions.ResourceVersion; revision != nil && *revision != fmt.Sprint(o.revision) {
		return apierrors.NewConflict(byKind, o.name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not "+
			"match the ResourceVersion in record (%d). The object might have been modified", *revision, o.revision))
	}
	return nil
}

// remove deletes an object, and returns nil; or it marks an object with finalizers, and returns its content. The lock is held.
func (s *Server) remove(t *table, o *object, by *request, dryRun bool) map[string]any {
	if s.isFinished(t, o.content) {
		if !dryRun {
			s.commit(t, watch.Deleted, nil, o, by)
		}
		return nil
	}
	if text(metaOf(o.content), "deletionTimestamp") != "" {
		return o.content
	}
	content := copyOf(o.content)
	meta := metaOf(content)
	meta["deletionTimestamp"] = s.timestamp()
	if generation, ok := meta["generation"].(int64); ok {
		meta["generation"] = generation + 1
	}
	if t.Kind == "Namespace" {
		content["status"] = map[string]any{"phase": "Terminating"}
	} else {
		meta["deletionGracePeriodSeconds"] = int64(0)
	}
	if dryRun {
		return content
	}
	content = s.commit(t, watch.Modified, content, o, by).content
	if t.Kind == "Namespace" {
		s.terminate(o.name)
	}
	return content
}

// isFinished reports whether nothing holds back the deletion of an object.
func (s *Server) isFinished(t *table, content map[string]any) bool {
	if len(finalizersOf(content)) > 0 {
		return false
	}
	return t.Kind != "Namespace" || s.terminates[text(metaOf(content), "name")] && s.isEmpty(text(metaOf(content), "name"))
}
