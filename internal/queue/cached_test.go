package queue

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// anyAlertEvent generates AlertEvents of all kinds that Condense treats differently.
func anyAlertEvent() *rapid.Generator[*v1alpha1.AlertEvent] {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	times := rapid.SampledFrom([]time.Duration{0, time.Second, -time.Minute, -time.Hour})
	texts := rapid.SampledFrom([]string{"", "!", "!reason", "no gzip", strings.Repeat("A", 1000)})
	pairs := rapid.MapOf(rapid.SampledFrom([]string{
		v1alpha1.RestoreLabel, v1alpha1.ExcludeFromBackupLabel, v1alpha1.TraceparentAnnotation, v1alpha1.RetryAnnotation, v1alpha1.SettledAnnotation,
		"tocsin.dev/restored", "tocsin.dev/condensed-bytes", "example.com/a",
	}), rapid.SampledFrom([]string{"", "true", "7", strings.Repeat("v", 600)}))
	managed := rapid.Custom(func(t *rapid.T) metav1.ManagedFieldsEntry {
		entry := metav1.ManagedFieldsEntry{
			Manager:  rapid.SampledFrom([]string{"", v1alpha1.FieldManager, "velero-server"}).Draw(t, "manager"),
			FieldsV1: metav1.NewFieldsV1(`{}`),
		}
		if rapid.Bool().Draw(t, "has a time") {
			entry.Time = &metav1.Time{Time: created.Add(times.Draw(t, "managed at"))}
		}
		return entry
	})
	return rapid.Custom(func(t *rapid.T) *v1alpha1.AlertEvent {
		event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{
			UID: "u", Name: rapid.SampledFrom([]string{"01a1ffa9-c360-72bb-b2de-ae677b9a4f82", "key-abc", "by-hand"}).Draw(t, "name"),
			Labels: pairs.Draw(t, "labels"), Annotations: pairs.Draw(t, "annotations"), CreationTimestamp: metav1.NewTime(created),
			ManagedFields: rapid.SliceOfN(managed, 0, 3).Draw(t, "managed fields"),
		}}
		if rapid.Bool().Draw(t, "terminating") {
			event.DeletionTimestamp, event.Finalizers = &event.CreationTimestamp, []string{"example.com/keep"}
		}
		if rapid.Bool().Draw(t, "has a time") {
			event.Spec.ReceivedTime = v1alpha1.NewTimestamp(created.Add(times.Draw(t, "received")))
		}
		event.Spec.Summary = texts.Draw(t, "summary")
		var alerts []v1alpha1.Alert
		for range rapid.IntRange(0, 2).Draw(t, "alerts") {
			alerts = append(alerts, v1alpha1.Alert{
				ID: "1", DedupKey: "disk", Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{Title: texts.Draw(t, "title")},
			})
		}
		event.Spec.Alerts = textOf(alerts...)
		return event
	})
}

func TestASecondCondenseChangesNothing(t *testing.T) {
	restored, dropped := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		event := anyAlertEvent().Draw(t, "event")
		before, events := IsRestored(event), NewCached(fair.DefaultShare)
		condense := func() {
			_, err := events.Condense(event)
			g.Expect(err).NotTo(HaveOccurred())
		}
		condense()
		once, size := event.DeepCopy(), events.StoredSize(event)
		condense()
		g.Expect(event).To(Equal(once))
		g.Expect(events.StoredSize(event)).To(Equal(size))
		g.Expect(IsRestored(event)).To(Equal(before))
		if before {
			restored++
		}
		if size > int64(EncodedSize(event.Alerts)) {
			dropped++
		}
	})
	if restored == 0 || dropped == 0 {
		t.Errorf("%d of the AlertEvents were restored, and something was removed from %d", restored, dropped)
	}
}

