package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// objects are those of a resource in a namespace, the oldest first.
func (w *world) objects(resource, namespace string) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for _, content := range w.server.Objects(resource + ".tocsin.dev") {
		o := &unstructured.Unstructured{Object: content}
		if o.GetNamespace() == namespace {
			objects = append(objects, o)
		}
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
	})
	return objects
}

// stored returns the objects of a resource in a namespace, the oldest first.
func stored[T any](w *world, resource, namespace string) (all []*T) {
	for _, object := range w.objects(resource, namespace) {
		text, err := json.Marshal(object.Object)
		if err != nil {
			panic(err)
		}
		all = append(all, decode[T](text))
	}
	return all
}

// pick returns one of the objects; nil if there are none.
func (w *world) pick(resource, namespace string, which int) client.Object {
	objects := w.objects(resource, namespace)
	if len(objects) == 0 {
		return nil
	}
	return objects[which%len(objects)]
}

// Users touch any object.
type (
	remove struct { // and make an integration again
		tenant   int
		resource string
		which    int
	}
	edit struct {
		tenant   int
		resource string
		which    int
	}
	hold struct { // deletes it, and a finalizer holds it for a while
		tenant   int
		resource string
		which    int
		d        time.Duration
	}
	suspend struct {
		tenant int
		d      time.Duration
	}
	removeLease struct{}
)

func (o remove) do(w *world) {
	object := w.pick(o.resource, tenantName(o.tenant), o.which)
	if object == nil {
		return
	}
	_ = w.users.Delete(context.Background(), object)
	if o.resource == "webhookintegrations" {
		w.later(integrationAway, func() { _ = w.users.Create(context.Background(), w.integration(tenantName(o.tenant))) })
	}
}

// integrationAway is how long a deleted integration is missing.
const integrationAway = 2 * time.Second

// do labels an object. The place of an AlertEvent in the order of commits is known only to those who saw it before its metadata
// changed: it is neither labelled nor held in a story in which replicas forget.
func (o edit) do(w *world) {
	if w.story.losesOrder(o.resource) {
		return
	}
	w.patch(w.pick(o.resource, tenantName(o.tenant), o.which), func(object client.Object) {
		object.SetLabels(map[string]string{"example.com/edited": fmt.Sprint(time.Now().UnixNano())})
	})
}

// losesOrder says whether a change of the metadata of an object would lose its place.
func (s *Story) losesOrder(resource string) bool {
	return resource == "alertevents" && slices.ContainsFunc(s.Operations, forgets)
}

// finalizer is the users'.
const finalizer = "example.com/hold"

func (o hold) do(w *world) {
	object := w.pick(o.resource, tenantName(o.tenant), o.which)
	if object == nil || w.story.losesOrder(o.resource) {
		return
	}
	w.patch(object, func(object client.Object) { object.SetFinalizers([]string{finalizer}) })
	_ = w.users.Delete(context.Background(), object)
	w.later(o.d, func() {
		w.patch(object, func(object client.Object) { object.SetFinalizers(nil) })
		if o.resource == "webhookintegrations" {
			_ = w.users.Create(context.Background(), w.integration(tenantName(o.tenant)))
		}
	})
}

func (o suspend) do(w *world) {
	set := func(value bool) {
		var list v1alpha1.WebhookIntegrationList
		_ = w.users.List(context.Background(), &list, client.InNamespace(tenantName(o.tenant)))
		for i := range list.Items {
			w.patch(&list.Items[i], func(client.Object) { list.Items[i].Spec.Suspend = value })
		}
	}
	set(true)
	w.later(o.d, func() { set(false) })
}

func (removeLease) do(w *world) {
	w.deletePath("/apis/coordination.k8s.io/v1/namespaces/" + leaseNamespace + "/leases/" + leaseName)
}

// leaseName is the name of the replicas' lease.
const leaseName = "manager.tocsin.dev"

// patch changes an object that may be gone.
func (w *world) patch(object client.Object, change func(client.Object)) {
	if object == nil {
		return
	}
	before, _ := object.DeepCopyObject().(client.Object)
	change(object)
	_ = w.users.Patch(context.Background(), object, client.MergeFrom(before))
}

// deletePath deletes an object that is none of Tocsin's.
func (w *world) deletePath(path string) {
	q, err := http.NewRequest(http.MethodDelete, "http://apiserver"+path, http.NoBody)
	if err != nil {
		panic(err)
	}
	if response, err := w.server.Transport(userClient, nil).RoundTrip(q); err == nil {
		_ = response.Body.Close()
	}
}

// report is what a user says about an Incident, as an AlertEvent made by hand.
type report struct {
	tenant, key int
	status      string
	unnamed     bool          // without the name of the integration
	lasts       time.Duration // of an acknowledgement, or a silence; 0: the acknowledgement stays, and a silence ends
	to          string        // of an assignment
}

func (o report) do(w *world) {
	said := &v1alpha1.Report{
		IncidentName: v1alpha1.IncidentName(integrationName, keyName(o.key)),
		Status:       v1alpha1.AlertStatus(o.status), By: "alice", Comment: "seen", Assignee: o.to,
	}
	switch {
	case o.status == "silenced":
		said.SilenceFor = &metav1.Duration{Duration: o.lasts}
	case o.lasts > 0:
		said.AcknowledgeFor = &metav1.Duration{Duration: o.lasts}
	}
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenantName(o.tenant), GenerateName: "report-"},
		Spec:       v1alpha1.AlertEventSpec{Report: said},
	}
	if !o.unnamed {
		event.Spec.IntegrationName = integrationName
	}
	if o.status == "firing" {
		event.Spec.IntegrationName, event.Spec.Report = integrationName, nil
		event.Spec.Alerts = v1alpha1.AlertsText(fmt.Sprintf(`[{"status":"firing","dedupKey":%q,"title":"by hand"}]`, keyName(o.key)))
	}
	_ = w.users.Create(context.Background(), event)
}
