package clustercache

import (
	"context"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// TestIncidentsAreReadInPages starts an informer on three pages of Resolved Incidents.
func TestIncidentsAreReadInPages(t *testing.T) {
	g := NewWithT(t)
	const all = 2*pageSize + 1
	var requests []metav1.ListOptions
	changes := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})
	others := make(chan struct{}) // closed when the other pages are answered
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			requests = append(requests, options)
			first, _ := strconv.Atoi(options.Continue)
			if first > 0 {
				<-others
			}
			page := &v1alpha1.IncidentList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
			for n := first; n < min(all, first+int(options.Limit)); n++ {
				incident := v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: strconv.Itoa(n)}}
				incident.Status.State, incident.Status.Alert.Title = v1alpha1.IncidentResolved, "a title"
				incident.Status.ResolvedTime = &v1alpha1.Timestamp{}
				page.Items = append(page.Items, incident)
			}
			if end := first + len(page.Items); end < all {
				page.Continue = strconv.Itoa(end)
			}
			return page, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return changes, nil },
	}
	incidents := &Incidents{}
	informer := incidents.newInformer(source, &v1alpha1.Incident{}, 0, nil)
	g.Expect(incidents.Begun()).To(BeFalse())
	go informer.RunWithContext(t.Context())
	g.Eventually(incidents.Begun, "5s", "1ms").Should(BeTrue())
	g.Expect(informer.HasSynced()).To(BeFalse(), "the first page does not wait for the others")
	close(others)
	g.Expect(toolscache.WaitForCacheSync(t.Context().Done(), informer.HasSynced)).To(BeTrue())

	g.Expect(requests).To(HaveLen(3))
	for _, options := range requests {
		g.Expect(options.Limit).To(BeEquivalentTo(pageSize))
		g.Expect(options.ResourceVersion).To(BeEmpty(), "another one would ignore the limit")
	}
	g.Expect(informer.GetStore().ListKeys()).To(HaveLen(all))
	incident, err := incidents.get(client.ObjectKey{Namespace: "n", Name: strconv.Itoa(all - 1)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(incident.Status.Condensed).To(BeTrue())
	g.Expect(informer.LastSyncResourceVersion()).To(Equal("7"))

	scheme := runtime.NewScheme()
	g.Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	cached, read := &expandingCache{&informertest.FakeInformers{Scheme: scheme}, incidents}, &v1alpha1.Incident{}
	key := client.ObjectKey{Namespace: "n", Name: "0"}
	g.Expect(cached.Get(t.Context(), key, read)).To(Succeed())
	g.Expect(read.Name).To(Equal("0"))
	g.Expect(apierrors.IsNotFound(cached.Get(t.Context(), client.ObjectKey{Namespace: "m", Name: "0"}, read))).To(BeTrue())
	g.Expect(cached.List(t.Context(), &v1alpha1.IncidentList{})).To(MatchError(errIncidentList))

	shown := make(chan any, all+10)
	show := func(object any) { shown <- object }
	_, err = expandingInformer{informer}.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: show, UpdateFunc: func(old, object any) { show(old); show(object) }, DeleteFunc: show,
	})
	g.Expect(err).NotTo(HaveOccurred())
	few := make(chan any, all+10)
	_, err = expandingInformer{informer}.AddEventHandler(SkipsResting{toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { few <- object }, DeleteFunc: func(object any) { few <- object },
	}})
	g.Expect(err).NotTo(HaveOccurred())
	changed := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "0", ResourceVersion: "8"}}
	changed.Status.State = v1alpha1.IncidentResolved
	changes.Modify(changed)
	changes.Delete(changed.DeepCopy())
	for range all + 3 {
		g.Eventually(shown).Should(Receive(BeAssignableToTypeOf(changed)))
	}
	g.Eventually(few).Should(Receive(HaveField("Name", "0")), "the deletion")
	g.Expect(few).NotTo(Receive(), "none of the others rest")
	g.Expect(apierrors.IsNotFound(cached.Get(t.Context(), key, read))).To(BeTrue())
}
