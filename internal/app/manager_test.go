package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

func TestACandidateWaitsForTheTimeOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		start := time.Now()
		after := func(d time.Duration) func() (time.Time, bool) {
			return func() (time.Time, bool) { return time.Now(), time.Since(start) >= d }
		}
		g.Expect(awaitTime(t.Context(), after(7*time.Second))).To(BeTrue())
		g.Expect(time.Since(start)).To(BeNumerically("~", 7*time.Second, timePoll))

		g.Expect(awaitTime(t.Context(), after(time.Hour))).To(BeTrue(), "alerts are to be folded all the same")
		g.Expect(time.Since(start)).To(BeNumerically("~", 7*time.Second+timePatience, 2*timePoll))

		ended, end := context.WithCancel(t.Context())
		end()
		g.Expect(awaitTime(ended, after(time.Hour))).To(BeFalse())
	})
}
