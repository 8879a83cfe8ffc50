package fair

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// newTestQueue is a queue of strings such as "key/name".
func newTestQueue(places int) *Queue[string] {
	keyOf := func(item string) string { return strings.Split(item, "/")[0] }
	queue, _ := NewQueue(keyOf, places)("", workqueue.DefaultTypedControllerRateLimiter[string]()).(*Queue[string])
	return queue
}

// take hands out n items, and says that their workers are done.
func (q *Queue[T]) take(n int) []T {
	var taken []T
	for range n {
		item, _ := q.Get()
		taken = append(taken, item)
		q.Done(item)
	}
	return taken
}

func TestNamespacesTakeTurnsInTheQueue(t *testing.T) {
	g := NewWithT(t)
	q := newTestQueue(100)
	defer q.ShutDown()
	for i := range 30_000 {
		q.Add(fmt.Sprint("storm/", i))
	}
	q.Add("calm/a")
	q.Add("calm/b")
	g.Expect(q.take(5)).To(Equal([]string{"storm/0", "calm/a", "storm/1", "calm/b", "storm/2"}))
	g.Expect(q.Len()).To(Equal(30_000 - 3))
}

func TestANamespaceLeavesPlacesToTheOthers(t *testing.T) {
	g := NewWithT(t)
	q := newTestQueue(5)
	defer q.ShutDown()
	for i := range 6 {
		q.Add(fmt.Sprint("storm/", i))
	}
	var hanging []string
	for range 4 {
		item, _ := q.Get()
		hanging = append(hanging, item)
	}
	g.Expect(q.Len()).To(BeZero(), "the others have to wait for these")
	q.Add("calm/a")
	g.Expect(q.take(1)).To(Equal([]string{"calm/a"}))
	q.Done(hanging[0])
	g.Expect(q.take(2)).To(Equal([]string{"storm/4", "storm/5"}))
	for _, item := range hanging[1:] {
		q.Done(item)
	}
	g.Expect(q.order.turns.lines).To(BeEmpty())
}

func TestItemsThatHangLeaveAWorkerToTheOtherNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 5
		g := NewWithT(t)
		q := newTestQueue(places)
		folded, goOn := make(chan string, 10), make(chan struct{})
		for range MaxAtWork(places) {
			go func() {
				for item, shutdown := q.Get(); !shutdown; item, shutdown = q.Get() {
					if strings.HasPrefix(item, "hangs") {
						<-goOn
					} else {
						folded <- item
					}
					q.Done(item)
				}
			}()
		}
		for namespace := range 3 {
			for i := range 100 {
				q.Add(fmt.Sprintf("hangs %d/%d", namespace, i))
			}
		}
		synctest.Wait()
		q.Add("calm/a")
		begun := time.Now()
		g.Expect(<-folded).To(Equal("calm/a"))
		g.Expect(time.Since(begun)).To(BeNumerically("<=", slowItem))
		time.Sleep(time.Minute)
		q.Add("calm/b")
		begun = time.Now()
		g.Expect(<-folded).To(Equal("calm/b"))
		g.Expect(time.Since(begun)).To(BeNumerically("<=", slowItem))
		close(goOn)
		synctest.Wait()
		g.Expect(q.order.turns.IsEmpty()).To(BeTrue())
		q.ShutDown()
	})
}

func TestUrgentItemsGoBeforeTheOthersOfTheirNamespace(t *testing.T) {
	g := NewWithT(t)
	q := newTestQueue(100)
	defer q.ShutDown()
	low := handler.LowPriority
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "team/policy 1", "team/policy 2", "team/policy 3")
	q.Add("team/alert")
	q.Add("team/policy 3") // an alert has come for it
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "team/alert")
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "other/policy")
	g.Expect(q.take(5)).To(Equal([]string{"team/alert", "other/policy", "team/policy 3", "team/policy 1", "team/policy 2"}))
	g.Expect(q.order.urgent).To(BeEmpty())
}

func TestAnItemStaysUrgentUntilItIsHandedOut(t *testing.T) {
	g := NewWithT(t)
	q := newTestQueue(100)
	defer q.ShutDown()
	low := handler.LowPriority
	add := func(item string) { q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, item) }
	add("team/repeat")
	item, priority, _ := q.GetWithPriority()
	g.Expect(priority).To(Equal(low))
	q.Add(item) // a resolve has come meanwhile
	add(item)   // and the reconciler wants to look again
	add("team/other")
	q.Done(item)
	item, priority, _ = q.GetWithPriority()
	g.Expect(item).To(Equal("team/repeat"))
	g.Expect(priority).To(BeZero())
	q.Done(item)
	g.Expect(q.order.atWork).To(BeEmpty())
	_, priority, _ = q.GetWithPriority()
	g.Expect(priority).To(Equal(low))
}

func TestNoStreamOfUrgentItemsKeepsTheOthersOut(t *testing.T) {
	g := NewWithT(t)
	q := newTestQueue(100)
	defer q.ShutDown()
	low := handler.LowPriority
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "team/repeat 1", "team/repeat 2")
	for i := range 10 {
		q.Add(fmt.Sprint("team/urgent ", i))
	}
	taken := q.take(2 * ordinaryPart)
	g.Expect(taken[ordinaryPart-1]).To(Equal("team/repeat 1"))
	g.Expect(taken[2*ordinaryPart-1]).To(Equal("team/repeat 2"))
}

func TestAQueueThatIsShutDownHandsNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		q := newTestQueue(100)
		q.Add("team/a")
		q.AddAfter("team/b", time.Minute)
		q.ShutDown()
		_, _, shutdown := q.GetWithPriority()
		g.Expect(shutdown).To(BeTrue())
		synctest.Wait()
	})
}

func TestTheQueueLosesNothingAndHandsNothingOutTwiceAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newTestQueue(3)
		defer q.ShutDown()
		low := handler.LowPriority
		wanted, atWork := map[string]bool{}, map[string]bool{}
		perNamespace := map[string]int{}
		take := func() {
			item, _ := q.Get()
			if !wanted[item] || atWork[item] {
				t.Fatalf("%q is handed out, wanted %v, at work %v", item, wanted[item], atWork[item])
			}
			delete(wanted, item)
			atWork[item] = true
			if perNamespace[item[:1]]++; perNamespace[item[:1]] > 3 {
				t.Fatalf("%q has more than its places", item[:1])
			}
		}
		done := func(item string) {
			delete(atWork, item)
			perNamespace[item[:1]]--
			q.Done(item)
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			item := fmt.Sprintf("%c/%d", 'a'+rapid.IntRange(0, 2).Draw(t, "namespace"), rapid.IntRange(0, 5).Draw(t, "item"))
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				q.Add(item)
				wanted[item] = true
			case 1:
				q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, item)
				wanted[item] = true
			case 2:
				if q.Len() > 0 {
					take()
				}
			case 3:
				if atWork[item] {
					done(item)
				}
			}
		}
		for len(wanted)+len(atWork) > 0 {
			for item := range atWork {
				done(item)
			}
			if len(wanted) > 0 {
				take()
			}
		}
		if q.Len() > 0 || len(q.order.turns.lines) > 0 || len(q.order.urgent)+len(q.order.atWork) > 0 {
			t.Fatalf("%d items, %d namespaces and %d marks are left", q.Len(), len(q.order.turns.lines), len(q.order.urgent)+len(q.order.atWork))
		}
	})
}
