package incident

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// TestAnEventWhoseEndTheWatchHasLostCreatesFewIncidents has the cache show an AlertEvent that is gone, and no Incident.
func TestAnEventWhoseEndTheWatchHasLostCreatesFewIncidents(t *testing.T) {
	s := newSite(t)
	gone := s.PostFiring("disk")
	s.watch()
	s.Expect(s.Live.Delete(s.Ctx, gone)).To(Succeed())
	s.cache.Reader = &ghostReader{Reader: s.Live, ghost: gone}
	created := 0
	s.faults.afterCreate = func() error { created++; return nil }
	s.Expect(s.fold("disk").RequeueAfter).To(BeNumerically(">", vanishedMemory), "in case the list was wrong")
	for range 2 {
		s.Expect(s.fold("disk").RequeueAfter).To(BeZero())
	}
	s.Expect(created).To(Equal(1))
	s.Expect(s.IncidentNames()).To(BeEmpty())

	again := s.PostFiring("disk")
	s.fold("disk")
	s.Expect(created).To(Equal(2), "what is stored does not wait")
	s.ExpectCounted("disk", again)
}

// TestAnEventWhoseEndTheWatchHasLostDeletesNoHistory has the cache show an AlertEvent that is gone, of a Resolved Incident.
func TestAnEventWhoseEndTheWatchHasLostDeletesNoHistory(t *testing.T) {
	s := newSite(t)
	s.resolved("disk")
	s.release()
	s.pass(time.Minute)
	gone := s.PostFiring("disk")
	s.watch()
	s.Expect(s.Live.Delete(s.Ctx, gone)).To(Succeed())
	s.cache.Reader = &ghostReader{Reader: s.Live, ghost: gone}
	for range 3 {
		s.fold("disk")
		s.pass(writeInterval)
	}
	s.Expect(s.IncidentNames()).To(ConsistOf(s.KeyOf("disk").Name))
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
}

func TestAStoredEventIsFoldedThoughAListLackedIt(t *testing.T) {
	s := newSite(t)
	event := s.PostFiring("disk")
	s.incidents.vanished.Add(vanished{event.UID, s.KeyOf("disk").Name}, nil, vanishedMemory)
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(BeEmpty())
	s.pass(vanishedMemory + writeInterval)
	s.fold("disk")
	s.ExpectCounted("disk", event)
}
