package incident

import (
	"fmt"
	"math"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/release"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// pass lets time pass.
func (s *site) pass(time time.Duration) { s.Clock.SetTime(s.Clock.Now().Add(time)) }

// mark returns the value of an AlertEvent's mark, empty without one.
func (s *site) mark(event *v1alpha1.AlertEvent) string {
	var stored v1alpha1.AlertEvent
	s.Expect(s.Live.Get(s.Ctx, client.ObjectKeyFromObject(event), &stored)).To(Succeed())
	return stored.Annotations[v1alpha1.SettledAnnotation]
}

func TestAnIncidentThatCannotBeCreatedHoldsUpNoOther(t *testing.T) {
	for sentence, test := range map[string]struct{ words, reason string }{
		"a quota":   {"exceeded quota: few, requested: count/incidents.tocsin.dev=1, used: 1, limited: 1", v1alpha1.ReasonQuotaExceeded},
		"a webhook": {`admission webhook "validation.gatekeeper.sh" denied the request: no`, v1alpha1.ReasonIncidentRejected},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			integration := s.Integrate(nil)
			events := []*v1alpha1.AlertEvent{s.PostFiring("known")}
			s.fold("known")
			s.release()
			s.faults.beforeCreate = func() error { return forbidden(test.words) }
			for i := range v1alpha1.MaxLedger + 10 {
				events = append(events, s.Post(s.Alert(v1alpha1.AlertFiring, "known"), s.Alert(v1alpha1.AlertFiring, fmt.Sprint("new-", i%5))))
			}
			events = append(events, s.Post(s.Alert(v1alpha1.AlertResolved, "known")))
			for range 5 {
				s.pass(2 * time.Second)
				for i := range 5 {
					_, err := s.reconcile(fmt.Sprint("new-", i))
					s.Expect(err).NotTo(HaveOccurred(), "it is no error that is logged again and again")
				}
				_, err := s.reconcile("known")
				s.Expect(err).NotTo(HaveOccurred())
				s.release()
			}
			s.Expect(s.Incident("known").Status.State).To(Equal(v1alpha1.IncidentResolved), "ten seconds later")
			s.ExpectCounted("known", events...)
			s.Expect(s.foldedCondition(integration)).To(Equal("False " + test.reason))

			s.restart()
			s.faults.beforeCreate = nil
			s.pass(maxBlockedRetry)
			for _, key := range []string{"known", "new-0", "new-1", "new-2", "new-3", "new-4"} {
				s.fold(key)
			}
			s.release()
			s.Expect(s.EventNames()).To(BeEmpty())
			s.ExpectCounted("known", events...)
			s.ExpectCounted("new-1", events...)
			s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"))
		})
	}
}

// A namespace may have no further Incident. A batch resolves its only one, and opens a new one.
func TestABatchThatMakesTheSpaceThatItNeeds(t *testing.T) {
	s := newSite(t)
	s.incidents.counts = &listedCounts{site: s, incidents: 1, bytes: math.MaxInt64}
	s.PostFiring("old")
	s.fold("old")
	s.release()
	s.pass(2 * time.Second)
	batch := s.Post(s.Alert(v1alpha1.AlertResolved, "old"), s.Alert(v1alpha1.AlertFiring, "new"))
	_, err := s.reconcile("new")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.IncidentNames()).To(ConsistOf(s.KeyOf("old").Name), "the limit")
	s.fold("old")
	s.pass(maxBlockedRetry)
	s.fold("new")
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty())
	s.ExpectCounted("new", batch)
}

func TestKeyedEventsFillNoLedger(t *testing.T) {
	s := newSite(t)
	var events []*v1alpha1.AlertEvent
	for i := range 2*v1alpha1.MaxLedger + 10 {
		name := v1alpha1.KeyedEventName(testsite.Integration, fmt.Sprintf("delivery-%d", i))
		events = append(events, s.PostAs(name, s.Alert(v1alpha1.AlertFiring, "disk")))
	}
	for range 3 {
		s.fold("disk")
		s.release()
		s.pass(2 * time.Second)
	}
	s.ExpectCounted("disk", events...)
	s.Expect(s.EventNames()).To(HaveLen(len(events)), "none goes early")
	s.Expect(s.mark(events[0])).To(Equal(events[0].ResourceVersion + "/*"))
	s.restart()
	events = append(events, s.PostFiring("disk"))
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.Ledger.Events).To(HaveLen(1))
	s.ExpectCounted("disk", events...)
	s.watch()
	s.pass(queue.KeyedLinger)
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty(), "the marks tell another leader what to release")
}

