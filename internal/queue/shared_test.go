package queue

import (
	"fmt"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// shownEvent is an AlertEvent as a reader of the cache has it, and as it was when the reader got it.
type shownEvent struct{ held, was *v1alpha1.AlertEvent }

// cacheModel has the AlertEvents that the API server has, and what readers of the cache still hold of them.
type cacheModel struct {
	cached *Cached
	stored map[types.UID]*v1alpha1.AlertEvent // with their texts
	sizes  map[types.UID]int64                // as they were counted first
	held   []shownEvent
	next   int
}

// TestWhatTheCacheHasShownStaysAsItIs watches AlertEvents that come, get marks, are deleted and go. A fold may hold any of the
// objects that the cache had meanwhile. After each step, what the budgets say is what a recount says.
func TestWhatTheCacheHasShownStaysAsItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := fair.Limit{All: 6000, Share: 0.5}
		m := &cacheModel{cached: NewBoundedCached(limit, limit), stored: map[types.UID]*v1alpha1.AlertEvent{},
			sizes: map[types.UID]int64{}}
		m.cached.settled.Limit = limit
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "create": m.create, "mark": m.mark, "delete": m.terminate, "list anew": m.list, "go": m.end,
		})
		for uid := range m.stored {
			m.remove(uid)
		}
		m.check(t)
		if len(m.cached.events)+len(m.cached.stubs) > 0 {
			t.Fatalf("something is left: %+v", m.cached)
		}
	})
}

// show has the watch show an AlertEvent as it is stored.
func (m *cacheModel) show(t *rapid.T, uid types.UID) {
	object, err := m.cached.Condense(m.stored[uid].DeepCopy())
	event, ok := object.(*v1alpha1.AlertEvent)
	if err != nil || !ok {
		t.Fatalf("condensing: %v", err)
	}
	m.held = append(m.held, shownEvent{event, event.DeepCopy()})
	if _, err := m.cached.Condense(event); err != nil { // client-go transforms an object of a list twice
		t.Fatal(err)
	}
	if entry := m.cached.events[uid]; entry.stub != nil {
		return
	} else if first, known := m.sizes[uid]; !known {
		m.sizes[uid] = entry.size
	} else if more := entry.size - first; more < 0 || more > int64(len("example.com/keep")) {
		t.Fatalf("%s counted %d bytes, and counts %d: its size in the API server is the same", uid, first, entry.size)
	}
}

func (m *cacheModel) create(t *rapid.T) {
	m.next++
	namespace := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace")
	event := largeEvent(namespace, m.next, rapid.SampledFrom([]int{0, 300, 1500}).Draw(t, "bytes"))
	event.ResourceVersion = fmt.Sprint(1000 + m.next)
	if rapid.IntRange(0, 5).Draw(t, "readable") == 0 {
		event.Spec.Alerts = "["
	}
	m.stored[event.UID] = event
	m.show(t, event.UID)
}

// any draws one of the AlertEvents that exist.
func (m *cacheModel) any(t *rapid.T) types.UID {
	if len(m.stored) == 0 {
		t.Skip("there is none")
	}
	var uids []types.UID
	for n := range m.next + 1 {
		for _, namespace := range []string{"a", "b"} {
			if uid := types.UID(fmt.Sprint(namespace, n)); m.stored[uid] != nil {
				uids = append(uids, uid)
			}
		}
	}
	return rapid.SampledFrom(uids).Draw(t, "which")
}

func (m *cacheModel) mark(t *rapid.T) {
	event := m.stored[m.any(t)]
	mark := rapid.SampledFrom([]string{"999/*", "999/x", "999/x,y", "9999/*"}).Draw(t, "mark")
	event.Annotations = map[string]string{v1alpha1.SettledAnnotation: mark}
	m.show(t, event.UID)
}

func (m *cacheModel) terminate(t *rapid.T) {
	event := m.stored[m.any(t)]
	event.DeletionTimestamp, event.Finalizers = &metav1.Time{Time: testEpoch}, []string{"example.com/keep"}
	m.show(t, event.UID)
}

func (m *cacheModel) list(t *rapid.T) { m.show(t, m.any(t)) }

func (m *cacheModel) end(t *rapid.T) { m.remove(m.any(t)) }

func (m *cacheModel) remove(uid types.UID) {
	m.cached.Forget(m.stored[uid])
	delete(m.stored, uid)
}

// check compares what readers hold with what they got, and the budgets with a recount.
func (m *cacheModel) check(t *rapid.T) {
	for _, shown := range m.held {
		if !reflect.DeepEqual(shown.held, shown.was) {
			t.Fatalf("a reader held %+v, and now it is %+v", shown.was, shown.held)
		}
	}
	content, sizes, settled, stubs := map[string]int64{}, map[string]int64{}, map[string]int64{}, 0
	for uid, event := range m.stored {
		entry := m.cached.events[uid]
		content[event.Namespace] += entry.memory
		switch entry.counted {
		case &m.cached.sizes:
			sizes[event.Namespace] += entry.size
		case &m.cached.settled:
			settled[event.Namespace] += entry.size
		}
		if entry.stub != nil {
			stubs++
		} else if stored := int64(EncodedSize(entry.alerts)) + entry.removed; entry.size != stored {
			t.Fatalf("%s counts %d bytes, and has %d", uid, entry.size, stored)
		}
	}
	for namespace, list := range m.cached.stubs {
		if stubs -= list.Len(); list.Len() == 0 {
			t.Fatalf("%s has a list of no stubs", namespace)
		}
	}
	if stubs != 0 {
		t.Fatalf("%d stubs are in no list, or gone", stubs)
	}
	for _, namespace := range []string{"a", "b"} {
		for name, budget := range map[string][2]int64{
			"content": {m.cached.content.Used(namespace), content[namespace]},
			"sizes":   {m.cached.sizes.Used(namespace), sizes[namespace]},
			"settled": {m.cached.settled.Used(namespace), settled[namespace]},
		} {
			if budget[0] != budget[1] {
				t.Fatalf("%s of %s: %d are counted, and there are %d", name, namespace, budget[0], budget[1])
			}
		}
	}
}
