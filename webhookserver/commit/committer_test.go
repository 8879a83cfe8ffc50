package commit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/memorystore"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// slowStore answers after took, on the bubble's clock.
func slowStore(took time.Duration) *memorystore.Store {
	return &memorystore.Store{Before: func(ctx context.Context, _ *v1alpha1.AlertEvent, _ int) error {
		select {
		case <-time.After(took):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

// submission makes a submission with alerts of the given ids.
func submission(integration string, ids ...string) Submission {
	s := Submission{Integration: types.NamespacedName{Namespace: "team-a", Name: integration}, Received: time.Now()}
	for _, id := range ids {
		s.Alerts = append(s.Alerts, v1alpha1.Alert{ID: id, DedupKey: id, Status: v1alpha1.AlertFiring})
	}
	return s
}

// commits runs commits side by side and collects what they return.
type commits struct {
	committer *Committer
	wait      sync.WaitGroup
	mu        sync.Mutex
	errs      map[string]error         // by the id of the first alert
	took      map[string]time.Duration // likewise
}

func startCommits(store Store, writers int) *commits {
	return &commits{
		committer: New(store, writers, nil),
		errs:      map[string]error{},
		took:      map[string]time.Duration{},
	}
}

// add begins a commit and returns when it is waiting for its outcome.
func (c *commits) add(s Submission, timeout time.Duration) {
	c.wait.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		start := time.Now()
		_, err := c.committer.Commit(ctx, s)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs[s.Alerts[0].ID] = err
		c.took[s.Alerts[0].ID] = time.Since(start)
	})
	synctest.Wait()
}

// finish returns when all commits have their outcomes and no writer works any more.
func (c *commits) finish() {
	c.wait.Wait()
	time.Sleep(2 * maxLinger) // the last write waits for the senders in vain
}

// result returns what a commit returned, by the id of its first alert.
func (c *commits) result(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs[id]
}

// contents lists the ids of the alerts of each stored event, in the order of storing.
func contents(store *memorystore.Store) []string {
	var list []string
	for _, event := range store.Stored() {
		var ids []string
		for _, alert := range event.Alerts {
			ids = append(ids, alert.ID)
		}
		list = append(list, event.Spec.IntegrationName+":"+strings.Join(ids, ","))
	}
	return list
}

func TestCommitterGroups(t *testing.T) {
	defaults := &v1alpha1.AlertDefaults{Title: "other"}
	for name, test := range map[string]struct {
		writers     int
		submissions func() []Submission
		want        []string
	}{
		"a submission that finds a free writer is written at once and alone": {
			writers: 3,
			submissions: func() []Submission {
				return []Submission{submission("x", "1"), submission("y", "2"), submission("z", "3")}
			},
			want: []string{"x:1", "y:2", "z:3"},
		},
		"those of an integration that has a write under way go together, in their order": {
			writers: 3,
			submissions: func() []Submission {
				return []Submission{submission("x", "1"), submission("x", "2"), submission("y", "3"), submission("x", "4")}
			},
			want: []string{"x:1", "y:3", "x:2,4"},
		},
		"those that come while all writers are busy go together, in their order": {
			writers: 1,
			submissions: func() []Submission {
				return []Submission{submission("x", "1"), submission("x", "2"), submission("x", "3", "4"), submission("x", "5")}
			},
			want: []string{"x:1", "x:2,3,4,5"},
		},
		"integrations do not share events": {
			writers: 1,
			submissions: func() []Submission {
				return []Submission{submission("x", "1"), submission("y", "2"), submission("z", "3"), submission("y", "4")}
			},
			want: []string{"x:1", "y:2,4", "z:3"},
		},
		"queues take turns, and one that has just been written waits for the others": {
			writers: 1,
			submissions: func() []Submission {
				return []Submission{submission("x", "1"), submission("x", "2"), submission("y", "3")}
			},
			want: []string{"x:1", "y:3", "x:2"},
		},
		"a keyed submission has an event of its own": {
			writers: 1,
			submissions: func() []Submission {
				keyed := submission("x", "3")
				keyed.EventName = v1alpha1.KeyedEventName("x", "key")
				return []Submission{submission("x", "1"), submission("x", "2"), keyed, submission("x", "4"), submission("x", "5")}
			},
			want: []string{"x:1", "x:2", "x:3", "x:4,5"},
		},
		"submissions with other defaults have an event of their own": {
			writers: 1,
			submissions: func() []Submission {
				other := submission("x", "3")
				other.Defaults = defaults
				same := submission("x", "4")
				same.Defaults = defaults.DeepCopy()
				return []Submission{submission("x", "1"), submission("x", "2"), other, same}
			},
			want: []string{"x:1", "x:2", "x:3,4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				store := slowStore(slowWrite - time.Millisecond)
				c := startCommits(store, test.writers)
				for _, s := range test.submissions() {
					time.Sleep(time.Millisecond) // on the bubble's clock: arrivals have an order
					c.add(s, 10*time.Second)
				}
				c.finish()
				g.Expect(contents(store)).To(Equal(test.want))
				for id, err := range c.errs {
					g.Expect(err).NotTo(HaveOccurred(), id)
				}
			})
		})
	}
}

func TestCommitterDoesNotWaitForASlowWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := &memorystore.Store{Before: func(_ context.Context, event *v1alpha1.AlertEvent, _ int) error {
			if event.Alerts[0].ID == "hangs" {
				time.Sleep(2 * time.Second)
			}
			return nil
		}}
		c := startCommits(store, 2)
		c.add(submission("x", "hangs"), time.Minute)
		c.add(submission("x", "1"), time.Minute)
		c.add(submission("x", "2"), time.Minute)
		c.finish()
		g.Expect(c.took["1"]).To(Equal(slowWrite), "nobody else came to start it")
		g.Expect(contents(store)).To(Equal([]string{"x:1,2", "x:hangs"}))
	})
}

func TestCommitterIdlePathTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := startCommits(&memorystore.Store{}, 1)
		c.add(submission("x", "1"), time.Second)
		c.finish()
		g.Expect(c.took["1"]).To(BeZero())
	})
}

func TestCommitterIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		const took = 100 * time.Millisecond
		c := startCommits(slowStore(took), 4)
		for i := range 2000 {
			c.add(submission("storm", fmt.Sprintf("s%d", i)), time.Minute)
		}
		time.Sleep(took / 2)
		c.add(submission("quiet", "q"), time.Minute)
		c.finish()
		g.Expect(c.took["q"]).To(BeNumerically("<=", 2*took), "its own write and at most one other")
		g.Expect(c.took["s1999"]).To(BeNumerically("<=", 22*took), "the storm itself is grouped")
	})
}

func TestCommitterOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := startCommits(slowStore(time.Second), 1)
		storm := types.NamespacedName{Namespace: "team-a", Name: "storm"}
		quiet := types.NamespacedName{Namespace: "team-a", Name: "quiet"}
		c.add(submission("storm", "first"), time.Hour)
		for i := range maxWaiting / 4 / minWeight {
			c.wait.Go(func() { _, _ = c.committer.Commit(t.Context(), submission("storm", fmt.Sprintf("s%d", i))) })
		}
		synctest.Wait()
		g.Expect(c.committer.CheckSpace(storm)).To(MatchError(ErrOverloaded))
		g.Expect(c.committer.CheckSpace(quiet)).To(Succeed(), "another queue has capacity")
		c.add(submission("storm", "too many"), time.Hour)
		g.Expect(c.result("too many")).To(MatchError(ErrOverloaded))
		c.finish()
		g.Expect(c.committer.CheckSpace(storm)).To(Succeed(), "it recovers by itself")
	})
}

func TestCommitterSplitsWhatIsRejected(t *testing.T) {
	for name, bad := range map[string][]string{
		"one of them": {"7"},
		"the ends":    {"1", "16"},
		"all of them": {"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				invalid := map[string]bool{}
				for _, id := range bad {
					invalid[id] = true
				}
				store := slowStore(100 * time.Millisecond)
				slow := store.Before
				names := map[string]bool{}
				store.Before = func(ctx context.Context, event *v1alpha1.AlertEvent, call int) error {
					if err := slow(ctx, event, call); err != nil {
						return err
					}
					names[event.Name] = true
					for _, alert := range event.Alerts {
						if invalid[alert.ID] {
							return memorystore.SchemaError("spec.alerts[0].title")
						}
					}
					return nil
				}
				c := startCommits(store, 1)
				c.add(submission("x", "0"), time.Minute)
				for i := 1; i <= 16; i++ {
					c.add(submission("x", fmt.Sprint(i)), time.Minute)
				}
				c.finish()
				stored := map[string]int{}
				for _, event := range store.Stored() {
					for _, alert := range event.Alerts {
						stored[alert.ID]++
					}
				}
				for i := range 17 {
					id := fmt.Sprint(i)
					var rejected *InvalidError
					g.Expect(errors.As(c.errs[id], &rejected)).To(Equal(invalid[id]), id)
					g.Expect(stored[id] == 1).To(Equal(!invalid[id]), id)
				}
				g.Expect(names).To(HaveLen(store.Calls()), "every write has a name of its own")
			})
		})
	}
}

func TestCommitterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := slowStore(time.Second)
		c := startCommits(store, 1)
		c.add(submission("x", "1"), time.Minute)
		c.add(submission("x", "2"), time.Minute)
		g.Expect(c.committer.Close(t.Context())).To(Succeed())
		g.Expect(contents(store)).To(Equal([]string{"x:1", "x:2"}), "what was begun is done")
		_, err := c.committer.Commit(t.Context(), submission("x", "3"))
		g.Expect(err).To(MatchError(ErrUnavailable))
		c.finish()
	})
}

func TestCommitterCountsTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := startCommits(slowStore(slowWrite/2), 4)
		for i := range 5 {
			c.add(submission("x", fmt.Sprint(i)), time.Minute)
			g.Expect(c.committer.Backlog()).To(Equal(i), "one is written alone, the others wait")
		}
		time.Sleep(slowWrite/2 + time.Millisecond)
		g.Expect(c.committer.Backlog()).To(Equal(3), "they share a write now")
		c.finish()
		g.Expect(c.committer.Backlog()).To(BeZero())
	})
}

// expectIdle compares what a Committer counts with nothing: nothing waits, and nothing is written.
func expectIdle(g Gomega, c *Committer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.Expect(c.queues).To(BeEmpty())
	g.Expect(c.waiting).To(BeZero())
	g.Expect(c.writing).To(BeZero())
	g.Expect(c.turns.IsEmpty()).To(BeTrue())
	g.Expect(c.turns.AtWork()).To(BeZero())
	g.Expect(c.space).To(Equal(fair.NewSpace(maxWaiting)))
}

func TestAnEarlierSubmissionIsFoundByItsName(t *testing.T) {
	g := NewWithT(t)
	keyed := submission("x", "1")
	keyed.EventName = v1alpha1.KeyedEventName("x", "key")
	name := types.NamespacedName{Namespace: "team-a", Name: keyed.EventName}
	store := &memorystore.Store{}
	c := New(store, 1, nil)
	receipt, err := c.Find(t.Context(), name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(receipt).To(BeZero(), "nothing is stored")
	stored, err := c.Commit(t.Context(), keyed)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Find(t.Context(), name)).To(Equal(stored))
	store.OnGet = func(string) error { return io.EOF }
	_, err = c.Find(t.Context(), name)
	g.Expect(err).To(MatchError(io.EOF))
}

func TestAQueueWithASlowWriteComesAfterThoseOfItsNamespaceThatHaveNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := &memorystore.Store{Before: func(_ context.Context, event *v1alpha1.AlertEvent, _ int) error {
			took := slowWrite / 2
			if event.Alerts[0].ID == "hangs" {
				took = 3 * slowWrite
			}
			time.Sleep(took)
			return nil
		}}
		c := startCommits(store, 2)
		c.add(submission("x", "hangs"), Timeout)
		time.Sleep(slowWrite)
		c.add(submission("y", "1"), Timeout) // and has the only writer that the namespace has left
		c.add(submission("x", "2"), Timeout)
		c.add(submission("z", "3"), Timeout)
		c.finish()
		g.Expect(contents(store)).To(Equal([]string{"y:1", "z:3", "x:2", "x:hangs"}))
		expectIdle(g, c.committer)
	})
}

func TestAnEventIsReceivedWithItsFirstAlert(t *testing.T) {
	g := NewWithT(t)
	later, first := submission("x", "1"), submission("x", "2")
	later.Received = first.Received.Add(time.Second)
	event := newAlertEvent([]*entry{{Submission: later}, {Submission: first}})
	g.Expect(event.Spec.ReceivedTime).To(Equal(v1alpha1.NewTimestamp(first.Received)))
	g.Expect(event.Alerts).To(HaveLen(2))
}
