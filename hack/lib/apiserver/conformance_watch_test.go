package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

func TestWatches(t *testing.T) { watches.run(t) }

// watching is a watch whose events are read one by one.
type watching struct {
	*site
	decoder     *json.Decoder
	onlyChanges bool // a real server may send a bookmark at any time: skip them
}

func (s *site) watch(plural, query string, headers ...string) *watching {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Minute)
	response := s.open(ctx, http.MethodGet, s.path(plural)+query, nil, headers...)
	s.t.Cleanup(func() {
		_ = response.Body.Close()
		cancel()
	})
	if response.StatusCode != http.StatusOK {
		s.t.Fatal(response.Status)
	}
	return &watching{site: s, decoder: json.NewDecoder(response.Body)}
}

// next notes the next events: type, kind, name.
func (w *watching) next(n int) (last object) {
	w.t.Helper()
	for ; n > 0; n-- {
		last = nil
		if err := w.decoder.Decode(&last); errors.Is(err, io.EOF) {
			w.note("end")
			continue
		} else if err != nil {
			w.t.Fatal(err)
		}
		if w.onlyChanges && last["type"] == "BOOKMARK" {
			n++
			continue
		}
		w.note("%v %v %v", last["type"], at(last, "object", "kind"), orEmpty(at(last, "object", "metadata", "name")))
	}
	return last
}

