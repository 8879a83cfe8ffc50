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
	"github.com/tocsin-dev/tocsin/internal/informers"
)

func namedEvent(name string, uid int) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(fmt.Sprint(uid)), CreationTimestamp: metav1.NewTime(testEpoch),
		},
		Alerts: []v1alpha1.Alert{{IncidentName: "incident"}},
	}
}

// testEpoch is when the tests begin.
var testEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestWhichEventsAreSecondCopies(t *testing.T) {
	const serverMade = "01a1fc76-5bd7-792d-a695-2a362506dd6e"
	keyed := v1alpha1.KeyedEventName("shop", "x")
	for sentence, test := range map[string]struct {
		name  string
		uid   int
		id    string
		after time.Duration // the deletion of the first one
		stays time.Duration // the first one before that
		want  bool

		unfolded   bool // the first one was not marked
		restored   bool // it was restored from a backup, and discarded
		unreadable bool // the second one cannot be decoded
	}{
		"the same name with another UID":                       {name: serverMade, uid: 2, want: true},
		"the same name and UID, as after a restore":            {name: serverMade, uid: 1},
		"after two minutes the name is forgotten":              {name: serverMade, uid: 2, after: replayWindow + 1},
		"an AlertEvent that waited for an hour to be folded":   {name: serverMade, uid: 2, stays: time.Hour, want: true},
		"the name of an idempotency key, with the same alerts": {name: keyed, uid: 2, id: "1", want: true},
		"the name of an idempotency key, with other alerts":    {name: keyed, uid: 2, id: "2"},
		"a key whose event a user deleted before its fold":     {name: keyed, uid: 2, id: "1", unfolded: true},
		"a key whose event stayed for ten minutes":             {name: keyed, uid: 2, id: "1", stays: KeyedLinger},
		"a key whose event had to go sooner":                   {name: keyed, uid: 2, id: "1", stays: KeyedLinger / 2, want: true},
		"a key whose event stayed, and was restored":           {name: keyed, uid: 2, id: "1", stays: KeyedLinger, restored: true},
		"a key whose event went sooner, and was restored":      {name: keyed, uid: 2, id: "1", restored: true, want: true},
		"nor is it a copy when it cannot be decoded":           {name: keyed, uid: 2, unfolded: true, unreadable: true},
		"a name given by a person may come again":              {name: "by-hand", uid: 2},
		"another name is another event, whatever else is same": {name: "01a1fc76-5bd7-792d-a695-2a362506dd6f", uid: 1},
		"a name is remembered while very many others are, too": {name: serverMade, uid: 2, after: replayWindow - 1, want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			clock := clocktesting.NewFakePassiveClock(testEpoch)
			m := NewMemory(clock)
			var deleted []*v1alpha1.AlertEvent
			for _, name := range []string{serverMade, keyed, "by-hand"} {
				event := namedEvent(name, 1)
				event.Alerts[0].ID = "1"
				m.NoteShown(event, false)
				if event.Name == keyed && !test.unfolded {
					event.ResourceVersion, event.Annotations = "2", map[string]string{v1alpha1.SettledAnnotation: "1/*"}
				}
				deleted = append(deleted, event)
			}
			clock.SetTime(testEpoch.Add(test.stays))
			for _, event := range deleted {
				m.NoteDeleted(event)
				if test.restored {
					again := event.DeepCopy()
					again.UID, again.CreationTimestamp = "restored", metav1.NewTime(clock.Now())
					again.Labels = map[string]string{v1alpha1.RestoreLabel: ""}
					m.NoteShown(again, false)
					m.NoteDeleted(again)
				}
			}
			clock.SetTime(testEpoch.Add(test.stays + test.after))
			event := namedEvent(test.name, test.uid)
			event.CreationTimestamp = metav1.NewTime(clock.Now())
			event.Alerts[0].ID = test.id
			if test.unreadable {
				event.Alerts = nil
			}
			m.NoteShown(event, false)
			seen, ok := m.find(event.UID)
			g.Expect(ok).To(BeTrue())
			g.Expect(seen.isCopy).To(Equal(test.want))
		})
	}
}

func TestAThirdCopyIsNoNewEvent(t *testing.T) {
	for _, name := range []string{"01a1fc76-5bd7-792d-a695-2a362506dd6e", v1alpha1.KeyedEventName("shop", "x")} {
		g := NewWithT(t)
		m := NewMemory(clocktesting.NewFakePassiveClock(testEpoch))
		first := namedEvent(name, 1)
		first.Alerts[0].ID = "1"
		first.ResourceVersion, first.Annotations = "2", map[string]string{v1alpha1.SettledAnnotation: "1/*"}
		m.NoteShown(first, false)
		m.NoteDeleted(first)
		for uid := 2; uid <= 3; uid++ {
			copied := namedEvent(name, uid)
			copied.Alerts[0].ID = "1"
			m.NoteShown(copied, false)
			isCopy, _, known := m.CopyState(copied.UID)
			g.Expect(known && isCopy).To(BeTrue(), "copy %d of %s", uid, name)
			m.NoteDeleted(copied)
		}
	}
}

