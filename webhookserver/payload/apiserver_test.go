package payload_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// The API server is the judge of what may be stored: it refuses no alert that a payload was read as, and
// gives each one back byte for byte.
func TestAPIServerStoresEveryAlertAsItIs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	g := NewWithT(t)
	environment := testenv.Environment()
	config, err := environment.Start()
	g.Expect(err).NotTo(HaveOccurred(), `"make control-plane" gets a control plane`)
	t.Cleanup(func() { g.Expect(environment.Stop()).To(Succeed()) })
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, c)

	bodies := senderFiles(t)
	maps.Copy(bodies, accepted)
	bodies["a typical payload"] = string(typicalPayload(t))
	var seen []string
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object, _, err := payload.Parse([]byte(body))
			g.Expect(err).NotTo(HaveOccurred())
			alert, _, _ := payload.Read(object, time.Now())
			if alert.DedupKey == "" {
				alert.DedupKey = "key"
			}
			incident := &v1alpha1.Incident{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("incident-", len(seen)), Namespace: namespace},
				Spec:       v1alpha1.IncidentSpec{IntegrationName: "demo", DedupKey: alert.DedupKey},
			}
			seen = append(seen, incident.Name)
			g.Expect(c.Create(context.Background(), incident)).To(Succeed())
			incident.Status = v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, Alert: alert.AlertContent}
			sent := string(encode(t, incident.Status.Alert))
			g.Expect(c.Status().Update(context.Background(), incident, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed())

			var stored v1alpha1.Incident
			g.Expect(c.Get(context.Background(), client.ObjectKeyFromObject(incident), &stored)).To(Succeed())
			g.Expect(string(encode(t, stored.Status.Alert))).To(Equal(sent))
			g.Expect(testenv.Bags(&stored.Status.Alert)).To(Equal(testenv.Bags(&alert.AlertContent)))
		})
	}
}

func encode(tb testing.TB, value any) []byte {
	tb.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		tb.Fatal(err)
	}
	return encoded
}
