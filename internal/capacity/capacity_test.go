package capacity

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// testEpoch is when the tests begin.
var testEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newCounts returns counts that are synced.
func newCounts(limits Limits) *Counts {
	c := New(limits, nil, clocktesting.NewFakePassiveClock(testEpoch))
	c.synced = []toolscache.InformerSynced{func() bool { return true }}
	return c
}

// newEvent makes an AlertEvent of the integration "prometheus".
func newEvent(namespace, name string, change ...func(*v1alpha1.AlertEvent)) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "10"},
		Spec:       v1alpha1.AlertEventSpec{IntegrationName: "prometheus"},
		Alerts:     []v1alpha1.Alert{{DedupKey: "x"}},
	}
	for _, f := range change {
		f(event)
	}
	return event
}

// settledFor marks an AlertEvent as settled for these Incidents.
func settledFor(incidents string) func(*v1alpha1.AlertEvent) {
	return func(e *v1alpha1.AlertEvent) {
		e.Annotations = map[string]string{v1alpha1.SettledAnnotation: "9/" + incidents}
	}
}

func terminating(e *v1alpha1.AlertEvent) { e.DeletionTimestamp = &metav1.Time{Time: testEpoch} }

func unreadable(e *v1alpha1.AlertEvent) { e.Alerts, e.Spec.Alerts = nil, "[" }

func withoutIntegration(e *v1alpha1.AlertEvent) { e.Spec.IntegrationName = "" }

// blockedIntegration is the integration "prometheus" as the leader marks it for this reason.
func blockedIntegration(namespace, reason string) *v1alpha1.WebhookIntegration {
	w := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prometheus"}}
	w.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionAlertsFolded, Status: metav1.ConditionFalse, Reason: reason},
	}
	return w
}

// openIncidentNamed makes an Incident that is not Resolved.
func openIncidentNamed(namespace, name string) *v1alpha1.Incident {
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	incident.Status.State = v1alpha1.IncidentOpen
	return incident
}

// cluster has the objects of which the informers have told the counts.
type cluster struct {
	events       map[types.NamespacedName]*v1alpha1.AlertEvent
	incidents    map[types.NamespacedName]*v1alpha1.Incident
	integrations map[types.NamespacedName]*v1alpha1.WebhookIntegration
}

// TestTheCountsAreThoseOfTheObjects lets informers tell of objects in all the ways they do, and compares the counts with the objects
// that there are, and with none after their end.
func TestTheCountsAreThoseOfTheObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := newCounts(Limits{Events: 10, Incidents: 6, Share: 0.5})
		events := informers.Handler(counts.SetEvent, counts.RemoveEvent)
		incidents := informers.Handler(counts.SetIncident, counts.RemoveIncident)
		whi := informers.Handler(counts.SetIntegration, counts.RemoveIntegration)
		there := cluster{
			map[types.NamespacedName]*v1alpha1.AlertEvent{}, map[types.NamespacedName]*v1alpha1.Incident{},
			map[types.NamespacedName]*v1alpha1.WebhookIntegration{},
		}
		for step := range rapid.IntRange(1, 120).Draw(t, "steps") {
			meta := metav1.ObjectMeta{
				Namespace: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "namespace"),
				Name:      rapid.StringMatching("[a-h]").Draw(t, "name"), ResourceVersion: fmt.Sprint(step + 100),
			}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0, 1, 2:
				tell(t, events, there.events, drawEvent(t, meta))
			case 3, 4:
				tell(t, incidents, there.incidents, drawIncident(t, meta))
			default:
				w := blockedIntegration(meta.Namespace, rapid.SampledFrom([]string{"", v1alpha1.ReasonQuotaExceeded}).Draw(t, "blocked"))
				w.ResourceVersion = meta.ResourceVersion
				tell(t, whi, there.integrations, w)
			}
		}
		compareCounts(t, counts, &there)
		for _, event := range there.events {
			events.OnDelete(event)
		}
		for _, incident := range there.incidents {
			incidents.OnDelete(incident)
		}
		for _, integration := range there.integrations {
			whi.OnDelete(integration)
		}
		compareCounts(t, counts, &cluster{})
		if len(counts.events)+len(counts.incidents)+len(counts.integrations) > 0 {
			t.Fatalf("something is left: %+v", counts)
		}
	})
}

