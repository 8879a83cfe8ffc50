package clustercache

import (
	"context"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// TestObjectsAreReadInPages starts an informer on several pages of Incidents with large metadata.
func TestObjectsAreReadInPages(t *testing.T) {
	g := NewWithT(t)
	const all = 4001
	var requests []metav1.ListOptions
	transformed := 0 // of pages before
	informer := (&Informers{}).newInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			requests = append(requests, options)
			first, _ := strconv.Atoi(options.Continue)
			g.Expect(transformed).To(Equal(first), "the pages before are stripped")
			page := &v1alpha1.IncidentList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
			for n := first; n < min(all, first+int(options.Limit)); n++ {
				page.Items = append(page.Items, v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{
					Namespace: "n", Name: strconv.Itoa(n), Annotations: map[string]string{"large": "text"},
				}})
			}
			if end := first + len(page.Items); end < all {
				page.Continue = strconv.Itoa(end)
			}
			return page, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}, &v1alpha1.Incident{}, 0, nil)
	g.Expect(informer.SetTransform(func(object any) (any, error) {
		transformed++
		incident, ok := object.(*v1alpha1.Incident)
		g.Expect(ok).To(BeTrue())
		_, _ = Condense(incident)
		return incident, nil
	})).To(Succeed())
	go informer.RunWithContext(t.Context())
	g.Expect(toolscache.WaitForCacheSync(t.Context().Done(), informer.HasSynced)).To(BeTrue())

	g.Expect(len(requests)).To(BeNumerically(">", 2))
	for _, options := range requests {
		g.Expect(options.Limit).To(BeNumerically(">", 0))
		g.Expect(options.ResourceVersion).To(BeEmpty(), "another one would ignore the limit")
	}
	g.Expect(informer.GetStore().ListKeys()).To(HaveLen(all))
	for _, object := range informer.GetStore().List() {
		g.Expect(object).To(HaveField("Annotations", BeEmpty()))
	}
	g.Expect(informer.LastSyncResourceVersion()).To(Equal("7"))
}