// Of the metadata, the cache has what is used, in the size in which it is used.
func TestLargeLabelsAndAnnotationsAreDropped(t *testing.T) {
	g, events, event := NewWithT(t), NewCached(fair.DefaultShare), largeEvent("a", 1, 0)
	used := map[string]string{v1alpha1.TraceparentAnnotation: strings.Repeat("0", 55), v1alpha1.RetryAnnotation: "true"}
	event.Annotations, event.Labels = maps.Clone(used), map[string]string{v1alpha1.RestoreLabel: "x", "tocsin.dev/mine": "x"}
	event.Annotations[v1alpha1.SettledAnnotation] = strings.Repeat("x", 200<<10)
	_, err := events.Condense(event)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(event.Annotations).To(Equal(used))
	g.Expect(event.Labels).To(Equal(map[string]string{v1alpha1.RestoreLabel: ""}))

	event = largeEvent("a", 2, 0)
	event.Annotations = map[string]string{
		v1alpha1.TraceparentAnnotation: strings.Repeat("0", 100<<10), v1alpha1.RetryAnnotation: strings.Repeat("true", 25<<10),
	}
	_, err = events.Condense(event)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(event.Annotations).To(BeEmpty())
}

func TestACondensedAlertEventIsSmall(t *testing.T) {
	for sentence, test := range map[string]struct {
		restored bool
		want     map[string]string
	}{
		"no metadata is kept":                       {},
		"of one that was restored, a label is kept": {true, map[string]string{v1alpha1.RestoreLabel: ""}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			created := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			managed := metav1.ManagedFieldsEntry{
				Manager: "velero-server", Operation: metav1.ManagedFieldsOperationUpdate, Time: &created, FieldsV1: metav1.NewFieldsV1(`{}`),
			}
			event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{
				Name: "01a1ffa9-c360-72bb-b2de-ae677b9a4f82", CreationTimestamp: created, ManagedFields: []metav1.ManagedFieldsEntry{managed, managed},
				Annotations: map[string]string{"a": strings.Repeat("v", 99)}, Labels: map[string]string{v1alpha1.ExcludeFromBackupLabel: "true"},
				OwnerReferences: []metav1.OwnerReference{{Name: strings.Repeat("x", 1000)}}, GenerateName: "x",
			}}
			event.Spec.ReceivedTime = v1alpha1.NewTimestamp(created.Time)
			if test.restored {
				event.Spec.ReceivedTime = v1alpha1.NewTimestamp(created.Add(-time.Hour))
			}
			event.Spec.Alerts, event.Spec.Summary = `[{"dedupKey":"disk","status":"firing"}]`, "disk"
			events := NewCached(fair.DefaultShare)
			_, err := events.Condense(event)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(event.ObjectMeta).To(Equal(metav1.ObjectMeta{
				Name: event.Name, CreationTimestamp: created, Labels: test.want,
			}))
			removed := 100 + len(v1alpha1.ExcludeFromBackupLabel+"true") + 1000
			g.Expect(events.StoredSize(event)).To(BeEquivalentTo(EncodedSize(event.Alerts) + removed))
			g.Expect(events.IsWhole(event)).To(BeTrue(), "its alerts are whole")
		})
	}
}

// textOf returns the alerts as the text of an AlertEvent.
func textOf(alerts ...v1alpha1.Alert) v1alpha1.AlertsText {
	text, err := json.Marshal(alerts)
	if err != nil {
		panic(err)
	}
	return v1alpha1.AlertsText(text)
}

func largeEvent(namespace string, n, bytes int) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{}
	event.Namespace, event.Name, event.UID = namespace, fmt.Sprint(n), types.UID(fmt.Sprint(namespace, n))
	event.Spec.Alerts = textOf(v1alpha1.Alert{ID: "1", IncidentName: "x", DedupKey: "d", Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{
		Title: "disk", Description: strings.Repeat("x", bytes),
	}})
	return event
}

