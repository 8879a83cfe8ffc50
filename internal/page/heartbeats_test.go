package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// expected are so many heartbeats of a namespace, of which every twentieth is missed.
func expected(namespace string, beats int) (objects []client.Object) {
	for i := range beats {
		made := &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("beat-", i)}}
		reason := v1alpha1.ReasonHeard
		if i%20 == 0 {
			reason = v1alpha1.ReasonMissed
		}
		made.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionHeard, Reason: reason}}
		objects = append(objects, made)
	}
	return objects
}

func TestTheHeartbeats(t *testing.T) {
	g := NewWithT(t)
	objects := append(expected("shop", 1200), expected("bank", 1)...)
	s, _ := start(t, "", objects...)
	response := s.get(t, "api/heartbeats", nil)
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	var list partList
	g.Expect(json.NewDecoder(response.Body).Decode(&list)).To(Succeed())
	g.Expect(list.Total).To(Equal(1201))
	g.Expect(list.Tally).To(Equal("61 missed, 1140 heard"))
	g.Expect(list.Parts).To(HaveLen(maxParts))
	g.Expect(list.Parts[60].State).To(BeEquivalentTo(v1alpha1.ReasonMissed), "these come first")
	g.Expect(s.get(t, "api/heartbeats", func(r *http.Request) { r.Header.Del("Authorization") }).StatusCode).
		To(Equal(http.StatusUnauthorized))

	g.Expect(list.NotFolded).To(BeNil(), "nobody has asked")

	of, _ := start(t, "bank", objects...)
	g.Expect(json.NewDecoder(of.get(t, "api/heartbeats", nil).Body).Decode(&list)).To(Succeed())
	g.Expect(list.Parts).To(ConsistOf(HaveField("Namespace", "bank")))
}

// While alerts cannot become Incidents, the page must not say that all is quiet.
func TestThePageTellsThatAlertsDoNotBecomeIncidents(t *testing.T) {
	g := NewWithT(t)
	blocked := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mon"}}
	blocked.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAlertsFolded, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonQuotaExceeded, Message: "The quota is used up."}}
	for namespace, says := range map[string]string{
		"shop": "alerts for shop/mon (QuotaExceeded) do not become incidents: The quota is used up.", "bank": "",
	} {
		s, _ := start(t, namespace, blocked.DeepCopy())
		var list partList
		g.Expect(json.NewDecoder(s.get(t, "api/heartbeats?folded=1", nil).Body).Decode(&list)).To(Succeed())
		g.Expect(list.NotFolded).To(HaveValue(Equal(says)))
	}
}
