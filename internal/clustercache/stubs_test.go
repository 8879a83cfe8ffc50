package clustercache

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
