package payload_test

import (
	"context"
	"encoding/json"
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
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object, _, err := payload.Parse([]byte(body))
			g.Expect(err).NotTo(HaveOccurred())
			alert, _ := payload.Normalise(object, time.Now())
			if alert.DedupKey == "" {
				alert.DedupKey = "key"
			}
			event := &v1alpha1.AlertEvent{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "event-", Namespace: namespace},
				Spec:       v1alpha1.AlertEventSpec{IntegrationName: "demo", Alerts: []v1alpha1.Alert{alert}},
			}
			sent := string(encode(t, event.Spec.Alerts[0]))
			g.Expect(c.Create(context.Background(), event, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed())

			var stored v1alpha1.AlertEvent
			g.Expect(c.Get(context.Background(), client.ObjectKeyFromObject(event), &stored)).To(Succeed())
			g.Expect(string(encode(t, stored.Spec.Alerts[0]))).To(Equal(sent))
			g.Expect(testenv.Bags(&stored.Spec.Alerts[0].AlertContent)).To(Equal(testenv.Bags(&alert.AlertContent)))
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
