package capacity

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

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// reported returns the values of a metric, by its label if it has one.
func reported(c *Counts, metric *prometheus.Desc) map[string]float64 {
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

func TestANamespaceThatCannotDrainRefusesNobodyElse(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*v1alpha1.AlertEvent)
		blocked string
		drains  bool
		reason  string
	}{
		"kept by a finalizer":                       {change: terminating, reason: queue.StuckTerminating},
		"with packed alerts that cannot be decoded": {change: unreadable, reason: queue.StuckUnreadable},
		"of an integration whose Incidents a quota rejects": {
			blocked: v1alpha1.ReasonQuotaExceeded, reason: v1alpha1.ReasonQuotaExceeded},
		"of an integration at the limit of Incidents": {
			blocked: v1alpha1.ReasonIncidentLimit, reason: v1alpha1.ReasonIncidentLimit},
		"of an integration that does not exist": {change: func(e *v1alpha1.AlertEvent) { e.Spec.IntegrationName = "none" }},
		"of no integration":                     {change: withoutIntegration},
		"that wait for their fold":              {drains: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			change := test.change
			if change == nil {
				change = func(*v1alpha1.AlertEvent) {}
			}
			p := newCounts(Limits{Events: 80, Incidents: 1})
			var added []*v1alpha1.AlertEvent
			for n := range 40 { // namespaces, each with its share
				namespace := fmt.Sprintf("bad-%d", n)
				p.SetIntegration(blockedIntegration(namespace, test.blocked), false)
				for i := range 3 {
					event := newEvent(namespace, fmt.Sprint(i), change)
					p.SetEvent(event, false)
					added = append(added, event)
				}
			}
			g.Expect(p.bounds[0].draining.Sum() >= 80).To(Equal(test.drains), "%+v", p.bounds)
			if test.reason != "" {
				g.Expect(reported(p, stuckEvents)).To(HaveKeyWithValue(test.reason, 120.0))
			}
			for i := range 17 {
				p.SetEvent(newEvent("bad-0", fmt.Sprint("more-", i), change), false)
			}
			g.Expect(p.Full("bad-0")).To(Equal(v1alpha1.ReasonQueueFull), "its share is full")
			g.Expect(reported(p, namespaceBacklogRatio)).To(Equal(map[string]float64{"bad-0": 1}))
			g.Expect(p.Full("good")).To(BeEmpty())
			g.Expect(p.Full("bad-1") != "").To(Equal(test.drains), "3 of 80, when those that drain fill the limit")

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
			g.Expect(p.Full("bad-0")).To(BeEmpty(), "it recovers by itself")
		})
	}
}

func TestWhatCannotDrainIsBoundedForEtcd(t *testing.T) {
	g := NewWithT(t)
	p := newCounts(Limits{Events: 80, Incidents: 1})
	for n := range 60 {
		namespace := fmt.Sprintf("bad-%d", n)
		for i := 0; p.Full(namespace) == ""; i++ {
			p.SetEvent(newEvent(namespace, fmt.Sprint(i), withoutIntegration), false)
		}
	}
	g.Expect(p.bounds[0].all.Sum()).To(And(BeNumerically(">=", 160), BeNumerically("<=", 300)),
		"between twice and three times the limit, and one for each namespace")
	g.Expect(p.bounds[0].draining.Sum()).To(BeZero())
	g.Expect(reported(p, backlogRatio)[""]).To(BeNumerically(">=", 1))
	g.Expect(p.Full("good")).To(BeEmpty())
}

func TestAlertEventsByHandFillTheShareOfTheirNamespaceOnly(t *testing.T) {
	g := NewWithT(t)
	p := newCounts(Limits{Incidents: 1})
	for i := range 60_000 { // three times the limit
		p.SetEvent(newEvent("bad", fmt.Sprint(i), withoutIntegration), false)
	}
	g.Expect(p.Full("bad")).To(Equal(v1alpha1.ReasonQueueFull))
	g.Expect(reported(p, namespaceBacklogRatio)).To(Equal(map[string]float64{"bad": 12}))
	p.SetIntegration(blockedIntegration("good", ""), false)
	for i := range 4999 {
		p.SetEvent(newEvent("good", fmt.Sprint(i)), false)
	}
	g.Expect(p.Full("good")).To(BeEmpty(), "it has its whole share")
}

