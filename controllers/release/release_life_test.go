package release

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// desk is a Releaser whose queue a test empties by hand.
type desk struct {
	*WithT
	*Releaser
	stored *storedEvents
	clock  *clocktesting.FakePassiveClock
}

func newDesk(t *testing.T, events ...*v1alpha1.AlertEvent) *desk {
	t.Helper()
	r, stored, clock := storingReleaser(events...)
	r.queue = workqueue.NewTypedRateLimitingQueue(requests.Backoff[queue.Ref]())
	t.Cleanup(r.queue.ShutDown)
	return &desk{NewWithT(t), r, stored, clock}
}

// work reconciles what is queued, and returns the names of it.
func (d *desk) work() (names []string) {
	for d.queue.Len() > 0 {
		ref, _ := d.queue.Get()
		names = append(names, ref.Name)
		_, err := d.Reconcile(context.Background(), ref)
		d.Expect(err).NotTo(HaveOccurred())
		d.queue.Done(ref)
	}
	return names
}

func (d *desk) pass(time time.Duration) { d.clock.SetTime(d.clock.Now().Add(time)) }

// marked returns an event with a mark that is older than it.
func marked(event *v1alpha1.AlertEvent, mark string) *v1alpha1.AlertEvent {
	event = event.DeepCopy()
	event.ResourceVersion, event.Annotations = "13", map[string]string{v1alpha1.SettledAnnotation: "12/" + mark}
	return event
}

func TestAnEventGoesWhenItIsSettledForAllItsIncidents(t *testing.T) {
	event := sharedEvent("event", "a", "b", "a")
	d := newDesk(t, event)
	d.Settle(event, "other")
	d.Expect(d.IsSettled(event, "a")).To(BeFalse())
	d.Settle(event, "a")
	d.Settle(event, "a")
	d.Expect(d.IsSettled(event, "a")).To(BeTrue())
	d.Expect(d.IsSettled(event, "b")).To(BeFalse())
	d.Expect(d.work()).To(BeEmpty())
	d.Tidy(t.Context())
	d.Expect(d.work()).To(BeEmpty(), "it is not due")
	d.Settle(event, "b")
	d.Expect(d.work()).To(Equal([]string{"event"}))
	d.Expect(d.stored.deleted).To(Equal([]string{"event"}))
	d.Expect(d.stored.patches).To(BeEmpty(), "an ordinary event has no mark")

	d.Settle(event, "b")
	d.Tidy(t.Context())
	d.Expect(d.work()).To(BeEmpty(), "it is deleted, though the cache shows it for a while")
	d.Expect(d.IsSettled(event, "a")).To(BeTrue(), "or it would be folded again")
	d.Forget(queue.RefOf(event))
	d.Expect(d.Refs()).To(BeEmpty())
	d.Expect(d.IsSettled(event, "a")).To(BeFalse())
}

func TestAnEventWithAKeyIsMarkedAndStays(t *testing.T) {
	event := sharedEvent(v1alpha1.KeyedEventName("app", "key"), "a", "b")
	d := newDesk(t, event)
	d.Settle(event, "a")
	d.Mark(event, "a")
	d.Expect(d.work()).To(HaveLen(1))
	d.Expect(d.stored.markOf(event)).To(Equal("12/a"), "an Incident waits")
	d.Expect(d.stored.patches).To(ConsistOf(And(ContainSubstring(`"uid":"1"`), ContainSubstring(`"resourceVersion":"12"`))),
		"another object of the name, or another version, is not marked")
	d.Settle(event, "b")
	d.Expect(d.work()).To(HaveLen(1))
	d.Expect(d.stored.markOf(event)).To(Equal("12/*"))
	d.pass(queue.KeyedLinger - time.Second)
	d.Tidy(t.Context())
	d.Expect(d.work()).To(BeEmpty())
	d.pass(time.Second)
	d.Tidy(t.Context())
	d.Expect(d.work()).To(HaveLen(1))
	d.Expect(d.stored.deleted).To(HaveLen(1))
	d.Expect(d.lingering.events.Sum()).To(BeZero())
	d.Expect(d.stored.patches).To(HaveLen(2))
}

