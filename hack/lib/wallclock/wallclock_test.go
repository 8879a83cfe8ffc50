package wallclock

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// TestSet sets the wall clock, and no other.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
			var clock Clock
			before := clock.Now()
			g.Expect(before.Round(0)).To(BeTemporally("==", time.Now()))
			clock.Set(ahead)
			time.Sleep(1500 * time.Millisecond)
			after := clock.Now()
			g.Expect(after.Sub(before)).To(Equal(1500 * time.Millisecond))
			g.Expect(after.Round(0).Sub(before.Round(0))).To(Equal(ahead + 1500*time.Millisecond))
		}
	})
}