var watches = conformance{
	"a watch begins with the objects and a bookmark": {func(s *site) {
		s.create("alertevents", alertEvent("b"))
		s.create("alertevents", alertEvent("a"))
		w := s.watch("alertevents", query("watch", "true", "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan",
			"allowWatchBookmarks", "true"))
		bookmark := w.next(3)
		s.note("%v", at(bookmark, "object", "metadata", "annotations"))
		s.create("alertevents", alertEvent("c"))
		w.next(1)
	}, []string{"ADDED AlertEvent a", "ADDED AlertEvent b", "BOOKMARK AlertEvent ", "map[k8s.io/initial-events-end:true]",
		"ADDED AlertEvent c"}},

	"a watch of metadata has no content": {func(s *site) {
		s.create("alertevents", alertEvent("a"))
		w := s.watch("alertevents", query("watch", "true", "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan",
			"allowWatchBookmarks", "true"), "Accept", asMetadata)
		s.note("%v", at(w.next(1), "object", "spec"))
		s.note("%v", at(w.next(1), "object", "metadata", "annotations"))
		s.send("DELETE", s.path("alertevents", "a"), nil)
		w.next(1)
	}, []string{"ADDED PartialObjectMetadata a", "<nil>", "BOOKMARK PartialObjectMetadata ", "map[k8s.io/initial-events-end:true]",
		"DELETED PartialObjectMetadata a"}},

	"a watch goes on from a resourceVersion": {func(s *site) {
		first := s.create("incidents", incident("a"))
		s.send("PUT", s.path("incidents", "a", "status"), with(first.body, "Open", "status", "state"))
		s.create("incidents", incident("b"))
		w := s.watch("incidents", query("watch", "true", "resourceVersion", fmt.Sprint(first.at("metadata", "resourceVersion"))))
		before := w.next(2)
		s.send("DELETE", s.path("incidents", "b"), nil)
		deleted := w.next(1)
		s.note("%v", at(deleted, "object", "metadata", "resourceVersion") != at(before, "object", "metadata", "resourceVersion"))
		s.note("%v", at(deleted, "object", "metadata", "uid") == at(before, "object", "metadata", "uid"))
	}, []string{"MODIFIED Incident a", "ADDED Incident b", "DELETED Incident b", "true", "true"}},

	"a watch without a resourceVersion begins with the objects, without a bookmark": {func(s *site) {
		s.create("incidents", incident("a"))
		s.note("unset")
		w := s.watch("incidents", query("watch", "true"))
		w.next(1)
		s.create("incidents", incident("b"))
		w.next(1)
		s.note("0")
		s.watch("incidents", query("watch", "true", "resourceVersion", "0")).next(2)
	}, []string{"unset", "ADDED Incident a", "ADDED Incident b", "0", "ADDED Incident a", "ADDED Incident b"}},

	"an object that a selector no longer matches arrives as deleted": {func(s *site) {
		s.incidents("a", "Open", "b", "Resolved")
		w := s.watch("incidents", query("watch", "true", "fieldSelector", "status.state!=Resolved", "sendInitialEvents", "true",
			"resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true"))
		w.next(2)
		w.onlyChanges = true
		open := s.send("GET", s.path("incidents", "a"), nil)
		resolved := s.send("PUT", s.path("incidents", "a", "status"), with(open.body, "Resolved", "status", "state"))
		gone := w.next(1)
		s.note("%v %v", at(gone, "object", "status", "state"),
			at(gone, "object", "metadata", "resourceVersion") == resolved.at("metadata", "resourceVersion"))
		s.send("DELETE", s.path("incidents", "a"), nil)
		former := s.send("GET", s.path("incidents", "b"), nil)
		s.send("PUT", s.path("incidents", "b", "status"), with(former.body, "Open", "status", "state"))
		w.next(1)
	}, []string{"ADDED Incident a", "BOOKMARK Incident ", "DELETED Incident a", "Open true", "ADDED Incident b"}},

	"a watch with initial events of a state that is not older": {func(s *site) {
		s.create("incidents", incident("a"))
		last := s.create("incidents", incident("b"))
		w := s.watch("incidents", query("watch", "true", "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan",
			"allowWatchBookmarks", "true", "resourceVersion", fmt.Sprint(last.at("metadata", "resourceVersion"))))
		w.next(3)
	}, []string{"ADDED Incident a", "ADDED Incident b", "BOOKMARK Incident "}},

	"a finished deletion shows the last stored state": {func(s *site) {
		first := s.create("incidents", with(incident("a"), []string{"example.com/hold"}, "metadata", "finalizers"))
		w := s.watch("incidents", query("watch", "true", "resourceVersion", fmt.Sprint(first.at("metadata", "resourceVersion"))))
		marked := s.send("DELETE", s.path("incidents", "a"), nil)
		w.next(1)
		s.send("PUT", s.path("incidents", "a"), with(marked.body, nil, "metadata", "finalizers"))
		s.note("%v", at(w.next(1), "object", "metadata", "finalizers"))
	}, []string{"MODIFIED Incident a", "DELETED Incident a", "[example.com/hold]"}},

	"a watch from an expired state gets an error": {func(s *site) {
		s.create("alertevents", alertEvent("a"))
		s.compact(fmt.Sprint(s.create("alertevents", alertEvent("b")).at("metadata", "resourceVersion")))
		w := s.watch("alertevents", query("watch", "true", "resourceVersion", "1"))
		failure := w.next(1)
		s.note("%v %v", at(failure, "object", "code"), at(failure, "object", "reason"))
		w.next(1)
	}, []string{"ERROR Status ", "410 Expired", "end"}},

	"a watch ends when its client asks for it": {func(s *site) {
		s.create("alertevents", alertEvent("a"))
		s.watch("alertevents", query("watch", "true", "timeoutSeconds", "1")).next(2)
	}, []string{"ADDED AlertEvent a", "end"}},

	"a lease can be written as protobuf": {func(s *site) {
		config := rest.CopyConfig(s.config)
		config.ContentType = runtime.ContentTypeProtobuf
		client, err := coordinationv1client.NewForConfig(config)
		if err != nil {
			s.t.Fatal(err)
		}
		leases := client.Leases(s.namespace)
		lease, err := leases.Create(s.t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("one")},
		}, metav1.CreateOptions{})
		s.note("%v %v", *lease.Spec.HolderIdentity, err)
		before := lease.DeepCopy()
		lease.Spec.HolderIdentity = new("two")
		lease, err = leases.Update(s.t.Context(), lease, metav1.UpdateOptions{})
		s.note("%v %v", *lease.Spec.HolderIdentity, err)
		_, err = leases.Update(s.t.Context(), before, metav1.UpdateOptions{})
		s.note("%v", err)
		s.note("%v", leases.Delete(s.t.Context(), "a", metav1.DeleteOptions{}))
	}, []string{"one <nil>", "two <nil>",
		`Operation cannot be fulfilled on leases.coordination.k8s.io "a": the object has been modified; ` +
			"please apply your changes to the latest version and try again", "<nil>"}},
}
