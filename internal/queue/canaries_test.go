package queue

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

func TestCanariesHaveATurnOfTheirOwn(t *testing.T) {
	canary := v1alpha1.CanaryName + "-1"
	for _, test := range []struct {
		own, namespace, name string
		is                   bool
	}{
		{"own", "own", canary, true}, {"own", "own", v1alpha1.CanaryName, true}, {"own", "own", "alert", false},
		{"own", "team", canary, false}, {"", "team", canary, false}, {"", "", canary, false},
	} {
		g, m := NewWithT(t), NewMemory(clocktesting.NewFakePassiveClock(testEpoch))
		m.Cached.Canaries = test.own
		name := types.NamespacedName{Namespace: test.namespace, Name: test.name}
		g.Expect(m.IsCanary(name)).To(Equal(test.is), "%+v", test)
		turn := name
		if test.is {
			turn.Namespace = "own/canaries"
		}
		g.Expect(m.Turn(name)).To(Equal(turn), "%+v", test)

		event := namedEvent(test.name, 1)
		event.Namespace = test.namespace
		m.NoteShown(event, false)
		g.Expect(m.CanariesEnded()).To(BeZero())
		m.NoteDeleted(event)
		g.Expect(m.CanariesEnded() == 1).To(Equal(test.is), "%+v", test)
	}
}

// placesFor returns a Cached whose own namespace has an AlertEvent that takes all its places, and a stub.
func placesFor(g *WithT) *Cached {
	limit := fair.Limit{All: 2000, Share: 0.5}
	cached := NewBoundedCached(limit, limit)
	cached.Canaries = "own"
	for n := range 3 {
		_, err := cached.Condense(largeEvent("own", n, 1500))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(cached.events["own2"].stub).NotTo(BeNil())
	return cached
}

func TestACanaryIsNoStub(t *testing.T) {
	for sentence, test := range map[string]struct {
		change func(*v1alpha1.AlertEvent)
		isStub bool
	}{
		"a canary":                      {func(*v1alpha1.AlertEvent) {}, false},
		"an AlertEvent of another name": {func(e *v1alpha1.AlertEvent) { e.Name = "other" }, true},
		"one with its name and alerts":  {func(e *v1alpha1.AlertEvent) { e.Spec = largeEvent("own", 9, 0).Spec }, true},
		"one of another namespace":      {func(e *v1alpha1.AlertEvent) { e.Namespace = "team" }, false},
		"an alert that is settled": {func(e *v1alpha1.AlertEvent) {
			e.Name, e.Annotations = "other", map[string]string{v1alpha1.SettledAnnotation: "11/*"}
		}, false},
		"an alert that is settled in part": {func(e *v1alpha1.AlertEvent) {
			e.Name, e.Annotations = "other", map[string]string{v1alpha1.SettledAnnotation: "11/a"}
		}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			cached := placesFor(g)
			event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{
				Namespace: "own", Name: v1alpha1.CanaryName + "-1", UID: "canary", ResourceVersion: "12",
			}}
			event.Spec.Report = &v1alpha1.Report{IncidentName: v1alpha1.CanaryName, Status: v1alpha1.AlertResolved}
			test.change(event)
			_, err := cached.Condense(event)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(IsStub(event)).To(Equal(test.isStub))
		})
	}
}

func TestStubsAreReadAgainInTurn(t *testing.T) {
	g := NewWithT(t)
	cached := placesFor(g)
	_, err := cached.Condense(largeEvent("own", 3, 10))
	g.Expect(err).NotTo(HaveOccurred())
	everywhere := func(string) bool { return true }
	next := func(isOwn func(string) bool) string {
		stub, ok := cached.NextStub(isOwn)
		g.Expect(ok).To(Equal(stub.UID != ""))
		return string(stub.UID)
	}
	g.Expect(next(everywhere)).To(BeEmpty(), "there is no place")
	cached.Forget(largeEvent("own", 0, 0))
	cached.Forget(largeEvent("own", 1, 0))
	g.Expect(next(func(string) bool { return false })).To(BeEmpty(), "they are of another cache")
	g.Expect(next(everywhere)).To(Equal("own2"))
	cached.PostponeStub(Stub{Name: types.NamespacedName{Namespace: "own"}, UID: "own2"})
	cached.PostponeStub(Stub{Name: types.NamespacedName{Namespace: "own"}, UID: "gone"})
	g.Expect(next(everywhere)).To(Equal("own3"))

	stub := largeEvent("own", 4, 0)
	stub.ResourceVersion, stub.Spec.IntegrationName, stub.Spec.ReceivedTime = "7", "mon", v1alpha1.NewTimestamp(testEpoch)
	text := int64(len(stub.Spec.Alerts))
	_, err = cached.Condense(stub)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(IsStub(stub)).To(BeTrue(), "those that came before go first")
	g.Expect(stub.Spec).To(Equal(v1alpha1.AlertEventSpec{IntegrationName: "mon", ReceivedTime: v1alpha1.NewTimestamp(testEpoch)}))
	g.Expect(cached.StoredSize(stub)).To(Equal(text))
	before := stub.DeepCopy()
	_, err = cached.Condense(stub)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stub).To(Equal(before))
	pod := &metav1.PartialObjectMetadata{}
	g.Expect(cached.Condense(pod)).To(BeIdenticalTo(pod))
}

