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

func TestWriteGateLetsFewerInWhileIngestIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var busy atomic.Bool
		gate := newWriteGate(4, busy.Load)
		var inside, most atomic.Int32
		var folds sync.WaitGroup
		run := func(n int) int32 {
			most.Store(0)
			for range n {
				folds.Go(func() {
					g.Expect(gate.enter(context.Background(), false)).To(Succeed())
					most.Store(max(most.Load(), inside.Add(1)))
					time.Sleep(time.Second / 10)
					inside.Add(-1)
					gate.leave(time.Second / 10)
				})
			}
			folds.Wait()
			return most.Load()
		}
		g.Expect(run(20)).To(BeEquivalentTo(4))
		busy.Store(true)
		start := time.Now()
		g.Expect(run(3)).To(BeEquivalentTo(1))
		g.Expect(time.Since(start)).To(Equal((1 + busyRests + 1 + busyRests + 1) * time.Second / 10))
		busy.Store(false)
		time.Sleep(time.Second)
		g.Expect(run(20)).To(BeEquivalentTo(4))
	})
}

func TestWriteGateForgetsThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		gate := newWriteGate(1, func() bool { return false })
		g.Expect(gate.enter(context.Background(), false)).To(Succeed())
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.Expect(gate.enter(ctx, false)).To(MatchError(context.DeadlineExceeded))
		g.Expect(gate.waiting).To(BeEmpty())

		// A place that comes at the moment of giving up is passed on, not lost.
		ended, end := context.WithCancel(context.Background())
		end()
		gate.leave(0)
		for range 100 {
			if gate.enter(ended, true) == nil {
				gate.leave(0)
			}
		}
		g.Expect(gate.active).To(BeZero())
		g.Expect(gate.enter(context.Background(), false)).To(Succeed())
	})
}

func TestWriteGateLetsUrgentFoldsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		gate := newWriteGate(1, func() bool { return false })
		g.Expect(gate.enter(context.Background(), false)).To(Succeed())
		var order []string
		var folds sync.WaitGroup
		for _, name := range []string{"repeat 1", "repeat 2", "urgent 1", "urgent 2"} {
			folds.Go(func() {
				g.Expect(gate.enter(context.Background(), name[0] == 'u')).To(Succeed())
				order = append(order, name)
				gate.leave(0)
			})
			synctest.Wait()
		}
		gate.leave(0)
		folds.Wait()
		g.Expect(order).To(Equal([]string{"urgent 1", "urgent 2", "repeat 1", "repeat 2"}))
	})
}