func TestAnotherLeaderHasMarkedAnEvent(t *testing.T) {
	event := sharedEvent("event", "a", "b")
	t.Run("for some of its Incidents", func(t *testing.T) {
		d := newDesk(t, marked(event, "a"))
		d.NoteMark(t.Context(), event)
		d.Expect(d.Refs()).To(BeEmpty(), "without a mark, nothing is known")
		d.NoteMark(t.Context(), marked(event, "a"))
		d.Expect(d.IsSettled(event, "a")).To(BeTrue())
		d.Expect(d.IsSettled(event, "b")).To(BeFalse())
		d.pass(MarkPatience)
		d.Tidy(t.Context())
		d.Expect(d.work()).To(BeEmpty(), "the mark says all that there is")
		d.Settle(event, "b")
		d.Expect(d.work()).To(HaveLen(1))
		d.Expect(d.stored.deleted).To(HaveLen(1))
	})
	t.Run("for all of them, one after the other", func(t *testing.T) {
		d := newDesk(t, marked(event, "a,b"))
		d.Settle(event, "a")
		d.NoteMark(t.Context(), marked(event, "a,b"))
		d.Expect(d.work()).To(HaveLen(1))
		d.Expect(d.stored.deleted).To(HaveLen(1))
	})
	t.Run("for some, before this one settles the others", func(t *testing.T) {
		d := newDesk(t, marked(event, "a"))
		d.Settle(marked(event, "a"), "b")
		d.Expect(d.work()).To(HaveLen(1))
		d.Expect(d.stored.deleted).To(HaveLen(1))
	})
	t.Run("or a user, with a mark that is not believed", func(t *testing.T) {
		byUser := event.DeepCopy()
		byUser.Annotations = map[string]string{v1alpha1.SettledAnnotation: "12/a"}
		d := newDesk(t, byUser)
		d.Settle(byUser, "a")
		d.Mark(byUser, "a")
		d.Expect(d.work()).To(HaveLen(1))
		d.Expect(d.stored.patches).To(HaveLen(1), "it is believed once it is older than the object")
	})
	t.Run("since this one has read it", func(t *testing.T) {
		d := newDesk(t, marked(event, "*"))
		d.Settle(event, "a")
		d.Mark(event, "a")
		d.Expect(d.work()).To(HaveLen(1))
		d.Expect(d.stored.patches).To(BeEmpty())
		d.Expect(d.stored.markOf(event)).To(Equal("12/*"))
		d.pass(time.Hour)
		d.Tidy(t.Context())
		d.Expect(d.work()).To(BeEmpty(), "it says more than is wanted")
	})
	t.Run("for others than this one", func(t *testing.T) {
		d := newDesk(t, marked(event, "b"))
		d.Settle(event, "a")
		d.Mark(event, "a")
		d.Expect(d.work()).To(HaveLen(1))
		d.Expect(d.stored.markOf(event)).To(Equal("12/a,b"), "a mark only grows")
	})
}

func TestAMarkIsWrittenWhenItIsWanted(t *testing.T) {
	event, other := sharedEvent("event", "a", "b"), sharedEvent("other", "a", "c")
	other.UID = "2"
	d := newDesk(t, event, other)
	d.Mark(event, "a")
	d.Settle(event, "a")
	d.Mark(event, "b")
	d.Expect(d.work()).To(BeEmpty(), "its alerts are not settled")
	d.Settle(other, "a")
	ledger := []v1alpha1.LedgerEntry{{UID: "1"}, {UID: "2"}, {UID: "3"}}
	d.MarkKept(ledger, func(incident string) bool { return incident == "c" })
	d.Expect(d.work()).To(Equal([]string{"other"}), "its other Incident waits")
	d.Expect(d.stored.markOf(other)).To(Equal("12/a"))
	d.pass(MarkPatience - time.Millisecond)
	d.MarkKept(ledger, func(string) bool { return false })
	d.Expect(d.work()).To(BeEmpty())
	d.pass(time.Millisecond)
	d.Tidy(t.Context())
	d.Expect(d.work()).To(Equal([]string{"event"}), "a user may delete one of its Incidents")
	d.Expect(d.stored.markOf(event)).To(Equal("12/a"))
	d.Tidy(t.Context())
	d.Expect(d.work()).To(BeEmpty())
}