func TestWhyAnAlertEventIsStuck(t *testing.T) {
	now := metav1.NewTime(testEpoch)
	for _, test := range []struct {
		change func(*v1alpha1.AlertEvent)
		reason string
	}{
		{func(*v1alpha1.AlertEvent) {}, ""},
		{func(e *v1alpha1.AlertEvent) { e.DeletionTimestamp = &now }, StuckTerminating},
		{func(e *v1alpha1.AlertEvent) { e.Alerts = nil }, StuckUnreadable},
		{func(e *v1alpha1.AlertEvent) { e.Annotations, e.Alerts = stubAnnotations, nil }, StuckNotCached},
		{func(e *v1alpha1.AlertEvent) { e.Annotations, e.ResourceVersion = stubAnnotations, "7" }, ""}, // a user has written it
	} {
		event := namedEvent("event", 1)
		test.change(event)
		NewWithT(t).Expect(Stuck(event)).To(Equal(test.reason), "%+v", event)
	}
}

func TestACondensedAlertEventHasNoText(t *testing.T) {
	defaults := &v1alpha1.AlertDefaults{Type: "disk"}
	for sentence, test := range map[string]struct {
		change  func(*v1alpha1.AlertEvent)
		isWhole bool
	}{
		"whole":      {func(*v1alpha1.AlertEvent) {}, true},
		"without":    {func(e *v1alpha1.AlertEvent) { e.DeletionTimestamp = &metav1.Time{Time: testEpoch} }, false},
		"unreadable": {func(e *v1alpha1.AlertEvent) { e.Spec.Alerts = "[ {" }, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, cached, event := NewWithT(t), NewCached(fair.DefaultShare), largeEvent("a", 1, 200)
			event.Spec.Defaults, event.Spec.Encoding, event.Spec.Count, event.Spec.Summary = defaults, "", 1, "disk"
			test.change(event)
			text := len(event.Spec.Alerts)
			_, err := cached.Condense(event)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cached.IsWhole(event)).To(Equal(test.isWhole))
			want := v1alpha1.AlertEventSpec{}
			if test.isWhole {
				want.Defaults = defaults
			}
			g.Expect(event.Spec).To(Equal(want))
			if unreadable := cached.Unreadable(event) != nil; unreadable {
				g.Expect(cached.StoredSize(event)).To(BeEquivalentTo(text))
			}
			g.Expect(len(event.Alerts) == 0).To(Equal(sentence == "unreadable"))
			g.Expect(cached.sizes.Used("a")).To(BeNumerically(">=", text))
		})
	}
	g := NewWithT(t)
	var none *Cached
	event := namedEvent("a", 1)
	g.Expect(none.StoredSize(event)).To(BeEquivalentTo(EncodedSize(event.Alerts)))
}

func TestWhatIsSettledCountsElsewhere(t *testing.T) {
	g, limit := NewWithT(t), fair.Limit{All: 10_000, Share: 1}
	cached := NewBoundedCached(limit, limit)
	cached.settled.Limit = fair.Limit{All: 1, Share: 1}
	for n := range 2 {
		event := largeEvent("a", n, 100)
		event.ResourceVersion, event.Annotations = "12", map[string]string{v1alpha1.SettledAnnotation: "11/*"}
		_, err := cached.Condense(event)
		g.Expect(err).NotTo(HaveOccurred())
	}
	first, second := cached.events["a0"], cached.events["a1"]
	g.Expect(cached.settled.Used("a")).To(Equal(first.size))
	g.Expect(cached.sizes.Used("a")).To(Equal(second.size), "beyond its bound, it counts like the others")
}

