package incident

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
)

// lagBench is a leader's lagDetector, the AlertEvents of the API server, and a watch that shows what the test lets it show.
type lagBench struct {
	*lagDetector
	stored map[string]*v1alpha1.AlertEvent
	shown  map[types.UID]bool // false: deleted
	failed error              // what the next lists fail with
	began  time.Time
	log    []string // lists and restarts, with their times
	heals  bool     // a restart makes the watch show everything
}

func newLagBench() *lagBench {
	b := &lagBench{stored: map[string]*v1alpha1.AlertEvent{}, shown: map[types.UID]bool{}, began: time.Now()}
	b.lagDetector = newLagDetector(b, clock.RealClock{}, b.lister, []string{metav1.NamespaceAll}, func(listAnew bool) {
		b.note(map[bool]string{false: "watch again", true: "list anew"}[listAnew])
		if b.heals {
			for name := range b.stored {
				b.showIt(name)
			}
		}
	})
	return b
}

func (b *lagBench) note(what string) {
	b.log = append(b.log, fmt.Sprint(time.Since(b.began), " ", what))
}

func (b *lagBench) lister(namespaces ...string) lister {
	return func(context.Context, int64) (*eventList, error) {
		b.note(strings.TrimSpace("list " + namespaces[0]))
		if b.failed != nil {
			return nil, b.failed
		}
		listed := newEventList(len(b.stored))
		for _, event := range b.stored {
			if namespaces[0] == metav1.NamespaceAll || namespaces[0] == event.Namespace {
				listed.add(event)
			}
		}
		return listed, nil
	}
}

// store stores an AlertEvent in a namespace of the same name.
func (b *lagBench) store(name string) {
	b.stored[name] = &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name, UID: types.UID(name)}}
}

func (b *lagBench) showIt(name string) { b.shown[b.stored[name].UID] = true }

// HasShown implements watchedEvents. A list that has a deleted AlertEvent began before.
func (b *lagBench) HasShown(event replica.EventRef, _ time.Time) bool {
	_, shown := b.shown[event.UID]
	return shown
}

func (b *lagBench) remove(name string) { delete(b.stored, name) }

func TestAStalledWatchEndsTheTerm(t *testing.T) {
	const second = time.Second
	type step struct {
		at time.Duration
		do func(*lagBench)
	}
	store := step{0, func(b *lagBench) { b.store("a") }}
	show := func(b *lagBench) { b.showIt("a") }
	next := func(before, after string) func(*lagBench) {
		return func(b *lagBench) { b.remove(before); b.store(after) }
	}
	for sentence, test := range map[string]struct {
		steps []step
		until time.Duration
		log   []string
		fails bool
	}{
		"an idle leader lists every ten seconds": {nil, 30 * second, []string{"1s list", "11s list", "21s list"}, false},
		"the list of a fold counts": {[]step{{5 * second, func(b *lagBench) { _, _ = b.lists.join(context.Background(), "a") }}}, 14 * second,
			[]string{"1s list", "5s list"}, false},
		"the list of one namespace says nothing of the others": {[]step{
			{0, func(b *lagBench) { b.store("a"); b.store("b"); b.lists.all.isHeavy.Store(true) }},
			{4 * second, func(b *lagBench) {
				b.remove("a")
				b.lists.all.isHeavy.Store(true)
				_, _ = b.lists.join(context.Background(), "a")
				if _, lacks := b.lacking["a"]; lacks {
					b.note("a lacks")
				}
				if _, lacks := b.lacking["b"]; lacks {
					b.note("b lacks")
				}
			}},
		}, 8 * second, []string{"1s list", "4s list a", "4s b lacks", "6s list"}, false},
		"the watch has shown all": {[]step{store, {second / 2, show}}, 30 * second, []string{"1s list", "11s list", "21s list"}, false},
		"the watch shows an AlertEvent late": {[]step{store, {13 * second, show}}, 30 * second,
			[]string{"1s list", "6s list", "11s list", "21s list"}, false},
		"the watch shows it when it begins again": {[]step{{0, func(b *lagBench) { b.heals = true }}, store}, 45 * second,
			[]string{"1s list", "6s list", "11s list", "16s list", "16s watch again", "26s list", "36s list"}, false},
		"the watch stalls": {[]step{store}, 45 * second, []string{"1s list", "6s list", "11s list", "16s list", "16s watch again",
			"21s list", "21s list anew", "26s list", "31s list"}, true},
		"the AlertEvent is deleted meanwhile": {[]step{store, {14 * second, func(b *lagBench) { b.remove("a") }}}, 40 * second,
			[]string{"1s list", "6s list", "11s list", "16s list", "26s list", "36s list"}, false},
		"another one is late each time": {[]step{
			store, {4 * second, next("a", "b")}, {9 * second, next("b", "c")}, {14 * second, next("c", "d")}, {19 * second, next("d", "e")},
		}, 30 * second, []string{"1s list", "6s list", "11s list", "16s list", "21s list", "26s list"}, false},
		"a list that fails tells nothing": {[]step{store, {7 * second, func(b *lagBench) { b.failed = errors.New("away") }}}, 50 * second,
			[]string{"1s list", "6s list", "11s list", "16s list", "21s list", "26s list", "31s list", "36s list", "41s list", "46s list"}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, b := NewWithT(t), newLagBench()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- b.Start(ctx) }()
				synctest.Wait()
				for _, step := range test.steps {
					time.Sleep(time.Until(b.began.Add(step.at)))
					step.do(b)
				}
				time.Sleep(time.Until(b.began.Add(test.until)))
				synctest.Wait()
				g.Expect(b.log).To(Equal(test.log))
				if !test.fails {
					g.Expect(ended).NotTo(Receive())
				}
				cancel()
				failure := <-ended
				if test.fails {
					g.Expect(failure).To(MatchError(ContainSubstring("has not shown one for 30s")))
				} else {
					g.Expect(failure).NotTo(HaveOccurred())
				}
			})
		})
	}
}