// Finalizers keep an event, or its deletion is rejected: a full ledger gets space by the mark.
func TestAnEventThatCannotBeDeletedIsMarked(t *testing.T) {
	ledger := []v1alpha1.LedgerEntry{{UID: "1"}}
	isBlocked := func(string) bool { return false }
	for sentence, rejection := range map[string]error{"finalizers keep it": nil, "its deletion is rejected": errors.New("rejected")} {
		t.Run(sentence, func(t *testing.T) {
			event := sharedEvent("event", "a", "b")
			d := newDesk(t, event)
			d.stored.undeletable = rejection
			work := func() {
				for d.queue.Len() > 0 {
					ref, _ := d.queue.Get()
					_, err := d.Reconcile(t.Context(), ref)
					d.queue.Done(ref)
					d.Expect(err != nil).To(Equal(rejection != nil))
				}
			}
			d.Settle(event, "a")
			d.Settle(event, "b")
			work()
			d.MarkKept(ledger, isBlocked)
			d.pass(deletePatience - time.Millisecond)
			d.MarkKept(ledger, isBlocked)
			d.Expect(d.stored.patches).To(BeEmpty(), "it may go at any moment")
			d.pass(time.Millisecond)
			d.MarkKept(ledger, isBlocked)
			work()
			d.Expect(d.stored.markOf(event)).To(Equal("12/a,b"), "not all: it still counts as one that waits")
			d.MarkKept(ledger, isBlocked)
			work()
			d.Expect(d.stored.patches).To(HaveLen(1))
		})
	}
	t.Run("but not while no Incident needs it", func(t *testing.T) {
		event := sharedEvent("event", "a")
		d := newDesk(t, event)
		d.Settle(event, "a")
		d.work()
		d.pass(time.Hour)
		d.Tidy(t.Context())
		d.work()
		d.Expect(d.stored.patches).To(BeEmpty())
	})
}

func TestADueEventIsDeletedBeforeItIsMarked(t *testing.T) {
	ledger, isBlocked := []v1alpha1.LedgerEntry{{UID: "1"}}, func(string) bool { return false }
	// wanted returns a desk of an event whose deletion has failed for long, so that an Incident wants the mark.
	wanted := func(t *testing.T) (*desk, *v1alpha1.AlertEvent) {
		t.Helper()
		event := sharedEvent("event", "a")
		d := newDesk(t, event)
		d.stored.failure = errors.New("away")
		d.Settle(event, "a")
		_, err := d.Reconcile(t.Context(), queue.RefOf(event))
		d.Expect(err).To(MatchError(d.stored.failure))
		d.pass(deletePatience)
		d.MarkKept(ledger, isBlocked)
		d.stored.failure = nil
		return d, event
	}
	t.Run("an outage is over", func(t *testing.T) {
		d, _ := wanted(t)
		d.Expect(d.work()).To(HaveLen(1))
		d.Expect(d.stored.deleted).To(HaveLen(1))
		d.Expect(d.stored.patches).To(BeEmpty())
	})
	t.Run("a policy rejects the mark", func(t *testing.T) {
		d, event := wanted(t)
		d.stored.unmarkable, d.stored.undeletable = errors.New("no mark"), errors.New("no deletion")
		_, err := d.Reconcile(t.Context(), queue.RefOf(event))
		d.Expect(err).To(And(MatchError(d.stored.unmarkable), MatchError(d.stored.undeletable)))
		d.stored.undeletable = nil
		d.Expect(d.work()).To(HaveLen(1))
		d.Expect(d.stored.deleted).To(HaveLen(1))
	})
	t.Run("a policy rejects the mark of one with a key", func(t *testing.T) {
		event := sharedEvent(v1alpha1.KeyedEventName("app", "key"), "a")
		d := newDesk(t, event)
		d.stored.unmarkable = errors.New("no mark")
		d.Settle(event, "a")
		_, err := d.Reconcile(t.Context(), queue.RefOf(event))
		d.Expect(err).To(MatchError(d.stored.unmarkable))
		d.pass(queue.KeyedLinger)
		d.Expect(d.work()).To(HaveLen(1))
		d.Expect(d.stored.deleted).To(HaveLen(1))
	})
	t.Run("the deletion hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, event := wanted(t)
			d.stored.hangs = true
			ctx, cancel := context.WithTimeout(t.Context(), 2*deleteTimeout)
			defer cancel()
			_, err := d.Reconcile(ctx, queue.RefOf(event))
			d.Expect(err).To(MatchError(context.DeadlineExceeded))
			d.Expect(ctx.Err()).NotTo(HaveOccurred())
			d.Expect(d.stored.markOf(event)).To(Equal("12/a"))
		})
	})
}

