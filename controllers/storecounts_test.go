package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// TestTheStoreCountsAreThoseOfTheObjects lets informers tell of objects in all the ways they do, and compares with what
// there is.
func TestTheStoreCountsAreThoseOfTheObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := testEpoch
		counts := newStoreCounts(Options{}.withDefaults())
		counts.now = func() time.Time { return now }
		incidentInformer := informers.Handler(counts.setIncident, counts.removeIncident)
		eventInformer := informers.Handler(counts.setEvent, counts.removeEvent)
		incidents, events := map[string]*v1alpha1.Incident{}, map[string]*v1alpha1.AlertEvent{}
		for step := range rapid.IntRange(1, 150).Draw(t, "steps") {
			version := fmt.Sprint(step)
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * time.Second)
			number := rapid.IntRange(0, 7).Draw(t, "object")
			isTombstone := rapid.Bool().Draw(t, "tombstone")
			if rapid.Bool().Draw(t, "incident") {
				name := fmt.Sprint("incident-", number)
				incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
				incident.Status.State = rapid.SampledFrom([]v1alpha1.IncidentState{"", "Open"}).Draw(t, "state")
				ended := v1alpha1.NewTimestamp(now.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "age")) * time.Second))
				incident.Status.ResolvedTime = &ended
				incident.Status.Alert.Severity = rapid.SampledFrom([]v1alpha1.Severity{"critical", "info", "odd"}).Draw(t, "severity")
				tell(incidentInformer, incidents, name, incident, rapid.IntRange(0, 2).Draw(t, "what"), isTombstone)
				continue
			}
			name := []string{"key-1", "key-2", "a", "b", "c", "d", "e", "f"}[number]
			event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{
				Name: name, ResourceVersion: version, CreationTimestamp: metav1.NewTime(now),
			}}
			tell(eventInformer, events, name, event, rapid.IntRange(0, 2).Draw(t, "what"), isTombstone)
		}
		compareCounts(t, counts, incidents, events, now)
	})
}

// tell has the informer tell of an object that was set or deleted. A tombstone holds what an interrupted watch saw last,
// which may be another state than the one that was told of.
func tell[T any](informer toolscache.ResourceEventHandler, objects map[string]*T, name string, object *T, what int, isTombstone bool) {
	old, known := objects[name]
	switch {
	case what == 0 && known && isTombstone:
		informer.OnDelete(toolscache.DeletedFinalStateUnknown{Key: name, Obj: object})
		delete(objects, name)
	case what == 0 && known:
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

func compareCounts(
	t *rapid.T, counts *storeCounts, incidents map[string]*v1alpha1.Incident, events map[string]*v1alpha1.AlertEvent, now time.Time,
) {
	g := NewWithT(t)
	groups := newStoreCounts(Options{}.withDefaults()).counts
	g.Expect(groups).To(HaveLen(4), "a group without Incidents is reported as 0")
	for group := range counts.counts {
		groups[group] = 0
	}
	for _, incident := range incidents {
		groups[incidentGroup{incident.Status.State, incident.Status.Alert.Severity}]++
	}
	g.Expect(counts.counts).To(Equal(groups))
	g.Expect(counts.open.incidents.Used("")).To(BeEquivalentTo(len(incidents)))
	g.Expect(counts.open.incidents.Sum()).To(BeEquivalentTo(len(incidents)))
	bytes := int64(0)
	for _, incident := range incidents {
		bytes += usageOf(incident).bytes
	}
	g.Expect(counts.open.bytes.Used("")).To(Equal(bytes))
	g.Expect(counts.open.bytes.Sum()).To(Equal(bytes))
	oldest := time.Duration(0)
	for name, event := range events {
		age := now.Sub(event.CreationTimestamp.Time)
		if !v1alpha1.IsKeyedEventName(name) || age >= keyedLinger+time.Minute {
			oldest = max(oldest, age)
		}
	}
	g.Expect(counts.events).To(HaveLen(len(events)))
	g.Expect(counts.oldestAge()).To(Equal(oldest))
}

func TestASecondManagerInTheProcessDoesNotTakeTheMetricsOver(t *testing.T) {
	s, registry := newSite(t), prometheus.NewPedanticRegistry()
	incidents := func() int {
		count, err := testutil.GatherAndCount(registry, "tocsin_alertevents_pending")
		s.Expect(err).NotTo(HaveOccurred())
		return count
	}
	stop := s.manageWith(t, Options{Metrics: registry})
	s.Eventually(incidents, "20s").Should(Equal(1))
	other := newSite(t)
	stopOther := other.manageWith(t, Options{Metrics: registry})
	other.realTime()
	other.postFiring("disk")
	s.Eventually(other.eventNames, "20s").Should(BeEmpty())
	s.Expect(incidents()).To(Equal(1))
	stop()
	s.Eventually(incidents, "20s").Should(Equal(1), "those of the other one")
	stopOther()
	s.Expect(incidents()).To(BeZero())
}

// What a namespace has beyond its share of bytes is written without content, and shows why.
func TestContentIsBoundedInEachNamespace(t *testing.T) {
	s := newSite(t)
	counts := s.incidents.counts
	counts.open.bytes.All = 100 << 10
	large := func(key string) {
		alert := s.alert(v1alpha1.AlertFiring, key)
		alert.Description = strings.Repeat("x", 16<<10)
		s.post(alert)
		s.fold(key)
		s.release()
		counts.setIncident(s.incident(key), false)
	}
	for n := range 10 {
		large(fmt.Sprint(n))
	}
	s.Expect(counts.open.incidents.Used(s.namespace)).To(BeEquivalentTo(10), "each alert opens its Incident")
	s.Expect(counts.open.bytes.Used(s.namespace)).To(BeNumerically("<", 100<<10+10*(2<<10)+16<<10))
	last := s.incident("9").Status
	s.Expect(last.State).To(Equal(v1alpha1.IncidentOpen))
	s.Expect(last.Alert.Description).To(BeEmpty())
	s.Expect(last.Timeline).To(ContainElement(And(
		HaveField("Type", v1alpha1.TransitionContentRejected), HaveField("Message", noSpace))))

	for _, key := range []string{"0", "1", "2"} {
		s.post(s.alert(v1alpha1.AlertResolved, key))
		s.fold(key)
		s.Expect(s.incident(key).Status.State).To(Equal(v1alpha1.IncidentResolved))
		counts.removeIncident(s.incident(key)) // the cache shows it no longer
	}
	large("10")
	s.Expect(s.incident("10").Status.Alert.Description).NotTo(BeEmpty(), "there is space again")
}

// BenchmarkScrape measures the collection of the metrics of the store with 100,000 Incidents.
func BenchmarkScrape(b *testing.B) {
	counts := newStoreCounts(Options{}.withDefaults())
	counts.synced = func() bool { return true }
	for n := range 100_000 {
		incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(n)}}
		incident.Status.State = v1alpha1.IncidentOpen
		counts.setIncident(incident, true)
	}
	for b.Loop() {
		metrics := make(chan prometheus.Metric, 1000)
		counts.Collect(metrics)
	}
}
