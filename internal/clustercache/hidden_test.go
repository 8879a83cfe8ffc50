package clustercache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// eventServer is an API server with AlertEvents. It lists them in the order of their names.
type eventServer struct {
	version int
	lists   int
	stored  map[string]*v1alpha1.AlertEvent
	newest  *watch.FakeWatcher
}

func (s *eventServer) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.lists++
	list := &v1alpha1.AlertEventList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(s.version)}}
	for _, name := range sortedKeys(s.stored) {
		list.Items = append(list.Items, *s.stored[name].DeepCopy())
	}
	return list, nil
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (s *eventServer) watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s.newest = watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1000})
	return s.newest, nil
}

func (s *eventServer) create(namespace, name string) {
	s.version++
	event := largeEvent(namespace, 0, 0)
	event.Name, event.UID, event.ResourceVersion = name, types.UID(namespace+"/"+name), fmt.Sprint(s.version)
	s.stored[namespace+"/"+name] = event
	s.newest.Add(event.DeepCopy())
}

func (s *eventServer) modify(key string) {
	s.version++
	s.stored[key].ResourceVersion = fmt.Sprint(s.version)
	s.newest.Modify(s.stored[key].DeepCopy())
}

func (s *eventServer) delete(key string) {
	s.version++
	event := s.stored[key]
	delete(s.stored, key)
	event.ResourceVersion = fmt.Sprint(s.version)
	s.newest.Delete(event)
}

// newHiding runs an informer with places for four AlertEvents of a namespace.
func newHiding(t *testing.T) (server *eventServer, hidden *Hidden, shown func() []string) {
	t.Helper()
	server = &eventServer{stored: map[string]*v1alpha1.AlertEvent{}}
	hidden = NewHidden(1, 1)
	hidden.events.used.Limit = fair.Limit{All: 16, Share: 0.25}
	caching := &Informers{Hidden: hidden, Events: queue.NewCached(1)}
	informer := caching.newInformer(&toolscache.ListWatch{
		ListWithContextFunc: server.list, WatchFuncWithContext: server.watch,
	}, &v1alpha1.AlertEvent{}, 0, nil)
	NewWithT(t).Expect(informer.SetTransform(caching.Events.Condense)).To(Succeed())
	_, err := informer.AddEventHandler(informers.Handler(func(*v1alpha1.AlertEvent, bool) {}, func(event *v1alpha1.AlertEvent) {
		caching.Events.Forget(event)
		hidden.events.forget(event)
	}))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); informer.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	synctest.Wait()
	return server, hidden, func() []string {
		synctest.Wait()
		keys := informer.GetStore().ListKeys()
		slices.Sort(keys)
		return keys
	}
}

// TestObjectsBeyondTheirPlacesAreHidden creates twelve AlertEvents of a namespace that has places for four, and deletes them
// again.
func TestObjectsBeyondTheirPlacesAreHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server, hidden, shown := newHiding(t)
		hiddenOfA := func() int { synctest.Wait(); events, _ := hidden.In("a"); return events }
		for n := range 12 {
			server.create("a", fmt.Sprintf("%02d", 20-n))
		}
		server.create("b", "other")
		first := []string{"a/17", "a/18", "a/19", "a/20", "b/other"}
		g.Expect(shown()).To(Equal(first), "first come, first served; another namespace has its own places")
		g.Expect(hiddenOfA()).To(Equal(8))
		server.modify("a/09")
		server.delete("a/10")
		server.modify("a/17")
		g.Expect(shown()).To(Equal(first))
		g.Expect(hiddenOfA()).To(Equal(7))

		server.newest.Stop()
		time.Sleep(10 * time.Second)
		g.Expect(hiddenOfA()).To(Equal(7), "a watch that begins again shows none twice")
		g.Expect(server.lists).To(Equal(1))

		server.delete("a/20")
		server.create("a", "99")
		time.Sleep(5 * time.Minute)
		g.Expect(shown()).To(Equal([]string{"a/17", "a/18", "a/19", "b/other"}), "a new one does not overtake those that are hidden")
		g.Expect(hiddenOfA()).To(Equal(8))
		g.Expect(server.lists).To(Equal(1))
		server.delete("a/18")
		time.Sleep(10 * time.Second)
		g.Expect(shown()).To(Equal([]string{"a/09", "a/11", "a/17", "a/19", "b/other"}), "half of the places were free")
		g.Expect(hiddenOfA()).To(Equal(6))
		g.Expect(server.lists).To(Equal(2))

		for _, key := range []string{"a/17", "a/19", "a/09", "a/11"} {
			server.delete(key)
		}
		time.Sleep(40 * time.Second)
		g.Expect(server.lists).To(Equal(2), "a list a minute at most")
		time.Sleep(20 * time.Second)
		g.Expect(shown()).To(Equal([]string{"a/12", "a/13", "a/14", "a/15", "b/other"}))
		for _, key := range sortedKeys(server.stored) {
			server.delete(key)
		}
		g.Expect(shown()).To(BeEmpty())
		g.Expect(hiddenOfA()).To(BeZero())
		g.Expect(hidden.events.shown).To(BeEmpty())
		g.Expect(hidden.events.used.Sum()).To(BeZero())
	})
}