// TestAWishIsNotForgotten by a look at the ledger, nor by a write that is under way.
func TestAWishIsNotForgotten(t *testing.T) {
	event := sharedEvent("event", "a", "b", "c")
	d := newDesk(t, event)
	d.Settle(event, "a")
	d.Mark(event, "a")
	d.MarkKept([]v1alpha1.LedgerEntry{{UID: "1"}}, func(string) bool { return false })
	d.stored.during = func() {
		d.stored.during = nil
		d.Settle(event, "b")
	}
	d.Expect(d.work()).To(Equal([]string{"event", "event"}))
	d.Expect(d.stored.markOf(event)).To(Equal("12/a,b"))
}

func TestAnEventThatIsGoneIsForgotten(t *testing.T) {
	event := sharedEvent("event", "a", "b")
	another := event.DeepCopy()
	another.UID = "another"
	for sentence, stored := range map[string][]*v1alpha1.AlertEvent{"deleted": nil, "another object of the name": {another}} {
		t.Run(sentence, func(t *testing.T) {
			d := newDesk(t, stored...)
			d.Settle(event, "a")
			d.Mark(event, "a")
			d.Expect(d.work()).To(HaveLen(1))
			d.Expect(d.stored.patches).To(BeEmpty())
			d.Expect(d.Refs()).To(HaveLen(1), "the watch tells")
			d.stored.unread = errors.New("the cache has not synced")
			d.Tidy(t.Context())
			d.Expect(d.Refs()).To(HaveLen(1))
			d.stored.unread = nil
			d.Tidy(t.Context())
			d.Expect(d.Refs()).To(BeEmpty())
		})
	}
	t.Run("its deletion was seen", func(t *testing.T) {
		d := newDesk(t)
		d.memory.NoteShown(event, false)
		d.memory.NoteDeleted(event)
		d.Settle(event, "a")
		d.NoteMark(t.Context(), marked(event, "a"))
		d.Expect(d.Refs()).To(BeEmpty(), "a fold that began before may settle it")
	})
}

// denial is what the API server answers if an admission webhook denies a request with this code and reason.
func denial(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: `admission webhook "x" denied the request: no`,
	}}
}

func TestTheAPIServerDoesNotDoWhatIsAsked(t *testing.T) {
	conflict := apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("alertevents").GroupResource(), "event", errors.New("newer"))
	away := errors.New("away")
	for sentence, test := range map[string]struct {
		failure error
		fails   bool
		again   time.Duration
	}{
		"a conflict":       {conflict, false, conflictRetry},
		"it was deleted":   {errGone, false, 0},
		"it does not work": {away, true, 0},

		"a webhook says that there is a conflict": {denial(http.StatusConflict, metav1.StatusReasonConflict), true, 0},
		"a webhook says that it was deleted":      {denial(http.StatusNotFound, metav1.StatusReasonNotFound), true, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			event := sharedEvent("event", "a", "b")
			d := newDesk(t, event)
			d.Settle(event, "a")
			d.Mark(event, "a")
			d.stored.during = func() { d.stored.failure = test.failure }
			result, err := d.Reconcile(t.Context(), queue.RefOf(event))
			d.Expect(err != nil).To(Equal(test.fails), "%v", err)
			d.Expect(result.RequeueAfter).To(Equal(test.again))

			d.stored.during, d.stored.failure = nil, nil
			d.Settle(event, "b")
			d.stored.failure = test.failure
			_, err = d.Reconcile(t.Context(), queue.RefOf(event))
			d.Expect(err != nil).To(Equal(test.fails), "the deletion")
			due, _ := d.state(queue.RefOf(event))
			d.Expect(due).To(Equal(test.fails), "it is tried again")
		})
	}
	t.Run("a read fails", func(t *testing.T) {
		event := sharedEvent("event", "a", "b")
		d := newDesk(t, event)
		d.Settle(event, "a")
		d.Mark(event, "a")
		d.stored.failure = away
		_, err := d.Reconcile(t.Context(), queue.RefOf(event))
		d.Expect(err).To(MatchError(away))
	})
}

