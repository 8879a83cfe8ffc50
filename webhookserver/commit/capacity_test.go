package commit

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
)

// gauges returns the values of a metric, by its label if it has one.
func gauges(c *Capacity, metric *prometheus.Desc) map[string]float64 {
	registry, found := prometheus.NewRegistry(), map[string]float64{}
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, gauge := range family.GetMetric() {
			label := ""
			if labels := gauge.GetLabel(); len(labels) > 0 {
				label = labels[0].GetValue()
			}
			if strings.Contains(metric.String(), strconv.Quote(family.GetName())) {
				found[label] = gauge.GetGauge().GetValue()
			}
		}
	}
	return found
}

// newEvent makes an AlertEvent of the integration "prometheus".
func newEvent(namespace, name string, change ...func(*v1alpha1.AlertEvent)) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: "prometheus",
			Alerts:          []v1alpha1.Alert{{DedupKey: "x"}},
		},
	}
	for _, f := range change {
		f(event)
	}
	return event
}

// blockedIntegration is the integration "prometheus" as the leader marks it for this reason.
func blockedIntegration(namespace, reason string) *v1alpha1.WebhookIntegration {
	w := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prometheus"}}
	w.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionAlertsFolded, Status: metav1.ConditionFalse, Reason: reason},
	}
	return w
}

func TestANamespaceThatCannotDrainRefusesNobodyElse(t *testing.T) {
	terminating := func(e *v1alpha1.AlertEvent) { e.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)} }
	for name, test := range map[string]struct {
		change  func(*v1alpha1.AlertEvent)
		blocked string
		drains  bool
		reason  string
	}{
		"kept by a finalizer": {change: terminating, reason: clustercache.StuckTerminating},
		"with packed alerts that cannot be decoded": {reason: clustercache.StuckUnreadable, change: func(e *v1alpha1.AlertEvent) {
			e.Spec.Alerts, e.Spec.PackedAlerts = nil, "bm8gZ3ppcA=="
		}},
		"of an integration whose Incidents a quota rejects": {
			blocked: v1alpha1.ReasonQuotaExceeded, reason: v1alpha1.ReasonQuotaExceeded},
		"of an integration at the limit of Incidents": {
			blocked: v1alpha1.ReasonIncidentLimit, reason: v1alpha1.ReasonIncidentLimit},
		"of an integration that does not exist": {change: func(e *v1alpha1.AlertEvent) { e.Spec.IntegrationName = "none" }},
		"of no integration":                     {change: func(e *v1alpha1.AlertEvent) { e.Spec.IntegrationName = "" }},
		"that wait for their fold":              {drains: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			change := test.change
			if change == nil {
				change = func(*v1alpha1.AlertEvent) {}
			}
			p := NewCapacity(80, 1, 0.25)
			var added []*v1alpha1.AlertEvent
			for n := range 40 { // namespaces, each with its share
				namespace := fmt.Sprintf("bad-%d", n)
				p.SetIntegration(blockedIntegration(namespace, test.blocked))
				for i := range 3 {
					event := newEvent(namespace, fmt.Sprint(i), change)
					p.SetEvent(event, false)
					added = append(added, event)
				}
			}
			g.Expect(p.bounds[0].draining.Sum() >= 80).To(Equal(test.drains), "%+v", p.bounds)
			if test.reason != "" {
				g.Expect(gauges(p, stuckEvents)).To(HaveKeyWithValue(test.reason, 120.0))
			}
			for i := range 17 {
				p.SetEvent(newEvent("bad-0", fmt.Sprint("more-", i), change), false)
			}
			g.Expect(p.Refusal("bad-0")).To(Equal(v1alpha1.ReasonQueueFull), "its share is full")
			g.Expect(gauges(p, namespaceBacklogRatio)).To(Equal(map[string]float64{"bad-0": 1}))
			g.Expect(p.Refusal("good")).To(BeEmpty())
			g.Expect(p.Refusal("bad-1") != "").To(Equal(test.drains), "3 of 80, when those that drain fill the limit")

			for i := range 17 {
				p.RemoveEvent(newEvent("bad-0", fmt.Sprint("more-", i)))
			}
			for _, event := range added {
				p.RemoveEvent(event)
			}
			for i := range p.bounds {
				g.Expect(p.bounds[i].all.Sum()).To(BeZero())
				g.Expect(p.bounds[i].draining.Sum()).To(BeZero())
			}
			g.Expect(p.Refusal("bad-0")).To(BeEmpty(), "it recovers by itself")
		})
	}
}