// TestWindowsBeyondTheirPlacesAreHidden has three windows of a namespace that has places for two, and deletes one that is shown.
// No watch of their kind reads stubs.
func TestWindowsBeyondTheirPlacesAreHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		hidden, watcher := NewHidden(1, 1), watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})
		places := hidden.of(&v1alpha1.MaintenanceWindow{})
		places.used.Limit = fair.Limit{All: 8, Share: 0.25}
		var list v1alpha1.MaintenanceWindowList
		for n, name := range []string{"a", "b", "c"} {
			list.Items = append(list.Items, testenv.Window("team", name, time.Now(), time.Now().Add(time.Hour)))
			list.Items[n].UID, list.Items[n].ResourceVersion = types.UID(name), fmt.Sprint(n+1)
		}
		informer := (&Informers{Hidden: hidden}).newInformer(&toolscache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list.DeepCopy(), nil },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				watcher.Reset()
				return watcher, nil
			},
		}, &v1alpha1.MaintenanceWindow{}, 0, nil)
		_, err := informer.AddEventHandler(informers.Handler(
			func(*v1alpha1.MaintenanceWindow, bool) {}, func(w *v1alpha1.MaintenanceWindow) { places.forget(w) }))
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); informer.RunWithContext(ctx) }()
		defer func() { cancel(); <-ended }()
		synctest.Wait()
		g.Expect(informer.GetStore().ListKeys()).To(ConsistOf("team/a", "team/b"))
		kinds := []string{}
		hidden.Each(func(kind, namespace string, objects int) {
			if namespace == "" {
				kinds = append(kinds, kind)
			} else {
				g.Expect(fmt.Sprint(kind, " ", namespace, " ", objects)).To(Equal("MaintenanceWindow team 1"))
			}
		})
		g.Expect(kinds).To(ConsistOf("AlertEvent", "WebhookIntegration", "MaintenanceWindow", "Heartbeat"))
		gone := list.Items[0].DeepCopy()
		gone.ResourceVersion, list.Items = "4", list.Items[1:]
		watcher.Delete(gone)
		time.Sleep(2 * time.Minute)
		g.Expect(informer.GetStore().ListKeys()).To(ConsistOf("team/b", "team/c"), "half of the places were free")
	})
}

// TestWhatAGapOfTheWatchTookGivesItsPlaceBack has AlertEvents deleted and created that no watch tells of, in a namespace with
// four places.
func TestWhatAGapOfTheWatchTookGivesItsPlaceBack(t *testing.T) {
	for sentence, test := range map[string]struct {
		before        int
		gone, created []string
		shown         []string
	}{
		"most are gone":                  {6, []string{"0", "1", "2"}, nil, []string{"3", "4", "5"}},
		"one is gone, and one has come":  {4, []string{"3"}, []string{"4"}, []string{"0", "1", "2", "4"}},
		"one is gone, and two have come": {4, []string{"3"}, []string{"4", "5"}, []string{"0", "1", "2", "4"}},
		"all are gone, and four have come": {
			4, []string{"0", "1", "2", "3"}, []string{"4", "5", "6", "7"}, []string{"4", "5", "6", "7"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server, hidden, shown := newHiding(t)
				for n := range test.before {
					server.create("a", fmt.Sprint(n))
				}
				g.Expect(shown()).To(HaveLen(4))
				lists, gap := server.lists, server.newest
				server.newest = watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10}) // nobody's
				for _, name := range test.gone {
					server.delete("a/" + name)
				}
				for _, name := range test.created {
					server.create("a", name)
				}
				expired := metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}
				gap.Error(&expired)
				time.Sleep(10 * time.Second)
				want := make([]string, len(test.shown))
				for n, name := range test.shown {
					want[n] = "a/" + name
				}
				g.Expect(shown()).To(Equal(want))
				g.Expect(server.lists).To(Equal(lists+2), "the first did not know yet which places are free")
				events, _ := hidden.In("a")
				g.Expect(events).To(Equal(len(server.stored) - len(want)))
				g.Expect(hidden.events.used.Sum()).To(BeEquivalentTo(len(want)))
				g.Expect(hidden.events.shown).To(HaveLen(len(want)))
				time.Sleep(5 * time.Minute)
				g.Expect(server.lists).To(Equal(lists + 2))
			})
		})
	}
}

