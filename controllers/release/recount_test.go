package release

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// storedEvents is an API server that has the metadata of AlertEvents. What happens during a patch is up to a test.
type storedEvents struct {
	client.Client

	events  map[types.NamespacedName]*metav1.PartialObjectMetadata
	during  func() // a patch
	deleted []string
	hangs   bool // a deletion

	failure     error // of each call to the API server
	undeletable error // of deletions
	unmarkable  error // of patches
	unread      error // of reads of the cache
	patches     []string
}

// Get implements client.Reader, for the cache too.
func (s *storedEvents) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	stored := s.events[key]
	switch into := object.(type) {
	case *metav1.PartialObjectMetadata:
		if s.failure != nil || stored == nil {
			return cmp.Or(s.failure, errGone)
		}
		stored.DeepCopyInto(into)
	case *v1alpha1.AlertEvent:
		if s.unread != nil || stored == nil {
			return cmp.Or(s.unread, errGone)
		}
		into.ObjectMeta = *stored.ObjectMeta.DeepCopy()
	}
	return nil
}

// laggingCache does not show marks yet.
type laggingCache struct{ *storedEvents }

// Get implements client.Reader.
func (c laggingCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	err := c.storedEvents.Get(ctx, key, object, opts...)
	object.SetAnnotations(nil)
	return err
}

// errGone says that an object does not exist.
var errGone error = apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("alertevents").GroupResource(), "event")

// Patch implements client.Writer.
func (s *storedEvents) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	if s.during != nil {
		s.during()
	}
	data, err := patch.Data(object)
	if err = cmp.Or(err, s.failure, s.unmarkable); err != nil {
		return err
	}
	s.patches = append(s.patches, string(data))
	if written, ok := object.(*metav1.PartialObjectMetadata); ok {
		written.ResourceVersion += "0" // a newer one
		s.events[client.ObjectKeyFromObject(object)] = written.DeepCopy()
	}
	return nil
}

// Delete implements client.Writer.
func (s *storedEvents) Delete(ctx context.Context, object client.Object, _ ...client.DeleteOption) error {
	if s.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := cmp.Or(s.failure, s.undeletable); err != nil {
		return err
	}
	s.deleted = append(s.deleted, object.GetName())
	return nil
}

// storingReleaser is a Releaser with such an API server, which has these AlertEvents.
func storingReleaser(events ...*v1alpha1.AlertEvent) (*Releaser, *storedEvents, *clocktesting.FakePassiveClock) {
	r, clock := memoryReleaser()
	stored := &storedEvents{events: map[types.NamespacedName]*metav1.PartialObjectMetadata{}}
	for _, event := range events {
		stored.events[client.ObjectKeyFromObject(event)] = &metav1.PartialObjectMetadata{ObjectMeta: event.ObjectMeta}
	}
	r.live, r.cache = stored, laggingCache{stored}
	return r, stored, clock
}

// markOf returns the mark that an AlertEvent has in the API server.
func (s *storedEvents) markOf(event *v1alpha1.AlertEvent) string {
	return s.events[client.ObjectKeyFromObject(event)].Annotations[v1alpha1.SettledAnnotation]
}

// sharedEvent has alerts of several Incidents.
func sharedEvent(name string, incidents ...string) *v1alpha1.AlertEvent {
	event := namedEvent(name, 1)
	event.ResourceVersion, event.Alerts = "12", nil
	for _, incident := range incidents {
		event.Alerts = append(event.Alerts, v1alpha1.Alert{IncidentName: incident})
	}
	return event
}

func TestAMarkThatIsWantedDuringAWriteIsWrittenNext(t *testing.T) {
	for sentence, test := range map[string]struct {
		during func(r *Releaser, event *v1alpha1.AlertEvent)
		next   string // the mark of the next write; empty: there is none before MarkPatience
	}{
		"another Incident wants one": {
			func(r *Releaser, event *v1alpha1.AlertEvent) {
				r.Settle(event, "b")
				r.Mark(event, "b")
			}, "12/a,b"},
		"the same one wants it again": {func(r *Releaser, event *v1alpha1.AlertEvent) { r.Mark(event, "a") }, ""},
		"nothing happens":             {func(*Releaser, *v1alpha1.AlertEvent) {}, ""},
		"all of them are settled": {
			func(r *Releaser, event *v1alpha1.AlertEvent) {
				r.Settle(event, "b")
				r.Settle(event, "c")
			}, "deleted"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, event := NewWithT(t), sharedEvent("event", "a", "b", "c")
			r, stored, clock := storingReleaser(event)
			r.Settle(event, "a")
			r.Mark(event, "a")
			stored.during = func() {
				stored.during = nil
				test.during(r, event)
			}
			reconcile := func() {
				result, err := r.Reconcile(t.Context(), queue.RefOf(event))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(result.RequeueAfter).To(BeZero())
			}
			reconcile()
			g.Expect(stored.markOf(event)).To(Equal("12/a"))
			reconcile()
			switch test.next {
			case "":
				g.Expect(stored.markOf(event)).To(Equal("12/a"))
			case "deleted":
				g.Expect(stored.deleted).To(ConsistOf("event"))
				return
			default:
				g.Expect(stored.markOf(event)).To(Equal(test.next))
			}
			g.Expect(stored.deleted).To(BeEmpty(), "c waits")
			r.Settle(event, "b")
			reconcile()
			g.Expect(stored.markOf(event)).To(Equal(cmp.Or(test.next, "12/a")), "the wish was granted")
			clock.SetTime(clock.Now().Add(MarkPatience))
			reconcile()
			g.Expect(stored.markOf(event)).To(Equal("12/a,b"), "nobody tells when it is needed")
		})
	}
}

