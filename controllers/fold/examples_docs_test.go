package fold

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// TestTheExamplesOfTheDocs folds what comes in the examples that follow a policy of the integration, and compares what they say.
func TestTheExamplesOfTheDocs(t *testing.T) {
	for policy, path := range map[string]string{
		"forwardAfter": "../../docs/forwarding.md", "flapping": "../../docs/forwarding.md",
		"acknowledgementExpiresAfter": "../../docs/lifecycle.md",
	} {
		t.Run(policy, func(t *testing.T) {
			g, blocks := NewWithT(t), yamlBlocks(t, path)
			for i := range blocks[:len(blocks)-1] {
				if strings.HasPrefix(blocks[i], policy+": ") && strings.HasPrefix(blocks[i+1], "- {at: ") {
					playExample(g, blocks[i], blocks[i+1])
					return
				}
			}
			t.Fatal("there is no example")
		})
	}
}

// playExample folds the alerts of an example. What a step does not name is empty, or false.
func playExample(g *WithT, policy, example string) {
	var spec v1alpha1.WebhookIntegrationSpec
	g.Expect(yaml.UnmarshalStrict([]byte(policy), &spec)).To(Succeed())
	var steps []struct {
		At           string               `json:"at"`
		Comes        v1alpha1.AlertStatus `json:"comes"`
		Severity     v1alpha1.Severity    `json:"severity"`
		Flapping     bool                 `json:"flapping"`
		Acknowledged bool                 `json:"acknowledged"`
		Alertmanager v1alpha1.AlertStatus `json:"alertmanager"`
	}
	g.Expect(yaml.UnmarshalStrict([]byte(example), &steps)).To(Succeed())
	g.Expect(len(steps)).To(BeNumerically(">", 4))
	bench := newBench()
	bench.policy.LateFiringWindow = 0
	bench.policy.ForwardAfter, bench.policy.Flapping = spec.ForwardAfter, spec.Flapping
	bench.policy.AcknowledgementExpiresAfter = durationOr(spec.AcknowledgementExpiresAfter, 0)
	for _, step := range steps {
		at, err := time.Parse("15:04", step.At)
		g.Expect(err).NotTo(HaveOccurred())
		n := at.Hour()*60 + at.Minute()
		var events []*v1alpha1.AlertEvent
		if step.Comes != "" {
			events = append(events, eventOf(n, alertOf(step.Comes, v1alpha1.AlertContent{Severity: step.Severity})))
		}
		bench.at(n, events...)
		is := func(condition string) bool { return meta.IsStatusConditionTrue(bench.status().Conditions, condition) }
		g.Expect(is(v1alpha1.ConditionFlapping)).To(Equal(step.Flapping), step.At)
		g.Expect(is(v1alpha1.ConditionAcknowledged)).To(Equal(step.Acknowledged), step.At)
		if spec.AcknowledgementExpiresAfter == nil {
			g.Expect(bench.alertmanager()).To(Equal(step.Alertmanager), step.At)
		}
	}
}

// alertmanager is what Alertmanager knows of the Incident.
func (b *foldBench) alertmanager() v1alpha1.AlertStatus {
	switch status := b.status(); {
	case b.isForwarded():
		return v1alpha1.AlertFiring
	case status.State == v1alpha1.IncidentResolved && !WasHeld(status, status.ResolvedTime.Time):
		return v1alpha1.AlertResolved
	default:
		return ""
	}
}