func TestLargeAlertEventsFillAShareAsWell(t *testing.T) {
	g := NewWithT(t)
	p := newCounts(Limits{Incidents: 1})
	p.cached = queue.NewCached(1)
	unreadable := newEvent("bad", "", func(e *v1alpha1.AlertEvent) {
		e.Alerts, e.Spec.Alerts = nil, v1alpha1.AlertsText(strings.Repeat("A", 1<<20))
		_, err := p.cached.Condense(e)
		g.Expect(err).NotTo(HaveOccurred())
	})
	g.Expect(unreadable.Spec.Alerts).To(BeEmpty(), "the text is not kept")
	for i := range 63 {
		unreadable.Name = fmt.Sprint(i)
		p.SetEvent(unreadable, false)
	}
	g.Expect(p.Full("bad")).To(BeEmpty())
	unreadable.Name = "last"
	p.SetEvent(unreadable, false)
	g.Expect(p.Full("bad")).To(Equal(v1alpha1.ReasonQueueFull), "64 MiB are a quarter of 256")
	g.Expect(p.Full("good")).To(BeEmpty())
}

// TestAlertEventsThatStayForTheirKeysLeaveTheQueueToAlerts has five integrations with 100 keyed requests a minute, whose
// AlertEvents stay for ten minutes: as many as the share of the namespace.
func TestAlertEventsThatStayForTheirKeysLeaveTheQueueToAlerts(t *testing.T) {
	g := NewWithT(t)
	c := newCounts(Limits{})
	var keyed []*v1alpha1.AlertEvent
	for n := range 5 {
		for i := range 1000 {
			event := newEvent("shop", fmt.Sprintf("key-%d-%d", n, i))
			event.CreationTimestamp = metav1.NewTime(testEpoch.Add(-time.Minute))
			c.SetEvent(event, false)
			keyed = append(keyed, event)
		}
	}
	g.Expect(c.Full("shop")).To(Equal(v1alpha1.ReasonQueueFull), "they wait to be folded")
	g.Expect(reported(c, oldestEvent)[""]).To(Equal(60.0))
	for _, event := range keyed {
		settledFor("*")(event)
		c.SetEvent(event, false)
	}
	g.Expect(c.Full("shop")).To(BeEmpty(), "they are folded")
	g.Expect(reported(c, pendingEvents)[""]).To(Equal(5000.0))
	g.Expect(reported(c, oldestEvent)[""]).To(BeZero())
	g.Expect(reported(c, namespaceBacklogRatio)).To(BeEmpty())
	for i := range 4999 {
		c.SetEvent(newEvent("shop", fmt.Sprint("waits-", i)), false)
	}
	g.Expect(c.Full("shop")).To(BeEmpty(), "the queue has its whole share")
	for _, event := range keyed {
		terminating(event)
		c.SetEvent(event, false)
	}
	g.Expect(c.Full("shop")).To(Equal(v1alpha1.ReasonQueueFull), "if finalizers keep them, they count again")
}

func TestTheStuckAreKnownByTheirIntegration(t *testing.T) {
	g := NewWithT(t)
	c, own := newCounts(Limits{}), types.NamespacedName{Namespace: "shop", Name: "prometheus"}
	c.SetEvent(newEvent("shop", "1"), false)
	c.SetEvent(newEvent("other", "2", unreadable), false)
	c.SetEvent(newEvent("shop", "3", unreadable, withoutIntegration), false)
	g.Expect(c.Stuck(own)).To(BeEmpty())
	c.SetEvent(newEvent("shop", "1", terminating), false)
	g.Expect(c.Stuck(own)).To(Equal(queue.StuckTerminating))
	c.SetEvent(newEvent("shop", "4", unreadable), false)
	g.Expect(c.Stuck(own)).To(Equal(queue.StuckUnreadable), "the most important one")
	c.RemoveEvent(newEvent("shop", "1"))
	c.SetEvent(newEvent("shop", "4"), false)
	g.Expect(c.Stuck(own)).To(BeEmpty())
}

