package controllers

import (
	"math/bits"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func numberedEvents(n int) []*v1alpha1.AlertEvent {
	var events []*v1alpha1.AlertEvent
	for i := range n {
		event := &v1alpha1.AlertEvent{}
		event.UID, event.ResourceVersion = types.UID(strconv.Itoa(i)), strconv.Itoa(i+1)
		events = append(events, event)
	}
	return events
}

// search folds the events until none is left, and returns the culprits and the number of folds.
func (b *bisection) search(key types.NamespacedName, events []*v1alpha1.AlertEvent, isBad func(*v1alpha1.AlertEvent) bool) (
	culprits []*v1alpha1.AlertEvent, folds int,
) {
	for left := slices.Clone(events); len(left) > 0 && folds < 10_000; folds++ {
		picked := b.pick(key, left)
		if slices.ContainsFunc(picked, isBad) {
			if culprit, _ := b.failed(key, picked); culprit != nil {
				culprits = append(culprits, culprit)
				left = slices.DeleteFunc(left, func(event *v1alpha1.AlertEvent) bool { return event == culprit })
			}
			continue
		}
		left = slices.DeleteFunc(left, func(event *v1alpha1.AlertEvent) bool { return slices.Contains(picked, event) })
		if len(left) > 0 {
			b.folded(key)
		}
	}
	return culprits, folds
}

func TestTheEventsAtFaultAmongManyAreFoundByHalves(t *testing.T) {
	g := NewWithT(t)
	key := types.NamespacedName{Name: "app"}
	events := numberedEvents(v1alpha1.MaxLedger)
	for at, bad := range events {
		culprits, folds := newBisection().search(key, events, func(event *v1alpha1.AlertEvent) bool { return event == bad })
		g.Expect(culprits).To(HaveExactElements(bad), "place %d", at)
		g.Expect(folds).To(BeNumerically("<=", bisectAfter+4*bits.Len(v1alpha1.MaxLedger)), "place %d", at)
	}
	culprits, folds := newBisection().search(key, events, func(*v1alpha1.AlertEvent) bool { return true })
	g.Expect(culprits).To(HaveLen(len(events)))
	g.Expect(folds).To(BeNumerically("<=", bisectAfter+bits.Len(v1alpha1.MaxLedger)+len(events)), "one each")
}

func TestAFoldWithoutEventsThatIsRefusedIsTriedEverMoreSeldom(t *testing.T) {
	g := NewWithT(t)
	b, key := newBisection(), types.NamespacedName{Name: "app"}
	for range 2 * bisectAfter {
		culprit, narrowed := b.failed(key, nil) // the time for autoResolveAfter has come, say
		g.Expect(culprit).To(BeNil())
		g.Expect(narrowed).To(BeFalse())
	}
}

func TestQuarantinedEventsAreTriedOneByOneUntilOneSucceeds(t *testing.T) {
	g := NewWithT(t)
	b, key, now := newBisection(), types.NamespacedName{Name: "app"}, testEpoch
	events := numberedEvents(300)
	for i := range 3 {
		due := b.dueRetries(key, events, now)
		g.Expect(due).To(HaveExactElements(events[i]))
		b.retryFailed(key, due, now)
	}
	for _, n := range []int{1, 2, 4} {
		due := b.dueRetries(key, events, now)
		g.Expect(due).To(HaveLen(n))
		b.retrySucceeded(key, n)
	}
	b.retryFailed(key, b.dueRetries(key, events, now), now)
	g.Expect(b.dueRetries(key, events, now)).To(HaveExactElements(events[3]), "those that failed together are tried alone")
	wait, ok := b.nextRetry(events[:3], now.Add(time.Minute))
	g.Expect(ok).To(BeTrue())
	g.Expect(wait).To(Equal(quarantineRetry - time.Minute))
	_, ok = b.nextRetry(nil, now)
	g.Expect(ok).To(BeFalse())
	g.Expect(b.dueRetries(key, events[:3], now.Add(quarantineRetry))).To(HaveLen(1), "after ten minutes")
}

func TestAFoldThatPanicsIsRefused(t *testing.T) {
	g := NewWithT(t)
	o := &observed{exists: newEventList(0)}
	o.toFold = []*v1alpha1.AlertEvent{nil}
	_, err := o.decide()
	g.Expect(isRejected(err)).To(BeTrue())
}