func TestTheCacheHasABudgetForContent(t *testing.T) {
	g, events := NewWithT(t), NewBoundedCached(fair.Limit{All: 100_000, Share: 0.5}, fair.Limit{All: 1 << 30, Share: 0.5})
	condense := func(event *v1alpha1.AlertEvent) (whole bool) {
		_, err := events.Condense(event)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(event.Alerts[0].ID+event.Alerts[0].IncidentName).To(Equal("1x"), "its Incident is known")
		g.Expect(events.IsWhole(event)).To(Equal(event.Alerts[0].Title != ""))
		return events.IsWhole(event)
	}
	kept := 0
	for n := range 100 { // what a user creates by hand
		event := largeEvent("a", n, 5000)
		if condense(event) {
			kept++
		}
		before := event.DeepCopy()
		condense(event)
		g.Expect(event).To(Equal(before), "client-go may transform it twice")
	}
	g.Expect(kept).To(BeNumerically("~", 8, 2))
	g.Expect(condense(largeEvent("b", 1, 5000))).To(BeTrue(), "another namespace has its own share")
	g.Expect(condense(largeEvent("a", 0, 5000))).To(BeTrue(), "as decided at first: a watch shows it again")
	g.Expect(condense(largeEvent("a", 99, 5000))).To(BeFalse())

	for n := range 100 {
		events.Forget(largeEvent("a", n, 0))
	}
	g.Expect(condense(largeEvent("a", 100, 5000))).To(BeTrue())
	events.Forget(largeEvent("a", 100, 0))
	events.Forget(largeEvent("b", 1, 0))
	g.Expect(events.events).To(BeEmpty())
	g.Expect(events.content.Sum()).To(BeZero())
}

// An AlertEvent of a few kilobytes may have megabytes of identities, which the cache needs of those without content, too.
func TestBeyondItsShareANamespaceHasStubs(t *testing.T) {
	g, events := NewWithT(t), NewCached(fair.DefaultShare)
	alerts := make([]v1alpha1.Alert, v1alpha1.MaxAlertsPerEvent)
	for i := range alerts {
		alerts[i] = v1alpha1.Alert{DedupKey: strings.Repeat("‹", 1000), Status: v1alpha1.AlertFiring}
	}
	many := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{IntegrationName: "mon"}, Alerts: alerts}
	g.Expect(Encode(many)).To(Succeed())
	g.Expect(len(many.Spec.Alerts)).To(BeNumerically("<", 50_000))
	condense := func(namespace string, n int) *v1alpha1.AlertEvent {
		event := largeEvent(namespace, n, 0)
		event.ResourceVersion, event.Spec = fmt.Sprint(1000+n), many.Spec
		for range 2 {
			_, err := events.Condense(event)
			g.Expect(err).NotTo(HaveOccurred())
		}
		return event
	}
	const all = 200
	memory, stubs := 0, 0
	for n := range all {
		event := condense("a", n)
		memory += int(IdentitySize(event.Alerts))
		if IsStub(event) {
			stubs++
			g.Expect(Stuck(event)).To(Equal(StuckNotCached))
			g.Expect(events.Unreadable(event)).To(Succeed(), "nobody has tried")
			g.Expect(events.StoredSize(event)).To(BeNumerically(">=", len(many.Spec.Alerts)), "it counts as it is stored")
		}
	}
	g.Expect(stubs).To(BeNumerically(">", all/2))
	g.Expect(memory).To(BeNumerically("<", MaxPendingBytes/3))
	g.Expect(IsStub(condense("b", 0))).To(BeFalse(), "another namespace has its own share")

	anyNamespace := func(string) bool { return true }
	_, ok := events.NextStub(anyNamespace)
	g.Expect(ok).To(BeFalse(), "there is no place")
	for n := range all - stubs {
		events.Forget(largeEvent("a", n, 0))
	}
	g.Expect(IsStub(condense("a", all))).To(BeTrue(), "it comes after the stubs")
	for n := all - stubs; ; n++ { // their turn
		next, ok := events.NextStub(anyNamespace)
		if !ok {
			g.Expect(n).To(BeNumerically(">", all-stubs+5))
			break
		}
		g.Expect(next.Name.Name).To(Equal(fmt.Sprint(n)))
		g.Expect(IsStub(condense("a", n))).To(BeFalse())
	}
	for n := range all + 1 {
		events.Forget(largeEvent("a", n, 0))
	}
	events.Forget(largeEvent("b", 0, 0))
	g.Expect(events.events).To(BeEmpty())
	g.Expect(events.stubs).To(BeEmpty())
	g.Expect(events.sizes.Sum()).To(BeZero())
}

