package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// TestAMissedHeartbeatShowsThoughItsAlertIsDenied has a quota deny all AlertEvents of a tenant whose sender is dead. Nothing resolves
// for want of alerts meanwhile, and the Incident of the heartbeat opens when the quota is gone.
func TestAMissedHeartbeatShowsThoughItsAlertIsDenied(t *testing.T) {
	var seen []string
	read := func(w *world) (integration v1alpha1.WebhookIntegration) {
		_ = w.users.Get(context.Background(), types.NamespacedName{Namespace: tenantName(1), Name: integrationName}, &integration)
		return integration
	}
	specify := act{"autoResolveAfter 3m", func(w *world) {
		integration := read(w)
		integration.Spec.AutoResolveAfter = &metav1.Duration{Duration: 3 * time.Minute}
		_ = w.users.Update(context.Background(), &integration)
	}}
	look := act{"look", func(w *world) {
		var beat v1alpha1.Heartbeat
		_ = w.users.Get(context.Background(), types.NamespacedName{Namespace: tenantName(1), Name: heartbeatName}, &beat)
		state := fmt.Sprint("heard: ", meta.IsStatusConditionTrue(beat.Status.Conditions, v1alpha1.ConditionHeard))
		for _, o := range w.objects("incidents", tenantName(1)) {
			spec, _ := o.Object["spec"].(map[string]any)
			status, _ := o.Object["status"].(map[string]any)
			state += fmt.Sprint(", ", spec["dedupKey"], " ", status["state"])
		}
		seen = append(seen, state)
	}}
	Run(t, 1, &Story{
		Settings: Settings{Replicas: 2, Elect: true, Writes: 8},
		Operations: []operation{
			specify, wait{2 * time.Minute},
			post{tenant: 1, to: 0, times: 1, alerts: []alert{{key: 1, status: "firing", severity: "error"}}}, wait{5 * time.Second},
			quota{tenant: 1, resource: "alertevents", more: 0, d: 12 * time.Minute},
			hush{tenant: 1, d: time.Hour}, wait{10 * time.Minute}, look, kill{0}, wait{4 * time.Minute}, look,
			act{"judge nothing more", func(w *world) { w.judge.watchNoMore() }},
		},
	}, Watcher{})
	NewWithT(t).Expect(seen).To(Equal([]string{
		"heard: false, key-1 Open", "heard: false, key-1 Open, heartbeat/pinged Open",
	}))
}

// TestADeletedIncidentIsNotOpen has a user delete the Incident of a missed heartbeat before it is heard again.
func TestADeletedIncidentIsNotOpen(t *testing.T) {
	g, deleted := NewWithT(t), false
	remove := act{"delete the Incident of the heartbeat", func(w *world) {
		deleted = w.users.Delete(context.Background(), &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{
			Namespace: tenantName(1), Name: v1alpha1.IncidentName(integrationName, v1alpha1.HeartbeatKey(heartbeatName)),
		}}) == nil
	}}
	findings := Run(t, 1, &Story{
		Settings: Settings{Replicas: 2, Elect: true, Writes: 8},
		Operations: []operation{
			wait{time.Minute}, hush{tenant: 1, d: 4 * time.Minute}, wait{3 * time.Minute}, remove, wait{3 * time.Minute},
		},
	}, Watcher{})
	g.Expect(deleted).To(BeTrue())
	g.Expect(findings).To(BeEmpty())
}
