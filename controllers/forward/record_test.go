package forward

import (
	"context"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
)

// Failures that alternate cause no writes of the condition.
func TestACauseStaysWhileItIsSeen(t *testing.T) {
	g := NewWithT(t)
	var c cause
	now := noon
	fail := func(err error) string {
		now = now.Add(failingAfter / 2)
		c.set(err, now)
		return c.text
	}
	g.Expect(fail(syscall.ECONNREFUSED)).To(Equal("connection refused"))
	for range 10 {
		g.Expect(fail(context.DeadlineExceeded)).To(Equal("connection refused"))
		g.Expect(fail(syscall.ECONNREFUSED)).To(Equal("connection refused"))
	}
	fail(alertmanager.ErrNoClient)
	g.Expect(fail(alertmanager.ErrNoClient)).To(Equal("http_config cannot be used"), "it lasts")
}