// TestWhatIngestAcceptsIsNoStub stores as much as ingest accepts of one namespace, in AlertEvents of hundreds of small alerts, which
// take the most memory for their size.
func TestWhatIngestAcceptsIsNoStub(t *testing.T) {
	for sentence, share := range map[string]float64{"one watched namespace": 1, "many": fair.DefaultShare} {
		t.Run(sentence, func(t *testing.T) {
			g, events := NewWithT(t), NewCached(share)
			stored, memory := 0, 0
			var last *v1alpha1.AlertEvent
			for n := 0; stored < int(share*MaxPendingBytes); n++ {
				last = largeEvent("only", n, 0)
				last.Spec.IntegrationName = "mon"
				for i := range v1alpha1.MaxAlertsPerEvent {
					key := fmt.Sprint(n, "-", i)
					last.Alerts = append(last.Alerts, v1alpha1.Alert{
						ID: "019b76da-a800-7000-8000-000000000001", IncidentName: v1alpha1.IncidentName("mon", key), DedupKey: key,
						Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{Title: "Disk full"},
					})
				}
				last.Spec.Alerts = textOf(last.Alerts...)
				stored += EncodedSize(last.Alerts)
				memory += int(IdentitySize(last.Alerts))
				_, err := events.Condense(last)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(IsStub(last)).To(BeFalse(), "after %d of %d bytes", stored, int(share*MaxPendingBytes))
				last.Alerts = nil // the test needs no memory for them
			}
			g.Expect(memory).To(BeNumerically("<=", stored), "so the bound is one of the memory")
		})
	}
}

func TestSomeAlertEventsAreNoStubsHoweverManyOthersThereAre(t *testing.T) {
	const bytes = 5000
	many := func(g *WithT, change func(*v1alpha1.AlertEvent)) (events *Cached, condense func(*v1alpha1.AlertEvent) (isStub bool)) {
		limit := fair.Limit{All: 10 * bytes, Share: 1}
		events = NewBoundedCached(limit, limit)
		condense = func(event *v1alpha1.AlertEvent) bool {
			event.ResourceVersion = "10"
			_, err := events.Condense(event)
			g.Expect(err).NotTo(HaveOccurred())
			return IsStub(event)
		}
		for n := range 30 {
			event := largeEvent("a", n, bytes)
			change(event)
			condense(event)
		}
		return events, condense
	}
	settle := func(event *v1alpha1.AlertEvent) {
		event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "9/*"}
	}
	t.Run("those that wait, beside those that are settled and stay for their keys", func(t *testing.T) {
		g := NewWithT(t)
		events, condense := many(g, settle)
		g.Expect(condense(largeEvent("a", 100, bytes))).To(BeFalse())
		for n := range 30 {
			events.Forget(largeEvent("a", n, 0))
		}
		events.Forget(largeEvent("a", 100, 0))
		g.Expect(events.settled.Sum() + events.sizes.Sum()).To(BeZero())
	})
	t.Run("those that wait, once others are settled", func(t *testing.T) {
		g := NewWithT(t)
		events, condense := many(g, func(*v1alpha1.AlertEvent) {})
		g.Expect(condense(largeEvent("a", 100, bytes))).To(BeTrue())
		for n := range 3 {
			event := largeEvent("a", n, bytes)
			settle(event)
			g.Expect(condense(event)).To(BeFalse())
		}
		_, ok := events.NextStub(func(string) bool { return true })
		g.Expect(ok).To(BeTrue(), "there is a place")
	})
	t.Run("canaries", func(t *testing.T) {
		g := NewWithT(t)
		events, condense := many(g, func(*v1alpha1.AlertEvent) {})
		events.Canaries = "a"
		canary, large := largeEvent("a", 100, 0), largeEvent("a", 101, bytes)
		canary.Name, large.Name = v1alpha1.CanaryName+"-1", v1alpha1.CanaryName+"-2"
		canary.Spec = v1alpha1.AlertEventSpec{Report: &v1alpha1.Report{IncidentName: v1alpha1.CanaryName, Status: v1alpha1.AlertResolved}}
		g.Expect(condense(canary)).To(BeFalse())
		g.Expect(condense(large)).To(BeTrue(), "a person has made it")
		events.Canaries = "operator"
		another := canary.DeepCopy()
		another.UID = "another"
		g.Expect(condense(another)).To(BeTrue(), "it is in the namespace of a tenant")
	})
}