func drawEvent(t *rapid.T, meta metav1.ObjectMeta) *v1alpha1.AlertEvent {
	event := waitingEvent(meta.Namespace, meta.Name, rapid.SliceOfN(rapid.StringMatching("[a-h]"), 0, 3).Draw(t, "alerts")...)
	event.ObjectMeta = meta
	event.UID = types.UID(rapid.StringMatching("[12]").Draw(t, "uid"))
	event.CreationTimestamp = metav1.NewTime(testEpoch.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "age")) * time.Second))
	event.Spec.IntegrationName = rapid.SampledFrom([]string{"", "prometheus", "other"}).Draw(t, "integration")
	rapid.SampledFrom([]func(*v1alpha1.AlertEvent){
		func(*v1alpha1.AlertEvent) {}, terminating, unreadable, settledFor("*"), settledFor("a,b"),
	}).Draw(t, "is")(event)
	return event
}

func drawIncident(t *rapid.T, meta metav1.ObjectMeta) *v1alpha1.Incident {
	incident := &v1alpha1.Incident{ObjectMeta: meta}
	incident.Status.State = rapid.SampledFrom([]v1alpha1.IncidentState{"", "Open"}).Draw(t, "state")
	incident.Status.Alert.Severity = rapid.SampledFrom([]v1alpha1.Severity{"critical", "info", "odd"}).Draw(t, "severity")
	incident.Status.Alert.Title = rapid.SampledFrom([]string{"", "Disk full"}).Draw(t, "title")
	if rapid.Bool().Draw(t, "muted") {
		incident.Status.Mute = &v1alpha1.Mute{}
	}
	return incident
}

// tell has the informer tell of an object that was set or deleted. A tombstone holds what an interrupted watch saw last,
// which may be another state than the one that was told of.
func tell[T metav1.Object](
	t *rapid.T, informer toolscache.ResourceEventHandler, objects map[types.NamespacedName]T, object T,
) {
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	old, known := objects[name]
	isDeleted, isTombstone := rapid.IntRange(0, 2).Draw(t, "what") == 0, rapid.Bool().Draw(t, "tombstone")
	switch {
	case isDeleted && known && isTombstone:
		informer.OnDelete(toolscache.DeletedFinalStateUnknown{Key: name.String(), Obj: object})
		delete(objects, name)
	case isDeleted && known:
		informer.OnDelete(old)
		delete(objects, name)
	case known:
		informer.OnUpdate(old, object)
		objects[name] = object
	default:
		informer.OnAdd(object, isTombstone)
		objects[name] = object
	}
}

// recount is what there is in one namespace.
type recount struct{ waiting, draining, expected, open, openBytes int64 }

// of counts the objects of a namespace anew.
func (c *cluster) of(namespace string) (r recount) {
	expected := map[string]bool{}
	for name, incident := range c.incidents {
		if name.Namespace == namespace {
			expected[name.Name] = true
			r.open, r.openBytes = r.open+1, r.openBytes+UsageOf(incident).Bytes
		}
	}
	for name, event := range c.events {
		stuck, mark := queue.Stuck(event), event.Annotations[v1alpha1.SettledAnnotation]
		if name.Namespace != namespace || mark == "9/*" {
			continue
		}
		r.waiting++
		integration := c.integrations[types.NamespacedName{Namespace: namespace, Name: event.Spec.IntegrationName}]
		if stuck == "" && integration != nil && integrations.Blocked(integration) == "" {
			r.draining++
		}
		for _, alert := range event.Alerts {
			isSettled := mark != "" && (alert.IncidentName == "a" || alert.IncidentName == "b")
			if alert.Status == v1alpha1.AlertFiring && stuck == "" && !isSettled {
				expected[alert.IncidentName] = true
			}
		}
	}
	r.expected = int64(len(expected))
	return r
}

