package apiserver_test

import "testing"

func TestDeletes(t *testing.T) { deletes.run(t) }

func preconditions(uid, revision any) object {
	p := object{}
	if uid != nil {
		p["uid"] = uid
	}
	if revision != nil {
		p["resourceVersion"] = revision
	}
	return object{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": p}
}

var deletes = conformance{
	"a delete has preconditions": {func(s *site) {
		first := s.create("alertevents", alertEvent("a"))
		uid, revision := first.at("metadata", "uid"), first.at("metadata", "resourceVersion")
		for _, options := range []object{preconditions("other", nil), preconditions(uid, "1"), preconditions(uid, revision)} {
			a := s.send("DELETE", s.path("alertevents", "a"), options)
			s.note("%v %v", a, a.message())
			if a.code == 200 {
				s.note("%v %v %v %v", a.at("status"), a.at("details", "name"), a.at("details", "kind"), a.at("details", "uid") == uid)
			}
		}
		s.note("%v", s.send("DELETE", s.path("alertevents", "a"), preconditions(uid, revision)))
	}, []string{
		`409 Conflict Operation cannot be fulfilled on AlertEvent.tocsin.dev "a": the UID in the precondition (other) does not match ` +
			"the UID in record (UID). The object might have been deleted and then recreated",
		`409 Conflict Operation cannot be fulfilled on AlertEvent.tocsin.dev "a": the ResourceVersion in the ` +
			"precondition (N) does not match " +
			"the ResourceVersion in record (N). The object might have been modified",
		"200 <nil>", "Success a alertevents true", "404 NotFound",
	}},

	"finalizers hold back a deletion": {func(s *site) {
		path := s.path("incidents", "a")
		s.create("incidents", with(incident("a"), []string{"example.com/hold"}, "metadata", "finalizers"))
		marked := s.send("DELETE", path, nil)
		s.note("%v %v %v %v", marked, marked.at("kind"), marked.at("metadata", "generation"), marked.at("metadata",
			"deletionTimestamp") != nil)
		again := s.send("DELETE", path, nil)
		s.note("%v %v", again, again.at("metadata", "resourceVersion") == marked.at("metadata", "resourceVersion"))
		s.note("%v", s.send("POST", s.path("incidents"), incident("a")))
		s.note("%v", s.send("PUT", path, with(marked.body, []string{"example.com/hold", "example.com/more"}, "metadata", "finalizers")))
		status := s.send("PUT", path+"/status", with(marked.body, "Open", "status", "state"))
		s.note("%v %v", status, status.at("status", "state"))
		kept := s.send("PUT", path, with(status.body, nil, "metadata", "deletionTimestamp"))
		s.note("%v %v", kept, kept.at("metadata", "deletionTimestamp") != nil)
		released := s.send("PUT", path, with(status.body, nil, "metadata", "finalizers"))
		s.note("%v %v", released, released.at("metadata", "finalizers"))
		s.note("%v", s.send("GET", path, nil))
	}, []string{"200 Incident 2 true", "200 true", "409 AlreadyExists",
		"422 Invalid: FieldValueForbidden metadata.finalizers, FieldValueForbidden metadata.finalizers", "200 Open",
		"200 true", "200 <nil>", "404 NotFound"}},

	"a deletion of a collection deletes what is selected": {func(s *site) {
		for _, name := range []string{"a", "b", "c"} {
			s.create("alertevents", with(alertEvent(name), object{"half": map[bool]string{true: "one", false: "two"}[name < "c"]},
				"metadata", "labels"))
		}
		a := s.send("DELETE", s.path("alertevents")+"?labelSelector=half%3Done", nil)
		s.note("%v %v", a, a.at("kind"))
		s.note("%v", names(s.send("GET", s.path("alertevents"), nil)))
	}, []string{"200 AlertEventList", "[c]"}},

	"a namespace that is being deleted takes nothing new": {func(s *site) {
		s.create("alertevents", alertEvent("a"))
		deleted := s.send("DELETE", "/api/v1/namespaces/"+s.namespace, nil)
		s.note("%v %v %v", deleted, deleted.at("status", "phase"), deleted.at("metadata", "deletionTimestamp") != nil)
		refused := s.send("POST", s.path("alertevents"), alertEvent("b"))
		s.note("%v %v", refused, refused.at("message"))
		s.note("%v", s.send("GET", s.path("alertevents", "a"), nil))
	}, []string{"200 Terminating true",
		`403 Forbidden: NamespaceTerminating metadata.namespace alertevents.tocsin.dev "b" is forbidden: ` +
			"unable to create new content in namespace NAMESPACE because it is being terminated", "200"}},
}

// names returns the names of the items of a list.
func names(list answer) []any {
	items, _ := list.at("items").([]any)
	names := []any{}
	for _, item := range items {
		names = append(names, at(item, "metadata", "name"))
	}
	return names
}