// TestWhatIsStuckDoesNotMakeTheBacklogOld has an old AlertEvent of one tenant, and one that has just come.
func TestWhatIsStuckDoesNotMakeTheBacklogOld(t *testing.T) {
	settledAndTerminating := func(e *v1alpha1.AlertEvent) { settledFor("*")(e); terminating(e) }
	for sentence, test := range map[string]struct {
		change func(*v1alpha1.AlertEvent)
		counts bool
	}{
		"one that a finalizer keeps does not count":                {change: terminating},
		"one that a finalizer keeps and is settled does not count": {change: settledAndTerminating},
		"one that is unreadable does not count":                    {change: unreadable},
		"one that the cache has as a stub counts":                  {change: stub, counts: true},
		"one of no integration counts":                             {change: withoutIntegration, counts: true},
		"one that waits counts":                                    {change: func(*v1alpha1.AlertEvent) {}, counts: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, c := NewWithT(t), newCounts(Limits{})
			created := func(age time.Duration) func(*v1alpha1.AlertEvent) {
				return func(e *v1alpha1.AlertEvent) { e.CreationTimestamp = metav1.NewTime(testEpoch.Add(-age)) }
			}
			c.SetEvent(newEvent("shop", "new", created(time.Second)), false)
			c.SetEvent(newEvent("bad", "old", test.change, created(time.Hour)), false)
			want := 1.0
			if test.counts {
				want = 3600
			}
			g.Expect(reported(c, oldestEvent)[""]).To(Equal(want))
			g.Expect(reported(c, pendingEvents)[""]).To(Equal(2.0))
		})
	}
}

// stub makes an AlertEvent what the cache has of one without a place.
func stub(event *v1alpha1.AlertEvent) {
	cached := queue.NewBoundedCached(fair.Limit{All: 1, Share: 1}, fair.Limit{All: 1, Share: 1})
	for _, name := range []string{"first", event.Name} {
		event.Name, event.UID = name, types.UID(name)
		event.Spec.Alerts = testenv.Text(v1alpha1.Alert{DedupKey: "x", Status: v1alpha1.AlertFiring})
		if _, err := cached.Condense(event); err != nil {
			panic(err)
		}
	}
	if !queue.IsStub(event) {
		panic("it is whole")
	}
}

// TestTheStuckOfOneNamespaceCostTheOthersNoTime asks for the conditions of a thousand integrations, as the leader does every two
// seconds, while another namespace has 60,000 AlertEvents that are stuck.
func TestTheStuckOfOneNamespaceCostTheOthersNoTime(t *testing.T) {
	c := newCounts(Limits{})
	for i := range 60_000 {
		c.SetEvent(newEvent("bad", fmt.Sprint(i), unreadable), false)
	}
	began := time.Now()
	for i := range 1000 {
		c.Stuck(types.NamespacedName{Namespace: fmt.Sprint("team-", i), Name: "prometheus"})
	}
	NewWithT(t).Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
}

// manyHidden are two hidden AlertEvents in each of so many namespaces.
type manyHidden int

func (manyHidden) In(string) (events, integrations int) { return 2, 0 }

func (m manyHidden) Each(use func(kind, namespace string, objects int)) {
	for _, kind := range []string{clustercache.KindEvent, "WebhookIntegration", "MaintenanceWindow", "Heartbeat"} {
		use(kind, "", 0)
	}
	for n := range int(m) {
		use(clustercache.KindEvent, fmt.Sprint("hides-", n), 2)
	}
}

// TestHiddenObjectsMakeFewSeries has them in hundreds of namespaces.
func TestHiddenObjectsMakeFewSeries(t *testing.T) {
	g, p := NewWithT(t), newCounts(Limits{})
	p.Hidden = manyHidden(500)
	registry := prometheus.NewRegistry()
	registry.MustRegister(p)
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	series, sum := 0, 0.0
	for _, family := range families {
		if family.GetName() == "tocsin_hidden_objects" {
			series = len(family.GetMetric())
			for _, metric := range family.GetMetric() {
				sum += metric.GetGauge().GetValue()
			}
		}
	}
	g.Expect(series).To(Equal(maxHiddenSeries+4), "and the others of each kind")
	g.Expect(sum).To(BeEquivalentTo(1000))
	g.Expect(reported(p, pendingEvents)).To(HaveKeyWithValue("", 1000.0))
}
