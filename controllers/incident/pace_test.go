package incident

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// backlogOf is an Ingest for which so many requests wait.
type backlogOf int

func (b backlogOf) IngestBacklog() int { return int(b) }

// changingBacklog is an Ingest for which other numbers of requests wait.
type changingBacklog struct{ atomic.Int64 }

func (b *changingBacklog) IngestBacklog() int { return int(b.Load()) }

func TestWriteGateLetsFewerInTheMoreRequestsWait(t *testing.T) {
	const write = time.Second / 10
	for name, tc := range map[string]struct {
		backlog, folds int
		most           int32
		takes          time.Duration // until the last fold has written
	}{
		"nobody waits":                          {backlog: 0, folds: 32, most: 16, takes: 2 * write},
		"one waits, and each place rests a bit": {backlog: 1, folds: 16, most: 8, takes: 2*write + write/backlogPerPause},
		"a few wait":                            {backlog: 4, folds: 6, most: 3, takes: (2 + 4/backlogPerPause) * write},
		"a storm":                               {backlog: 64, folds: 3, most: 1, takes: (3 + 2*maxPauseFactor) * write},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				gate := newWriteGate(16, backlogOf(tc.backlog))
				var inside, most atomic.Int32
				var folds sync.WaitGroup
				start := time.Now()
				for i := range tc.folds {
					folds.Go(func() {
						leave := enter(g, gate, []string{"team", "other"}[i%2], false)
						most.Store(max(most.Load(), inside.Add(1)))
						time.Sleep(write)
						inside.Add(-1)
						leave()
					})
				}
				folds.Wait()
				g.Expect(most.Load()).To(Equal(tc.most))
				g.Expect(time.Since(start)).To(Equal(tc.takes))
			})
		})
	}
}

// An admission webhook that hangs for some namespaces must not hold up the others, whatever ingest does meanwhile.
func TestWritesThatHangHoldUpNoOtherNamespace(t *testing.T) {
	for name, tc := range map[string]struct{ before, after, hanging int }{
		"while nobody waits to be stored":                 {before: 0, after: 0, hanging: 1},
		"when one request begins to wait":                 {before: 0, after: 1, hanging: 1},
		"when a storm begins":                             {before: 0, after: 500, hanging: 1},
		"during a storm":                                  {before: 500, after: 500, hanging: 1},
		"of three namespaces, while nobody waits":         {before: 0, after: 0, hanging: 3},
		"of three namespaces, during a storm":             {before: 64, after: 64, hanging: 3},
		"of twelve namespaces, when one request waits":    {before: 0, after: 1, hanging: 12},
		"of twelve namespaces, when a storm begins":       {before: 0, after: 64, hanging: 12},
		"of a hundred namespaces, when one request waits": {before: 0, after: 1, hanging: 100},
		"of a hundred namespaces, while several wait":     {before: 4, after: 4, hanging: 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				var backlog changingBacklog
				backlog.Store(int64(tc.before))
				gate := newWriteGate(writeConcurrency, &backlog)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for i := range 20 * tc.hanging {
					go func() {
						for ctx.Err() == nil {
							if leave, err := gate.enter(ctx, fmt.Sprint("hangs ", i%tc.hanging), true); err == nil {
								pass(ctx, 10*time.Second) // the default timeout of an admission webhook
								leave()
							}
						}
					}()
				}
				pass(ctx, time.Minute)
				backlog.Store(int64(tc.after))
				within := (1 + maxPauseFactor) * slowWrite
				if tc.hanging > 1 {
					within *= 2 // one of four turns is theirs
				}
				for i := range 30 {
					began := time.Now()
					enter(g, gate, []string{"team", "shop", "core"}[i%3], true)()
					g.Expect(time.Since(began)).To(BeNumerically("<=", within), "the fold %d", i)
				}
				cancel()
				pass(t.Context(), time.Minute)
				g.Expect(gate.turns.IsEmpty()).To(BeTrue())
			})
		})
	}
}

// pass waits for so long by the bubble's clock, or until ctx ends.
func pass(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// A namespace whose writes are slow does not have more of them at a time for that.
func TestANamespaceHasItsShareOfSlowWritesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, entered := newWriteGate(16, backlogOf(0)), make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 20 {
			go func() {
				if _, err := gate.enter(ctx, "hangs", true); err == nil {
					entered <- "hangs"
				}
			}()
		}
		pass(ctx, time.Minute)
		NewWithT(t).Expect(entered).To(HaveLen(13))
	})
}

// enter enters the gate, and returns how to leave it.
func enter(g Gomega, gate *writeGate, namespace string, urgent bool) (leave func()) {
	leave, err := gate.enter(context.Background(), namespace, urgent)
	g.Expect(err).NotTo(HaveOccurred())
	return leave
}

func TestWriteGateForgetsThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		gate := newWriteGate(1, backlogOf(0))
		leave := enter(g, gate, "team", false)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := gate.enter(ctx, "team", false)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		leave()
		g.Expect(gate.turns.AtWork()).To(BeZero(), "nobody has the place")

		// A place that comes at the moment of giving up is passed on, not lost.
		ended, end := context.WithCancel(context.Background())
		end()
		for range 100 {
			if leave, err := gate.enter(ended, "team", true); err == nil {
				leave()
			}
		}
		g.Expect(gate.turns.IsEmpty()).To(BeTrue())
		enter(g, gate, "team", false)
	})
}

func TestWriteGateLetsUrgentFoldsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		gate := newWriteGate(1, backlogOf(0))
		leave := enter(g, gate, "team", false)
		var order []string
		var folds sync.WaitGroup
		for _, name := range []string{"repeat 1", "repeat 2", "urgent 1", "urgent 2"} {
			folds.Go(func() {
				leave := enter(g, gate, "team", name[0] == 'u')
				order = append(order, name)
				leave()
			})
			synctest.Wait()
		}
		leave()
		folds.Wait()
		g.Expect(order).To(Equal([]string{"urgent 1", "urgent 2", "repeat 1", "repeat 2"}))
	})
}

func TestNamespacesTakeTurnsAtTheWriteGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		gate := newWriteGate(1, backlogOf(0))
		leave := enter(g, gate, "storm", true)
		var order []string
		var folds sync.WaitGroup
		join := func(namespace string, urgent bool) {
			folds.Go(func() {
				leave := enter(g, gate, namespace, urgent)
				order = append(order, namespace)
				leave()
			})
			synctest.Wait()
		}
		for range 50 {
			join("storm", true)
		}
		join("calm", false)
		join("calm", false)
		leave()
		folds.Wait()
		g.Expect(order[:4]).To(Equal([]string{"calm", "storm", "calm", "storm"}))
		g.Expect(order).To(HaveLen(52))
		g.Expect(gate.turns.IsEmpty()).To(BeTrue())
	})
}