// lingeringModel is a Releaser and the AlertEvents of which it was told.
type lingeringModel struct {
	*Releaser
	clock  *clocktesting.FakePassiveClock
	events []*v1alpha1.AlertEvent
	most   *int // that lingered
}

// TestWhatLingersIsWhatARecountFinds settles AlertEvents of some integrations, releases and forgets them in any order.
func TestWhatLingersIsWhatARecountFinds(t *testing.T) {
	most := 0
	rapid.Check(t, func(t *rapid.T) {
		r, _, clock := storingReleaser()
		r.lingering.events.Limit = fair.Limit{All: maxEvents, Share: 0.5}
		r.lingering.bytes.Limit = fair.Limit{All: maxBytes, Share: 0.5}
		m := &lingeringModel{Releaser: r, clock: clock, most: &most}
		t.Repeat(map[string]func(*rapid.T){"": m.check, "settle": m.settle, "release": m.release, "forget": m.forget, "wait": m.wait})
		for _, event := range m.events {
			r.Forget(queue.RefOf(event))
		}
		m.check(t)
		if len(r.records)+len(r.lingering.records) > 0 || r.lingering.events.Sum() != 0 || r.lingering.bytes.Sum() != 0 {
			t.Fatalf("something is left: %+v", r.lingering)
		}
	})
	if most < maxEvents/2 {
		t.Errorf("at most %d lingered", most)
	}
}

// maxEvents and maxBytes are what may linger.
const (
	maxEvents = 8
	maxBytes  = 40_000
)

func (m *lingeringModel) settle(t *rapid.T) {
	n := len(m.events)
	name := fmt.Sprintf("01a1fc76-5bd7-792d-a695-%012d", n)
	if rapid.IntRange(0, 3).Draw(t, "keyed") > 0 {
		name = v1alpha1.KeyedEventName("app", fmt.Sprint(n))
	}
	event := sharedEvent(name, "a", "b")
	event.UID, event.Spec.IntegrationName = types.UID(fmt.Sprint(n)), rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "integration")
	event.Alerts[0].Description = string(make([]byte, rapid.SampledFrom([]int{0, 1000, 8000}).Draw(t, "bytes")))
	m.events = append(m.events, event)
	m.Settle(event, "a")
	if rapid.IntRange(0, 3).Draw(t, "all") > 0 {
		m.Settle(event, "b")
		m.Settle(event, "b")
	}
}

func (m *lingeringModel) any(t *rapid.T) queue.Ref {
	if len(m.events) == 0 {
		t.Skip("there is none")
	}
	return queue.RefOf(rapid.SampledFrom(m.events).Draw(t, "which"))
}

func (m *lingeringModel) release(t *rapid.T) {
	ref := m.any(t)
	if due, _ := m.state(ref); due {
		if _, err := m.Reconcile(context.Background(), ref); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *lingeringModel) forget(t *rapid.T) { m.Forget(m.any(t)) }

func (m *lingeringModel) wait(t *rapid.T) {
	m.clock.SetTime(m.clock.Now().Add(rapid.SampledFrom([]time.Duration{time.Second, queue.KeyedLinger}).Draw(t, "time")))
}

// check compares what lingers with the records that stay for their keys, and with the bounds.
func (m *lingeringModel) check(t *rapid.T) {
	l := &m.lingering
	var listed []*releaseRecord
	events, bytes := int64(0), int64(0)
	for integration, records := range l.records {
		own := int64(0)
		for _, record := range records {
			own += int64(record.bytes)
			if m.records[record.ref.UID] != record || record.deleted || !record.isKeyed() || len(record.unsettled) > 0 {
				t.Fatalf("%s lingers, and is %+v", record.ref.Name, record)
			}
		}
		if !slices.IsSortedFunc(records, func(a, b *releaseRecord) int { return a.due.Compare(b.due) }) {
			t.Fatalf("the records of %s are not sorted by age", integration)
		}
		if l.events.Used(integration) != int64(len(records)) || l.bytes.Used(integration) != own || len(records) == 0 {
			t.Fatalf("%s counts %d records of %d bytes, and has %d of %d", integration, l.events.Used(integration),
				l.bytes.Used(integration), len(records), own)
		}
		listed = append(listed, records...)
		events, bytes = events+int64(len(records)), bytes+own
	}
	if l.events.Sum() != events || l.bytes.Sum() != bytes || events > maxEvents || bytes > maxBytes {
		t.Fatalf("%d records of %d bytes are counted, and there are %d of %d", l.events.Sum(), l.bytes.Sum(), events, bytes)
	}
	*m.most = max(*m.most, len(listed))
	for _, record := range m.records {
		if stays := record.due.After(m.clock.Now()); stays && !slices.Contains(listed, record) {
			t.Fatalf("%s stays, and does not count", record.ref.Name)
		}
	}
}
