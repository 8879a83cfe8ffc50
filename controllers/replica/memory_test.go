package replica

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func namedEvent(name string, uid int) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(fmt.Sprint(uid))},
		Spec:       v1alpha1.AlertEventSpec{Alerts: []v1alpha1.Alert{{IncidentName: "incident"}}},
	}
}

func TestWhichEventsAreSecondCopies(t *testing.T) {
	const serverMade = "01a1fc76-5bd7-792d-a695-2a362506dd6e"
	keyed := v1alpha1.KeyedEventName("shop", "x")
	for sentence, test := range map[string]struct {
		name  string
		uid   int
		id    string
		after time.Duration
		want  bool

		unfolded   bool // the first one was not marked
		unreadable bool // the second one cannot be decoded
	}{
		"the same name with another UID":                       {name: serverMade, uid: 2, want: true},
		"the same name and UID, as after a restore":            {name: serverMade, uid: 1},
		"after two minutes the name is forgotten":              {name: serverMade, uid: 2, after: replayWindow + 1},
		"the name of an idempotency key, with the same alerts": {name: keyed, uid: 2, id: "1", want: true},
		"the name of an idempotency key, with other alerts":    {name: keyed, uid: 2, id: "2"},
		"a key whose event a user deleted before its fold":     {name: keyed, uid: 2, id: "1", unfolded: true},
		"nor is it a copy when it cannot be decoded":           {name: keyed, uid: 2, unfolded: true, unreadable: true},
		"a name given by a person may come again":              {name: "by-hand", uid: 2},
		"another name is another event, whatever else is same": {name: "01a1fc76-5bd7-792d-a695-2a362506dd6f", uid: 1},
		"a name is remembered while very many others are, too": {name: serverMade, uid: 2, after: replayWindow - 1, want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			clock := clocktesting.NewFakePassiveClock(testEpoch)
			m := NewMemory(clock)
			for _, name := range []string{serverMade, keyed, "by-hand"} {
				event := namedEvent(name, 1)
				event.Spec.Alerts[0].ID = "1"
				m.see(event, false)
				if event.Name == keyed && !test.unfolded {
					event.ResourceVersion, event.Annotations = "2", map[string]string{v1alpha1.SettledAnnotation: "1/*"}
				}
				m.forget(event)
			}
			clock.SetTime(clock.Now().Add(test.after))
			event := namedEvent(test.name, test.uid)
			event.Spec.Alerts[0].ID = test.id
			if test.unreadable {
				event.Spec.Alerts = nil
			}
			m.see(event, false)
			seen, ok := m.find(event.UID)
			g.Expect(ok).To(BeTrue())
			g.Expect(seen.isCopy).To(Equal(test.want))
			g.Expect(m.copies.Len() > 0).To(Equal(test.want))
		})
	}
}

func TestAThirdCopyIsNoNewEvent(t *testing.T) {
	for _, name := range []string{"01a1fc76-5bd7-792d-a695-2a362506dd6e", v1alpha1.KeyedEventName("shop", "x")} {
		g := NewWithT(t)
		m := NewMemory(clocktesting.NewFakePassiveClock(testEpoch))
		first := namedEvent(name, 1)
		first.Spec.Alerts[0].ID = "1"
		first.ResourceVersion, first.Annotations = "2", map[string]string{v1alpha1.SettledAnnotation: "1/*"}
		m.see(first, false)
		m.forget(first)
		for uid := 2; uid <= 3; uid++ {
			copied := namedEvent(name, uid)
			copied.Spec.Alerts[0].ID = "1"
			m.see(copied, false)
			isCopy, _, known := m.Seen(copied.UID)
			g.Expect(known && isCopy).To(BeTrue(), "copy %d of %s", uid, name)
			m.forget(copied)
		}
	}
}

func TestTheMemoryOfDeletedEventsIsBounded(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(testEpoch)
	m := NewMemory(clock)
	for i := range 3*maxDeletedNames + 10 {
		event := namedEvent(fmt.Sprint("event-", i), i)
		m.see(event, false)
		m.forget(event)
		if i == maxDeletedNames {
			clock.SetTime(clock.Now().Add(time.Second))
		}
	}
	g.Expect(len(m.deleted) + len(m.older)).To(BeNumerically("<=", 2*maxDeletedNames))
	g.Expect(m.seen).To(BeEmpty())
	g.Expect(m.since).To(BeTemporally(">", testEpoch), "it does not claim to know the names that it has dropped")
	for range 2 {
		clock.SetTime(clock.Now().Add(replayWindow + time.Second))
		m.forget(namedEvent("last", 1))
	}
	g.Expect(len(m.deleted) + len(m.older)).To(BeNumerically("<=", 2))
}

func TestAListAfterAGapShowsADeletionAndACreationAsOne(t *testing.T) {
	g := NewWithT(t)
	m := NewMemory(clocktesting.NewFakePassiveClock(testEpoch))
	const name = "01a1fc76-5bd7-792d-a695-2a362506dd6e"
	first, second := namedEvent(name, 1), namedEvent(name, 2)
	m.Handler().OnAdd(first, true)
	m.Handler().OnUpdate(first, second)
	g.Expect(m.IsDeleted(EventRef{types.NamespacedName{Namespace: "team", Name: name}, "1"})).To(BeTrue())
	seen, ok := m.find("2")
	g.Expect(ok).To(BeTrue())
	g.Expect(seen.isCopy).To(BeTrue())
}

func TestWhatTheWatchHasShown(t *testing.T) {
	g, clock := NewWithT(t), clocktesting.NewFakePassiveClock(testEpoch)
	m := NewMemory(clock)
	event := namedEvent("by-hand", 1)
	g.Expect(m.HasShown(RefOf(event), testEpoch)).To(BeFalse())
	m.see(event, false)
	g.Expect(m.HasShown(RefOf(event), testEpoch)).To(BeTrue())
	clock.SetTime(testEpoch.Add(time.Second))
	m.forget(event)
	g.Expect(m.HasShown(RefOf(event), testEpoch)).To(BeTrue(), "a list that began before may have it")
	g.Expect(m.HasShown(RefOf(event), testEpoch.Add(2*time.Second))).To(BeFalse(), "a later list shows that it is there")
	g.Expect(m.HasShown(RefOf(namedEvent("by-hand", 2)), testEpoch)).To(BeFalse())
}

// TestWhatAFailedListShowedIsForgotten: the leader may release an AlertEvent before the next list.
func TestWhatAFailedListShowedIsForgotten(t *testing.T) {
	g := NewWithT(t)
	m := NewMemory(clocktesting.NewFakePassiveClock(testEpoch))
	shown, dropped, listed := namedEvent("a", 1), namedEvent("b", 2), namedEvent("c", 3)
	for _, event := range []*v1alpha1.AlertEvent{shown, dropped, listed} {
		_, err := m.Cached.Condense(event)
		g.Expect(err).NotTo(HaveOccurred())
	}
	m.see(shown, false)
	m.Listed(&v1alpha1.AlertEvent{}, shown, dropped)
	g.Expect(m.Cached.IsWhole(shown)).To(BeTrue(), "its end will be shown")
	g.Expect(m.Cached.IsWhole(dropped)).To(BeFalse())
	g.Expect(m.Cached.IsWhole(listed)).To(BeTrue(), "it will be shown")
}