func TestWhatCannotDrainIsBoundedForEtcd(t *testing.T) {
	g := NewWithT(t)
	p := NewCapacity(80, 1, 0.25)
	for n := range 60 {
		namespace := fmt.Sprintf("bad-%d", n)
		for i := 0; p.Refusal(namespace) == ""; i++ {
			p.SetEvent(newEvent(namespace, fmt.Sprint(i), func(e *v1alpha1.AlertEvent) { e.Spec.IntegrationName = "" }), false)
		}
	}
	g.Expect(p.bounds[0].all.Sum()).To(And(BeNumerically(">=", 160), BeNumerically("<=", 300)),
		"between twice and three times the limit, and one for each namespace")
	g.Expect(p.bounds[0].draining.Sum()).To(BeZero())
	g.Expect(gauges(p, backlogRatio)[""]).To(BeNumerically(">=", 1))
	g.Expect(p.Refusal("good")).To(BeEmpty())
}

func TestAlertEventsByHandFillTheShareOfTheirNamespaceOnly(t *testing.T) {
	g := NewWithT(t)
	p := NewCapacity(20_000, 1, 0.25)
	for i := range 60_000 { // three times the limit
		p.SetEvent(newEvent("bad", fmt.Sprint(i), func(e *v1alpha1.AlertEvent) { e.Spec.IntegrationName = "" }), false)
	}
	g.Expect(p.Refusal("bad")).To(Equal(v1alpha1.ReasonQueueFull))
	g.Expect(gauges(p, namespaceBacklogRatio)).To(Equal(map[string]float64{"bad": 12}))
	p.SetIntegration(blockedIntegration("good", ""))
	for i := range 4999 {
		p.SetEvent(newEvent("good", fmt.Sprint(i)), false)
	}
	g.Expect(p.Refusal("good")).To(BeEmpty(), "it has its whole share")
}

func TestLargeAlertEventsFillAShareAsWell(t *testing.T) {
	g := NewWithT(t)
	p := NewCapacity(20_000, 1, 0.25)
	p.Cached = clustercache.NewEvents(1)
	unreadable := newEvent("bad", "", func(e *v1alpha1.AlertEvent) {
		e.Spec.Alerts, e.Spec.PackedAlerts = nil, strings.Repeat("A", 1<<20)
		_, err := p.Cached.Condense(e)
		g.Expect(err).NotTo(HaveOccurred())
	})
	g.Expect(unreadable.Spec.PackedAlerts).To(BeEmpty(), "the text is not kept")
	for i := range 63 {
		unreadable.Name = fmt.Sprint(i)
		p.SetEvent(unreadable, false)
	}
	g.Expect(p.Refusal("bad")).To(BeEmpty())
	unreadable.Name = "last"
	p.SetEvent(unreadable, false)
	g.Expect(p.Refusal("bad")).To(Equal(v1alpha1.ReasonQueueFull), "64 MiB are a quarter of 256")
	g.Expect(p.Refusal("good")).To(BeEmpty())
}

func TestTheCounterAgreesWithACountMadeAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewCapacity(10, 1, 0.5)
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			namespace := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "namespace")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				p.SetEvent(newEvent(namespace, rapid.StringMatching("[a-h]").Draw(t, "name"), func(e *v1alpha1.AlertEvent) {
					e.Spec.IntegrationName = rapid.SampledFrom([]string{"", "prometheus", "other"}).Draw(t, "integration")
					if rapid.Bool().Draw(t, "stuck") {
						e.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
					}
				}), false)
			case 2:
				p.RemoveEvent(newEvent(namespace, rapid.StringMatching("[a-h]").Draw(t, "name")))
			default:
				reason := rapid.SampledFrom([]string{"", v1alpha1.ReasonQuotaExceeded}).Draw(t, "reason")
				if rapid.Bool().Draw(t, "deleted") {
					p.RemoveIntegration(blockedIntegration(namespace, ""))
				} else {
					p.SetIntegration(blockedIntegration(namespace, reason))
				}
			}
			checkPending(t, p)
		}
	})
}

// checkPending counts anew what the counter has counted.
func checkPending(t *rapid.T, p *Capacity) {
	var all, draining int64
	for _, namespace := range []string{"a", "b", "c"} {
		var own, ownDraining int64
		for name, event := range p.events {
			if name.Namespace != namespace {
				continue
			}
			own++
			queue := p.integrations[types.NamespacedName{Namespace: namespace, Name: event.integration}]
			if event.stuck == "" && queue.exists && queue.blocked == "" {
				ownDraining++
			}
		}
		all += min(own, 5)
		draining += min(ownDraining, 5)
	}
	if number := p.bounds[0]; number.all.Sum() != all || number.draining.Sum() != draining {
		t.Fatalf("counted %d, of which %d drain; there are %d and %d", number.all.Sum(), number.draining.Sum(), all, draining)
	}
}
