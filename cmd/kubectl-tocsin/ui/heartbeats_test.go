package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

// expecting is an integration with so many heartbeats, of which the last one is missed.
func expecting(namespace string, number, beats int) *v1alpha1.WebhookIntegration {
	made := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("jobs-", number)}}
	now := v1alpha1.NewTimestamp(time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC))
	for i := range beats {
		name := fmt.Sprint("beat-", i)
		made.Spec.Heartbeats = append(made.Spec.Heartbeats, v1alpha1.Heartbeat{
			Name: name, Interval: &metav1.Duration{Duration: time.Hour},
		})
		made.Status.Heartbeats = append(made.Status.Heartbeats, v1alpha1.HeartbeatStatus{Name: name, LastSignalTime: &now})
	}
	made.Status.Heartbeats[beats-1].MissedTime = &now
	return made
}

func TestTheHeartbeats(t *testing.T) {
	g := NewWithT(t)
	var objects []client.Object
	const integrations, beats = 60, 20
	for i := range integrations {
		objects = append(objects, expecting("shop", i, beats))
	}
	s, _ := start(t, "", append(objects, expecting("bank", 0, 1))...)
	response := s.get(t, "api/heartbeats", nil)
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	var list heartbeatList
	g.Expect(json.NewDecoder(response.Body).Decode(&list)).To(Succeed())
	g.Expect(list.Total).To(Equal(integrations*beats + 1))
	g.Expect(list.Tally).To(Equal("61 missed, 1140 heard"))
	g.Expect(list.Heartbeats).To(HaveLen(maxHeartbeats))
	g.Expect(list.Heartbeats[integrations].State).To(Equal(live.HeartbeatMissed), "these come first")
	g.Expect(s.get(t, "api/heartbeats", func(r *http.Request) { r.Header.Del("Authorization") }).StatusCode).
		To(Equal(http.StatusUnauthorized))

	of, _ := start(t, "bank", append(objects, expecting("bank", 0, 1))...)
	g.Expect(json.NewDecoder(of.get(t, "api/heartbeats", nil).Body).Decode(&list)).To(Succeed())
	g.Expect(list.Heartbeats).To(ConsistOf(HaveField("Namespace", "bank")))
}
