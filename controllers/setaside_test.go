package controllers

import (
	"math/bits"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestAnEventWhoseFoldIsRefusedIsSetAside(t *testing.T) {
	s := newSite(t)
	first := s.postFiring("disk")
	poison := s.postFiring("disk")
	last := s.postFiring("disk")
	refused := func() error {
		// The API server finds every status invalid that has the poisonous event in its ledger.
		if slices.Contains(s.inFold("disk"), poison.UID) {
			return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Incident").GroupKind(), "app", nil)
		}
		return nil
	}
	s.faults.beforeStatus = refused
	for range 12 {
		_, _ = s.reconcile("disk")
		s.clock.SetTime(s.clock.Now().Add(2 * writeInterval))
	}
	s.expectCounted("disk", first, last)
	s.release()
	s.Expect(s.eventNames()).To(ConsistOf(poison.Name), "it is kept")
	s.Expect(s.folder.told()).To(ContainElement(ContainSubstring("SetAside")))
	s.Expect(testutil.ToFloat64(eventsAside)).To(BeEquivalentTo(1))

	s.faults.beforeStatus = nil
	s.clock.SetTime(s.clock.Now().Add(asideTime))
	s.fold("disk")
	s.expectCounted("disk", first, poison, last)
	s.Expect(testutil.ToFloat64(eventsAside)).To(BeZero())
}

func TestTheEventAtFaultAmongManyIsFoundByHalves(t *testing.T) {
	g := NewWithT(t)
	book, key := newAsideBook(), types.NamespacedName{Name: "app"}
	var events []*v1alpha1.AlertEvent
	for i := range v1alpha1.MaxLedger {
		event := &v1alpha1.AlertEvent{}
		event.UID, event.ResourceVersion = types.UID(strconv.Itoa(i)), strconv.Itoa(i+1)
		events = append(events, event)
	}
	for at, poison := range events {
		left, tries := slices.Clone(events), 0
		var aside *v1alpha1.AlertEvent
		for ; aside == nil && tries < 100; tries++ {
			picked := book.pick(key, left)
			if slices.Contains(picked, poison) {
				aside, _ = book.refuse(key, picked, time.Now())
				continue
			}
			left = slices.DeleteFunc(left, func(event *v1alpha1.AlertEvent) bool { return slices.Contains(picked, event) })
		}
		g.Expect(aside).To(BeIdenticalTo(poison), "place %d", at)
		g.Expect(tries).To(BeNumerically("<=", asideAfter+2*bits.Len(v1alpha1.MaxLedger)), "place %d", at)
		left = slices.DeleteFunc(left, func(event *v1alpha1.AlertEvent) bool { return event == poison })
		g.Expect(book.pick(key, left)).To(HaveLen(len(left)), "the others go together")
		g.Expect(book.has(key, poison.UID, time.Now())).To(BeTrue())
		g.Expect(book.has(types.NamespacedName{Name: "other"}, poison.UID, time.Now())).To(BeFalse(),
			"its alerts of other Incidents are folded")
	}
}

func TestAFoldWithoutEventsThatIsRefusedIsTriedEverMoreSeldom(t *testing.T) {
	g := NewWithT(t)
	book, key := newAsideBook(), types.NamespacedName{Name: "app"}
	for range 2 * asideAfter {
		aside, closer := book.refuse(key, nil, time.Now()) // the time for autoResolveAfter has come, say
		g.Expect(aside).To(BeNil())
		g.Expect(closer).To(BeFalse())
	}
}

// inFold are the events that the next fold would take in.
func (s *site) inFold(dedupKey string) []types.UID {
	f, err := s.incidents.gather(s.ctx, s.keyOf(dedupKey))
	s.Expect(err).NotTo(HaveOccurred())
	var uids []types.UID
	for _, event := range f.events {
		uids = append(uids, event.UID)
	}
	return uids
}

func TestAFoldThatPanicsIsRefused(t *testing.T) {
	g := NewWithT(t)
	f := &facts{events: []*v1alpha1.AlertEvent{nil}, exists: func(string) bool { return true }}
	_, err := f.tryFold()
	g.Expect(isRefused(err)).To(BeTrue())
}
