package clustercache

import (
	"context"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// TestListsAreReported breaks the watch of an informer with 410, so that it reads all objects again.
func TestListsAreReported(t *testing.T) {
	g := NewWithT(t)
	watches := make(chan *watch.FakeWatcher, 10)
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &v1alpha1.AlertEventList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil { // an API server without streaming lists
				return nil, apierrors.NewBadRequest("unknown option")
			}
			changes := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})
			watches <- changes
			return changes, nil
		},
	}
	var listed atomic.Int32
	informers := &Informers{Listed: func(kind runtime.Object, _ ...runtime.Object) {
		if _, ok := kind.(*v1alpha1.AlertEvent); ok {
			listed.Add(1)
		}
	}}
	informer := informers.newInformer(source, &v1alpha1.AlertEvent{}, 0, nil)
	go informer.RunWithContext(t.Context())
	first := <-watches
	before := listed.Load()
	g.Expect(before).To(BeNumerically(">=", 1))
	status := apierrors.NewResourceExpired("too old").Status()
	first.Error(&status)
	<-watches
	g.Expect(listed.Load()).To(BeNumerically(">", before))
}

// TestAListThatFailsHalfWayLeavesNothing: the first list is too old at its second page, and then an AlertEvent is gone.
func TestAListThatFailsHalfWayLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	requests := 0
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			page := &v1alpha1.AlertEventList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
			switch requests++; requests {
			case 1:
				page.Continue = "more"
				page.Items = []v1alpha1.AlertEvent{*largeEvent("a", 1, 5000), *largeEvent("a", 2, 5000)}
			case 2:
				return nil, apierrors.NewResourceExpired("too old")
			default:
				page.Items = []v1alpha1.AlertEvent{*largeEvent("a", 2, 5000)}
			}
			return page, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	events, kept := queue.NewCached(1), queue.NewCached(1)
	_, err := kept.Condense(largeEvent("a", 2, 5000))
	g.Expect(err).NotTo(HaveOccurred())
	informers := &Informers{Listed: func(_ runtime.Object, dropped ...runtime.Object) {
		for _, object := range dropped {
			event, ok := object.(*v1alpha1.AlertEvent)
			g.Expect(ok).To(BeTrue())
			events.Forget(event)
		}
	}}
	informer := informers.newInformer(source, &v1alpha1.AlertEvent{}, 0, nil)
	g.Expect(informer.SetTransform(events.Condense)).To(Succeed())
	go informer.RunWithContext(t.Context())
	g.Expect(toolscache.WaitForCacheSync(t.Context().Done(), informer.HasSynced)).To(BeTrue())
	g.Expect(requests).To(BeNumerically(">", 2))
	g.Expect(events).To(Equal(kept))
}
