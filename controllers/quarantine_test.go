package controllers

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// poison has the API server find every status of the key's Incident invalid that has one of these AlertEvents, or a
// quarantined copy of it, in its ledger; without any, every status.
func (s *site) poison(dedupKey string, events ...*v1alpha1.AlertEvent) {
	key := s.keyOf(dedupKey)
	bad := map[string]bool{}
	for _, event := range events {
		bad[event.Name] = true
		bad[v1alpha1.QuarantineName(string(event.UID), key.Name)] = true
	}
	s.faults.refuseStatus = func(incident *v1alpha1.Incident) error {
		isBad := func(entry v1alpha1.LedgerEntry) bool { return bad[entry.Name] }
		if incident.Name == key.Name && (len(bad) == 0 || slices.ContainsFunc(incident.Status.Ledger.Events, isBad)) {
			return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Incident").GroupKind(), incident.Name, nil)
		}
		return nil
	}
}

// until folds an Incident, and lets time pass, until done succeeds. All of it happens in this goroutine and by the site's clock,
// so the number of folds is bounded, not the time: a busy machine changes nothing.
func (s *site) until(folds int, foldOnce func(), done func() error) {
	err := done()
	for ; err != nil && folds > 0; folds-- {
		foldOnce()
		s.clock.SetTime(s.clock.Now().Add(2 * writeInterval))
		err = done()
	}
	s.Expect(err).NotTo(HaveOccurred())
}

// quarantineOf folds until the events are quarantined, and returns their copies. The search takes one fold for each event at fault,
// and some to begin with: see TestTheEventsAtFaultAmongManyAreFoundByHalves.
func (s *site) quarantineOf(dedupKey string, events ...*v1alpha1.AlertEvent) []*v1alpha1.AlertEvent {
	var copies []*v1alpha1.AlertEvent
	s.until(2*len(events)+50, func() { _, _ = s.reconcile(dedupKey) }, func() error {
		for len(copies) < len(events) { // what was found once is not read again: that would be thousands of requests
			moved, event := &v1alpha1.AlertEvent{}, events[len(copies)]
			key := types.NamespacedName{Namespace: s.namespace, Name: v1alpha1.QuarantineName(string(event.UID), s.keyOf(dedupKey).Name)}
			if err := s.live.Get(s.ctx, key, moved); err != nil {
				return err
			}
			if fold.IsUnconfirmed(moved.Labels) {
				return fmt.Errorf("%s is not confirmed", key.Name)
			}
			copies = append(copies, moved)
		}
		return nil
	})
	return copies
}

// heal lets the quarantined events of the Incident "disk" be tried again.
func (s *site) heal() {
	s.faults.refuseStatus = nil
	s.clock.SetTime(s.clock.Now().Add(quarantineRetry))
	for range 10 {
		s.fold("disk")
		s.release()
		s.clock.SetTime(s.clock.Now().Add(2 * writeInterval))
	}
}

func TestAnEventWhoseFoldIsRefusedIsQuarantined(t *testing.T) {
	s := newSite(t)
	first := s.postFiring("disk")
	bad := s.postFiring("disk")
	last := s.post(s.alert(v1alpha1.AlertResolved, "disk"))
	s.poison("disk", bad)
	moved := s.quarantineOf("disk", bad)[0]
	s.fold("disk")
	s.release()
	s.expectCounted("disk", first, last)
	s.Expect(s.incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
	s.Expect(s.eventNames()).To(ConsistOf(moved.Name), "the original is released")
	s.Expect(moved.Labels).To(HaveKeyWithValue(v1alpha1.QuarantineLabel, v1alpha1.QuarantineRejected))
	s.Expect(moved.Spec.Alerts).To(Equal(bad.Spec.Alerts))
	s.Expect(s.folder.told()).To(ContainElement(ContainSubstring("Quarantined")))

	s.Expect(s.fold("disk").RequeueAfter).To(BeNumerically("~", quarantineRetry, quarantineRetry/2), "it is tried later")
	s.heal()
	s.expectCounted("disk", first, bad, last)
	s.Expect(s.incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved), "it came before the resolve")
	s.Expect(s.eventNames()).To(BeEmpty())
}

func TestAnIncidentAcceptsAResolveBesideBatchesThatEachHoldAnUnfoldableAlert(t *testing.T) {
	s := newSite(t)
	var batches []*v1alpha1.AlertEvent
	for range v1alpha1.MaxLedger + 1 {
		batches = append(batches, s.post(s.alert(v1alpha1.AlertFiring, "good"), s.alert(v1alpha1.AlertFiring, "bad")))
	}
	resolve := s.post(s.alert(v1alpha1.AlertResolved, "good"))
	s.poison("bad")
	s.quarantineOf("bad", batches...)
	s.until(20, func() { s.fold("good"); s.release() }, func() error {
		var good v1alpha1.Incident
		err := s.live.Get(s.ctx, s.keyOf("good"), &good)
		if err == nil && good.Status.State != v1alpha1.IncidentResolved {
			err = errors.New("it is not resolved")
		}
		return err
	})
	s.expectCounted("good", append(slices.Clone(batches), resolve)...)

	s.faults.refuseStatus = nil
	later := s.postFiring("bad")
	s.fold("bad")
	s.expectCounted("bad", later)
	s.clock.SetTime(s.clock.Now().Add(quarantineRetry))
	s.until(50, func() { s.fold("bad"); s.release() }, func() error {
		s.Expect(len(s.incident("bad").Status.Ledger.Events)).To(BeNumerically("<=", v1alpha1.MaxLedger))
		if names := s.eventNames(); len(names) > 0 {
			return fmt.Errorf("%d AlertEvents are left", len(names))
		}
		return nil
	})
	s.expectCounted("bad", append(slices.Clone(batches), later)...)
}

