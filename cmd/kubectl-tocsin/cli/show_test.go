package cli

import (
	"bytes"
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestForwardedTellsWhereAndSinceWhen(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *v1alpha1.Timestamp {
		stamp := v1alpha1.NewTimestamp(now.Add(-d))
		return &stamp
	}
	d := &description{screen: &screen{}, now: now}
	status := &v1alpha1.IncidentStatus{OpenedTime: ago(time.Hour)}
	g.Expect(d.forwarded(status)).To(BeEmpty())
	d.integration.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionForwarded, Status: metav1.ConditionTrue, Message: "Incidents are posted to am:9093.",
		LastTransitionTime: metav1.NewTime(now.Add(-2 * time.Hour)),
	}}
	g.Expect(d.forwarded(status)).To(Equal("yes, since " + d.time(ago(time.Hour)) + ". Incidents are posted to am:9093."))
	status.OpenedTime = ago(3 * time.Hour)
	g.Expect(d.forwarded(status)).To(HavePrefix("yes, since " + d.time(ago(2*time.Hour)) + "."))
	d.integration.Status.Conditions[0].Status = metav1.ConditionFalse
	g.Expect(d.forwarded(status)).To(HavePrefix("no, since " + d.time(ago(2*time.Hour)) + "."))
}

// namesServer has an Incident. It accepts reads only.
type namesServer struct {
	client.WithWatch
	status v1alpha1.IncidentStatus
}

func (s *namesServer) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if incident, ok := object.(*v1alpha1.Incident); ok {
		incident.Name, incident.Namespace, incident.Status = key.Name, key.Namespace, s.status
	}
	return nil
}

func TestADescriptionWithNamesSaysWhoVerifiesThem(t *testing.T) {
	for sentence, test := range map[string]struct {
		status v1alpha1.IncidentStatus
		noted  bool
	}{
		"a name in the timeline": {v1alpha1.IncidentStatus{
			Timeline: []v1alpha1.Transition{{Type: v1alpha1.TransitionAcknowledged, By: "maria"}},
		}, true},
		"the author of a silence": {v1alpha1.IncidentStatus{Silence: &v1alpha1.Silence{By: "maria"}}, true},
		"no name":                 {v1alpha1.IncidentStatus{}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			var out bytes.Buffer
			p := newPlugin(genericiooptions.NewTestIOStreamsDiscard())
			p.screen = &screen{out: &out}
			o := &showOptions{plugin: p, output: newOutputFlag()}
			server := &namesServer{status: test.status}
			g.Expect(o.run(t.Context(), &cluster{WithWatch: server, namespace: "shop"}, []string{"disk"})).To(Succeed())
			if test.noted {
				g.Expect(out.String()).To(HaveSuffix("\n" + unverifiedNames + "\n"))
			} else {
				g.Expect(out.String()).NotTo(ContainSubstring(unverifiedNames))
			}
		})
	}
}
