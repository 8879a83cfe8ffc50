package commit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestCommitterDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := slowStore(2 * time.Second)
		c := startCommits(store, 1)
		c.add(submission("x", "1"), 1*time.Second) // gives up while it is written
		c.add(submission("x", "2"), 1*time.Second) // gives up before its turn
		c.add(submission("x", "3"), 5*time.Second)
		c.finish()
		g.Expect(c.errs["1"]).To(MatchError(ErrOutcomeUnknown))
		g.Expect(c.errs["2"]).To(MatchError(ErrUnavailable))
		g.Expect(c.errs["3"]).NotTo(HaveOccurred())
		g.Expect(c.took["1"]).To(Equal(time.Second))
		g.Expect(c.took["2"]).To(Equal(time.Second))
		g.Expect(contents(store)).To(Equal([]string{"x:3"}), "what has given up is never written")
		g.Expect(c.committer.Close(t.Context())).To(Succeed())
		expectIdle(g, c.committer)
	})
}

func TestNothingIsKeptOfAQueueWhoseOnlySubmissionHasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := slowStore(slowWrite / 2)
		c := startCommits(store, 1)
		c.add(submission("x", "first"), Timeout)
		c.add(submission("y", "gives up"), slowWrite/4)
		c.finish()
		g.Expect(c.errs["gives up"]).To(MatchError(ErrUnavailable))
		g.Expect(contents(store)).To(Equal([]string{"x:first"}))
		expectIdle(g, c.committer)
	})
}

func TestCloseWaitsNoLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := startCommits(slowStore(time.Second), 1)
		c.add(submission("x", "1"), time.Minute)
		c.add(submission("x", "2"), time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		g.Expect(c.committer.Close(ctx)).To(MatchError(context.DeadlineExceeded))
		g.Expect(time.Since(began)).To(Equal(100 * time.Millisecond))
		c.finish()
		expectIdle(g, c.committer)
	})
}

// enqueue enqueues a submission whose Commit notices nothing.
func (c *commits) enqueue(ctx context.Context, g Gomega, s Submission, deadline time.Time) *entry {
	e := &entry{Submission: s, ctx: ctx, deadline: deadline, done: make(chan result, 1)}
	g.Expect(c.committer.enqueue(e)).To(Succeed())
	return e
}

// A writer may come to a submission after its request has ended, but before Commit has noticed.
func TestASubmissionWhoseRequestHasEndedIsNotWrittenAndLeavesTheWriterToOthers(t *testing.T) {
	for sentence, end := range map[string]func(*entry, context.CancelFunc){
		"its client has hung up":  func(_ *entry, hangUp context.CancelFunc) { hangUp() },
		"its deadline has passed": func(e *entry, _ context.CancelFunc) { e.deadline = time.Now() },
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				store := slowStore(slowWrite / 2)
				c := startCommits(store, 1)
				c.add(submission("x", "first"), Timeout)
				ctx, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				e := c.enqueue(ctx, g, submission("y", "ended"), time.Now().Add(Timeout))
				end(e, hangUp)
				c.add(submission("z", "last"), Timeout)
				c.finish()
				g.Expect((<-e.done).err).To(MatchError(ErrUnavailable))
				g.Expect(c.took["last"]).To(Equal(slowWrite), "the write of the first and its own")
				g.Expect(contents(store)).To(Equal([]string{"x:first", "z:last"}))
				g.Expect(c.committer.Close(t.Context())).To(Succeed())
				expectIdle(g, c.committer)
			})
		})
	}
}

func TestASubmissionWhoseRequestHasEndedDoesNotPartThoseAroundIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := slowStore(slowWrite / 2)
		c := startCommits(store, 1)
		c.add(submission("x", "first"), Timeout)
		c.add(submission("x", "1"), Timeout)
		keyed := submission("x", "ended")
		keyed.EventName = v1alpha1.KeyedEventName("x", "key")
		e := c.enqueue(t.Context(), g, keyed, time.Now())
		c.add(submission("x", "2"), Timeout)
		c.finish()
		g.Expect((<-e.done).err).To(MatchError(ErrUnavailable))
		g.Expect(contents(store)).To(Equal([]string{"x:first", "x:1,2"}))
	})
}