func TestTheMemoryOfDeletedEventsIsBounded(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(testEpoch)
	m := NewMemory(clock)
	for i := range 3*maxDeletedNames + 10 {
		event := namedEvent(fmt.Sprint("event-", i), i)
		m.NoteShown(event, false)
		m.NoteDeleted(event)
		if i == maxDeletedNames {
			clock.SetTime(clock.Now().Add(time.Second))
		}
	}
	g.Expect(len(m.deleted) + len(m.older)).To(BeNumerically("<=", 2*maxDeletedNames))
	g.Expect(m.seen).To(BeEmpty())
	g.Expect(m.since).To(BeTemporally(">", testEpoch), "it does not claim to know the names that it has dropped")
	for range 2 {
		clock.SetTime(clock.Now().Add(replayWindow + time.Second))
		m.NoteDeleted(namedEvent("last", 1))
	}
	g.Expect(len(m.deleted) + len(m.older)).To(BeNumerically("<=", 2))
}

func TestAListAfterAGapShowsADeletionAndACreationAsOne(t *testing.T) {
	g := NewWithT(t)
	m := NewMemory(clocktesting.NewFakePassiveClock(testEpoch))
	const name = "01a1fc76-5bd7-792d-a695-2a362506dd6e"
	first, second := namedEvent(name, 1), namedEvent(name, 2)
	watch := informers.Handler(m.NoteShown, m.NoteDeleted)
	watch.OnAdd(first, true)
	watch.OnUpdate(first, second)
	g.Expect(m.IsDeleted(Ref{types.NamespacedName{Namespace: "team", Name: name}, "1"})).To(BeTrue())
	seen, ok := m.find("2")
	g.Expect(ok).To(BeTrue())
	g.Expect(seen.isCopy).To(BeTrue())
}

func TestWhatTheWatchHasShown(t *testing.T) {
	g, clock := NewWithT(t), clocktesting.NewFakePassiveClock(testEpoch)
	m := NewMemory(clock)
	event := namedEvent("by-hand", 1)
	g.Expect(m.HasShown(RefOf(event), testEpoch)).To(BeFalse())
	m.NoteShown(event, false)
	g.Expect(m.HasShown(RefOf(event), testEpoch)).To(BeTrue())
	clock.SetTime(testEpoch.Add(time.Second))
	m.NoteDeleted(event)
	g.Expect(m.HasShown(RefOf(event), testEpoch)).To(BeTrue(), "a list that began before may have it")
	g.Expect(m.HasShown(RefOf(event), testEpoch.Add(2*time.Second))).To(BeFalse(), "a later list shows that it is there")
	g.Expect(m.HasShown(RefOf(namedEvent("by-hand", 2)), testEpoch)).To(BeFalse())
}

// A transform of the cache makes a stub whole before the cache shows it so.
func TestTheMemoryKnowsAStubOnceTheWatchShowsItWhole(t *testing.T) {
	g, clock := NewWithT(t), clocktesting.NewFakePassiveClock(testEpoch)
	m := NewMemory(clock)
	m.Cached = NewBoundedCached(fair.Limit{All: 1, Share: 1}, fair.Limit{All: 1, Share: 1})
	_, err := m.Cached.Condense(namedEvent("takes-the-place", 3))
	g.Expect(err).NotTo(HaveOccurred())
	const name = "01a1fc76-5bd7-792d-a695-2a362506dd6e"
	m.NoteShown(namedEvent(name, 1), false)
	m.NoteDeleted(namedEvent(name, 1))
	stub := namedEvent(name, 2)
	_, err = m.Cached.Condense(stub)
	g.Expect(err).NotTo(HaveOccurred())
	m.NoteShown(stub, false)
	_, _, known := m.CopyState("2")
	g.Expect(known).To(BeFalse())
	g.Expect(m.HasShown(RefOf(stub), testEpoch)).To(BeFalse())
	g.Expect(m.HasStub("2")).To(BeTrue())

	clock.SetTime(testEpoch.Add(2 * replayWindow))
	m.NoteShown(namedEvent(name, 2), false)
	isCopy, _, known := m.CopyState("2")
	g.Expect(known).To(BeTrue())
	g.Expect(isCopy).To(BeTrue(), "it is the second copy that it was")
	g.Expect(m.HasShown(RefOf(stub), testEpoch)).To(BeTrue())
	g.Expect(m.HasStub("2")).To(BeFalse())
}