// TestATenantDoesNotHaveAllObjectsListedWithoutAPause has a tenant delete all objects after each list, one of them in a gap of
// the watch, and create others, of which there are more than places.
func TestATenantDoesNotHaveAllObjectsListedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, hidden := NewWithT(t), NewHidden(1, 1)
		places, informer := hidden.events, &pagedInformer{}
		places.used.Limit = fair.Limit{All: 16, Share: 0.25}
		lists := 0
		for second := range 10 * 60 {
			if second == 0 || places.isDue(informer) {
				lists++
				listing := places.list(informer)
				for n := range 8 {
					listing.passes(largeEvent("a", 8*lists+n, 0)) // none of the last list
				}
				listing.end(nil)
				for n := 0; len(places.shown) > 1; n++ {
					places.forget(largeEvent("a", 8*lists+n, 0))
				}
			}
			time.Sleep(time.Second)
		}
		g.Expect(lists).To(BeNumerically("<=", 2*10))
	})
}

// TestAListThatFailsTakesNoPlaces gives places to objects that the informer never shows.
func TestAListThatFailsTakesNoPlaces(t *testing.T) {
	g := NewWithT(t)
	hidden := NewHidden(1, 1)
	listing := hidden.events.list(&pagedInformer{places: hidden.events})
	for n := range 10 {
		g.Expect(listing.passes(largeEvent("a", n, 0))).To(BeTrue())
	}
	listing.end(errors.New("the API server is away"))
	g.Expect(hidden.events.shown).To(BeEmpty())
	g.Expect(hidden.events.used.Sum()).To(BeZero())
}

// TestASettledAlertEventUsesNoPlaceOfTheOthers has one settled after another, as they stay for their idempotency keys.
func TestASettledAlertEventUsesNoPlaceOfTheOthers(t *testing.T) {
	g, hidden := NewWithT(t), NewHidden(1, 1)
	places := hidden.events
	places.used.Limit = fair.Limit{All: 16, Share: 0.25}
	for n := range 20 {
		event := largeEvent("a", n, 0)
		event.ResourceVersion = "10"
		g.Expect(places.passes(watch.Event{Type: watch.Added, Object: event}, nil)).To(BeTrue())
		event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "9/*"}
		for range 2 {
			g.Expect(places.passes(watch.Event{Type: watch.Modified, Object: event}, nil)).To(BeTrue())
		}
	}
	g.Expect(places.settled.Used("a")).To(BeEquivalentTo(20))
	for n := range 5 {
		waits := places.passes(watch.Event{Type: watch.Added, Object: largeEvent("a", 100+n, 0)}, nil)
		g.Expect(waits).To(Equal(n < 4))
	}
	for n := range 200 {
		places.forget(largeEvent("a", n, 0))
	}
	g.Expect(places.settled.Sum() + places.used.Sum()).To(BeZero())
}

// largeEvent returns an AlertEvent with a description of so many bytes.
func largeEvent(namespace string, n, bytes int) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{}
	event.Namespace, event.Name, event.UID = namespace, fmt.Sprint(n), types.UID(fmt.Sprint(namespace, n))
	event.Spec.Alerts = testenv.Text(v1alpha1.Alert{ID: "1", IncidentName: "x", DedupKey: "d", Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{
		Title: "disk", Description: strings.Repeat("x", bytes),
	}})
	return event
}
