package apiserver

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// entry is one commit, as watches see it.
type entry struct {
	revision int64
	kind     watch.EventType
	object   *object // its state afterwards; of a deletion, the last state with the resourceVersion of the deletion
	old      *object // its state before; nil for ADDED
	left     *object // the state before, with the resourceVersion of the commit; made when a watch needs it
}

// table has the objects of one resource and their history.
type table struct {
	*resource
	objects []*object // by key
	history []entry   // the newest commits
	dropped int       // how many commits the history no longer has
	expired int64     // reads of older states, and watches from before, get 410
	changed chan struct{}
}

// find returns an object, or nil.
func (t *table) find(namespace, name string) *object {
	if at, found := t.search(keyOf(namespace, name)); found {
		return t.objects[at]
	}
	return nil
}

func (t *table) search(key string) (int, bool) {
	return slices.BinarySearchFunc(t.objects, key, func(o *object, key string) int { return strings.Compare(o.key, key) })
}

// apply stores a commit and wakes the watches.
func (t *table) apply(e entry, keep int) {
	at, found := t.search(e.object.key)
	switch {
	case e.kind == watch.Deleted:
		t.objects = slices.Delete(t.objects, at, at+1)
	case found:
		t.objects[at] = e.object
	default:
		t.objects = slices.Insert(t.objects, at, e.object)
	}
	if len(t.history) >= 2*keep {
		gone := len(t.history) - keep
		t.expired = max(t.expired, t.history[gone-1].revision)
		t.history = slices.Clone(t.history[gone:])
		t.dropped += gone
	}
	t.history = append(t.history, e)
	close(t.changed)
	t.changed = make(chan struct{})
}

// after returns the position of the first commit after a revision.
func (t *table) after(revision int64) int {
	at, _ := slices.BinarySearchFunc(t.history, revision+1, func(e entry, revision int64) int { return int(e.revision - revision) })
	return t.dropped + at
}

// snapshot returns the objects of a namespace, or of all, as they were at a revision that is not expired.
func (t *table) snapshot(namespace string, revision int64) []*object {
	objects := t.within(namespace)
	undo := t.history[t.after(revision)-t.dropped:]
	if len(undo) == 0 {
		return objects
	}
	before := map[string]*object{}
	for _, e := range slices.Backward(undo) {
		before[e.object.key] = e.old
	}
	was := make([]*object, 0, len(objects))
	for _, o := range objects {
		if _, changed := before[o.key]; !changed {
			was = append(was, o)
		}
	}
	for _, o := range before {
		if o != nil && (namespace == "" || o.namespace == namespace) {
			was = append(was, o)
		}
	}
	slices.SortFunc(was, func(a, b *object) int { return strings.Compare(a.key, b.key) })
	return was
}

// was returns an object as it was at a revision that is not expired, or nil.
func (t *table) was(namespace, name string, revision int64) *object {
	key := keyOf(namespace, name)
	for _, e := range t.history[t.after(revision)-t.dropped:] {
		if e.object.key == key {
			return e.old
		}
	}
	return t.find(namespace, name)
}

// within returns the objects of a namespace, or all. The slice must not be kept beyond the lock.
func (t *table) within(namespace string) []*object {
	if namespace == "" {
		return t.objects
	}
	from, _ := t.search(namespace + "/")
	to, _ := t.search(namespace + "0") // the character after "/"
	return t.objects[from:to]
}

// selection says which objects a list, a watch or a deletion is about.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

// matches reports whether an object is selected.
func (s *selection) matches(o *object) bool {
	return (s.namespace == "" || o.namespace == s.namespace) &&
		(s.labels.Empty() || s.labels.Matches(o.labels)) && (s.fields.Empty() || s.fields.Matches(o))
}

// seen returns how a commit looks through the selection. The type is empty if it cannot be seen.
func (s *selection) seen(e *entry) (watch.EventType, *object) {
	is := e.kind != watch.Deleted && s.matches(e.object)
	was := e.old != nil && s.matches(e.old)
	switch {
	case is && was:
		return watch.Modified, e.object
	case is:
		return watch.Added, e.object
	case !was:
		return "", nil
	case e.kind == watch.Deleted:
		return watch.Deleted, e.object
	}
	if e.left == nil {
		e.left = e.old.at(e.revision)
	}
	return watch.Deleted, e.left
}

// selectable reports whether the resource has a field for selectors.
func (r *resource) selectable(name string) bool {
	if name == "metadata.name" || name == "metadata.namespace" && r.namespaced {
		return true
	}
	_, ok := r.fields[name]
	return ok
}
