package v1alpha1_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

func textEvent(g *WithT, namespace string, alerts ...v1alpha1.Alert) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "text-"},
		Spec:       v1alpha1.AlertEventSpec{IntegrationName: "prometheus"}, Alerts: alerts,
	}
	g.Expect(queue.Encode(event)).To(Succeed())
	return event
}

func firing(key string) v1alpha1.Alert {
	return v1alpha1.Alert{ID: "id-" + key, DedupKey: key, Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{
		Title: "Disk <almost> full", Labels: map[string]string{"mount": "/var", "n": "12345678901234567"},
	}}
}

func TestAlertsAreReadAsTheyWereWritten(t *testing.T) {
	namespace := testenv.Namespace(t, apiClient)
	for sentence, count := range map[string]int{"one": 1, "several": 3, "so many that they are compressed": 300} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			var alerts []v1alpha1.Alert
			for i := range count {
				alerts = append(alerts, firing(fmt.Sprint("key-", i)))
			}
			event := textEvent(g, namespace, alerts...)
			g.Expect(event.Spec.Encoding == v1alpha1.AlertsGzip).To(Equal(count == 300))
			g.Expect(apiClient.Create(context.Background(), event)).To(Succeed())
			var read v1alpha1.AlertEvent
			g.Expect(apiClient.Get(context.Background(), client.ObjectKeyFromObject(event), &read)).To(Succeed())
			g.Expect(read.Alerts).To(BeEmpty())
			g.Expect(queue.Decode(&read)).To(Succeed())
			g.Expect(read.Alerts).To(Equal(alerts))
		})
	}
}

func TestAnEventHasEitherAlertsOrAReport(t *testing.T) {
	namespace := testenv.Namespace(t, apiClient)
	for spec, message := range map[string]string{
		`{"integrationName": "a", "alerts": "[]", "report": {"dedupKey": "k", "status": "resolved"}}`: "either alerts or a report",
		`{"integrationName": "a"}`: "either alerts or a report",
		`{"integrationName": "a", "encoding": "gzip", "report": {"dedupKey": "k", "status": "resolved"}}`: "encoding needs alerts",
		`{"alerts": "[]"}`: "integrationName is needed",
		`{"report": {"dedupKey": "k", "status": "resolved"}}`:                             "integrationName is needed",
		`{"report": {"incidentName": "i", "dedupKey": "k", "status": "firing"}}`:          "integrationName is needed",
		`{"integrationName": "a", "report": {"status": "resolved"}}`:                      "a report needs incidentName or dedupKey",
		`{"integrationName": "a", "report": {"incidentName": "i", "status": "firing"}}`:   "status firing needs dedupKey",
		`{"integrationName": "a", "report": {"incidentName": "i", "status": "silenced"}}`: "status silenced needs silenceFor",
		`{"integrationName": "a", "report": {"incidentName": "i", "status": "waiting"}}`:  "Unsupported value",
		`{"integrationName": "a", "alerts": ""}`:                                          "should be at least 1 chars long",
		`{"integrationName": "a", "alerts": "{}"}`:                                        "which begins with [",
		`{"integrationName": "a", "alerts": [{"dedupKey": "k", "status": "firing"}]}`:     "unknown field",
		`{"integrationName": "a", "alerts": "[", "encoding": "zstd"}`:                     "Unsupported value",
		`{"integrationName": "a", "alerts": "["}`:                                         "",
		`{"integrationName": "a", "alerts": "%%%", "encoding": "gzip"}`:                   "",
		`{"integrationName": "a", "alerts": "YWJj", "encoding": "gzip"}`:                  "",
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
	g.Expect(list.Items).To(HaveLen(3))
	for i := range list.Items {
		g.Expect(queue.Decode(&list.Items[i])).To(MatchError(ContainSubstring("alerts: ")))
	}
}

func TestAClientMayUpdateTheMetadataOfAnAlertEvent(t *testing.T) {
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
		for form, count := range map[string]int{"a compressed text": 300, "one alert": 1} {
			t.Run(sentence+" with "+form, func(t *testing.T) {
				g := NewWithT(t)
				event := textEvent(g, testenv.Namespace(t, apiClient), slices.Repeat([]v1alpha1.Alert{firing("a")}, count)...)
				g.Expect(apiClient.Create(ctx, event)).To(Succeed())
				var read v1alpha1.AlertEvent
				g.Expect(apiClient.Get(ctx, client.ObjectKeyFromObject(event), &read)).To(Succeed())
				g.Expect(read.Spec).To(Equal(event.Spec))
				read.Annotations = map[string]string{"example.com/note": "seen"}
				g.Expect(change(apiClient, &read)).To(Succeed())
				g.Expect(apiClient.Get(ctx, client.ObjectKeyFromObject(event), &read)).To(Succeed())
				g.Expect(read.Annotations).To(HaveKeyWithValue("example.com/note", "seen"))
				g.Expect(queue.Decode(&read)).To(Succeed())
				g.Expect(read.Alerts).To(HaveLen(count))

				read.Spec.Alerts = `[{"status":"resolved","dedupKey":"a"}]`
				g.Expect(apiClient.Update(ctx, &read)).To(MatchError(ContainSubstring("immutable")))
			})
		}
	}
}

// The API server does not check again what it has stored.
func TestOneEventOfAnotherFormDoesNotHideTheOthers(t *testing.T) {
	g := NewWithT(t)
	var list v1alpha1.AlertEventList
	g.Expect(json.Unmarshal([]byte(`{"items":[{"spec":{"alerts":[{"dedupKey":"k","status":"firing"}]}},{"spec":{"alerts":5}},
		{"spec":{"packedAlerts":"H4sI"}},{"spec":{"alerts":"[{\"dedupKey\":\"k\",\"status\":\"firing\"}]"}}]}`), &list)).To(Succeed())
	var read []int
	for i := range list.Items {
		_ = queue.Decode(&list.Items[i])
		read = append(read, len(list.Items[i].Alerts))
	}
	g.Expect(read).To(Equal([]int{1, 0, 0, 1}))
}