func TestARestoredEventIsDiscarded(t *testing.T) {
	event := sharedEvent("event", "a")
	event.Labels = map[string]string{v1alpha1.RestoreLabel: ""}
	d := newDesk(t, event)
	d.NoteMark(t.Context(), event)
	d.NoteMark(t.Context(), event)
	d.Expect(d.work()).To(Equal([]string{"event"}))
	d.Expect(d.stored.deleted).To(Equal([]string{"event"}))
	d.Expect(d.stored.patches).To(BeEmpty())
	d.NoteMark(t.Context(), event)
	d.Expect(d.work()).To(BeEmpty())

	d.Forget(queue.RefOf(event))
	d.memory.NoteShown(event, false)
	d.memory.NoteDeleted(event)
	d.NoteMark(t.Context(), event)
	d.Expect(d.Refs()).To(BeEmpty(), "its end was seen")
}

func TestTheLoopOfATermTidies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		event := sharedEvent(v1alpha1.KeyedEventName("app", "key"), "a")
		d := newDesk(t, event)
		d.queue = nil
		d.Settle(event, "a") // before the controller starts
		ctx, end := context.WithCancel(t.Context())
		q := workqueue.NewTypedRateLimitingQueue(requests.Backoff[queue.Ref]())
		d.Expect(d.start(ctx, q)).To(Succeed())
		synctest.Wait()
		d.Expect(d.work()).To(HaveLen(1))
		d.Expect(d.stored.markOf(event)).To(Equal("12/*"))
		d.pass(queue.KeyedLinger)
		time.Sleep(tidyInterval)
		synctest.Wait()
		d.Expect(d.work()).To(HaveLen(1))
		end()
		q.ShutDown()
		time.Sleep(time.Minute)
	})
}

// TestAnEarlyEventIsQueued at once: it makes place for others.
func TestAnEarlyEventIsQueued(t *testing.T) {
	d := newDesk(t)
	d.lingering.events.All, d.lingering.events.Share = 2, 1
	events := keyedEvents(d.Releaser, "app", 3, 0)
	for _, event := range events {
		d.stored.events[queue.RefOf(event).NamespacedName] = &metav1.PartialObjectMetadata{ObjectMeta: event.ObjectMeta}
		d.stored.events[queue.RefOf(event).NamespacedName].ResourceVersion = "12"
	}
	d.Expect(d.work()).To(HaveLen(3), "one is deleted, and the others are marked")
	d.Expect(d.stored.patches).To(HaveLen(2))
	d.Forget(queue.RefOf(events[0]))
	d.Tidy(t.Context())
	d.Expect(d.work()).To(BeEmpty())
	another := keyedEvents(d.Releaser, "other", 1, 0)[0]
	d.stored.events[queue.RefOf(another).NamespacedName] = &metav1.PartialObjectMetadata{ObjectMeta: another.ObjectMeta}
	d.stored.events[queue.RefOf(another).NamespacedName].ResourceVersion = "12"
	d.Expect(d.work()).To(HaveLen(2), "the oldest of those that have the most goes for another one")
	d.Expect(d.stored.deleted).To(HaveLen(2))
}
