package incident

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

func TestAListGoesOverAllPagesOfAllNamespaces(t *testing.T) {
	g := NewWithT(t)
	s := newSite(t)
	other := newSite(t)
	want := []string{string(s.PostFiring("a").UID), string(s.PostFiring("b").UID), string(other.PostFiring("a").UID)}

	var pages int
	small := interceptor.NewClient(s.Live, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			pages++
			_, isMetadata := list.(*metav1.PartialObjectMetadataList)
			g.Expect(isMetadata).To(BeTrue())
			options := (&client.ListOptions{}).ApplyOptions(opts)
			g.Expect(options.AsListOptions().ResourceVersion).To(BeEmpty(), "that would not be a quorum read")
			return c.List(ctx, list, append(opts, client.Limit(1))...)
		},
	})
	events, err := listEvents(small, allShown, s.Namespace, other.Namespace)(s.Ctx, heavyList)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pages).To(Equal(3))
	g.Expect(events.events).To(HaveLen(3))
	for _, uid := range want {
		g.Expect(events.has(uid, "incident")).To(BeTrue())
	}
}

// Thousands of folds share a list of tens of thousands of AlertEvents.
func TestFoldsThatShareAListAskOnceForEachAlertEventWhetherItIsShown(t *testing.T) {
	const events, folds = 1000, 100
	g := NewWithT(t)
	list := newEventList(events)
	for i := range events {
		list.add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("team-", i%2), Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)),
		}})
	}
	asked, late := 0, true
	hasShown := func(event queue.Ref) bool {
		asked++
		return !late || event.Name != "1"
	}
	for range folds {
		g.Expect(list.notShown("team-0", hasShown)).To(BeEmpty())
		g.Expect(list.notShown("team-1", hasShown)).To(HaveLen(1))
		g.Expect(list.notShown(metav1.NamespaceAll, hasShown)).To(HaveLen(1))
	}
	late = false
	g.Expect(list.notShown("team-1", hasShown)).To(BeEmpty())
	g.Expect(asked).To(BeNumerically("<", events+4*folds))
}

func TestAListKeepsLittleOfAnAlertEvent(t *testing.T) {
	const events = 200
	g := NewWithT(t)
	incident := func(of int) string { return fmt.Sprintf("%0250d", of) }
	var incidents []string
	for i := range v1alpha1.MaxAlertsPerEvent {
		incidents = append(incidents, incident(i))
	}
	mark := queue.Mark{ResourceVersion: "9", Incidents: incidents}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, list := heap(), newEventList(0)
	for i := range events {
		list.add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "10",
			Annotations: map[string]string{v1alpha1.SettledAnnotation: mark.String(), "other": strings.Repeat("x", 100<<10)},
		}})
	}
	g.Expect((heap() - before) / events).To(BeNumerically("<", 6<<10))
	g.Expect(list.has("7", incident(0))).To(BeFalse())
	g.Expect(list.has("7", incident(499))).To(BeFalse())
	g.Expect(list.has("7", incident(500))).To(BeTrue())
}

// TestHiddenAlertEventsTakeLittleOfAList has as many as a user may make by hand.
func TestHiddenAlertEventsTakeLittleOfAList(t *testing.T) {
	const events = 100_000
	g, list := NewWithT(t), newEventList(0)
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range events {
		event := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint("uid-", i)), ResourceVersion: fmt.Sprint(100 + events - i),
			CreationTimestamp: metav1.NewTime(began.Add(time.Duration(i) * time.Second)),
		}}
		if i == events-1 { // the one with the lowest resourceVersion waits for nothing
			event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "50/*"}
		}
		list.addHidden(event)
	}
	list.addHidden(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ // its metadata was written again
		Namespace: "team", Name: "older", UID: "older", ResourceVersion: fmt.Sprint(300 + events),
		CreationTimestamp: metav1.NewTime(began.Add(-time.Hour)),
	}})
	list.addHidden(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "newest", UID: "newest", ResourceVersion: fmt.Sprint(200 + events),
		CreationTimestamp: metav1.NewTime(began.Add(events * time.Second)),
	}})
	each := (heap() - before) / events
	t.Logf("%d bytes for each", each)
	g.Expect(each).To(BeNumerically("<", 64))
	g.Expect(list.has("uid-7", "any")).To(BeTrue(), "it stays in its ledger")
	g.Expect(list.has("uid-x", "any")).To(BeFalse())
	unshown := list.notShown("team", func(queue.Ref) bool { return false })
	g.Expect(unshown).To(HaveLen(1))
	g.Expect(unshown[0].resourceVersion).To(Equal("102"), "a fold that needs all older ones waits")
	g.Expect(unshown[0].created.Time).To(Equal(began.Add(-time.Hour)))
	g.Expect(list.notShown("other", func(queue.Ref) bool { return false })).To(BeEmpty())
}
