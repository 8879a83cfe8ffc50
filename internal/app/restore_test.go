package app

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// alertEvent is an AlertEvent as the manager wrote it some time ago.
func alertEvent(namespace, name, key string, status v1alpha1.AlertStatus, age time.Duration) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.ExcludeFromBackupLabel: "true"},
		},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: "test", ReceivedTime: v1alpha1.NewTimestamp(time.Now().Add(-age)),
			Summary: "firing: Old", Alerts: testenv.Text(v1alpha1.Alert{
				ID: name, IncidentName: v1alpha1.IncidentName("test", key), DedupKey: key, Status: status,
				AlertContent: v1alpha1.AlertContent{Title: "Old"},
			}),
		},
	}
}

// TestARestoredQueueIsNotFolded restores what a backup has, as backup tools do: objects are created anew, without UID
// and without status.
func TestARestoredQueueIsNotFolded(t *testing.T) {
	g := NewWithT(t)
	p := startProcess(t, config.Host)
	g.Eventually(func() int { code, _ := p.post("live"); return code }, "1m", "50ms").Should(Equal(http.StatusAccepted))
	g.Eventually(func() v1alpha1.IncidentState { return p.state(t.Context(), "live") }, "1m", "50ms").Should(Equal(v1alpha1.IncidentOpen))

	const day = 24 * time.Hour
	restored := map[string]*v1alpha1.AlertEvent{
		"a resolve of an Incident that is open today": alertEvent(p.namespace, "01a1ffa9-c360-72bb-b2de-ae677b9a4f82", "live",
			v1alpha1.AlertResolved, day),
		"a firing alert of yesterday":  alertEvent(p.namespace, "01a1ffa9-c360-72bb-b2de-ae677b9a4f83", "old", v1alpha1.AlertFiring, day),
		"one with an idempotency key":  alertEvent(p.namespace, v1alpha1.KeyedEventName("test", "k"), "old", v1alpha1.AlertFiring, day),
		"one that a user made by hand": alertEvent(p.namespace, "by-hand", "live", v1alpha1.AlertResolved, 0),
	}
	restored["one that a user made by hand"].Labels = map[string]string{v1alpha1.RestoreLabel: "monday"}
	for sentence, event := range restored {
		g.Expect(p.client.Create(t.Context(), event, client.FieldOwner("velero-server"))).To(Succeed(), sentence)
	}
	for sentence, event := range restored {
		g.Eventually(func() bool {
			return apierrors.IsNotFound(p.client.Get(t.Context(), client.ObjectKeyFromObject(event), event))
		}, "1m", "50ms").Should(BeTrue(), sentence)
	}
	g.Expect(p.state(t.Context(), "live")).To(Equal(v1alpha1.IncidentOpen), "an old resolve closes nothing")
	g.Expect(p.state(t.Context(), "old")).To(BeEmpty(), "an old alert is not counted")

	// A replica whose clock is wrong by a day writes the same times, and its alerts are live.
	late := alertEvent(p.namespace, "01a1ffa9-c360-72bb-b2de-ae677b9a4f84", "skewed", v1alpha1.AlertFiring, day)
	g.Expect(p.client.Create(t.Context(), late, client.FieldOwner(v1alpha1.FieldManager))).To(Succeed())
	g.Eventually(func() v1alpha1.IncidentState { return p.state(t.Context(), "skewed") }, "1m", "50ms").
		Should(Equal(v1alpha1.IncidentOpen))

	// An Incident that came back without its status is opened by its next alert.
	bare := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: v1alpha1.IncidentName("test", "bare")},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "test", DedupKey: "bare"},
	}
	g.Expect(p.client.Create(t.Context(), bare)).To(Succeed())
	g.Expect(p.post("bare")).To(Equal(http.StatusAccepted))
	g.Eventually(func() v1alpha1.IncidentState { return p.state(t.Context(), "bare") }, "1m", "50ms").Should(Equal(v1alpha1.IncidentOpen))
	p.expectEnd(g)
}

// TestBackupsSkipTheQueue looks at what the manager writes while nobody folds it.
func TestBackupsSkipTheQueue(t *testing.T) {
	g := NewWithT(t)
	p := startProcess(t, config.Host)
	g.Eventually(func() int { code, _ := p.post("one"); return code }, "1m", "50ms").Should(Equal(http.StatusAccepted))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.webhook+"/api/v1/events/webhook/",
		strings.NewReader(`{"title":"Kept for its key","dedup_key":"keyed"}`))
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+testenv.Token(p.namespace, "test"))
	request.Header.Set("Idempotency-Key", "k")
	g.Expect(status(http.DefaultClient.Do(request))).To(Equal(http.StatusAccepted))
	var kept v1alpha1.AlertEvent
	g.Expect(p.client.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: v1alpha1.KeyedEventName("test", "k")}, &kept)).To(Succeed())
	g.Expect(kept.Labels).To(HaveKeyWithValue("velero.io/exclude-from-backup", "true"))
	g.Expect(queue.IsRestored(&kept)).To(BeFalse())
	p.expectEnd(g)
}

// TestManagedFieldsAreFew compares what the API server keeps of who wrote which field: it is in every object of every watch.
func TestManagedFieldsAreFew(t *testing.T) {
	g := NewWithT(t)
	p := startProcess(t, config.Host)
	g.Eventually(func() int { code, _ := p.post("one"); return code }, "1m", "50ms").Should(Equal(http.StatusAccepted))
	var incident v1alpha1.Incident
	g.Eventually(func() v1alpha1.IncidentState { return p.state(t.Context(), "one") }, "1m", "50ms").Should(Equal(v1alpha1.IncidentOpen))
	g.Expect(p.client.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: v1alpha1.IncidentName("test", "one")}, &incident)).
		To(Succeed())
	managed, err := json.Marshal(incident.ManagedFields)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(managed)).To(ContainSubstring(`{"f:status":{}}`), "one entry for the whole status")
	p.expectEnd(g)
}