func TestSecondCopiesAreDeleted(t *testing.T) {
	const name = "01a1fc76-5bd7-792d-a695-2a362506dd6e"
	g, clock := NewWithT(t), clocktesting.NewFakePassiveClock(testEpoch)
	m := NewMemory(clock)
	var copies []Ref
	m.DeleteCopy = func(second Ref) { copies = append(copies, second) }
	first := namedEvent(name, 1)
	m.NoteShown(first, false)
	m.NoteDeleted(first)
	g.Expect(copies).To(BeEmpty())
	clock.SetTime(testEpoch.Add(replayWindow))
	m.NoteShown(namedEvent(name, 2), false)
	g.Expect(copies).To(Equal([]Ref{RefOf(namedEvent(name, 2))}), "for two minutes")
	m.NoteShown(namedEvent(name, 2), false)
	g.Expect(copies).To(HaveLen(1))
	g.Expect(m.IsDeleted(RefOf(first))).To(BeTrue())
	g.Expect(m.IsDeleted(RefOf(namedEvent(name, 2)))).To(BeFalse())
	g.Expect(m.IsDeleted(RefOf(namedEvent("other", 1)))).To(BeFalse())
	g.Expect(m.IsShown("2")).To(BeTrue())
	g.Expect(m.IsShown("1")).To(BeFalse())
	alerts, ok := m.Alerts("2")
	g.Expect([]any{alerts, ok}).To(Equal([]any{1, true}))
	_, ok = m.Alerts("1")
	g.Expect(ok).To(BeFalse())
	_, _, known := m.CopyState("1")
	g.Expect(known).To(BeFalse())
}

// TestAMemoryBeginsAnewAfterAGap in its watch: what was received before may have come and gone in the gap.
func TestAMemoryBeginsAnewAfterAGap(t *testing.T) {
	g, clock := NewWithT(t), clocktesting.NewFakePassiveClock(testEpoch)
	m := NewMemory(clock)
	hold := func(uid int, received, stored time.Duration) bool {
		event := namedEvent("01a1fc76-5bd7-792d-a695-"+fmt.Sprintf("%012d", uid), uid)
		event.CreationTimestamp = metav1.NewTime(testEpoch.Add(stored))
		event.Spec.ReceivedTime = v1alpha1.NewTimestamp(testEpoch.Add(received))
		m.NoteShown(event, false)
		_, until, known := m.CopyState(event.UID)
		g.Expect(known).To(BeTrue())
		return !until.IsZero()
	}
	clock.SetTime(testEpoch.Add(time.Minute))
	g.Expect(hold(1, 30*time.Second, 59*time.Second)).To(BeFalse(), "the memory was there")
	m.Listed(&v1alpha1.Incident{})
	g.Expect(hold(2, 30*time.Second, 59*time.Second)).To(BeFalse(), "a gap of another watch")
	m.Listed(&v1alpha1.AlertEvent{})
	g.Expect(hold(3, 30*time.Second, 59*time.Second)).To(BeTrue())
	g.Expect(hold(4, 30*time.Second, 31*time.Second)).To(BeFalse(), "it was stored at once")
	g.Expect(hold(5, 30*time.Second, 31*time.Second+1)).To(BeTrue(), "it was stored late")
	timeless := namedEvent("01a1fc76-5bd7-792d-a695-000000000006", 6)
	m.NoteShown(timeless, false)
	_, until, _ := m.CopyState("6")
	g.Expect(until).To(BeZero(), "nobody knows when it was received")
}

// TestNamesAreRememberedInTwoGenerations: a name is known for at least replayWindow after its deletion.
func TestNamesAreRememberedInTwoGenerations(t *testing.T) {
	g, clock := NewWithT(t), clocktesting.NewFakePassiveClock(testEpoch)
	m := NewMemory(clock)
	forget := func(name string, after time.Duration) {
		clock.SetTime(testEpoch.Add(after))
		event := namedEvent(name, 1)
		_, err := m.Cached.Condense(event)
		g.Expect(err).NotTo(HaveOccurred())
		m.NoteShown(event, false)
		m.NoteDeleted(event)
		g.Expect(m.Cached.events).To(BeEmpty())
	}
	known := func(name string) bool { return m.IsDeleted(RefOf(namedEvent(name, 1))) }
	forget("a", 0)
	forget("b", replayWindow)
	g.Expect(m.older).To(BeEmpty())
	forget("c", replayWindow+1)
	g.Expect(m.older).To(HaveLen(2))
	g.Expect([]bool{known("a"), known("b"), known("c")}).To(Equal([]bool{true, true, true}))
	forget("d", 2*replayWindow+2)
	g.Expect([]bool{known("a"), known("b"), known("c"), known("d")}).To(Equal([]bool{false, false, true, true}))
}
