package incident

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// slowLists takes a second for each list, which shows its number.
type slowLists struct {
	begun atomic.Int64
	fail  error
}

func (s *slowLists) list(ctx context.Context, _ int64) (*eventList, error) {
	n := s.begun.Add(1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.fail != nil {
		return nil, s.fail
	}
	return &eventList{events: map[types.UID]storedEvent{types.UID(fmt.Sprint(n)): {}}}, nil
}

// listOf returns a quorumList of all namespaces.
func listOf(list lister) *quorumList {
	return newQuorumLists(func(...string) lister { return list }, []string{metav1.NamespaceAll}).all
}

// listsThatTake returns lists that have no bytes, and take so long.
func listsThatTake(long func(namespace string) time.Duration) *quorumLists {
	return newQuorumLists(func(namespaces ...string) lister {
		return func(ctx context.Context, _ int64) (*eventList, error) {
			select {
			case <-time.After(long(namespaces[0])):
				return &eventList{}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}, []string{metav1.NamespaceAll})
}

func TestAListIsSharedByThoseWhoCameBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		lists := &slowLists{}
		q := listOf(lists.list)
		join := func(got chan<- *eventList) {
			events, err := q.join(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			got <- events
		}
		first, later := make(chan *eventList, 1), make(chan *eventList, 50)
		go join(first)
		synctest.Wait()
		g.Expect(lists.begun.Load()).To(Equal(int64(1)))
		for range cap(later) {
			go join(later)
		}
		g.Expect((<-first).has("1", "incident")).To(BeTrue())
		for range cap(later) {
			g.Expect((<-later).has("2", "incident")).To(BeTrue(), "a list that had begun is of no use to who came then")
		}
		synctest.Wait()
		g.Expect(lists.begun.Load()).To(Equal(int64(2)))
	})
}

func TestAFailedListFailsAllItsWaitersAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		lists := &slowLists{fail: errors.New("out of order")}
		q := listOf(lists.list)
		failures := make(chan error, 3)
		for range cap(failures) {
			go func() {
				_, err := q.join(t.Context())
				failures <- err
			}()
		}
		for range cap(failures) {
			g.Expect(<-failures).To(MatchError("out of order"))
		}
		lists.fail = nil
		_, err := q.join(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
	})
}

// TestAWaiterThatLeavesTakesNothingFromTheOthers has two wait for a list that begins after another one.
func TestAWaiterThatLeavesTakesNothingFromTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		lists := &slowLists{}
		q := listOf(lists.list)
		leaving, leave := context.WithCancel(t.Context())
		join := func(ctx context.Context) <-chan error {
			ended := make(chan error, 1)
			go func() { _, err := q.join(ctx); ended <- err }()
			synctest.Wait()
			return ended
		}
		before, left, stayed := join(t.Context()), join(leaving), join(t.Context())
		leave()
		g.Expect(<-left).To(MatchError(context.Canceled))
		g.Expect(<-before).NotTo(HaveOccurred())
		g.Expect(<-stayed).NotTo(HaveOccurred())
		g.Expect(lists.begun.Load()).To(Equal(int64(2)))
	})
}

// TestAListThatAllLeaveBeforeItBeginsIsNotMade has its only waiter leave while the list waits for the pause after another one.
func TestAListThatAllLeaveBeforeItBeginsIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		lists := &slowLists{}
		q := listOf(lists.list)
		_, err := q.join(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = q.join(ctx)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		time.Sleep(time.Minute)
		g.Expect(lists.begun.Load()).To(Equal(int64(1)))
	})
}

func TestAListThatNobodyWaitsForIsCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		lists := &slowLists{}
		q := listOf(lists.list)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := q.join(ctx)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		synctest.Wait()
		_, err = q.join(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(time.Since(began)).To(BeNumerically("<", 2*time.Second), "nobody waits for the first to end")
	})
}

func TestTheTimeOfAListBeginsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		const took = listTimeout - 5*time.Second
		q := listsThatTake(func(string) time.Duration { return took }).of("a")
		first := make(chan error, 1)
		go func() { _, err := q.join(t.Context()); first <- err }()
		synctest.Wait()
		_, err := q.join(t.Context())
		g.Expect(err).NotTo(HaveOccurred(), "it waited for the first one before it began")
		g.Expect(<-first).NotTo(HaveOccurred())
	})
}

