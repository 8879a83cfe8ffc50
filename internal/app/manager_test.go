package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

func TestALeaderWhoseCheckFailsEndsItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		start := time.Now()
		older := errors.New("older definitions")
		check := func() error { // fails in the second minute
			if minute := time.Since(start) / time.Minute; minute == 1 {
				return older
			}
			return nil
		}
		passes := func() bool { return check() == nil }
		g.Expect(awaitTrue(t.Context(), passes)).To(BeTrue())
		g.Expect(time.Since(start)).To(BeZero())
		g.Expect(keepChecked(t.Context(), check)).To(MatchError(older))
		g.Expect(time.Since(start)).To(BeNumerically("~", time.Minute, readyPoll))
		g.Expect(awaitTrue(t.Context(), passes)).To(BeTrue())
		g.Expect(time.Since(start)).To(BeNumerically("~", 2*time.Minute, readyPoll), "it does not compete until then")

		ended, end := context.WithCancel(t.Context())
		end()
		g.Expect(keepChecked(ended, check)).To(Succeed())
		g.Expect(awaitTrue(ended, func() bool { return false })).To(BeFalse())
	})
}

func TestACandidateWaitsForTheTimeOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		start := time.Now()
		after := func(d time.Duration) func() (time.Time, bool) {
			return func() (time.Time, bool) { return time.Now(), time.Since(start) >= d }
		}
		g.Expect(awaitTime(t.Context(), after(7*time.Second))).To(BeTrue())
		g.Expect(time.Since(start)).To(BeNumerically("~", 7*time.Second, readyPoll))

		g.Expect(awaitTime(t.Context(), after(time.Hour))).To(BeTrue(), "alerts are to be folded all the same")
		g.Expect(time.Since(start)).To(BeNumerically("~", 7*time.Second+timePatience, 2*readyPoll))

		ended, end := context.WithCancel(t.Context())
		end()
		g.Expect(awaitTime(ended, after(time.Hour))).To(BeFalse())
	})
}
