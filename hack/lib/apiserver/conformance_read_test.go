package apiserver_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"testing"
)

func TestReads(t *testing.T) { reads.run(t) }

const (
	asMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	asMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// incidents creates Incidents with these states by name.
func (s *site) incidents(states ...string) {
	s.t.Helper()
	for i := 0; i+1 < len(states); i += 2 {
		first := s.create("incidents", with(incident(states[i]), object{"state": states[i+1]}, "metadata", "labels")).body
		if a := s.send("PUT", s.path("incidents", states[i], "status"), with(first, states[i+1], "status", "state")); a.code != 200 {
			s.t.Fatal(a.body)
		}
	}
}

func query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return "?" + values.Encode()
}

var reads = conformance{
	"an object is read in full or as metadata": {func(s *site) {
		s.create("alertevents", alertEvent("a"))
		a := s.send("GET", s.path("alertevents", "a"), nil)
		s.note("%v %v %v %v", a, a.at("kind"), a.at("apiVersion"), a.at("spec", "integrationName"))
		a = s.send("GET", s.path("alertevents", "a")+"?resourceVersion=0", nil, "Accept", asMetadata)
		s.note("%v %v %v %v %v", a, a.at("kind"), a.at("apiVersion"), a.at("metadata", "name"), a.at("spec"))
		a = s.send("GET", s.path("alertevents", "b"), nil)
		s.note("%v %v", a, a.message())
	}, []string{"200 AlertEvent tocsin.dev/v1alpha1 app", "200 PartialObjectMetadata meta.k8s.io/v1 a <nil>",
		`404 NotFound alertevents.tocsin.dev "b" not found`}},

	"schemas are published as OpenAPI": {func(s *site) {
		const path = "/openapi/v3/apis/tocsin.dev/v1alpha1"
		var a answer
		s.await(http.StatusOK, func() answer {
			a = s.send("GET", path, nil, "Accept", "application/json")
			return a
		})
		comment := []string{"properties", "spec", "properties", "report", "properties", "comment", "maxLength"}
		s.note("%v", a.at(append([]string{"components", "schemas", "dev.tocsin.v1alpha1.AlertEvent"}, comment...)...))
		s.note("%d", s.status("GET", path+"0"))
	}, []string{"1024", "404"}},

	"a list is in the order of the names": {func(s *site) {
		a := s.send("GET", s.path("incidents"), nil)
		s.note("%v %v %v %v", a, a.at("kind"), a.at("apiVersion"), a.at("items"))
		for _, name := range []string{"b", "a-b", "a", "a.b"} {
			s.create("incidents", incident(name))
		}
		s.note("%v", names(s.send("GET", s.path("incidents"), nil)))
	}, []string{"200 IncidentList tocsin.dev/v1alpha1 []", "[a a-b a.b b]"}},

	"a list of metadata has no content": {func(s *site) {
		s.create("alertevents", with(alertEvent("a"), object{"x": "y"}, "metadata", "annotations"))
		a := s.send("GET", s.path("alertevents"), nil, "Accept", asMetadataList)
		items, _ := a.at("items").([]any)
		s.note("%v %v %v %v", a, a.at("kind"), a.at("apiVersion"), len(items))
		s.note("%v %v %v %v", at(items[0], "kind"), at(items[0], "apiVersion"), at(items[0], "spec"), at(items[0], "metadata",
			"annotations"))
	}, []string{"200 PartialObjectMetadataList meta.k8s.io/v1 1", "PartialObjectMetadata meta.k8s.io/v1 <nil> map[x:y]"}},

	"selectors select": {func(s *site) {
		s.incidents("a", "Open", "b", "Resolved", "c", "Open")
		s.create("incidents", incident("d"))
		for _, q := range []string{
			query("fieldSelector", "status.state!=Resolved"), query("fieldSelector", "status.state=Resolved"), query("fieldSelector",
				"status.state="),
			query("fieldSelector", "metadata.name=c"), query("fieldSelector", "metadata.name!=c,status.state==Open"),
			query("fieldSelector", "spec.integrationName=app"), query("fieldSelector", "status.alert.severity=critical"),
			query("labelSelector", "state=Open"), query("labelSelector", "state notin (Open)"), query("labelSelector", "!state"),
			query("labelSelector", "state", "fieldSelector", "status.state=Resolved"),
			query("fieldSelector", "spec.dedupKey=a"), query("labelSelector", "a in"), query("fieldSelector", "a"),
		} {
			a := s.send("GET", s.path("incidents")+q, nil)
			s.note("%v %v", a, names(a))
		}
	}, []string{"200 [a c d]", "200 [b]", "200 [d]", "200 [c]", "200 [a]", "200 [a b c d]", "200 []", "200 [a c]", "200 [b d]",
		"200 [d]", "200 [b]",
		"400 BadRequest []", "400 BadRequest []", "400 BadRequest []"}},

	"pages are of one snapshot": {func(s *site) {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			s.create("alertevents", alertEvent(name))
		}
		first := s.send("GET", s.path("alertevents")+query("limit", "2"), nil)
		s.note("%v %v", names(first), first.at("metadata", "remainingItemCount"))
		s.send("DELETE", s.path("alertevents", "c"), nil)
		s.create("alertevents", alertEvent("d2"))
		s.create("alertevents", alertEvent("a2"))
		second := s.send("GET", s.path("alertevents")+query("limit", "2", "continue", fmt.Sprint(first.at("metadata", "continue"))),
			nil)
		s.note("%v %v", names(second), second.at("metadata", "resourceVersion") == first.at("metadata", "resourceVersion"))
		third := s.send("GET", s.path("alertevents")+query("limit", "2", "continue", fmt.Sprint(second.at("metadata", "continue"))),
			nil)
		s.note("%v %v %v", names(third), orEmpty(third.at("metadata", "continue")), third.at("metadata", "remainingItemCount"))
		s.note("%v", names(s.send("GET", s.path("alertevents"), nil)))
	}, []string{"[a b] 3", "[c d] true", "[e]  <nil>", "[a a2 b d d2 e]"}},

	"a page after a selector tells no number": {func(s *site) {
		s.incidents("a", "Open", "b", "Resolved", "c", "Open", "d", "Open")
		first := s.send("GET", s.path("incidents")+query("limit", "2", "fieldSelector", "status.state!=Resolved"), nil)
		s.note("%v %v", names(first), first.at("metadata", "remainingItemCount"))
		second := s.send("GET", s.path("incidents")+query("limit", "2", "fieldSelector", "status.state!=Resolved",
			"continue", fmt.Sprint(first.at("metadata", "continue"))), nil)
		s.note("%v", names(second))
	}, []string{"[a c] <nil>", "[d]"}},

	"a page of a compacted state is gone, but can be continued": {func(s *site) {
		for _, name := range []string{"a", "b", "c"} {
			s.create("alertevents", alertEvent(name))
		}
		last := s.create("alertevents", alertEvent("d"))
		s.compact(fmt.Sprint(last.at("metadata", "resourceVersion")))
		// A real server has its own memory of newer states, which it keeps for longer than etcd.
		token := base64.RawURLEncoding.EncodeToString([]byte(`{"v": "meta.k8s.io/v1", "rv": 1, "start": "b\u0000"}`))
		a := s.send("GET", s.path("alertevents")+query("limit", "1", "continue", token), nil)
		s.note("%v", a)
		a = s.send("GET", s.path("alertevents")+query("limit", "1", "continue", fmt.Sprint(a.at("metadata", "continue"))), nil)
		s.note("%v %v", a, names(a))
		s.note("%v", s.send("GET", s.path("alertevents")+query("resourceVersion", "1", "resourceVersionMatch", "Exact"), nil))
	}, []string{"410 Expired", "200 [c]", "410 Expired"}},

	"a list can be of an exact state, or of one not older": {func(s *site) {
		first := s.create("alertevents", alertEvent("a"))
		s.create("alertevents", alertEvent("b"))
		s.send("DELETE", s.path("alertevents", "a"), nil)
		s.send("GET", s.path("alertevents"), nil) // a real server's cache has seen the deletion now
		revision := fmt.Sprint(first.at("metadata", "resourceVersion"))
		a := s.send("GET", s.path("alertevents")+query("resourceVersion", revision, "resourceVersionMatch", "Exact"), nil)
		s.note("%v %v", names(a), a.at("metadata", "resourceVersion") == revision)
		s.note("%v", names(s.send("GET", s.path("alertevents")+query("resourceVersion", revision, "resourceVersionMatch",
			"NotOlderThan"), nil)))
	}, []string{"[a] true", "[b]"}},

	"a limit with a resourceVersion": {func(s *site) {
		for _, name := range []string{"a", "b", "c"} {
			s.create("alertevents", alertEvent(name))
		}
		now := fmt.Sprint(s.send("GET", s.path("alertevents"), nil).at("metadata", "resourceVersion"))
		s.send("DELETE", s.path("alertevents", "a"), nil)
		s.send("GET", s.path("alertevents"), nil) // a real server's cache has seen the deletion now
		for _, q := range []string{
			query("limit", "1", "resourceVersion", now),
			query("limit", "1", "resourceVersion", now, "resourceVersionMatch", "NotOlderThan"),
			query("limit", "1", "resourceVersion", now, "resourceVersionMatch", "Exact"),
		} {
			a := s.send("GET", s.path("alertevents")+q, nil)
			s.note("%v %v %v", a, names(a), orEmpty(a.at("metadata", "continue")) != "")
		}
	}, []string{"200 [a] true", "200 [b] true", "200 [a] true"}},

	"a state of the future is not there": {func(s *site) {
		s.create("alertevents", alertEvent("a"))
		s.note("%v", s.send("GET", s.path("alertevents", "a")+query("resourceVersion", "1000000000"), nil))
		a := s.send("GET", s.path("alertevents")+query("resourceVersion", "1000000000"), nil)
		s.note("%v %v", a, a.at("details", "retryAfterSeconds"))
	}, []string{"504 Timeout: ResourceVersionTooLarge", "504 Timeout: ResourceVersionTooLarge 1"}},

	"parameters that make no sense are refused": {func(s *site) {
		for _, q := range []string{
			query("resourceVersion", "x"), query("continue", "x"), query("limit", "x"), query("resourceVersionMatch", "Exact"),
			query("resourceVersion", "0", "resourceVersionMatch", "Exact"), query("resourceVersion", "1", "resourceVersionMatch",
				"Sometimes"),
			query("sendInitialEvents", "true"), query("watch", "true", "sendInitialEvents", "true"),
			query("watch", "true", "resourceVersionMatch", "NotOlderThan"),
		} {
			s.note("%v", s.send("GET", s.path("alertevents")+q, nil))
		}
	}, []string{
		"400 BadRequest", "400 BadRequest", "400 BadRequest", "422 Invalid: FieldValueForbidden resourceVersionMatch",
		"422 Invalid: FieldValueForbidden resourceVersionMatch", "422 Invalid: FieldValueNotSupported resourceVersionMatch",
		"422 Invalid: FieldValueForbidden sendInitialEvents", "422 Invalid: FieldValueForbidden resourceVersionMatch",
		"422 Invalid: FieldValueForbidden resourceVersionMatch",
	}},
}