// TestNobodyWaitsForTheListOfAnotherNamespace: the AlertEvents of the namespaces "vast" take ten seconds to list, and those of
// every other one ten milliseconds.
func TestNobodyWaitsForTheListOfAnotherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		const quick, long = 10 * time.Millisecond, 10 * time.Second
		var vast atomic.Bool
		var heavy, most atomic.Int64
		lists := newQuorumLists(func(namespaces ...string) lister {
			return func(ctx context.Context, limit int64) (*eventList, error) {
				if !strings.HasPrefix(namespaces[0], "vast") && (namespaces[0] != metav1.NamespaceAll || !vast.Load()) {
					time.Sleep(quick)
					return &eventList{bytes: heavyList / 2}, nil
				}
				if limit < 2*heavyList {
					time.Sleep(2 * quick)
					return nil, fmt.Errorf("listing: %w", errHeavy)
				}
				most.Store(max(most.Load(), heavy.Add(1)))
				defer heavy.Add(-1)
				select {
				case <-time.After(long):
					return &eventList{bytes: 2 * heavyList}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		}, []string{metav1.NamespaceAll})
		join := func(namespace string) (took time.Duration) {
			began := time.Now()
			_, err := lists.join(t.Context(), namespace)
			g.Expect(err).NotTo(HaveOccurred(), namespace)
			return time.Since(began)
		}
		g.Expect(join("a")).To(Equal(quick), "the list of all")
		vast.Store(true)
		time.Sleep(time.Second)
		g.Expect(join("a")).To(Equal(3*quick), "it begins that of all")
		var folds sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for n := range 2 * lightLists {
			folds.Go(func() {
				for ctx.Err() == nil {
					_, _ = lists.join(ctx, fmt.Sprint("vast-", n))
				}
			})
		}
		for range 100 {
			g.Expect(join("a")).To(BeNumerically("<=", 5*quick), "it has one of its own")
			time.Sleep(time.Second)
		}
		g.Expect(most.Load()).To(Equal(int64(1)), "heavy lists at a time")
		stop()
		folds.Wait()
		vast.Store(false)
		_, err := lists.all.join(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		join("a")
		g.Expect(lists.own).To(BeEmpty(), "all share one again")
	})
}

// TestNobodyWaitsForWhatIsSlowInAnotherNamespace: the list of all namespaces has few bytes, and the API server takes long for it.
func TestNobodyWaitsForWhatIsSlowInAnotherNamespace(t *testing.T) {
	const quick = 10 * time.Millisecond
	for sentence, takes := range map[string]time.Duration{
		"it takes 15 seconds":               15 * time.Second,
		"it takes longer than any list may": 2 * listTimeout,
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				all := takes
				lists := listsThatTake(func(namespace string) time.Duration {
					if namespace == metav1.NamespaceAll {
						return all
					}
					return quick
				})
				join := func() (took time.Duration) {
					began := time.Now()
					_, err := lists.join(t.Context(), "a")
					g.Expect(err).NotTo(HaveOccurred())
					return time.Since(began)
				}
				g.Expect(join()).To(Equal(slowList+quick), "it gives up that of all")
				for range 3 { // as Start does
					_, err := lists.all.join(t.Context())
					g.Expect(err != nil).To(Equal(takes > listTimeout))
					time.Sleep(time.Second)
					g.Expect(join()).To(Equal(quick), "it has one of its own")
				}
				all = quick
				_, err := lists.all.join(t.Context())
				g.Expect(err).NotTo(HaveOccurred())
				time.Sleep(time.Second)
				g.Expect(join()).To(Equal(quick))
				g.Expect(lists.own).To(BeEmpty(), "all share one again")
			})
		})
	}
}

// TestASlowAPIServerLeavesFoldsTheirPlaces: when all lists are slow, those of the namespaces still are made side by side.
func TestASlowAPIServerLeavesFoldsTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		const took = slowList + 2*time.Second
		lists := listsThatTake(func(string) time.Duration { return took })
		_, err := lists.join(t.Context(), "a")
		g.Expect(err).NotTo(HaveOccurred())
		time.Sleep(maxListPause)
		began := time.Now()
		var folds sync.WaitGroup
		for n := range lightLists {
			folds.Go(func() {
				_, err := lists.join(t.Context(), fmt.Sprint(n))
				g.Expect(err).NotTo(HaveOccurred())
			})
		}
		folds.Wait()
		g.Expect(time.Since(began)).To(Equal(took))
	})
}

// TestAHeavyListOfAllNamespacesIsTriedAgain has it heavy for a minute.
func TestAHeavyListOfAllNamespacesIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		long, made := time.Minute, 0
		lists := listsThatTake(func(namespace string) time.Duration {
			if namespace != metav1.NamespaceAll {
				return 0
			}
			made++
			return long
		})
		ctx, stop := context.WithCancel(t.Context())
		var started sync.WaitGroup
		started.Go(func() { _ = lists.Start(ctx) })
		_, err := lists.join(ctx, "team")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(lists.all.isHeavy.Load()).To(BeTrue())
		g.Expect(made).To(Equal(1))
		long = 0
		time.Sleep(maxListPause + 2*heavyInterval)
		g.Expect(lists.all.isHeavy.Load()).To(BeFalse())
		light := made
		time.Sleep(3 * heavyInterval)
		g.Expect(made).To(Equal(light), "a light list is made only for a fold")
		stop()
		started.Wait()
	})
}

func allShown(client.Object) bool { return false }
