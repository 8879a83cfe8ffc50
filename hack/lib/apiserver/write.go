package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// errModified is the reason of a conflict.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// create stores a new object.
func (s *Server) create(r *request) (*reply, error) {
	content, err := decodeObject(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	meta := metaOf(content)
	if text(meta, "name") == "" && text(meta, "generateName") != "" {
		meta["name"] = text(meta, "generateName") + s.suffix()
	}
	r.Name = text(meta, "name")
	if err := s.checkNamespace(r); err != nil {
		return nil, err
	}
	if r.table.ephemeral {
		return &reply{code: http.StatusCreated, body: encode(content)}, nil
	}
	s.prepareCreate(r, content)
	if wrong := r.invalid(content, nil, validateName(meta)); len(wrong) > 0 {
		return nil, apierrors.NewInvalid(r.table.GroupKind(), r.Name, wrong)
	}
	if err := s.admit(r, content); err != nil {
		return nil, err
	}
	if r.table.find(r.Namespace, r.Name) != nil {
		return nil, apierrors.NewAlreadyExists(r.table.groupResource(), r.Name)
	}
	if r.dryRun {
		return written(r, http.StatusCreated, content), nil
	}
	return stored(r, http.StatusCreated, s.commit(r.table, watch.Added, content, nil, r)), nil
}

// prepareCreate sets what the server decides about a new object.
func (s *Server) prepareCreate(r *request, content map[string]any) {
	meta := metaOf(content)
	for _, name := range []string{"resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink",
		"managedFields"} {
		delete(meta, name)
	}
	meta["uid"] = string(s.nextUID())
	meta["creationTimestamp"] = s.timestamp()
	if r.table.custom {
		meta["generation"] = int64(1)
	}
	if r.table.status {
		delete(content, "status")
	}
	if r.table.Kind == "Namespace" {
		labels, _ := meta["labels"].(map[string]any)
		labels = shallow(labels)
		labels["kubernetes.io/metadata.name"] = text(meta, "name")
		meta["labels"] = labels
		content["status"] = map[string]any{"phase": "Active"}
		content["spec"] = map[string]any{"finalizers": []any{"kubernetes"}}
	}
	meta["managedFields"] = managedFields(nil, r, changedParts(content, nil), s.timestamp())
}

func validateName(meta map[string]any) (wrong field.ErrorList) {
	path := field.NewPath("metadata", "name")
	if text(meta, "name") == "" {
		return field.ErrorList{field.Required(path, "name or generateName is required")}
	}
	for _, message := range validation.NameIsDNSSubdomain(text(meta, "name"), false) {
		wrong = append(wrong, field.Invalid(path, meta["name"], message))
	}
	return wrong
}

// invalid returns what is wrong with an object, in addition to what is known to be wrong. old is nil for a new one.
func (r *request) invalid(content, old map[string]any, wrong field.ErrorList) field.ErrorList {
	if r.table.validation == nil {
		return wrong
	}
	return r.table.validation.validate(content, old, old != nil && r.Subresource == "status", wrong)
}

// twice repeats what is wrong with the metadata of an update: a real server validates that of custom resources in two places.
func (r *resource) twice(wrong field.ErrorList) field.ErrorList {
	if r.custom {
		wrong = append(wrong, wrong...)
	}
	return wrong
}

// update replaces an object, or its status.
func (s *Server) update(r *request) (*reply, error) {
	content, err := decodeObject(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := r.table.find(r.Namespace, r.Name)
	if old == nil {
		return nil, apierrors.NewNotFound(r.table.groupResource(), r.Name)
	}
	if uid := text(metaOf(content), "uid"); uid != "" && old.uid != uid {
		return nil, otherUID(r, uid, old)
	}
	return s.replace(r, old, content)
}

// otherUID is the error for an update whose UID is not the object's. Its text is that of the storage of a real server.
func otherUID(r *request, uid string, old *object) error {
	return apierrors.NewConflict(r.table.groupResource(), r.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: /registry/%s/%s/%s, ResourceVersion: 0, AdditionalErrorMsg: "+
			"Precondition failed: UID in precondition: %s, UID in object meta: %s",
		r.table.Group, r.table.plural, old.key, uid, old.uid))
}

// patch applies a merge patch to an object, or to its status.
func (s *Server) patch(r *request) (*reply, error) {
	if r.Header.Get("Content-Type") != string(types.MergePatchType) {
		return nil, errUnsupportedPatch
	}
	changes, err := decode(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := r.table.find(r.Namespace, r.Name)
	if old == nil {
		return nil, apierrors.NewNotFound(r.table.groupResource(), r.Name)
	}
	content, _ := mergePatch(old.content, changes).(map[string]any)
	content["metadata"] = shallow(metaOf(content))
	if err := checkFields(r, content); err != nil {
		return nil, err
	}
	if uid := text(metaOf(content), "uid"); uid != old.uid {
		wrong := field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable")}
		return nil, apierrors.NewInvalid(r.table.GroupKind(), r.Name, r.table.twice(wrong))
	}
	return s.replace(r, old, content)
}

// replace stores a new state of an object. content is the proposed one; its top level and its metadata are the caller's own.
func (s *Server) replace(r *request, old *object, content map[string]any) (*reply, error) {
	if err := checkRevision(r, old, text(metaOf(content), "resourceVersion")); err != nil {
		return nil, err
	}
	if r.Subresource == "status" {
		content = withStatus(old.content, content["status"])
	} else {
		prepareUpdate(r.table.resource, old, content)
	}
	meta := metaOf(content)
	if wrong := r.invalid(content, old.content, r.table.twice(newFinalizers(old.content, content))); len(wrong) > 0 {
		return nil, apierrors.NewInvalid(r.table.GroupKind(), r.Name, wrong)
	}
	if err := s.admit(r, content); err != nil {
		return nil, err
	}
	parts := changedParts(content, old.content)
	if len(parts) == 0 {
		return stored(r, http.StatusOK, old), nil
	}
	meta["managedFields"] = managedFields(metaOf(old.content)["managedFields"], r, parts, s.timestamp())
	switch ends := text(meta, "deletionTimestamp") != "" && s.isFinished(r.table, content); {
	case r.dryRun:
		return written(r, http.StatusOK, content), nil
	case ends:
		s.commit(r.table, watch.Deleted, nil, old, r)
		return written(r, http.StatusOK, content), nil
	}
	return stored(r, http.StatusOK, s.commit(r.table, watch.Modified, content, old, r)), nil
}

// checkRevision fails if the object is no longer what the client read.
func checkRevision(r *request, old *object, read string) error {
	switch {
	case read == "" && r.table.unconditional || read == strconv.FormatInt(old.revision, 10):
		return nil
	case read == "" || read == "0":
		return apierrors.NewInvalid(r.table.GroupKind(), r.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	default:
		return apierrors.NewConflict(r.table.groupResource(), r.Name, errModified)
	}
}

// withStatus returns the old object with another status.
func withStatus(old map[string]any, status any) map[string]any {
	content := copyOf(old)
	set(content, "status", status)
	return content
}

// prepareUpdate restores what an update cannot change and counts the generation.
func prepareUpdate(t *resource, old *object, content map[string]any) {
	meta, was := metaOf(content), metaOf(old.content)
	for _, name := range []string{
		"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion", "managedFields",
	} {
		set(meta, name, was[name])
	}
	if t.status || t.Kind == "Namespace" {
		set(content, "status", old.content["status"])
	}
	if generation, ok := was["generation"].(int64); ok && !equalExcept(content, old.content, "metadata") {
		meta["generation"] = generation + 1
	}
}

// newFinalizers returns the error for finalizers that are added to an object that is being deleted.
func newFinalizers(old, content map[string]any) field.ErrorList {
	if text(metaOf(old), "deletionTimestamp") == "" {
		return nil
	}
	before := finalizersOf(old)
	added := slices.DeleteFunc(finalizersOf(content), func(f string) bool { return slices.Contains(before, f) })
	if len(added) == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "finalizers"),
		fmt.Sprintf("no new finalizers can be added if the object is being deleted, found new finalizers %#v", added))}
}

