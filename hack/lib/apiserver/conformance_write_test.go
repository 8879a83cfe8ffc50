package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestWrites(t *testing.T) { writes.run(t) }

const merge = "application/merge-patch+json"

var writes = conformance{
	"a create returns what is stored": {func(s *site) {
		a := s.create("incidents", with(incident("a"), "Open", "status", "state"))
		s.note("%v %v", a, a.at("status"))
		s.note("%v %v %v", a.at("metadata", "name"), a.at("metadata", "namespace"), a.at("metadata", "generation"))
		s.note("%v", a.at("metadata", "uid"))
		s.note("%v", s.send("GET", s.path("incidents", "a"), nil).at("metadata", "resourceVersion") == a.at("metadata",
			"resourceVersion"))
	}, []string{"201 <nil>", "a NAMESPACE 1", "UID", "true"}},

	"a name is taken once": {func(s *site) {
		s.create("alertevents", alertEvent("a"))
		a := s.send("POST", s.path("alertevents"), alertEvent("a"))
		s.note("%v", a)
		s.note("%v", a.message())
		s.note("%v %v %v", a.at("details", "name"), a.at("details", "group"), a.at("details", "kind"))
	}, []string{"409 AlreadyExists", `alertevents.tocsin.dev "a" already exists`, "a tocsin.dev alertevents"}},

	"a generated name has the prefix and five characters": {func(s *site) {
		a := s.create("alertevents", with(with(alertEvent("a"), "event-", "metadata", "generateName"), nil, "metadata", "name"))
		name := fmt.Sprint(a.at("metadata", "name"))
		s.note("%v %v", strings.HasPrefix(name, "event-"), len(name))
	}, []string{"true 11"}},

	"a create is refused for what does not fit its URL": {func(s *site) {
		s.note("%v", s.send("POST", s.path("alertevents"), with(alertEvent("a"), "elsewhere", "metadata", "namespace")))
		s.note("%v", s.send("POST", s.path("alertevents"), incident("a")))
		s.note("%v", s.send("POST", s.path("alertevents"), with(alertEvent("a"), nil, "kind")))
		s.note("%v", s.send("POST", s.path("alertevents"), `{"kind":`))
		s.note("%v", s.status("POST", s.path("strangers")))
		a := s.send("POST", "/apis/tocsin.dev/v1alpha1/namespaces/missing/alertevents", alertEvent("a"))
		s.note("%v %v", a, a.message())
	}, []string{"400 BadRequest", "422 Invalid: FieldValueInvalid kind, FieldValueInvalid spec", "400 BadRequest",
		"400 BadRequest", "404",
		`404 NotFound namespaces "missing" not found`}},

	"an update needs the newest resourceVersion": {func(s *site) {
		first := s.create("webhookintegrations", integration("a")).body
		s.note("%v", s.send("PUT", s.path("webhookintegrations", "a"), with(first, true, "spec", "suspend")))
		a := s.send("PUT", s.path("webhookintegrations", "a"), with(first, false, "spec", "suspend"))
		s.note("%v %v", a, a.message())
		s.note("%v", s.send("PUT", s.path("webhookintegrations", "a"), with(first, nil, "metadata", "resourceVersion")))
		s.note("%v", s.send("PUT", s.path("webhookintegrations", "a", "status"), with(first, object{"observedGeneration": 1},
			"status")))
	}, []string{"200",
		`409 Conflict Operation cannot be fulfilled on webhookintegrations.tocsin.dev "a": the object has been modified; ` +
			"please apply your changes to the latest version and try again", "422 Invalid: FieldValueInvalid metadata.resourceVersion",
		"409 Conflict"}},

	"an update is for one UID": {func(s *site) {
		const other = "00000000-0000-0000-0000-000000000000"
		first := s.create("incidents", incident("a")).body
		s.note("%v", s.send("PUT", s.path("incidents", "a", "status"), with(first, other, "metadata", "uid")))
		s.send("DELETE", s.path("incidents", "a"), nil)
		s.note("%v", s.send("PUT", s.path("incidents", "a", "status"), first))
		s.note("%v", s.send("PUT", s.path("incidents", "a", "status"), with(first, nil, "metadata", "uid")))
	}, []string{"409 Conflict", "404 NotFound", "404 NotFound"}},

	"an update that changes nothing writes nothing": {func(s *site) {
		first := s.create("webhookintegrations", integration("a"))
		second := s.send("PUT", s.path("webhookintegrations", "a"), first.body)
		s.note("%v %v", second, second.at("metadata", "resourceVersion") == first.at("metadata", "resourceVersion"))
		third := s.send("PATCH", s.path("webhookintegrations", "a"), object{"spec": object{"lateFiringWindow": "30s"}},
			"Content-Type", merge)
		s.note("%v %v", third, third.at("metadata", "resourceVersion") == first.at("metadata", "resourceVersion"))
	}, []string{"200 true", "200 true"}},

	"an update of the status changes nothing else": {func(s *site) {
		first := s.create("webhookintegrations", integration("a")).body
		changed := with(with(first, true, "spec", "suspend"), object{"x": "y"}, "metadata", "labels")
		a := s.send("PUT", s.path("webhookintegrations", "a", "status"), with(changed, object{"observedGeneration": 7}, "status"))
		s.note("%v %v %v %v", a, a.at("spec", "suspend"), a.at("metadata", "labels"), a.at("metadata", "generation"))
		s.note("%v", a.at("status", "observedGeneration"))
	}, []string{"200 <nil> <nil> 1", "7"}},

	"an update changes no status, and the generation counts changes of the spec": {func(s *site) {
		first := s.create("webhookintegrations", integration("a")).body
		a := s.send("PUT", s.path("webhookintegrations", "a"),
			with(with(first, true, "spec", "suspend"), object{"observedGeneration": 7}, "status"))
		s.note("%v %v %v", a, a.at("status"), a.at("metadata", "generation"))
		a = s.send("PUT", s.path("webhookintegrations", "a"), with(a.body, object{"x": "y"}, "metadata", "annotations"))
		s.note("%v %v %v", a, a.at("metadata", "generation"), a.at("metadata", "annotations"))
	}, []string{"200 <nil> 2", "200 2 map[x:y]"}},

	"a resource without status has no subresource": {func(s *site) {
		first := s.create("alertevents", alertEvent("a")).body
		s.note("%v", s.send("PUT", s.path("alertevents", "a", "status"), first))
	}, []string{"404 NotFound"}},

	"a merge patch merges and removes": {func(s *site) {
		s.create("webhookintegrations", with(integration("a"), object{"x": "1", "y": "2"}, "metadata", "annotations"))
		a := s.send("PATCH", s.path("webhookintegrations", "a"),
			object{"metadata": object{"annotations": object{"x": nil, "z": "3"}}, "spec": object{"suspend": true}}, "Content-Type", merge)
		s.note("%v %v %v", a, a.at("metadata", "annotations"), a.at("spec"))
		a = s.send("PATCH", s.path("webhookintegrations", "a", "status"), object{"status": object{"observedGeneration": 2}},
			"Content-Type", merge)
		s.note("%v %v", a, a.at("status"))
		s.note("%v", s.send("PATCH", s.path("webhookintegrations", "none"), object{}, "Content-Type", merge))
		s.note("%v", s.send("PATCH", s.path("webhookintegrations", "a"), object{}, "Content-Type",
			"application/strategic-merge-patch+json"))
	}, []string{"200 map[y:2 z:3] map[lateFiringWindow:30s suspend:true]", "200 map[observedGeneration:2]", "404 NotFound",
		"415 UnsupportedMediaType"}},

	"a merge patch can demand a resourceVersion and a UID": {func(s *site) {
		patch := func(meta object) answer {
			meta["annotations"] = object{"tocsin.dev/settled": fmt.Sprint(len(s.notes))}
			return s.send("PATCH", s.path("alertevents", "a"), object{"metadata": meta}, "Content-Type", merge)
		}
		first := s.create("alertevents", alertEvent("a")).body
		uid, revision := at(first, "metadata", "uid"), at(first, "metadata", "resourceVersion")
		s.note("%v", patch(object{"resourceVersion": "1"}))
		s.note("%v", patch(object{"uid": "other"}))
		s.note("%v", patch(object{"resourceVersion": revision, "uid": uid}))
		s.note("%v", patch(object{"resourceVersion": revision, "uid": uid}))
		s.send("DELETE", s.path("alertevents", "a"), nil)
		s.note("%v", patch(object{"resourceVersion": revision, "uid": uid}))
	}, []string{"409 Conflict", "422 Invalid: FieldValueInvalid metadata.uid, FieldValueInvalid metadata.uid", "200",
		"409 Conflict", "404 NotFound"}},

	"managedFields names who wrote": {func(s *site) {
		first := s.send("POST", s.path("webhookintegrations")+"?fieldManager=maker", integration("a")).body
		second := s.send("PUT", s.path("webhookintegrations", "a", "status"), with(first, object{"observedGeneration": 7},
			"status")).body
		third := s.send("PUT", s.path("webhookintegrations", "a"), with(second, object{"x": "y"}, "metadata", "labels"), "User-Agent",
			"kubectl/v1.36 (linux)")
		entries, _ := third.at("metadata", "managedFields").([]any)
		for _, entry := range entries {
			s.note("%v %v %v %v", at(entry, "manager"), at(entry, "operation"), at(entry, "subresource"), at(entry, "fieldsType"))
		}
		slices.Sort(s.notes) // the order is that of the times
	}, []string{"conformance Update status FieldsV1", "kubectl Update <nil> FieldsV1", "maker Update <nil> FieldsV1"}},

	"a built-in kind has its own rules": {func(s *site) {
		namespace := "/api/v1/namespaces/" + s.namespace
		s.note("%v", s.send("GET", namespace, nil).at("metadata", "labels"))
		o := object{"kind": "ConfigMap", "apiVersion": "v1", "metadata": object{"name": "a"}, "data": object{"x": "y"}}
		a := s.send("POST", namespace+"/configmaps", o)
		s.note("%v %v", a, a.at("metadata", "generation"))
		a = s.send("PUT", namespace+"/configmaps/a", with(o, "z", "data", "x"))
		s.note("%v %v", a, a.at("data"))
		s.note("%v", s.send("PUT", namespace+"/configmaps/a", with(o, "1", "metadata", "resourceVersion")))
		s.note("%v", s.send("PUT", namespace+"/configmaps/b", o))
		list := s.send("GET", namespace+"/configmaps?fieldSelector=metadata.name%3Da", nil)
		s.note("%v %v", list.at("kind"), names(list))
		leases := "/apis/coordination.k8s.io/v1/namespaces/" + s.namespace + "/leases"
		lease := object{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": object{"name": "a"}}
		s.note("%v", s.send("POST", leases, lease))
		s.note("%v", s.send("PUT", leases+"/a", lease))
		deleted := s.send("DELETE", leases+"/a", nil)
		s.note("%v %v", deleted, deleted.at("status"))
	}, []string{"map[kubernetes.io/metadata.name:NAMESPACE]", "201 <nil>", "200 map[x:z]", "409 Conflict", "400 BadRequest",
		"ConfigMapList [a]",
		"201", "422 Invalid: FieldValueInvalid metadata.resourceVersion", "200 Success"}},

	"a dry run stores nothing": {func(s *site) {
		s.note("%v", s.send("POST", s.path("alertevents")+"?dryRun=All", alertEvent("a")))
		s.note("%v", s.send("GET", s.path("alertevents", "a"), nil))
		first := s.create("webhookintegrations", integration("a")).body
		s.note("%v", s.send("POST", s.path("webhookintegrations")+"?dryRun=All", integration("a")))
		s.note("%v", s.send("PUT", s.path("webhookintegrations", "a")+"?dryRun=All", with(first, true, "spec", "suspend")).at("spec",
			"suspend"))
		s.note("%v", s.send("DELETE", s.path("webhookintegrations", "a")+"?dryRun=All", nil))
		now := s.send("GET", s.path("webhookintegrations", "a"), nil)
		s.note("%v", now.at("metadata", "resourceVersion") == at(first, "metadata", "resourceVersion"))
	}, []string{"201", "404 NotFound", "409 AlreadyExists", "true", "200", "true"}},

	"an unknown field is dropped, or refused by strict validation": {func(s *site) {
		o := with(with(alertEvent("a"), 1, "spec", "stranger"), 2, "another")
		a := s.send("POST", s.path("alertevents")+"?fieldValidation=Strict&dryRun=All", o)
		s.note("%v %v", a, a.at("message"))
		s.note("%v", s.send("POST", s.path("alertevents"), o).at("spec", "stranger"))
	}, []string{`400 BadRequest AlertEvent in version "v1alpha1" cannot be handled as a AlertEvent: strict decoding error: ` +
		`unknown field "another", unknown field "spec.stranger"`, "<nil>"}},
}