func TestACrashDuringAQuarantine(t *testing.T) {
	crash := func() error { return errCrash }
	for sentence, point := range map[string]func(*faults){
		"before the copy is created":                     func(f *faults) { f.beforeCreate = crash },
		"after the copy is created":                      func(f *faults) { f.afterCreate = crash },
		"before it is confirmed":                         func(f *faults) { f.beforePatch = crash },
		"after it is confirmed, before anybody knows it": nil,
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			first := s.postFiring("disk")
			s.fold("disk")
			s.release()
			s.clock.SetTime(s.clock.Now().Add(2 * writeInterval))
			bad := s.post(s.alert(v1alpha1.AlertFiring, "disk"), s.alert(v1alpha1.AlertFiring, "cpu"))
			s.poison("disk", bad)
			if point == nil {
				s.quarantineOf("disk", bad)
			} else {
				point(s.faults)
				var err error
				s.until(50, func() { _, err = s.reconcile("disk") }, func() error {
					if errors.Is(err, errCrash) {
						return nil
					}
					return errors.New("it does not crash")
				})
			}
			s.release()
			s.Expect(s.eventNames()).To(ContainElement(bad.Name))

			s.folder = s.newFolder()
			s.poison("disk", bad)
			s.quarantineOf("disk", bad)
			s.fold("cpu")
			s.fold("disk")
			s.release()
			s.Expect(s.eventNames()).To(HaveLen(1), "the copy")

			s.folder = s.newFolder()
			s.heal()
			s.expectCounted("disk", first, bad)
			s.expectCounted("cpu", bad)
			s.Expect(s.eventNames()).To(BeEmpty())
		})
	}
}

func TestAQuarantinedEventCountsOnceWhateverBecomesOfTheOriginal(t *testing.T) {
	t.Run("the copy is folded and released while the original waits for another Incident", func(t *testing.T) {
		s := newSite(t)
		bad := s.post(s.alert(v1alpha1.AlertFiring, "disk"), s.alert(v1alpha1.AlertFiring, "cpu"))
		s.poison("disk", bad)
		s.quarantineOf("disk", bad)
		s.heal()
		s.Expect(s.eventNames()).To(ConsistOf(bad.Name))
		for range 2 {
			s.folder = s.newFolder()
			s.fold("disk")
			s.expectCounted("disk", bad)
		}
		s.fold("cpu")
		s.release()
		s.Expect(s.eventNames()).To(BeEmpty())
	})
	t.Run("a zombie makes the copy after the original was folded and released", func(t *testing.T) {
		s := newSite(t)
		event := s.postFiring("disk")
		zombie := s.newFolder()
		seen, err := zombie.incidents.observe(s.ctx, s.keyOf("disk"))
		s.Expect(err).NotTo(HaveOccurred())
		events := []*v1alpha1.AlertEvent{event}
		zombie.faults.beforeCreate = func() error { // it is asleep, just before the create
			s.fold("disk")
			s.release()
			for range fold.GoneEntries + 1 { // the ledger forgets the first
				s.clock.SetTime(s.clock.Now().Add(2 * writeInterval))
				events = append(events, s.postFiring("disk"))
				s.fold("disk")
				s.release()
			}
			return nil
		}
		s.Expect(zombie.incidents.quarantine(s.ctx, seen, event, errUnfoldable)).To(MatchError(errStale))
		s.Expect(s.eventNames()).To(HaveLen(1))

		s.folder = s.newFolder()
		s.heal()
		s.expectCounted("disk", events...)
		s.Expect(s.eventNames()).To(BeEmpty(), "the copy is of no use")
	})
	t.Run("a fold that began before the copy was made counts the original", func(t *testing.T) {
		s := newSite(t)
		event := s.post(s.alert(v1alpha1.AlertFiring, "disk"), s.alert(v1alpha1.AlertFiring, "cpu"))
		other := s.newFolder()
		seen, err := other.incidents.observe(s.ctx, s.keyOf("disk"))
		s.Expect(err).NotTo(HaveOccurred())
		s.faults.beforeStatus = func() error {
			s.faults.beforeStatus = nil
			return other.incidents.quarantine(s.ctx, seen, event, errUnfoldable)
		}
		_, err = s.reconcile("disk")
		s.Expect(err).NotTo(HaveOccurred())
		s.fold("cpu")
		s.release()
		s.Expect(s.eventNames()).To(HaveLen(1))
		s.folder = s.newFolder()
		s.heal()
		s.expectCounted("disk", event)
		s.Expect(s.eventNames()).To(BeEmpty())
	})
}

