package v1alpha1_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/packing"
)

func packedEvent(namespace string, alerts ...v1alpha1.Alert) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "packed-"},
		Spec:       v1alpha1.AlertEventSpec{IntegrationName: "prometheus", Alerts: alerts},
	}
}

func firing(key string) v1alpha1.Alert {
	return v1alpha1.Alert{ID: "id-" + key, DedupKey: key, Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{
		Title: "Disk <almost> full", Labels: map[string]string{"mount": "/var", "n": "12345678901234567"},
	}}
}

func TestPackedAlertsAreReadAsAlerts(t *testing.T) {
	g := NewWithT(t)
	namespace := testenv.Namespace(t, apiClient)
	event := packedEvent(namespace, firing("a"), firing("b"))
	alerts := event.Spec.Alerts
	g.Expect(packing.Pack(&event.Spec)).To(Succeed())
	g.Expect(event.Spec.Alerts).To(BeNil())
	g.Expect(apiClient.Create(context.Background(), event)).To(Succeed())

	var read v1alpha1.AlertEvent
	g.Expect(apiClient.Get(context.Background(), client.ObjectKeyFromObject(event), &read)).To(Succeed())
	g.Expect(packing.Unpack(&read.Spec)).To(Succeed())
	g.Expect(read.Spec.Alerts).To(Equal(alerts))
	g.Expect(read.Spec.PackedAlerts).To(BeEmpty())
}

func TestAnEventHasEitherAlertsOrPackedAlerts(t *testing.T) {
	namespace := testenv.Namespace(t, apiClient)
	for spec, message := range map[string]string{
		`{"integrationName": "a", "alerts": [{"dedupKey": "k", "status": "firing"}], "packedAlerts": "YQ=="}`: "either alerts or packedAlerts",
		`{"integrationName": "a", "alerts": [{"dedupKey": "k", "status": "firing"}], "packedFirst": [{}]}`:    "packedFirst needs packedAlerts",
		`{"integrationName": "a"}`:                           "either alerts or packedAlerts",
		`{"packedAlerts": "YQ=="}`:                           "and for packed ones",
		`{"integrationName": "a", "packedAlerts": ""}`:       "should be at least 1 chars long",
		`{"integrationName": "a", "packedAlerts": "%%%"}`:    "",
		`{"integrationName": "a", "packedAlerts": "YWJj"}`:   "",
		`{"integrationName": "a", "packedAlerts": ["YQ=="]}`: "must be of type string",
	} {
		t.Run(spec, func(t *testing.T) {
			g := NewWithT(t)
			_, err := postText(namespace, "AlertEvent", spec)
			if message == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(message)))
		})
	}
	// Whatever was accepted, all of it can be listed.
	g := NewWithT(t)
	var list v1alpha1.AlertEventList
	g.Expect(apiClient.List(context.Background(), &list, client.InNamespace(namespace))).To(Succeed())
	g.Expect(list.Items).To(HaveLen(2))
	for i := range list.Items {
		g.Expect(packing.Unpack(&list.Items[i].Spec)).To(MatchError(ContainSubstring("packedAlerts: ")))
	}
}

// What the API server checks in alerts, packing checks in packed ones: each bound of an alert, broken
// once, is refused by both, and exhausted, accepted by both.
func TestPackingKeepsTheBoundsOfTheSchema(t *testing.T) {
	namespace := testenv.Namespace(t, apiClient)
	schema := crds(t)["AlertEvent"].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["alerts"].Items.Schema
	whole := full(t, "alertevent.yaml")
	alert := whole["spec"].(object)["alerts"].([]any)[0].(object)
	tried := 0
	try := func(what string) {
		var spec v1alpha1.AlertEventSpec
		if err := json.Unmarshal(must(json.Marshal(whole["spec"])), &spec); err != nil {
			return // the wrong type: what cannot be a Go alert cannot be packed
		}
		// Go reads a time it does not know as none, and the API server never sees it.
		_, refused := post(namespace, without(with("AlertEvent", spec), "status"), dryRun)
		err := packing.Pack(&spec)
		if (err == nil) != (refused == nil) {
			t.Errorf("%s: packing says %v, the API server %v", what, err, refused)
		}
		tried++
	}
	for _, v := range variants("alert", schema, alert, func(any) {}) {
		v.set(v.value)
		try(fmt.Sprintf("%s = %.60q", v.path, fmt.Sprint(v.value)))
		v.set(v.old)
	}
	for _, field := range []string{"id", "incidentName", "dedupKey", "status"} {
		old := alert[field]
		delete(alert, field)
		try("without " + field)
		alert["status"] = "resolved"
		try("resolved, without " + field)
		alert["status"] = "firing"
		alert[field] = old
	}
	if tried < 40 {
		t.Errorf("only %d variants were tried", tried)
	}
}

func TestAClientMayUpdateTheMetadataOfAPackedEvent(t *testing.T) {
	ctx := context.Background()
	write := map[string]func(client.Client, *v1alpha1.AlertEvent) error{
		"get and update": func(c client.Client, event *v1alpha1.AlertEvent) error { return c.Update(ctx, event) },
		"get and merge patch": func(c client.Client, event *v1alpha1.AlertEvent) error {
			before := event.DeepCopy()
			before.Annotations = nil
			return c.Patch(ctx, event, client.MergeFrom(before))
		},
		"server-side apply": func(c client.Client, event *v1alpha1.AlertEvent) error {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event)
			if err != nil {
				return err
			}
			object := &unstructured.Unstructured{Object: content}
			object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEvent"))
			object.SetManagedFields(nil)
			object.SetResourceVersion("")
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("somebody"), client.ForceOwnership)
		},
	}
	for sentence, change := range write {
		for form, count := range map[string]int{"several packed alerts": 3, "one alert": 1} {
			t.Run(sentence+" with "+form, func(t *testing.T) {
				g := NewWithT(t)
				event := packedEvent(testenv.Namespace(t, apiClient), firing("a"), firing("b"), firing("c"))
				event.Spec.Alerts = event.Spec.Alerts[:count]
				if count > 1 {
					g.Expect(packing.Pack(&event.Spec)).To(Succeed())
				}
				g.Expect(apiClient.Create(ctx, event)).To(Succeed())
				var read v1alpha1.AlertEvent
				g.Expect(apiClient.Get(ctx, client.ObjectKeyFromObject(event), &read)).To(Succeed())
				g.Expect(read.Spec).To(Equal(event.Spec))
				read.Annotations = map[string]string{"example.com/note": "seen"}
				g.Expect(change(apiClient, &read)).To(Succeed())
				g.Expect(apiClient.Get(ctx, client.ObjectKeyFromObject(event), &read)).To(Succeed())
				g.Expect(read.Annotations).To(HaveKeyWithValue("example.com/note", "seen"))
				g.Expect(packing.Unpack(&read.Spec)).To(Succeed())
				g.Expect(read.Spec.Alerts).To(HaveLen(count))

				read.Spec.Alerts[0].Title = "Another"
				g.Expect(apiClient.Update(ctx, &read)).To(MatchError(ContainSubstring("immutable")))
			})
		}
	}
}
