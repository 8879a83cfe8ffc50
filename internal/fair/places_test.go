package fair

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// queued has a key wait for a place, and returns the place once it has one.
func queued(t *testing.T, p *Places, key string) <-chan *Place {
	t.Helper()
	entered := make(chan *Place, 1)
	go func() {
		if place, err := p.Enter(t.Context(), key, time.Hour); err == nil {
			entered <- place
		}
	}()
	synctest.Wait()
	return entered
}

func TestKeysTakeTurnsAtPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		p := NewPlaces(1)
		first := <-queued(t, p, "storm")
		var storm []<-chan *Place
		for range 50 {
			storm = append(storm, queued(t, p, "storm"))
		}
		other := queued(t, p, "quiet")
		g.Expect(other).To(BeEmpty())
		first.Leave()
		synctest.Wait()
		g.Expect(other).To(HaveLen(1), "after one turn of the storm")
		g.Expect(storm[0]).To(BeEmpty())
		(<-other).Leave()
		for _, next := range storm {
			(<-next).Leave() // in order
		}
		g.Expect(p.turns.IsEmpty()).To(BeTrue())
	})
}

func TestAPauseLetsOnlyOtherKeysGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		p := NewPlaces(1)
		long := <-queued(t, p, "storm")
		next := queued(t, p, "storm")
		long.Pause()
		g.Expect(next).To(BeEmpty(), "nobody else waits")
		other := queued(t, p, "quiet")
		paused := make(chan bool)
		go func() {
			long.Pause()
			close(paused)
		}()
		(<-other).Leave()
		<-paused
		g.Expect(next).To(BeEmpty(), "it goes on before the others of its key")
		long.Leave()
		(<-next).Leave()
		g.Expect(p.turns.IsEmpty()).To(BeTrue())
	})
}

func TestWhoWaitsForTooLongHasNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		p := NewPlaces(1)
		held := <-queued(t, p, "a")
		began := time.Now()
		_, err := p.Enter(t.Context(), "b", time.Second)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(time.Since(began)).To(Equal(time.Second))
		held.Leave()
		place, err := p.Enter(t.Context(), "b", 0)
		g.Expect(err).NotTo(HaveOccurred())
		place.Leave()
		g.Expect(p.turns.IsEmpty()).To(BeTrue())
	})
}