func TestADeletedIncidentDoesNotComeBack(t *testing.T) {
	t.Run("by an AlertEvent that stays for its key", func(t *testing.T) {
		s := newSite(t)
		s.PostAs(v1alpha1.KeyedEventName(testsite.Integration, "delivery-1"), s.Alert(v1alpha1.AlertFiring, "disk"))
		s.fold("disk")
		s.release()
		s.deleteByUser("disk")
		s.pass(5 * time.Minute)
		s.restart()
		s.fold("disk")
		s.Expect(s.IncidentNames()).To(BeEmpty())
	})
	t.Run("by one that waits for another Incident", func(t *testing.T) {
		s := newSite(t)
		event := s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertFiring, "cpu"))
		s.fold("disk")
		s.deleteByUser("disk")
		s.Expect(s.mark(event)).To(Equal(event.ResourceVersion + "/" + s.KeyOf("disk").Name))
		s.expectOnlyCPU()
	})
}

// The cache does not show that a user deletes an Incident which is Resolved.
func TestADeletedResolvedIncidentDoesNotComeBack(t *testing.T) {
	s := newSite(t)
	event := s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertFiring, "cpu"))
	s.fold("disk")
	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.fold("disk")
	s.release()
	s.pass(2 * release.MarkPatience)
	s.release() // which finds that it has waited for long
	s.release()
	s.Expect(s.mark(event)).To(Equal(event.ResourceVersion+"/"+s.KeyOf("disk").Name), "it has waited long for the other Incident")
	s.deleteByUser("disk")
	s.expectOnlyCPU()
}

// expectOnlyCPU has another process fold "disk", which is deleted, and "cpu".
func (s *site) expectOnlyCPU() {
	s.restart()
	s.fold("disk")
	s.fold("cpu")
	s.release()
	s.Expect(s.IncidentNames()).To(ConsistOf(s.KeyOf("cpu").Name))
	s.Expect(s.EventNames()).To(BeEmpty())
}

func TestAnIncidentThatIsBeingDeletedTakesNoAlerts(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(nil)
	both := s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertFiring, "cpu"))
	s.fold("disk")
	incident := s.Incident("disk")
	incident.Finalizers = []string{"example.com/keep"}
	s.Expect(s.Live.Update(s.Ctx, incident)).To(Succeed())
	s.Expect(s.Live.Delete(s.Ctx, incident)).To(Succeed())
	s.pass(3 * time.Second)
	after := s.PostFiring("disk")
	s.restart() // only the ledger tells that the first one is folded
	s.fold("disk")
	s.release()
	s.Expect(s.EventNames()).To(ContainElement(after.Name))
	s.Expect(s.mark(both)).To(HaveSuffix("/" + s.KeyOf("disk").Name))
	s.Expect(s.foldedCondition(integration)).To(Equal("False IncidentTerminating"))

	incident = s.Incident("disk")
	s.Expect(incident.Status.AlertCount).To(BeEquivalentTo(1))
	incident.Finalizers = nil
	s.Expect(s.Live.Update(s.Ctx, incident)).To(Succeed())
	s.incidents.noteGone(s.Ctx, incident)
	s.fold("disk")
	s.ExpectCounted("disk", after)
	s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"))
}

func TestTwoLeadersMarkOneEvent(t *testing.T) {
	s := newSite(t)
	event := s.Post(s.Alert(v1alpha1.AlertFiring, "a"), s.Alert(v1alpha1.AlertFiring, "b"), s.Alert(v1alpha1.AlertFiring, "c"))
	first, second := s.folder, s.newFolder()
	s.fold("a")
	s.folder = second
	s.fold("b")
	second.faults.beforePatch = func() error { // between the read and the write of the mark
		second.faults.beforePatch = nil
		s.folder = first
		s.deleteByUser("a")
		s.folder = second
		return nil
	}
	s.deleteByUser("b")
	s.release()
	mark := queue.Mark{ResourceVersion: event.ResourceVersion}
	mark = mark.With([]string{s.KeyOf("a").Name, s.KeyOf("b").Name})
	s.Expect(s.mark(event)).To(Equal(mark.String()))
	s.restart()
	for _, key := range []string{"a", "b", "c"} {
		s.fold(key)
	}
	s.release()
	s.Expect(s.IncidentNames()).To(ConsistOf(s.KeyOf("c").Name))
	s.Expect(s.EventNames()).To(BeEmpty())
}

