package cli

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestForwardedTellsWhetherPeopleAreTold(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	since := v1alpha1.NewTimestamp(now.Add(-time.Hour))
	forwarded := []metav1.Condition{{Type: v1alpha1.ConditionForwarded, Status: metav1.ConditionTrue}}
	for sentence, test := range map[string]struct {
		conditions []metav1.Condition // of the integration
		forwarding *v1alpha1.Forwarding
		says       string
	}{
		"the operator forwards nothing": {},
		"nothing is known yet":          {conditions: forwarded, says: "not yet. It takes some seconds after the first alert."},
		"posted": {
			conditions: forwarded,
			forwarding: &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingPosted, Severity: "critical", Alertmanagers: 2},
			says:       "yes, since %s. Posted with severity critical to 2 Alertmanagers.",
		},
		"silenced": {
			forwarding: &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingSilenced, Severity: "info", Alertmanagers: 1},
			says:       "yes, but a silence covers it, since %s. Posted with severity info to one Alertmanager.",
		},
		"an integration whose condition is true": {
			conditions: forwarded,
			forwarding: &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingFailing, Message: "No Alertmanager accepts it."},
			says:       "no: Failing, since %s. No Alertmanager accepts it.",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := &description{screen: &screen{}, now: now}
			d.integration.Status.Conditions = test.conditions
			incident := &v1alpha1.Incident{Status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, Forwarding: test.forwarding}}
			if test.forwarding != nil {
				test.forwarding.Time = since
				test.says = fmt.Sprintf(test.says, d.time(&since))
			}
			NewWithT(t).Expect(d.forwarded(incident)).To(Equal(test.says))
		})
	}
}

func TestWhatShowTellsOfFlapping(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	d, since, end := &description{screen: &screen{}, now: now}, v1alpha1.NewTimestamp(now.Add(-time.Hour)), v1alpha1.NewTimestamp(now.Add(time.Hour))
	status := &v1alpha1.IncidentStatus{State: v1alpha1.IncidentResolved, ResolvedTime: &since}
	g.Expect(d.flapping(status)).To(BeEmpty())
	status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionFlapping, Status: metav1.ConditionTrue, Message: "Often.", LastTransitionTime: metav1.NewTime(since.Time),
	}}
	g.Expect(d.flapping(status)).To(Equal("yes, since " + d.time(&since) + ". Often."))
	status.Flapping = &v1alpha1.Flapping{KeptFiring: &v1alpha1.KeptFiring{EndTime: end}}
	g.Expect(d.flapping(status)).To(HaveSuffix("Often. Its end is forwarded at " + d.time(&end) + " unless it opens again."))
	status.State = v1alpha1.IncidentOpen
	g.Expect(d.flapping(status)).To(HaveSuffix("Often."))
}

func TestATimeThatIsYetToCome(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	at := v1alpha1.NewTimestamp(now.Add(time.Hour))
	NewWithT(t).Expect((&description{now: now}).time(&at)).To(HaveSuffix("(in 60m)"))
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
