package replica

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// TestTheStoreCountsAreThoseOfTheObjects lets informers tell of objects in all the ways they do, and compares with what
// there is.
func TestTheStoreCountsAreThoseOfTheObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, clock := testEpoch, clocktesting.NewFakePassiveClock(testEpoch)
		memory := NewMemory(clock)
		counts := newCounts(memory, fair.Limit{All: 1000, Share: 1})
		incidentInformer := informers.Handler(counts.setIncident, counts.removeIncident)
		eventInformer := memory.Handler()
		incidents, events := map[string]*v1alpha1.Incident{}, map[string]*v1alpha1.AlertEvent{}
		for step := range rapid.IntRange(1, 150).Draw(t, "steps") {
			version := fmt.Sprint(step)
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * time.Second)
			clock.SetTime(now)
			number := rapid.IntRange(0, 7).Draw(t, "object")
			isTombstone := rapid.Bool().Draw(t, "tombstone")
			if rapid.Bool().Draw(t, "incident") {
				name := fmt.Sprint("incident-", number)
				incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
				incident.Status.State = rapid.SampledFrom([]v1alpha1.IncidentState{"", "Open"}).Draw(t, "state")
				ended := v1alpha1.NewTimestamp(now.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "age")) * time.Second))
				incident.Status.ResolvedTime = &ended
				incident.Status.Alert.Severity = rapid.SampledFrom([]v1alpha1.Severity{"critical", "info", "odd"}).Draw(t, "severity")
				if rapid.Bool().Draw(t, "muted") {
					incident.Status.Mute = &v1alpha1.Mute{}
				}
				tell(incidentInformer, incidents, name, incident, rapid.IntRange(0, 2).Draw(t, "what"), isTombstone)
				continue
			}
			name := []string{"key-1", "key-2", "a", "b", "c", "d", "e", "f"}[number]
			event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID(version), ResourceVersion: version, CreationTimestamp: metav1.NewTime(now),
			}}
			if old, known := events[name]; known && (isTombstone || rapid.Bool().Draw(t, "same")) {
				event.UID, event.CreationTimestamp = old.UID, old.CreationTimestamp
			}
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
	t *rapid.T, counts *Counts, incidents map[string]*v1alpha1.Incident, events map[string]*v1alpha1.AlertEvent, now time.Time,
) {
	g := NewWithT(t)
	groups := newCounts(nil, fair.Limit{}).counts
	g.Expect(groups).To(HaveLen(4), "a group without Incidents is reported as 0")
	for group := range counts.counts {
		groups[group] = 0
	}
	muted := 0
	for _, incident := range incidents {
		if incident.Status.Mute != nil {
			muted++
		}
		groups[incidentGroup{incident.Status.State, incident.Status.Alert.Severity}]++
	}
	g.Expect(counts.muted).To(Equal(muted))
	g.Expect(counts.counts).To(Equal(groups))
	g.Expect(counts.open.Incidents.Used("")).To(BeEquivalentTo(len(incidents)))
	g.Expect(counts.open.Incidents.Sum()).To(BeEquivalentTo(len(incidents)))
	bytes := int64(0)
	for _, incident := range incidents {
		bytes += UsageOf(incident).Bytes
	}
	g.Expect(counts.open.Bytes.Used("")).To(Equal(bytes))
	g.Expect(counts.open.Bytes.Sum()).To(Equal(bytes))
	oldest := time.Duration(0)
	for name, event := range events {
		age := now.Sub(event.CreationTimestamp.Time)
		if !v1alpha1.IsKeyedEventName(name) || age >= KeyedLinger+time.Minute {
			oldest = max(oldest, age)
		}
	}
	pending, age := counts.memory.pending()
	g.Expect(pending).To(Equal(len(events)))
	g.Expect(age).To(Equal(oldest))
}

func TestTheIncidentsOfAnIntegration(t *testing.T) {
	counts := newCounts(NewMemory(clock.RealClock{}), fair.Limit{})
	own := []string{v1alpha1.IncidentName("mon", "a"), v1alpha1.IncidentName("mon", "b")}
	for _, name := range append(own, v1alpha1.IncidentName("mon-2", "a"), v1alpha1.IncidentName("other", "a"), "mon-x") {
		counts.setIncident(&v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}, true)
	}
	NewWithT(t).Expect(counts.OfIntegration("n", "mon")).To(ConsistOf(own))
}

// TestIncidentsByHandFillTheShareOfTheirNamespaceOnly has a namespace with more Incidents than all namespaces may have, and bytes.
func TestIncidentsByHandFillTheShareOfTheirNamespaceOnly(t *testing.T) {
	g := NewWithT(t)
	counts := newCounts(NewMemory(clock.RealClock{}), fair.Limit{All: 50_000, Share: fair.DefaultShare})
	for i := range 200_000 {
		counts.setIncident(&v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "bad", Name: fmt.Sprint("by-hand-", i)}}, false)
	}
	for i := range 100 {
		counts.setIncident(&v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "good", Name: fmt.Sprint("own-", i)}}, false)
	}
	fits := func(namespace string) bool {
		status := &v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen}
		status.Alert.Title = "Disk full"
		return counts.Fits(&v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "new"}}, status)
	}
	g.Expect(counts.Allows("bad")).To(BeFalse())
	g.Expect(fits("bad")).To(BeFalse())
	g.Expect(counts.Allows("good")).To(BeTrue(), "the fold may open an Incident there")
	g.Expect(fits("good")).To(BeTrue(), "the content of an alert is kept")
}

// BenchmarkScrape measures the collection of the metrics of the store with 100,000 Incidents.
func BenchmarkScrape(b *testing.B) {
	counts := newCounts(NewMemory(clock.RealClock{}), fair.Limit{})
	counts.synced, counts.memory.synced = func() bool { return true }, func() bool { return true }
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
