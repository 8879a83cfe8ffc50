package clustercache

import (
	"context"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// TestStubsAreReadAgainWhenThereIsAPlace fills a namespace's share by a list and by a watch, and then deletes AlertEvents, oldest
// first, as the release does.
func TestStubsAreReadAgainWhenThereIsAPlace(t *testing.T) {
	g := NewWithT(t)
	live, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespaces := []string{testenv.Namespace(t, live), testenv.Namespace(t, live)}
	const share, all = 4, 12 // AlertEvents
	for _, perNamespace := range []bool{false, true} {
		stored := func(namespace string, from, to int) (events []*v1alpha1.AlertEvent) {
			for n := from; n < to; n++ {
				event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%02d", n)}}
				event.Spec.IntegrationName = "shop"
				event.Spec.Alerts = testenv.Text(v1alpha1.Alert{DedupKey: fmt.Sprint(n), Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{
					Description: strings.Repeat("x", 10_000),
				}})
				g.Expect(live.Create(t.Context(), event)).To(Succeed())
				events = append(events, event)
			}
			return events
		}
		events := stored(namespaces[0], 0, all/2)
		condensed := queue.NewBoundedCached(fair.Limit{All: 1 << 30, Share: 1}, fair.Limit{All: 4 * share * 10_000, Share: 0.25})
		caching := &Informers{Events: condensed}
		options := cache.Options{
			Scheme:   testenv.Scheme(),
			ByObject: map[client.Object]cache.ByObject{&v1alpha1.AlertEvent{}: {Transform: condensed.Condense}},
		}
		if perNamespace {
			options.DefaultNamespaces = map[string]cache.Config{namespaces[0]: {}, namespaces[1]: {}}
		}
		objects, err := caching.NewCache(config, options)
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(t.Context())
		followed := follow(g, objects, condensed)
		go func() { _ = objects.Start(ctx) }()
		g.Expect(objects.WaitForCacheSync(ctx)).To(BeTrue())
		events = append(events, stored(namespaces[0], all/2, all)...)
		other := stored(namespaces[1], 0, 1)[0]
		g.Eventually(followed, "30s", "20ms").Should(And(
			HaveKeyWithValue(other.Namespace+"/00", "0"), HaveKeyWithValue(namespaces[0]+"/11", ""), HaveLen(all+1)))
		for n, event := range events {
			g.Eventually(followed, "30s", "20ms").Should(HaveKeyWithValue(event.Namespace+"/"+event.Name, fmt.Sprint(n)))
			g.Expect(live.Delete(ctx, event)).To(Succeed())
		}
		g.Expect(live.Delete(ctx, other)).To(Succeed())
		g.Eventually(followed, "30s", "20ms").Should(BeEmpty())
		cancel()
	}
}

// TestAWatchShowsWhatComesWhileStubsAreRead has a namespace with thousands of stubs that all have places now, each of which the API
// server takes 20 ms to read, and then integrations of another one that come.
func TestAWatchShowsWhatComesWhileStubsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		const stubs, events = 2000, 500
		source := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: events})
		caching := &Informers{Integrations: NewIntegrations(1)}
		caching.read = func(_ context.Context, name types.NamespacedName, object client.Object, _ ...client.GetOption) error {
			time.Sleep(20 * time.Millisecond)
			sized(name.Namespace, name.Name, 10).DeepCopyInto(object.(*v1alpha1.WebhookIntegration))
			return nil
		}
		informer := caching.newInformer(&toolscache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				list := &v1alpha1.WebhookIntegrationList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
				for n := range stubs {
					list.Items = append(list.Items, *sized("hostile", fmt.Sprint(n), 10))
				}
				return list, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return source, nil },
		}, &v1alpha1.WebhookIntegration{}, 0, nil)
		caching.Integrations.sizes.All = 1 // while it lists
		g.Expect(informer.SetTransform(caching.Integrations.Condense)).To(Succeed())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); informer.RunWithContext(ctx) }()
		defer func() { cancel(); <-ended }()
		synctest.Wait()
		g.Expect(caching.stubs()).To(Equal(stubs))
		caching.Integrations.mu.Lock()
		caching.Integrations.sizes.All = 1 << 30
		caching.Integrations.mu.Unlock()

		time.Sleep(3 * time.Second)
		for n := range events {
			source.Add(sized("shop", fmt.Sprint(n), 10))
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		g.Expect(informer.GetStore().ListKeys()).To(HaveLen(stubs + events))
		g.Expect(caching.stubs()).To(And(BeNumerically(">", stubs/2), BeNumerically("<", stubs-50)), "it reads stubs")
		time.Sleep(2 * stubs * 20 * time.Millisecond)
		synctest.Wait()
		g.Expect(caching.stubs()).To(BeZero(), "half of the time")
	})
}

// stubs returns the number of integrations that are stubs.
func (i *Informers) stubs() (count int) {
	i.Integrations.mu.Lock()
	defer i.Integrations.mu.Unlock()
	for _, entry := range i.Integrations.known {
		if entry.isStub {
			count++
		}
	}
	return count
}

// follow returns a function that returns the dedup keys of the AlertEvents that a follower of the informer knows, by their names. It
func follow(g *WithT, objects cache.Cache, condensed *queue.Cached) (keys func() map[string]string) {
	changes := make(chan func(map[string]string), 100)
	known := map[string]string{}
	_, err := informers.Feed(objects, &v1alpha1.AlertEvent{}, func(event *v1alpha1.AlertEvent, _ bool) {
		changes <- func(known map[string]string) {
			key := ""
			for i := range event.Alerts {
				key = event.Alerts[i].DedupKey
			}
			known[event.Namespace+"/"+event.Name] = key
		}
	}, func(event *v1alpha1.AlertEvent) {
		condensed.Forget(event)
		changes <- func(known map[string]string) { delete(known, event.Namespace+"/"+event.Name) }
	})
	g.Expect(err).NotTo(HaveOccurred())
	return func() map[string]string {
		for {
			select {
			case change := <-changes:
				change(known)
			default:
				return known
			}
		}
	}
}