// compareCounts compares the counts with the objects. A namespace counts towards each sum with at most its share.
func compareCounts(t *rapid.T, counts *Counts, there *cluster) {
	g := NewWithT(t)
	var sums recount
	for _, namespace := range []string{"a", "b", "c"} {
		r := there.of(namespace)
		g.Expect(recount{
			counts.bounds[0].all.Used(namespace), counts.bounds[0].draining.Used(namespace), counts.expected.Used(namespace),
			counts.open.Incidents.Used(namespace), counts.open.Bytes.Used(namespace),
		}).To(Equal(r), namespace)
		sums.waiting += min(r.waiting, 5)
		sums.draining += min(r.draining, 5)
		sums.expected += min(r.expected, 3)
		sums.open += min(r.open, 3)
		sums.openBytes += r.openBytes
	}
	g.Expect(recount{
		counts.bounds[0].all.Sum(), counts.bounds[0].draining.Sum(), counts.expected.Sum(),
		counts.open.Incidents.Sum(), counts.open.Bytes.Sum(),
	}).To(Equal(sums))

	groups, muted, oldest := map[incidentGroup]int{}, 0, time.Duration(0)
	for _, incident := range there.incidents {
		groups[incidentGroup{incident.Status.State, incident.Status.Alert.Severity}]++
		if incident.Status.Mute != nil {
			muted++
		}
	}
	for group, count := range counts.groups {
		g.Expect(count).To(Equal(groups[group]), "%v", group)
	}
	g.Expect(counts.muted).To(Equal(muted))
	for _, event := range there.events {
		if event.Annotations[v1alpha1.SettledAnnotation] != "9/*" && queue.Stuck(event) == "" {
			oldest = max(oldest, testEpoch.Sub(event.CreationTimestamp.Time))
		}
	}
	pending, age := counts.pending()
	g.Expect(pending).To(Equal(len(there.events)))
	g.Expect(age).To(Equal(oldest))
}

// TestWhatIngestAdmitsTheFoldsMayOpen has namespaces compete for a limit in bursts, while the folds come to their alerts in any order.
func TestWhatIngestAdmitsTheFoldsMayOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := newCounts(Limits{
			Incidents: rapid.IntRange(1, 12).Draw(t, "limit"), Share: rapid.SampledFrom([]float64{0.25, 0.5, 1}).Draw(t, "share"),
		})
		var waiting, open []*v1alpha1.Incident
		take := func(from *[]*v1alpha1.Incident) *v1alpha1.Incident {
			at := rapid.IntRange(0, len(*from)-1).Draw(t, "which")
			incident := (*from)[at]
			*from = slices.Delete(*from, at, at+1)
			return incident
		}
		admit := func(namespace, name string) {
			alerts := []v1alpha1.Alert{{IncidentName: name, Status: v1alpha1.AlertFiring}}
			if len(counts.ReserveIncidents(namespace, alerts, false)) > 0 {
				counts.SetEvent(waitingEvent(namespace, name, name), false)
				counts.wait(namespace, []uint64{counts.hash(name)}, -1) // the reservation ends
				waiting = append(waiting, openIncidentNamed(namespace, name))
			}
		}
		for burst := range rapid.IntRange(0, 20).Draw(t, "bursts") {
			kind, namespace := rapid.IntRange(0, 3).Draw(t, "kind"), fmt.Sprint(rapid.IntRange(0, 6).Draw(t, "namespace"))
			for i := range rapid.IntRange(1, 8).Draw(t, "count") {
				switch {
				case kind < 2:
					admit(namespace, fmt.Sprint(burst, "-", i))
				case kind == 2 && len(waiting) > 0:
					incident := take(&waiting)
					if !counts.MayOpen(incident.Namespace) {
						t.Fatalf("the fold may not open an Incident that ingest has admitted")
					}
					counts.SetIncident(incident, false)
					counts.RemoveEvent(newEvent(incident.Namespace, incident.Name))
					open = append(open, incident)
				case kind == 3 && len(open) > 0:
					counts.RemoveIncident(take(&open))
				}
			}
		}
	})
}

