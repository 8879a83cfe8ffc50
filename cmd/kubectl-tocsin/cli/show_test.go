package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// nameServer has an Incident, and answers the creation of AlertEvents with an error, or not.
type nameServer struct {
	client.WithWatch
	status  v1alpha1.IncidentStatus
	rejects error
	stored  bool
}

func (s *nameServer) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if incident, ok := object.(*v1alpha1.Incident); ok {
		incident.Name, incident.Namespace, incident.Status = key.Name, key.Namespace, s.status
	}
	return nil
}

func (s *nameServer) Create(_ context.Context, _ client.Object, opts ...client.CreateOption) error {
	options := (&client.CreateOptions{}).ApplyOptions(opts)
	s.stored = s.stored || len(options.DryRun) == 0
	return s.rejects
}

func TestNamesThatNobodyVerifiedAreMarked(t *testing.T) {
	acknowledged := v1alpha1.IncidentStatus{Timeline: []v1alpha1.Transition{{Type: v1alpha1.TransitionAcknowledged, By: "maria"}}}
	policy := apierrors.NewForbidden(schema.GroupResource{Resource: "alertevents"}, "",
		errors.New("ValidatingAdmissionPolicy 'tocsin-alertevents' denied request: "+policyMessage))
	for sentence, test := range map[string]struct {
		server nameServer
		marked bool
	}{
		"any name is accepted":                {nameServer{status: acknowledged}, true},
		"the policy rejects the name":         {nameServer{status: acknowledged, rejects: policy}, false},
		"the user may not create AlertEvents": {nameServer{status: acknowledged, rejects: apierrors.NewForbidden(schema.GroupResource{}, "", nil)}, true},
		"the API server does not answer":      {nameServer{status: acknowledged, rejects: context.DeadlineExceeded}, true},
		"no name is shown":                    {nameServer{}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			var out bytes.Buffer
			p := newPlugin(genericiooptions.NewTestIOStreamsDiscard())
			p.screen = &screen{out: &out}
			o := &showOptions{plugin: p, output: newOutputFlag()}
			g.Expect(o.run(t.Context(), &cluster{WithWatch: &test.server, namespace: "shop"}, []string{"disk"})).To(Succeed())
			if test.marked {
				g.Expect(out.String()).To(HaveSuffix("\n" + unverifiedNames + "\n"))
			} else {
				g.Expect(out.String()).NotTo(ContainSubstring("not verified"))
			}
			g.Expect(test.server.stored).To(BeFalse(), "the check stores nothing")
		})
	}
	manifest, err := os.ReadFile("../../../config/components/admission-policy/policy.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(string(manifest)).To(ContainSubstring(policyMessage))
}
