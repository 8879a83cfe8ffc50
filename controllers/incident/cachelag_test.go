package incident

import (
	"context"
	"errors"
	"fmt"
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
	list := listOf(func(context.Context, int64) (*eventList, error) {
		b.note("list")
		if b.failed != nil {
			return nil, b.failed
		}
		listed := newEventList(len(b.stored))
		for _, event := range b.stored {
			listed.add(event)
		}
		return listed, nil
	})
	b.lagDetector = &lagDetector{hasShown: b.hasShown, clock: clock.RealClock{}, list: list, restart: func(listAnew bool) {
		b.note(map[bool]string{false: "watch again", true: "list anew"}[listAnew])
		if b.heals {
			for name := range b.stored {
				b.showIt(name)
			}
		}
	}}
	return b
}

func (b *lagBench) note(what string) {
	b.log = append(b.log, fmt.Sprint(time.Since(b.began), " ", what))
}

// store stores an AlertEvent in a namespace of the same name.
func (b *lagBench) store(name string) {
	b.stored[name] = &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name, UID: types.UID(name)}}
}

func (b *lagBench) showIt(name string) { b.shown[b.stored[name].UID] = true }

// hasShown is that of a watch. A list that has a deleted AlertEvent began before.
func (b *lagBench) hasShown(event replica.EventRef, _ time.Time) bool {
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
		"an idle leader lists every ten seconds": {nil, 29 * second, []string{"0s list", "10s list", "20s list"}, false},
		"the watch has shown all":                {[]step{store, {0, show}}, 29 * second, []string{"0s list", "10s list", "20s list"}, false},
		"the watch shows an AlertEvent late": {[]step{store, {13 * second, show}}, 29 * second,
			[]string{"0s list", "5s list", "10s list", "15s list", "25s list"}, false},
		"the watch shows it when it begins again": {[]step{{0, func(b *lagBench) { b.heals = true }}, store}, 45 * second,
			[]string{"0s list", "5s list", "10s list", "15s list", "15s watch again", "20s list", "30s list", "40s list"}, false},
		"the watch stalls": {[]step{store}, 45 * second, []string{"0s list", "5s list", "10s list", "15s list", "15s watch again",
			"20s list", "20s list anew", "25s list", "30s list"}, true},
		"the AlertEvent is deleted meanwhile": {[]step{store, {14 * second, func(b *lagBench) { b.remove("a") }}}, 39 * second,
			[]string{"0s list", "5s list", "10s list", "15s list", "25s list", "35s list"}, false},
		"another one is late each time": {[]step{
			store, {4 * second, next("a", "b")}, {9 * second, next("b", "c")}, {14 * second, next("c", "d")}, {19 * second, next("d", "e")},
		}, 29 * second, []string{"0s list", "5s list", "10s list", "15s list", "20s list", "25s list"}, false},
		"a list that fails tells nothing": {[]step{store, {7 * second, func(b *lagBench) { b.failed = errors.New("away") }}}, 49 * second,
			[]string{"0s list", "5s list", "10s list", "15s list", "20s list", "25s list", "30s list", "35s list", "40s list", "45s list"}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, b := NewWithT(t), newLagBench()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				steps := test.steps
				for ; len(steps) > 0 && steps[0].at == 0; steps = steps[1:] {
					steps[0].do(b)
				}
				go func() { ended <- b.Start(ctx) }()
				synctest.Wait()
				for _, step := range steps {
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
