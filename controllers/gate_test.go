package controllers

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

func TestWriteGateLetsFewerInTheMoreRequestsWait(t *testing.T) {
	const write = time.Second / 10
	for name, tc := range map[string]struct {
		crowd, folds int
		most         int32
		takes        time.Duration // until the last fold has written
	}{
		"nobody waits":                          {crowd: 0, folds: 32, most: 16, takes: 2 * write},
		"one waits, and each place rests a bit": {crowd: 1, folds: 16, most: 8, takes: 2*write + write/crowdPerRest},
		"a few wait":                            {crowd: 4, folds: 6, most: 3, takes: 3 * write},
		"a storm":                               {crowd: 64, folds: 3, most: 1, takes: (3 + 2*maxRests) * write},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				gate := newWriteGate(16, func() int { return tc.crowd })
				var inside, most atomic.Int32
				var folds sync.WaitGroup
				start := time.Now()
				for range tc.folds {
					folds.Go(func() {
						g.Expect(gate.enter(context.Background(), "team", false)).To(Succeed())
						most.Store(max(most.Load(), inside.Add(1)))
						time.Sleep(write)
						inside.Add(-1)
						gate.leave("team", write)
					})
				}
				folds.Wait()
				g.Expect(most.Load()).To(Equal(tc.most))
				g.Expect(time.Since(start)).To(Equal(tc.takes))
			})
		})
	}
}

func TestWriteGateForgetsThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		gate := newWriteGate(1, func() int { return 0 })
		g.Expect(gate.enter(context.Background(), "team", false)).To(Succeed())
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.Expect(gate.enter(ctx, "team", false)).To(MatchError(context.DeadlineExceeded))
		g.Expect(gate.ring).To(BeEmpty())

		// A place that comes at the moment of giving up is passed on, not lost.
		ended, end := context.WithCancel(context.Background())
		end()
		gate.leave("team", 0)
		for range 100 {
			if gate.enter(ended, "team", true) == nil {
				gate.leave("team", 0)
			}
		}
		g.Expect(gate.active).To(BeZero())
		g.Expect(gate.namespaces).To(BeEmpty())
		g.Expect(gate.enter(context.Background(), "team", false)).To(Succeed())
	})
}

func TestWriteGateLetsUrgentFoldsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		gate := newWriteGate(1, func() int { return 0 })
		g.Expect(gate.enter(context.Background(), "team", false)).To(Succeed())
		var order []string
		var folds sync.WaitGroup
		for _, name := range []string{"repeat 1", "repeat 2", "urgent 1", "urgent 2"} {
			folds.Go(func() {
				g.Expect(gate.enter(context.Background(), "team", name[0] == 'u')).To(Succeed())
				order = append(order, name)
				gate.leave("team", 0)
			})
			synctest.Wait()
		}
		gate.leave("team", 0)
		folds.Wait()
		g.Expect(order).To(Equal([]string{"urgent 1", "urgent 2", "repeat 1", "repeat 2"}))
	})
}

func TestWriteGateLetsNoStreamOfUrgentFoldsKeepTheOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const write = time.Second / 10
		g := NewWithT(t)
		gate := newWriteGate(1, func() int { return 0 })
		ctx, stop := context.WithCancel(context.Background())
		var folds sync.WaitGroup
		for range 4 { // always three of them wait
			folds.Go(func() {
				for gate.enter(ctx, "team", true) == nil {
					time.Sleep(write)
					gate.leave("team", write)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		g.Expect(gate.enter(context.Background(), "team", false)).To(Succeed())
		g.Expect(time.Since(start)).To(BeNumerically("~", maxYield, 5*write))
		gate.leave("team", 0)
		stop()
		folds.Wait()
	})
}

func TestNamespacesTakeTurnsAtTheWriteGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		gate := newWriteGate(1, func() int { return 0 })
		g.Expect(gate.enter(context.Background(), "storm", true)).To(Succeed())
		var order []string
		var folds sync.WaitGroup
		join := func(namespace string, urgent bool) {
			folds.Go(func() {
				g.Expect(gate.enter(context.Background(), namespace, urgent)).To(Succeed())
				order = append(order, namespace)
				gate.leave(namespace, 0)
			})
			synctest.Wait()
		}
		for range 50 {
			join("storm", true)
		}
		join("calm", false)
		join("calm", false)
		gate.leave("storm", 0)
		folds.Wait()
		g.Expect(order[:4]).To(Equal([]string{"storm", "calm", "storm", "calm"}))
		g.Expect(order).To(HaveLen(52))
		g.Expect(gate.namespaces).To(BeEmpty())
	})
}
