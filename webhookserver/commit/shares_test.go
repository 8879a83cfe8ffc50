package commit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// stuckStore stores nothing until it is let go, and tells in which order namespaces came.
type stuckStore struct {
	Store
	begun chan string
	goOn  chan struct{}
}

func (s *stuckStore) Create(_ context.Context, event *v1alpha1.AlertEvent) error {
	s.begun <- event.Namespace
	<-s.goOn
	return nil
}

// submit has an integration submit so many alerts, and returns when they wait or are being written.
func submit(c *Committer, namespace, integration string, alerts int) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := c.Commit(context.Background(), Submission{
			Integration: types.NamespacedName{Namespace: namespace, Name: integration},
			Alerts:      slices.Repeat([]v1alpha1.Alert{{DedupKey: "k", Status: v1alpha1.AlertFiring}}, alerts),
		})
		done <- err
	}()
	synctest.Wait()
	return done
}

func TestAStormInOneNamespaceLeavesTheOthersAWriterAndAPlaceToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := &stuckStore{begun: make(chan string, 1000), goOn: make(chan struct{}, 1000)}
		c := New(store, 8, nil)
		var waiting []chan error
		for i := range 100 {
			waiting = append(waiting, submit(c, "storm", fmt.Sprint(i), 500))
		}
		g.Expect(store.begun).To(HaveLen(7), "of eight writers")
		refused := 0
		for _, done := range waiting {
			select {
			case err := <-done:
				g.Expect(err).To(MatchError(ErrOverloaded))
				refused++
			default:
			}
		}
		g.Expect(refused).To(Equal(100-7-20), "half of all that may wait is its own")
		calm := submit(c, "calm", "app", 1)
		g.Expect(store.begun).To(HaveLen(8), "at once")

		for range 100 {
			store.goOn <- struct{}{}
		}
		synctest.Wait()
		g.Expect(<-calm).To(Succeed())
		g.Expect(c.Close(context.Background())).To(Succeed())
		expectIdle(g, c)
	})
}

func TestStormsInManyNamespacesLeaveACalmOneAPlaceToWait(t *testing.T) {
	g := NewWithT(t)
	c := New(nil, 8, nil)
	c.turns.Places = 0
	waiting := 0
	for storm := range 6 {
		for i := 0; c.space.Reserve(types.NamespacedName{Namespace: fmt.Sprint("storm-", storm), Name: fmt.Sprint(i)}, 500*minWeight, 0) != nil; i++ {
			waiting += 500 * minWeight
		}
	}
	g.Expect(waiting).To(BeNumerically(">=", maxWaiting*3/4))
	g.Expect(waiting).To(BeNumerically("<", maxWaiting))
	g.Expect(c.CheckSpace(types.NamespacedName{Namespace: "calm", Name: "app"})).To(Succeed())
	g.Expect(c.CheckSpace(types.NamespacedName{Namespace: "storm-0", Name: "app"})).To(MatchError(ErrOverloaded))
}

// An admission webhook hangs for two namespaces, which together may have all writers.
func TestWritesThatHangLeaveAWriterToTheOtherNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := &stuckStore{begun: make(chan string, 1000), goOn: make(chan struct{}, 1000)}
		c := New(store, 8, nil)
		var hanging []chan error
		for i := range 30 {
			hanging = append(hanging, submit(c, fmt.Sprint("hangs-", i%2), fmt.Sprint(i), 1))
		}
		g.Expect(store.begun).To(HaveLen(8))
		for i := range 3 {
			begun := len(store.begun)
			hanging = append(hanging, submit(c, fmt.Sprint("calm-", i), "app", 1))
			time.Sleep(slowWrite)
			synctest.Wait()
			g.Expect(len(store.begun)).To(BeNumerically(">", begun))
		}
		calm := 0
		for len(store.begun) > 0 {
			if strings.HasPrefix(<-store.begun, "calm") {
				calm++
			}
		}
		g.Expect(calm).To(Equal(3))
		for range hanging {
			store.goOn <- struct{}{}
		}
		g.Expect(c.Close(context.Background())).To(Succeed())
		g.Expect(c.turns.IsEmpty()).To(BeTrue())
	})
}

func TestTheNextFreeWriterGoesToTheNamespaceWithTheFewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := &stuckStore{begun: make(chan string, 1000), goOn: make(chan struct{}, 1000)}
		c := New(store, 2, nil)
		for i := range 20 {
			submit(c, "storm", fmt.Sprint(i), 1)
		}
		submit(c, "calm", "app", 1)
		var order []string
		for range 3 {
			order = append(order, <-store.begun)
			store.goOn <- struct{}{}
			synctest.Wait()
		}
		for range 18 {
			store.goOn <- struct{}{}
		}
		synctest.Wait()
		g.Expect(order).To(Equal([]string{"storm", "storm", "calm"}))
	})
}
