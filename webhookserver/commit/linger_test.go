package commit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

const (
	stormSenders = 20
	stormRounds  = 10
	stormWrite   = 8 * time.Millisecond
)

// storm has so many senders post one alert after the other, each a millisecond after the response to the last one.
func storm(t *testing.T, committer *Committer, size int) {
	t.Helper()
	var senders sync.WaitGroup
	for sender := range size {
		senders.Go(func() {
			for round := range stormRounds {
				if _, err := committer.Commit(context.Background(), submission("x", fmt.Sprint(sender, "-", round))); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	senders.Wait()
	time.Sleep(2 * maxLinger) // the last write waits for the senders in vain
}

func TestSendersInAStormShareAWrite(t *testing.T) {
	for _, senders := range []int{5, 8, stormSenders} {
		synctest.Test(t, func(t *testing.T) {
			store := slowStore(stormWrite)
			storm(t, New(store, 8, nil), senders)
			NewWithT(t).Expect(len(store.Stored())).To(BeNumerically("<=", stormRounds*8/5),
				"%d senders: twice the rounds without the wait", senders)
		})
	}
}

func TestNoWriteWaitsForSendersThatDoNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := startCommits(slowStore(stormWrite), 8)
		c.add(submission("x", "first"), Timeout)
		for n := range stormSenders {
			c.add(submission("x", fmt.Sprint("batch-", n)), Timeout)
		}
		time.Sleep(stormWrite + stormWrite/2) // the batch is being written
		c.add(submission("x", "behind"), Timeout)
		for round := range lingerSkips {
			time.Sleep(stormWrite)
			for n := range stormSenders {
				c.add(submission("x", fmt.Sprint(round, "-", n)), Timeout)
			}
		}
		c.finish()
		g.Expect(c.took["behind"]).To(BeNumerically("<=", stormWrite/2+stormWrite+stormWrite), "half a write, the wait, and its own")
		for id, took := range c.took {
			g.Expect(took).To(BeNumerically("<=", 3*stormWrite), id)
		}
	})
}

func TestSubmissionsThatWaitedBeforeAreNotSendersThatCameBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCommits(slowStore(stormWrite), 8)
		add := func(id string, n int) {
			for i := range n {
				c.add(submission("x", fmt.Sprint(id, "-", i)), Timeout)
			}
		}
		add("first", 1)
		add("second", 10)
		time.Sleep(stormWrite + stormWrite/2) // the second is being written
		add("third", 12)
		time.Sleep(2 * stormWrite) // nobody has come back, and the third is being written
		add("fourth", 14)
		c.finish()
		NewWithT(t).Expect(c.took["fourth-0"]).To(Equal(stormWrite/2+stormWrite), "half a write and its own, without another wait")
	})
}

func TestAnotherQueueDoesNotWaitForSendersToComeBack(t *testing.T) {
	for writers := 1; writers <= 2; writers++ {
		synctest.Test(t, func(t *testing.T) {
			c := startCommits(slowStore(stormWrite), writers)
			c.add(submission("x", "first"), Timeout)
			for n := range stormSenders {
				c.add(submission("x", fmt.Sprint("batch-", n)), Timeout)
			}
			time.Sleep(2*stormWrite + stormWrite/4) // the batch is written
			c.add(submission("y", "other"), Timeout)
			c.finish()
			NewWithT(t).Expect(c.took["other"]).To(Equal(stormWrite), "%d writers", writers)
		})
	}
}

// TestNoWriteWaitsForSendersIfTheNextOneIsFull has a batch written while more wait than fit into the next one.
func TestNoWriteWaitsForSendersIfTheNextOneIsFull(t *testing.T) {
	for sentence, behind := range map[string]func(id string) Submission{
		"of alerts": func(id string) Submission {
			s := submission("x", id)
			for i := range maxBatchAlerts / 2 {
				s.Alerts = append(s.Alerts, submission("x", fmt.Sprint(id, "-", i)).Alerts...)
			}
			return s
		},
		"of bytes": func(id string) Submission { return large(id, maxBatchBytes/2, false) },
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCommits(slowStore(stormWrite), 8)
				c.add(submission("x", "first"), Timeout)
				for n := range stormSenders {
					c.add(submission("x", fmt.Sprint("batch-", n)), Timeout)
				}
				time.Sleep(stormWrite + stormWrite/2) // the batch is being written
				c.add(behind("behind"), Timeout)
				c.add(behind("after"), Timeout)
				c.finish()
				NewWithT(t).Expect(c.took["behind"]).To(Equal(stormWrite/2+stormWrite), "half a write and its own")
			})
		})
	}
}

// It would wait for ever if it missed that the last submission has left: no write is under way that could tell it.
func TestCloseReturnsOnceTheLastSubmissionThatWaitsForSendersHasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := startCommits(slowStore(stormWrite), 8)
		c.add(submission("x", "first"), Timeout)
		for n := range stormSenders {
			c.add(submission("x", fmt.Sprint("batch-", n)), Timeout)
		}
		time.Sleep(2*stormWrite + stormWrite/4) // the batch is written, and the next write waits for its senders
		c.add(submission("x", "last"), stormWrite/4)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), Timeout)
		defer cancel()
		g.Expect(c.committer.Close(ctx)).To(Succeed())
		g.Expect(time.Since(began)).To(Equal(stormWrite / 4))
		c.finish()
		g.Expect(c.errs["last"]).To(MatchError(ErrUnavailable))
		expectIdle(g, c.committer)
	})
}