// TestWhatTwoReplicasAdmitTheFoldsMayOpen has a namespace near its limit, and two replicas accept alerts with new keys before the
// watch of the other one shows them.
func TestWhatTwoReplicasAdmitTheFoldsMayOpen(t *testing.T) {
	for sentence, test := range map[string]struct {
		limits Limits
		unseen int // by the other replica, of each
		opened int
	}{
		"the default limit":              {Limits{}, 600, 12_500 + 600},
		"a limit of a thousand":          {Limits{Incidents: 1000}, 50, 250 + 50},
		"a single namespace":             {Limits{Incidents: 1000, Share: 1}, 50, 1000 + 50},
		"a limit of twenty has but some": {Limits{Incidents: 20}, 1, 5 + 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				replicas := []*Counts{newCounts(test.limits), newCounts(test.limits)}
				var accepted []string
				accept := func(replica int, name string) bool {
					alerts := []v1alpha1.Alert{{IncidentName: name, Status: v1alpha1.AlertFiring}}
					if len(replicas[replica].ReserveIncidents("a", alerts, false)) == 0 {
						return false
					}
					accepted = append(accepted, name)
					return true
				}
				shown := 0
				show := func() {
					for _, name := range accepted[shown:] {
						for _, replica := range replicas {
							replica.SetEvent(waitingEvent("a", name, name), false)
						}
					}
					shown = len(accepted)
				}
				own := int(replicas[0].IncidentLimit().Own())
				for n := range own - test.unseen {
					g.Expect(accept(n%2, fmt.Sprint(n))).To(BeTrue())
					if n%test.unseen == 0 {
						show()
					}
				}
				show()
				for replica := range replicas {
					for n := range test.unseen {
						g.Expect(accept(replica, fmt.Sprint("unseen-", replica, "-", n))).To(BeTrue())
					}
					g.Expect(accept(replica, "one more")).To(BeFalse())
				}
				show()
				g.Expect(accepted).To(HaveLen(test.opened))
				for _, name := range accepted {
					g.Expect(replicas[0].MayOpen("a")).To(BeTrue(), name)
					replicas[0].SetIncident(openIncidentNamed("a", name), false)
				}
				g.Expect(accept(0, "one more")).To(BeFalse(), "ingest has no slack")
				for n := 0; replicas[0].MayOpen("a"); n++ {
					replicas[0].SetIncident(openIncidentNamed("a", fmt.Sprint("by-hand-", n)), false)
				}
				g.Expect(replicas[0].open.Incidents.Used("a")).To(BeNumerically("<=", own+own/4), "by hand, too")
			})
		})
	}
}

func TestIncidentsByHandFillTheShareOfTheirNamespaceOnly(t *testing.T) {
	g := NewWithT(t)
	counts := newCounts(Limits{})
	for i := range 200_000 { // more than all namespaces may have, and bytes as well
		counts.SetIncident(openIncidentNamed("bad", fmt.Sprint("by-hand-", i)), false)
	}
	for i := range 100 {
		counts.SetIncident(openIncidentNamed("good", fmt.Sprint("own-", i)), false)
	}
	fits := func(namespace string) bool {
		status := &v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen}
		status.Alert.Title = "Disk full"
		return counts.Fits(&v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "new"}}, status)
	}
	g.Expect(counts.Full("bad")).To(Equal(v1alpha1.ReasonIncidentLimit))
	g.Expect(counts.MayOpen("bad")).To(BeFalse())
	g.Expect(fits("bad")).To(BeFalse())
	g.Expect(counts.Full("good")).To(BeEmpty())
	g.Expect(counts.MayOpen("good")).To(BeTrue(), "the fold may open an Incident there")
	g.Expect(fits("good")).To(BeTrue(), "the content of an alert is kept")
}

// BenchmarkScrape measures the collection of the metrics with 100,000 Incidents and 20,000 AlertEvents.
func BenchmarkScrape(b *testing.B) {
	counts := newCounts(Limits{})
	for n := range 100_000 {
		counts.SetIncident(openIncidentNamed("shop", fmt.Sprint(n)), true)
	}
	for n := range 20_000 {
		counts.SetEvent(newEvent("shop", fmt.Sprint(n)), true)
	}
	for b.Loop() {
		metrics := make(chan prometheus.Metric, 1000)
		counts.Collect(metrics)
	}
}
