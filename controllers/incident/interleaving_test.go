package incident

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
)

// pausedReader shows the AlertEvents that existed when the watch stopped.
type pausedReader struct {
	client.Reader
	shown *v1alpha1.AlertEventList
}

// List implements client.Reader.
func (r *pausedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if events, ok := list.(*v1alpha1.AlertEventList); ok {
		r.shown.DeepCopyInto(events)
		return nil
	}
	return r.Reader.List(ctx, list, opts...)
}

// pause stops the watches of a folder's cache. It shows what there is now, and of the Incident this version; nil: none.
func (s *site) pause(f *folder, key string, incident *v1alpha1.Incident) {
	shown := &v1alpha1.AlertEventList{}
	s.Expect(s.Live.List(s.Ctx, shown, client.InNamespace(s.Namespace))).To(Succeed())
	f.cache.Reader, f.cache.frozen[s.KeyOf(key)] = &pausedReader{f.cache.Reader, shown}, incident
}

// as does something in the place of a folder.
func (s *site) as(f *folder, do func()) {
	own := s.folder
	s.folder = f
	do()
	s.folder = own
}

// act has a leader do all that it can for the Incident "disk".
func (s *site) act() {
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
	s.fold("disk")
	s.release()
}

// cached returns an Incident as a cache has it; nil if there is none.
func (s *site) cached(key string) *v1alpha1.Incident {
	incident := &v1alpha1.Incident{}
	err := s.Live.Get(s.Ctx, s.KeyOf(key), incident)
	if s.Expect(client.IgnoreNotFound(err)).To(Succeed()); err != nil {
		return nil
	}
	_, err = clustercache.Condense(incident)
	s.Expect(err).NotTo(HaveOccurred())
	return incident
}

// interleaving is a fold of a leader that does not know yet that it is none, and what the watch of the other one still hides.
type interleaving struct {
	first, second v1alpha1.AlertStatus // of two alerts
	stands        string               // how far the other leader was when the watches of the former one stopped
	hides         bool                 // the other leader's watch does not show the second alert at first
	another       bool                 // a third alert comes right before the other leader acts
}

// TestAnotherLeaderActsRightBeforeARead has another leader do all that it can right before each read from the quorum of a former one,
// in turn: whatever that one has read before, it loses no alert, counts none twice, and undoes nothing.
func TestAnotherLeaderActsRightBeforeARead(t *testing.T) {
	firing, resolved := v1alpha1.AlertFiring, v1alpha1.AlertResolved
	for _, stands := range []string{"nothing done", "created", "folded", "released"} {
		for _, statuses := range [][2]v1alpha1.AlertStatus{{firing, firing}, {firing, resolved}} {
			for _, hides := range []bool{false, true} {
				i := interleaving{statuses[0], statuses[1], stands, hides, statuses[1] == resolved}
				sentence := fmt.Sprintf("%s, then %s; the other leader had %s; it does not see the second alert at first: %t",
					i.first, i.second, i.stands, i.hides)
				t.Run(sentence, func(t *testing.T) {
					for n, reads := 0, 1; n < reads; n++ {
						reads = i.play(newSite(t), n)
					}
				})
			}
		}
	}
}

// play has the other leader act before the n-th read, and returns how many there were.
func (i *interleaving) play(s *site, n int) (reads int) {
	former, other := s.folder, s.newFolder()
	events := []*v1alpha1.AlertEvent{s.Post(s.Alert(i.first, "disk"))}
	s.folder = other
	switch i.stands {
	case "created":
		s.faults.beforeStatus = func() error { return errCrash }
		_, err := s.reconcile("disk")
		s.Expect(err).To(MatchError(errCrash))
		s.faults.beforeStatus = nil
	case "folded":
		s.fold("disk")
	case "released":
		s.act()
	}
	events = append(events, s.Post(s.Alert(i.second, "disk")))
	s.pause(former, "disk", s.cached("disk"))
	other.cache.hidden[events[1].UID] = i.hides
	former.faults.beforeRead = func() {
		if reads++; reads != n+1 {
			return
		}
		if i.another {
			events = append(events, s.Post(s.Alert(v1alpha1.AlertFiring, "disk")))
			other.cache.hidden[events[2].UID] = i.hides
		}
		s.as(other, func() { s.act() })
	}
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
	s.as(former, func() {
		for range 2 { // a retry too
			_, err := s.reconcile("disk")
			s.Expect(err).NotTo(HaveOccurred())
			for _, ref := range s.releases.Refs() {
				_, err := s.releases.Reconcile(s.Ctx, ref)
				s.Expect(err).NotTo(HaveOccurred())
			}
			s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
		}
	})
	clear(other.cache.hidden)
	for range 2 {
		s.act()
	}
	s.Expect(s.EventNames()).To(BeEmpty(), "before read %d of %d", n, reads)
	s.ExpectCounted("disk", events...)
	want := v1alpha1.IncidentOpen
	if i.second == v1alpha1.AlertResolved && len(events) == 2 {
		want = v1alpha1.IncidentResolved
	}
	s.Expect(s.Incident("disk").Status.State).To(Equal(want), "before read %d of %d", n, reads)
	return reads
}

// TestAnotherLeaderReopensAnIncidentThatIsToGo right before each read of a former leader to whom its retention is over.
func TestAnotherLeaderReopensAnIncidentThatIsToGo(t *testing.T) {
	for n, reads := 0, 1; n < reads; n++ {
		s := newSite(t)
		s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Retention = &metav1.Duration{Duration: time.Hour} })
		former, other := s.folder, s.newFolder()
		events := []*v1alpha1.AlertEvent{s.PostFiring("disk"), s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))}
		s.folder = other
		s.act()
		s.Clock.SetTime(s.Clock.Now().Add(time.Hour + fold.DefaultRetention))
		s.pause(former, "disk", nil)
		reads = 0
		former.faults.beforeRead = func() {
			if reads++; reads == n+1 {
				events = append(events, s.PostFiring("disk"))
				s.as(other, func() { s.act() })
			}
		}
		s.as(former, func() {
			_, err := s.reconcile("disk")
			s.Expect(err).NotTo(HaveOccurred())
		})
		s.Expect(len(events)).To(Equal(3))
		s.Expect(s.IncidentNames()).To(HaveLen(1), "before read %d of %d", n, reads)
		s.ExpectCounted("disk", events...)
		s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
	}
}

// TestAnotherLeaderOpensAnIncidentThatAFoldLacks has a resolve match nothing, by a list that is older than the Incident.
func TestAnotherLeaderOpensAnIncidentThatAFoldLacks(t *testing.T) {
	s := newSite(t)
	resolve := s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.cache.frozen[s.KeyOf("disk")] = nil
	s.afterList = func() {
		s.afterList = nil
		s.Expect(s.Live.Create(s.Ctx, &v1alpha1.Incident{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.KeyOf("disk").Name},
			Spec:       v1alpha1.IncidentSpec{IntegrationName: testsite.Integration, DedupKey: "disk"},
		})).To(Succeed())
	}
	result, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(staleRetry))
	s.Expect(s.incidents.releases.IsSettled(resolve, s.KeyOf("disk").Name)).To(BeFalse())
}