// TestWhatAFailedListShowedIsForgotten: the leader may release an AlertEvent before the next list.
func TestWhatAFailedListShowedIsForgotten(t *testing.T) {
	g := NewWithT(t)
	m := NewMemory(clocktesting.NewFakePassiveClock(testEpoch))
	shown, dropped, listed := namedEvent("a", 1), namedEvent("b", 2), namedEvent("c", 3)
	for _, event := range []*v1alpha1.AlertEvent{shown, dropped, listed} {
		event.Spec.Alerts = `[{"dedupKey":"k","status":"firing"}]`
		_, err := m.Cached.Condense(event)
		g.Expect(err).NotTo(HaveOccurred())
	}
	m.NoteShown(shown, false)
	m.Listed(&v1alpha1.AlertEvent{}, shown, dropped)
	g.Expect(m.Cached.IsWhole(shown)).To(BeTrue(), "its end will be shown")
	g.Expect(m.Cached.IsWhole(dropped)).To(BeFalse())
	g.Expect(m.Cached.IsWhole(listed)).To(BeTrue(), "it will be shown")
}

func TestWhichEventsWaitForAReplicaThatRemembersMore(t *testing.T) {
	const (
		serverMade = "01a1fc76-5bd7-792d-a695-2a362506dd6e"
		began      = time.Hour // of the memory, since the epoch
	)
	keyed := v1alpha1.KeyedEventName("shop", "x")
	for sentence, test := range map[string]struct {
		name             string
		received, stored time.Duration // since the epoch
		retry            bool
		ahead            time.Duration // of the replica's clock before the API server's
		untold           bool          // the API server has not told its time
		setBack          time.Duration // that time, since the receipt
		want             bool
	}{
		"a retry from before the memory":                  {name: serverMade, received: began - 5*time.Second, retry: true, want: true},
		"one that is stored when the memory is older":     {name: serverMade, received: began - time.Second, stored: began + 50*time.Second, retry: true, want: true},
		"a first attempt stored late":                     {name: serverMade, received: began - time.Second, stored: began + 50*time.Second, want: true},
		"a first attempt with a key, stored late":         {name: keyed, received: began - time.Second, stored: began + 50*time.Second, want: true},
		"a retry with a key":                              {name: keyed, received: began - 5*time.Second, retry: true, want: true},
		"a first attempt stored at once":                  {name: serverMade, received: began - 5*time.Second},
		"a retry of what was received since":              {name: serverMade, received: began + 2*time.Second, stored: began + 5*time.Second, retry: true},
		"one stored late that was received since":         {name: serverMade, received: began + 2*time.Second, stored: began + time.Minute},
		"a retry, while the API server's time is unknown": {name: serverMade, received: began + time.Hour, retry: true, untold: true, want: true},
		"a retry, by a clock that was set back":           {name: serverMade, received: began - 5*time.Second, retry: true, setBack: 20 * time.Second, want: true},
		"one that came long after, by such a clock":       {name: serverMade, received: began + time.Hour, retry: true, setBack: 20 * time.Second},
		"one made by hand":                                {name: "by-hand", stored: began, retry: true},
		"a retry, by a clock that is an hour ahead":       {name: serverMade, received: began - 5*time.Second, retry: true, ahead: time.Hour, want: true},
		"a retry, by a clock that is an hour behind":      {name: serverMade, received: began - 5*time.Second, retry: true, ahead: -time.Hour, want: true},
		"a later retry, by a clock that is an hour ahead": {name: serverMade, received: began + 2*time.Second, retry: true, ahead: time.Hour},
		"a later retry, by one that is an hour behind":    {name: serverMade, received: began + 2*time.Second, retry: true, ahead: -time.Hour},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			clock := clocktesting.NewFakePassiveClock(testEpoch.Add(began + test.ahead))
			m := NewMemory(clock)
			m.ServerTime = func() (time.Time, bool) { return clock.Now().Add(-test.ahead - test.setBack), !test.untold }
			stored := testEpoch.Add(max(test.stored, test.received))
			clock.SetTime(testEpoch.Add(max(test.stored, test.received, began) + test.ahead))
			event := namedEvent(test.name, 1)
			event.CreationTimestamp = metav1.NewTime(stored.Truncate(time.Second))
			event.Spec.ReceivedTime = v1alpha1.NewTimestamp(testEpoch.Add(test.received))
			if test.retry {
				event.Annotations = map[string]string{v1alpha1.RetryAnnotation: "true"}
			}
			m.NoteShown(event, false)
			_, until, known := m.CopyState(event.UID)
			g.Expect(known).To(BeTrue())
			if test.want {
				g.Expect(until).To(Equal(clock.Now().Add(CopyDoubt)), "another replica has this time from now on to delete it")
			} else {
				g.Expect(until).To(BeZero())
			}
		})
	}
}
