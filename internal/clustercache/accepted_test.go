package clustercache_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
)

// TestWhatIngestAcceptsIsNotHidden has users create AlertEvents by hand in many namespaces, and senders post where ingest accepts
// alerts. Those that stay for their idempotency keys are as many as package release lets there be.
func TestWhatIngestAcceptsIsNotHidden(t *testing.T) {
	accepted, refused, hidden := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		limits := capacity.Limits{
			Events: rapid.IntRange(1, 3000).Draw(t, "limit"), Share: rapid.SampledFrom([]float64{0.05, 0.25, 1}).Draw(t, "share"),
		}
		counts, objects := capacity.New(limits, nil, clock.RealClock{}), clustercache.NewHidden(limits.Events, limits.Share)
		counts.Hidden = objects
		n := 0
		create := func(namespace string, settled bool) (shown bool) {
			n++
			event := &v1alpha1.AlertEvent{}
			event.Namespace, event.Name, event.UID, event.ResourceVersion = namespace, fmt.Sprint(n), types.UID(fmt.Sprint(n)), "10"
			event.Spec.IntegrationName, event.Alerts = "shop", []v1alpha1.Alert{{DedupKey: "a", Status: v1alpha1.AlertResolved}}
			if settled {
				event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "9/*"}
			}
			if shown = objects.Watch(event); shown {
				counts.SetEvent(event, false)
			}
			return shown
		}
		for range rapid.SampledFrom([]int{0, 5000}).Draw(t, "settled") {
			create("ns-1", true)
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			namespace := fmt.Sprint("ns-", rapid.IntRange(1, 30).Draw(t, "namespace"))
			counts.SetIntegration(integrationIn(namespace), false)
			if rapid.Bool().Draw(t, "drains") {
				counts.RemoveIntegration(integrationIn(namespace))
			}
			if rapid.Bool().Draw(t, "by hand") {
				for range rapid.SampledFrom([]int{10, 1000, 10_000}).Draw(t, "objects") {
					if !create(namespace, false) {
						hidden++
					}
				}
				continue
			}
			for range 20 {
				if counts.Full(namespace) != "" {
					refused++
				} else if accepted++; !create(namespace, false) {
					t.Fatalf("after %d AlertEvents, one that was accepted is hidden", n)
				}
			}
		}
	})
	t.Logf("%d were accepted, %d refused, %d made by hand and hidden", accepted, refused, hidden)
	if accepted == 0 || refused == 0 || hidden == 0 {
		t.Error("the test needs all of them")
	}
}

func integrationIn(namespace string) *v1alpha1.WebhookIntegration {
	w := &v1alpha1.WebhookIntegration{}
	w.Namespace, w.Name = namespace, "shop"
	return w
}
