package commit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
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
	for _, senders := range []int{minLingering + 1, 5, 8, stormSenders} {
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
			for i := range maxBatchAlerts/2 - 1 {
				s.Alerts = append(s.Alerts, submission("x", fmt.Sprint(id, "-", i)).Alerts...)
			}
			return withShortKeys(s)
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
				c.add(submission("x", "last"), Timeout)
				c.finish()
				NewWithT(t).Expect(c.took["behind"]).To(Equal(stormWrite/2+stormWrite), "half a write and its own")
			})
		})
	}
}

// While a write waits for senders, no writer is at work: Close must not return then, nor miss that the last submission has left.
func TestCloseWaitsForSubmissionsWhoseWriteWaitsForSenders(t *testing.T) {
	for sentence, test := range map[string]struct {
		timeout, want time.Duration
		outcome       types.GomegaMatcher
	}{
		"until they are written":      {timeout: Timeout, want: stormWrite - stormWrite/4 + stormWrite, outcome: BeNil()},
		"until the last has given up": {timeout: stormWrite / 4, want: stormWrite / 4, outcome: MatchError(ErrUnavailable)},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				c := startCommits(slowStore(stormWrite), 8)
				c.addAll("first")
				c.addAll("a", "b", "c", "d")
				time.Sleep(2*stormWrite + stormWrite/4) // they are written, and the next write waits for their senders
				c.add(submission("x", "last"), test.timeout)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), Timeout)
				defer cancel()
				g.Expect(c.committer.Close(ctx)).To(Succeed())
				g.Expect(time.Since(began)).To(Equal(test.want))
				c.finish()
				g.Expect(c.errs["last"]).To(test.outcome)
				expectIdle(g, c.committer)
			})
		})
	}
}

// addAll begins commits of one alert each to the integration x.
func (c *commits) addAll(ids ...string) {
	for _, id := range ids {
		c.add(submission("x", id), Timeout)
	}
}

func TestTheNextWriteBeginsAsSoonAsTheSendersAreBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := startCommits(slowStore(stormWrite), 8)
		c.addAll("first")
		c.addAll("a", "b", "c", "d")
		time.Sleep(2*stormWrite + stormWrite/4) // they are written
		c.addAll("a again", "b again", "c again")
		time.Sleep(stormWrite / 4)
		c.addAll("d again")
		c.finish()
		g.Expect(c.took["a again"]).To(Equal(stormWrite/4 + stormWrite))
		g.Expect(c.took["d again"]).To(Equal(stormWrite))
	})
}

func TestAWriteWaitsForSendersAgainIfHalfOfThemCameBackBefore(t *testing.T) {
	for sentence, test := range map[string]struct {
		back []string
		want time.Duration // of a submission that comes in the middle of the next write
	}{
		"half of them":     {back: []string{"a again", "b again"}, want: stormWrite/2 + stormWrite + stormWrite},
		"less than a half": {back: []string{"a again"}, want: stormWrite/2 + stormWrite},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCommits(slowStore(stormWrite), 8)
				c.addAll("first")
				c.addAll("a", "b", "c", "d")
				time.Sleep(stormWrite + stormWrite/2) // they are being written
				c.addAll("behind", "behind too")
				time.Sleep(stormWrite) // the next write waits for their senders
				c.addAll(test.back...)
				time.Sleep(stormWrite) // it has begun
				c.addAll("next")
				c.finish()
				NewWithT(t).Expect(c.took["next"]).To(Equal(test.want))
			})
		})
	}
}

func TestAfterAWaitInVainSomeWritesDoNotWaitForSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCommits(slowStore(stormWrite), 8)
		round := func(n int) {
			for sender := range minLingering {
				c.addAll(fmt.Sprint(n, "-", sender))
			}
		}
		c.addAll("first")
		c.addAll("a", "b", "c", "d")
		time.Sleep(stormWrite + stormWrite/2) // they are being written
		round(0)
		time.Sleep(stormWrite) // the wait is in vain
		for n := range lingerSkips + 1 {
			time.Sleep(stormWrite) // round n is being written
			round(n + 1)
		}
		c.finish()
		g := NewWithT(t)
		for n := range lingerSkips {
			g.Expect(c.took[fmt.Sprint(n+1, "-0")]).To(Equal(stormWrite/2+stormWrite), "half a write and its own in round %d", n+1)
		}
		g.Expect(c.took[fmt.Sprint(lingerSkips+1, "-0")]).To(Equal(stormWrite/2+stormWrite+stormWrite), "another wait is tried")
	})
}
