package fair

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func TestSpace(t *testing.T) {
	g := NewWithT(t)
	s := NewSpace(400)
	reserve := func(namespace, name string, size int64) *Reservation {
		return s.Reserve(types.NamespacedName{Namespace: namespace, Name: name}, size, 0)
	}
	first := reserve("team-a", "a", 100)
	g.Expect(first).NotTo(BeNil())
	g.Expect(reserve("team-a", "a", 1)).To(BeNil(), "an integration has its share")
	held := []*Reservation{reserve("team-a", "b", 100)}
	g.Expect(reserve("team-a", "c", 1)).To(BeNil(), "a namespace has its share")
	held = append(held, reserve("team-b", "a", 100), reserve("team-c", "a", 100))
	g.Expect(reserve("team-d", "a", 1)).To(BeNil(), "all of them together have the whole")
	first.Shrink(99)
	held = append(held, reserve("team-d", "a", 1))
	first.Release()
	first.Release()
	for _, reservation := range held {
		g.Expect(reservation).NotTo(BeNil())
		reservation.Release()
	}
	g.Expect(s.held).To(BeEmpty())
	large := reserve("team-a", "a", 1000)
	g.Expect(large).NotTo(BeNil(), "however large it may be, one is let in")
	g.Expect(reserve("team-b", "a", 1)).To(BeNil())
	large.Release()
	g.Expect(s.held).To(BeEmpty())
}

func TestAReservationWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		s := NewSpace(400)
		one := types.NamespacedName{Namespace: "team-a", Name: "a"}
		first := s.Reserve(one, 100, 0)
		begin := time.Now()
		g.Expect(s.Reserve(one, 60, time.Second)).To(BeNil())
		g.Expect(time.Since(begin)).To(Equal(time.Second))
		var served atomic.Int32
		for range 2 {
			go func() {
				if memory := s.Reserve(one, 60, time.Minute); memory != nil {
					served.Add(1)
					time.Sleep(time.Second)
					memory.Release()
				}
			}()
		}
		synctest.Wait()
		g.Expect(served.Load()).To(BeZero())
		first.Release()
		synctest.Wait()
		g.Expect(served.Load()).To(BeEquivalentTo(1), "there is capacity for one of them")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		g.Expect(served.Load()).To(BeEquivalentTo(2))
		g.Expect(s.held).To(BeEmpty())
	})
}

func TestTheLastQuarterIsForNamespacesThatHoldLittle(t *testing.T) {
	g := NewWithT(t)
	s := NewSpace(3200)
	of := func(namespace string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: "x"}
	}
	a, b, c, d := of("a"), of("b"), of("c"), of("d")
	g.Expect(s.Reserve(a, 1600, 0)).NotTo(BeNil())
	g.Expect(s.Reserve(b, 700, 0)).NotTo(BeNil())
	g.Expect(s.Allows(b, 100)).To(BeTrue(), "three quarters")
	g.Expect(s.Allows(b, 101)).To(BeFalse(), "more")
	g.Expect(s.Reserve(c, 99, 0)).NotTo(BeNil())
	g.Expect(s.Reserve(c, 1, 0)).NotTo(BeNil(), "it holds little")
	g.Expect(s.Allows(c, 1)).To(BeFalse(), "it does no more")
	g.Expect(s.Allows(d, 800)).To(BeTrue(), "it holds nothing")
	g.Expect(s.Allows(d, 801)).To(BeFalse(), "beyond all")
}
