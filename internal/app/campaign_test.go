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
		passes, w := func() bool { return check() == nil }, &worker{schemas: schemasFunc(check)}
		g.Expect(awaitTrue(t.Context(), passes)).To(BeTrue())
		g.Expect(time.Since(start)).To(BeZero())
		g.Expect(w.keepChecked(t.Context())).To(MatchError(older))
		g.Expect(time.Since(start)).To(BeNumerically("~", time.Minute, readyPoll))
		g.Expect(awaitTrue(t.Context(), passes)).To(BeTrue())
		g.Expect(time.Since(start)).To(BeNumerically("~", 2*time.Minute, readyPoll), "it does not compete until then")

		ended, end := context.WithCancel(t.Context())
		end()
		g.Expect(w.keepChecked(ended)).To(Succeed())
		g.Expect(awaitTrue(ended, func() bool { return false })).To(BeFalse())
	})
}

// schemasFunc are Schemas that are checked by a function.
type schemasFunc func() error

func (f schemasFunc) Verdict() error { return f() }

// clockAfter is an apiClock that is known from a time on.
type clockAfter time.Time

func (c clockAfter) Now() (now time.Time, ok bool) {
	now = time.Now()
	return now, !now.Before(time.Time(c))
}

func TestACandidateWaitsForTheTimeOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		start := time.Now()
		after := func(d time.Duration) *worker { return &worker{clock: clockAfter(start.Add(d))} }
		g.Expect(after(7 * time.Second).awaitTime(t.Context())).To(BeTrue())
		g.Expect(time.Since(start)).To(BeNumerically("~", 7*time.Second, readyPoll))

		g.Expect(after(time.Hour).awaitTime(t.Context())).To(BeTrue(), "alerts are to be folded all the same")
		g.Expect(time.Since(start)).To(BeNumerically("~", 7*time.Second+timePatience, 2*readyPoll))

		ended, end := context.WithCancel(t.Context())
		end()
		g.Expect(after(time.Hour).awaitTime(ended)).To(BeFalse())
	})
}