// changedParts returns the names of the top-level fields in which an object differs from its old state; managedFields and
// resourceVersion do not count.
func changedParts(content, old map[string]any) []string {
	var parts []string
	for name, value := range content {
		if name == "metadata" {
			was, _ := old["metadata"].(map[string]any)
			if old != nil && !equalExcept(metaOf(content), was, "managedFields", "resourceVersion") {
				parts = append(parts, name)
			}
		} else if name != "kind" && name != "apiVersion" && !reflect.DeepEqual(value, old[name]) {
			parts = append(parts, name)
		}
	}
	for name := range old {
		if _, ok := content[name]; !ok {
			parts = append(parts, name)
		}
	}
	slices.Sort(parts)
	return parts
}

// equalExcept reports whether two maps are equal but for some fields.
func equalExcept(a, b map[string]any, except ...string) bool {
	a, b = shallow(a), shallow(b)
	for _, name := range except {
		delete(a, name)
		delete(b, name)
	}
	return reflect.DeepEqual(a, b)
}

// managedFields returns the entries with that of the manager of a request, which wrote these top-level fields at this time.
func managedFields(entries any, r *request, parts []string, at string) []any {
	written := map[string]any{}
	for _, part := range parts {
		written["f:"+part] = map[string]any{}
	}
	mine := map[string]any{
		"manager": r.manager, "operation": "Update", "apiVersion": r.table.GroupVersion().String(), "time": at,
		"fieldsType": "FieldsV1", "fieldsV1": written,
	}
	if r.Subresource != "" {
		mine["subresource"] = r.Subresource
	}
	old, _ := entries.([]any)
	now := make([]any, 0, len(old)+1)
	for _, value := range old {
		entry, _ := value.(map[string]any)
		if entry["manager"] != mine["manager"] || entry["subresource"] != mine["subresource"] ||
			entry["operation"] != mine["operation"] {
			now = append(now, entry)
			continue
		}
		before, _ := entry["fieldsV1"].(map[string]any)
		for name := range before {
			written[name] = map[string]any{}
		}
	}
	now = append(now, mine)
	slices.SortStableFunc(now, func(a, b any) int {
		return cmp.Or(compare(a, b, "operation"), compare(a, b, "time"), compare(a, b, "manager"), compare(a, b, "subresource"))
	})
	return now
}

// compare compares two entries of managedFields by a field.
func compare(a, b any, name string) int {
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	return strings.Compare(text(x, name), text(y, name))
}

// timestamp is the time as the server writes it.
func (s *Server) timestamp() string { return s.options.Now().UTC().Format(time.RFC3339) }

// stored answers with an object that is stored.
func stored(r *request, code int, o *object) *reply {
	return &reply{code: code, body: o.encoded(r.asMetadata)}
}

// written answers with an object that is not stored.
func written(r *request, code int, content map[string]any) *reply {
	return &reply{code: code, body: encodeAs(content, r.asMetadata)}
}
