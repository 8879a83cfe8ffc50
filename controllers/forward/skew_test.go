package forward

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

// TestAClockAtTheLimitDoesNotChangeTheConditions has a clock that is a minute ahead, and says so in whole seconds.
func TestAClockAtTheLimitDoesNotChangeTheConditions(t *testing.T) {
	g := NewWithT(t)
	s := &skew{metrics: addressMetrics{"alertmanager", "address"}, log: logr.Discard()}
	defer s.metrics.remove()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	is := func(ahead time.Duration) bool {
		s.compare(now.Add(ahead), now, now)
		return s.wrong.Load()
	}
	g.Expect(is(59 * time.Second)).To(BeFalse())
	g.Expect(is(60 * time.Second)).To(BeFalse())
	g.Expect(is(61 * time.Second)).To(BeTrue())
	g.Expect(is(60 * time.Second)).To(BeTrue())
	g.Expect(is(56 * time.Second)).To(BeTrue())
	g.Expect(is(55 * time.Second)).To(BeFalse())
	g.Expect(is(-61*time.Second)).To(BeFalse(), "its Date may be a second old")
	g.Expect(is(-62 * time.Second)).To(BeTrue())
}