func TestAQuarantinedAlertMadeByHandKeepsItsPlaceAndItsID(t *testing.T) {
	s := newSite(t)
	s.postFiring("disk")
	s.fold("disk")
	s.release()
	before := s.incident("disk").Status.Ledger.Digest
	s.clock.SetTime(s.clock.Now().Add(2 * writeInterval))
	byHand := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "by-hand"},
		Spec: v1alpha1.AlertEventSpec{Alerts: []v1alpha1.Alert{
			{IncidentName: s.keyOf("cpu").Name, Status: v1alpha1.AlertAcknowledged},
			{IncidentName: s.keyOf("disk").Name, Status: v1alpha1.AlertAcknowledged, By: "alice"},
		}},
	}
	s.Expect(s.live.Create(s.ctx, byHand)).To(Succeed())
	s.poison("disk", byHand)
	moved := s.quarantineOf("disk", byHand)[0]
	s.Expect(moved.Spec.Alerts).To(HaveLen(1))
	s.Expect(moved.Spec.Alerts[0].ID).To(Equal(fmt.Sprintf("%s/1", byHand.UID)))
	s.heal()
	want := fold.ParseDigest(before)
	want.Add(fmt.Sprintf("%s/1", byHand.UID))
	s.Expect(s.incident("disk").Status.Ledger.Digest).To(Equal(want.String()))
}

func TestAnEventThatCannotBeMovedHoldsUpNoOther(t *testing.T) {
	s := newSite(t)
	bad := s.postFiring("disk")
	good := s.postFiring("disk")
	s.poison("disk", bad)
	s.faults.beforeCreate = func() error {
		return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("alertevents").GroupResource(), "copy", errCrash)
	}
	s.Expect(s.live.Create(s.ctx, &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.keyOf("disk").Name},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: integrationName, DedupKey: "disk"},
	})).To(Succeed())
	for range 12 {
		_, _ = s.reconcile("disk")
		s.clock.SetTime(s.clock.Now().Add(2 * writeInterval))
	}
	s.expectCounted("disk", good)
	s.release()
	s.Expect(s.eventNames()).To(ConsistOf(bad.Name))
	s.Expect(s.folder.told()).To(ContainElement(ContainSubstring("QuarantineFailed")))

	s.faults.beforeCreate = nil
	s.heal()
	s.expectCounted("disk", bad, good)
	s.Expect(s.eventNames()).To(BeEmpty())
}

func TestWhatATenantWritesIntoAQuarantinedEvent(t *testing.T) {
	uid := "0b7ac5e0-6f0f-4f6e-9d5b-0b7ac5e06f0f"
	event := func(name, annotation, version string) *v1alpha1.AlertEvent {
		return &v1alpha1.AlertEvent{
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version,
				Annotations: map[string]string{v1alpha1.QuarantineOriginAnnotation: annotation}},
			Spec: v1alpha1.AlertEventSpec{Alerts: []v1alpha1.Alert{{IncidentName: "incident"}}},
		}
	}
	name := v1alpha1.QuarantineName(uid, "incident")
	for sentence, test := range map[string]struct {
		event   *v1alpha1.AlertEvent
		isMoved bool
		version string
	}{
		"a copy stands at its origin's place":    {event(name, uid+"/90/0/by-hand", "100"), true, "90"},
		"a version that is to come":              {event(name, uid+"/9999999/0/by-hand", "100"), true, "100"},
		"no version at all":                      {event(name, uid+"/x/0/by-hand", "100"), true, "100"},
		"the name of another UID":                {event(name, "other/90/0/by-hand", "100"), false, "100"},
		"an ordinary name":                       {event("by-hand", uid+"/90/0/by-hand", "100"), false, "100"},
		"the annotation is gone":                 {event(name, "", "100"), false, "100"},
		"the name of the copy for another thing": {event(v1alpha1.QuarantineName(uid, "other"), uid+"/90/0/x", "100"), false, "100"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			_, ok := fold.OriginOf(test.event)
			g.Expect(ok).To(Equal(test.isMoved))
			g.Expect(fold.CommitVersion(test.event)).To(Equal(test.version))
		})
	}
}

func TestAQuarantineLabelThatSomebodyRemovesLosesNothing(t *testing.T) {
	s := newSite(t)
	first := s.postFiring("disk")
	s.fold("disk")
	s.release()
	s.clock.SetTime(s.clock.Now().Add(2 * writeInterval))
	bad := s.postFiring("disk")
	s.poison("disk", bad)
	moved := s.quarantineOf("disk", bad)[0]
	s.release()
	s.Expect(s.live.Patch(s.ctx, moved, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`)))).To(Succeed())
	s.folder = s.newFolder()
	s.heal()
	s.expectCounted("disk", first, bad)
	s.Expect(s.eventNames()).To(BeEmpty())
}