func TestAnUpdateOfTheMetadataDoesNotMoveAnEvent(t *testing.T) {
	annotate := func(s *site, event *v1alpha1.AlertEvent) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"policy":"checked"}}}`))
		s.Expect(s.Live.Patch(s.Ctx, event.DeepCopy(), patch)).To(Succeed())
		s.watch()
	}
	t.Run("that waits to be folded", func(t *testing.T) {
		s := newSite(t)
		firing := s.PostFiring("disk")
		resolve := s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
		s.watch()
		annotate(s, firing)
		s.fold("disk")
		s.ExpectCounted("disk", firing, resolve)
		s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("that is marked", func(t *testing.T) {
		s := newSite(t)
		both := s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertFiring, "cpu"))
		resolve := s.Post(s.Alert(v1alpha1.AlertResolved, "cpu"))
		s.fold("disk")
		s.watch()
		annotate(s, both)
		s.deleteByUser("disk")
		annotate(s, both)
		s.restart() // whose watch sees it under its new resourceVersion
		s.fold("cpu")
		s.ExpectCounted("cpu", both, resolve)
		s.Expect(s.Incident("cpu").Status.State).To(Equal(v1alpha1.IncidentResolved))
	})
}

func TestWhatMayComeBeforeAnEventInCommitOrder(t *testing.T) {
	r := &reconciler{Options: Options{Memory: queue.NewMemory(clocktesting.NewFakePassiveClock(testEpoch))}}
	event := &v1alpha1.AlertEvent{}
	event.Namespace, event.Name, event.UID = "team", "resolve", "1"
	event.ResourceVersion, event.CreationTimestamp = "110", metav1.NewTime(testEpoch.Add(1500*time.Millisecond))
	for sentence, test := range map[string]struct {
		version string
		created time.Duration
		want    bool
	}{
		"an older one": {"100", 0, true},
		"an older one whose metadata was updated": {"120", 0, true},
		"a newer one": {"120", 2 * time.Second, false},
		"a newer one of the same second, as times go":     {"120", time.Second, false},
		"an older one, by a clock that was set back then": {"100", time.Hour, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			stored := &storedEvent{resourceVersion: test.version, created: metav1.NewTime(testEpoch.Add(test.created))}
			NewWithT(t).Expect(r.isOlder(stored, event)).To(Equal(test.want))
		})
	}
}

// TestAMarkIsHeededThatOnlyTheCacheShows has an AlertEvent marked that the cache hid when the quorum list began, so that the list
// does not know its mark, and that the cache shows now, before the release has seen it.
func TestAMarkIsHeededThatOnlyTheCacheShows(t *testing.T) {
	s := newSite(t)
	event := s.PostFiring("disk")
	key := s.KeyOf("disk")
	mark := queue.Mark{ResourceVersion: event.ResourceVersion, Incidents: []string{key.Name}}
	event.Annotations = map[string]string{v1alpha1.SettledAnnotation: mark.String()}
	s.Expect(s.Live.Update(s.Ctx, event)).To(Succeed())

	listed := newEventList(0)
	listed.addHidden(event)
	shown, err := replica.EventsOf(s.Ctx, s.cache, key)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(shown).To(HaveLen(1))
	sorted := s.incidents.classify(&facts{key: key, list: listed}, shown)
	s.Expect(sorted.toFold).To(BeEmpty())
	s.Expect(sorted.settled).To(Equal(shown))
}

// TestAlertsThatWaitForABlockedIncidentLeaveTheLedgerOfAnother has batches for two Incidents fill more than half a ledger.
func TestAlertsThatWaitForABlockedIncidentLeaveTheLedgerOfAnother(t *testing.T) {
	for sentence, isBlocked := range map[string]bool{
		"the other Incident cannot be created": true,
		"the other Incident is folded soon":    false,
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			var events []*v1alpha1.AlertEvent
			for range v1alpha1.MaxLedger/2 + 1 {
				events = append(events, s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertFiring, "other")))
			}
			if isBlocked {
				s.faults.refuseCreate = func(object client.Object) error {
					if object.GetName() == s.KeyOf("other").Name {
						return forbidden(`admission webhook "x" denied the request: no`)
					}
					return nil
				}
				s.fold("other")
			}
			s.fold("disk")
			s.ExpectCounted("disk", events...)
			s.release()
			for _, event := range events {
				s.Expect(s.mark(event) != "").To(Equal(isBlocked))
			}
		})
	}
}
