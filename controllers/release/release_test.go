package release

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// testEpoch is when the tests begin.
var testEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// memoryReleaser is a Releaser without an API server.
func memoryReleaser() (*Releaser, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(testEpoch)
	return New(nil, nil, queue.NewMemory(clock), clock), clock
}

func namedEvent(name string, uid int) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(fmt.Sprint(uid))},
		Alerts:     []v1alpha1.Alert{{IncidentName: "incident"}},
	}
}

// keyedEvents settles so many events of an integration with idempotency keys, and returns them.
func keyedEvents(r *Releaser, integration string, n, bytes int) []*v1alpha1.AlertEvent {
	var events []*v1alpha1.AlertEvent
	for i := range n {
		event := namedEvent(v1alpha1.KeyedEventName(integration, fmt.Sprint(i)), i)
		event.UID = types.UID(integration + "-" + string(event.UID))
		event.Spec.IntegrationName = integration
		event.Alerts[0].Description = strings.Repeat("x", bytes)
		events = append(events, event)
		r.Settle(event, "incident")
	}
	return events
}

// staying counts the events that are not due yet.
func (r *Releaser) staying(events []*v1alpha1.AlertEvent) int {
	n := 0
	for _, event := range events {
		if r.records[event.UID].due.After(r.clock.Now()) {
			n++
		}
	}
	return n
}

func TestEventsThatStayForTheirKeysAreBoundedByIntegration(t *testing.T) {
	t.Run("the oldest of a busy integration go, and none of its neighbours'", func(t *testing.T) {
		g := NewWithT(t)
		r, clock := memoryReleaser()
		calm := keyedEvents(r, "calm", 10, 0)
		storm := keyedEvents(r, "storm", 60_000, 0) // 100 a second for ten minutes
		g.Expect(r.staying(storm)).To(Equal(maxLingering))
		g.Expect(r.staying(storm[:60_000-maxLingering])).To(BeZero(), "the oldest go")
		clock.SetTime(clock.Now().Add(queue.KeyedLinger - time.Second))
		g.Expect(r.staying(calm)).To(Equal(10))
		clock.SetTime(clock.Now().Add(time.Second))
		g.Expect(r.staying(calm)).To(BeZero())
	})
	t.Run("large ones are bounded by their size", func(t *testing.T) {
		g := NewWithT(t)
		r, _ := memoryReleaser()
		g.Expect(r.staying(keyedEvents(r, "large", 40, 1<<20))).To(Equal(15))
	})
	t.Run("large ones without content in the cache are bounded by what is stored", func(t *testing.T) {
		g := NewWithT(t)
		r, _ := memoryReleaser()
		r.memory.Cached = queue.NewBoundedCached(fair.Limit{All: 1, Share: 1}, fair.Limit{All: 1 << 30, Share: 1})
		var events []*v1alpha1.AlertEvent
		for i := range 40 {
			event := namedEvent(v1alpha1.KeyedEventName("large", fmt.Sprint(i)), i)
			alert := v1alpha1.Alert{IncidentName: "incident", DedupKey: "disk", Status: v1alpha1.AlertFiring}
			alert.Description = strings.Repeat("x", v1alpha1.MaxDescriptionChars)
			event.Alerts = slices.Repeat([]v1alpha1.Alert{alert}, (1<<20)/v1alpha1.MaxDescriptionChars)
			g.Expect(queue.Encode(event)).To(Succeed())
			event.Alerts = nil
			_, err := r.memory.Cached.Condense(event)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.memory.Cached.IsWhole(event)).To(Equal(i == 0))
			r.Settle(event, "incident")
			events = append(events, event)
		}
		g.Expect(r.staying(events)).To(Equal(15))
	})
	t.Run("many busy integrations leave a calm one its own", func(t *testing.T) {
		g := NewWithT(t)
		r, _ := memoryReleaser()
		calm := keyedEvents(r, "calm", 100, 0)
		all := 0
		for i := range 12 {
			all += len(keyedEvents(r, fmt.Sprint("storm-", i), maxLingering, 0))
		}
		g.Expect(all).To(BeNumerically(">", 2*maxAllLingering))
		g.Expect(r.lingering.events.Sum()).To(BeEquivalentTo(maxAllLingering))
		g.Expect(r.staying(calm)).To(Equal(100))
	})
	t.Run("what is gone is forgotten", func(t *testing.T) {
		g := NewWithT(t)
		r, _ := memoryReleaser()
		for _, event := range keyedEvents(r, "calm", 10, 100) {
			r.Forget(queue.RefOf(event))
		}
		g.Expect(r.lingering.records).To(BeEmpty())
		g.Expect(r.lingering.events.Sum()).To(BeZero())
		g.Expect(r.lingering.bytes.Sum()).To(BeZero())
	})
}

func TestTheReleaseTakesTurns(t *testing.T) {
	g := NewWithT(t)
	ref := func(namespace, name string) queue.Ref {
		return queue.Ref{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}, UID: types.UID(name)}
	}
	q := requests.NewQueue(concurrency, nameOf)("", requests.Backoff[queue.Ref]())
	defer q.ShutDown()
	for i := range 100 {
		q.Add(ref("storm", fmt.Sprint(i)))
	}
	q.Add(ref("calm", "a"))
	first, _ := q.Get()
	second, _ := q.Get()
	g.Expect([]string{first.Namespace, second.Namespace}).To(ConsistOf("storm", "calm"))
}

// countingQueue counts the timers.
type countingQueue struct {
	workqueue.TypedRateLimitingInterface[queue.Ref]
	timers int
}

func (q *countingQueue) AddAfter(ref queue.Ref, after time.Duration) {
	q.timers++
	q.TypedRateLimitingInterface.AddAfter(ref, after)
}

func TestReleasedEventsLeaveNothingBehind(t *testing.T) {
	g := NewWithT(t)
	r, _ := memoryReleaser()
	queue := &countingQueue{TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueue(requests.Backoff[queue.Ref]())}
	defer queue.ShutDown()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(r.start(ctx, queue)).To(Succeed())
	for i := range 1000 {
		event := namedEvent(fmt.Sprintf("01a1fc76-5bd7-792d-a695-%012d", i), i)
		event.Alerts = append(event.Alerts, v1alpha1.Alert{IncidentName: "other"})
		r.Settle(event, "incident")
		r.Settle(event, "other")
		ref, _ := queue.Get()
		r.Forget(ref)
		queue.Done(ref)
	}
	g.Expect(r.records).To(BeEmpty())
	g.Expect(queue.timers).To(BeZero())
	g.Expect(queue.Len()).To(BeZero())
}

func TestAMarkedEventThatCannotBeDecodedStays(t *testing.T) {
	g := NewWithT(t)
	r, _ := memoryReleaser()
	event := namedEvent("unreadable", 1)
	event.ResourceVersion = "12"
	event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "11/another"}
	r.NoteMark(t.Context(), event)
	g.Expect(r.records).To(HaveLen(1))
	clear(r.records)
	event.Alerts = nil
	r.NoteMark(t.Context(), event)
	g.Expect(r.records).To(BeEmpty(), "nobody knows whether all its alerts are folded")
}
