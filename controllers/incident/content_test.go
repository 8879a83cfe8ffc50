package incident

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

func TestAlertsWithoutContentInTheCacheAreFoldedWhole(t *testing.T) {
	const perEvent, count = 6, 10
	for sentence, test := range map[string]struct {
		shown int64 // bytes of AlertEvents without content that the cache shows
		first int64 // events that the first fold has
	}{
		"as many as the cache shows":      {shown: 1 << 20, first: 2},
		"as many as a fold has in memory": {shown: 1 << 30, first: 9},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			s.memory.Cached = queue.NewBoundedCached(fair.Limit{All: 1, Share: 1}, fair.Limit{All: test.shown, Share: 1})
			s.Post(s.Alert(v1alpha1.AlertFiring, "other")) // takes the place
			var events []*v1alpha1.AlertEvent
			for n := range count {
				var alerts []v1alpha1.Alert
				for i := range perEvent {
					alerts = append(alerts, s.long(perEvent*n+i))
				}
				events = append(events, s.Post(alerts...))
			}
			s.Expect(s.reconcile("disk")).NotTo(BeNil())
			s.Expect(s.Incident("disk").Status.AlertCount).To(Equal(perEvent * test.first))
			s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal(fmt.Sprint("disk ", perEvent*test.first-1)), "the oldest ones")
			for s.Incident("disk").Status.AlertCount < perEvent*count {
				s.pass(writeInterval)
				s.fold("disk")
				s.release()
			}
			s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal(fmt.Sprint("disk ", perEvent*count-1)))
			s.ExpectCounted("disk", events...)
		})
	}
}

// long returns an alert of 160 kB with the number n in its title.
func (s *site) long(n int) v1alpha1.Alert {
	alert := s.Alert(v1alpha1.AlertFiring, "disk")
	alert.Title, alert.Description = fmt.Sprint("disk ", n), strings.Repeat("d", 4000)
	alert.Values = v1alpha1.Bag{}
	for i := range 100 {
		alert.Values[fmt.Sprint("v", i)] = []byte(`"` + strings.Repeat("v", 1500) + `"`)
	}
	return alert
}

// An admission webhook of one namespace may hang.
func TestAWriteThatHangsHoldsNoContent(t *testing.T) {
	s := newSite(t)
	s.memory.Cached = queue.NewBoundedCached(fair.Limit{All: 1, Share: 1}, fair.Limit{All: 1 << 20, Share: 1})
	s.Post(s.Alert(v1alpha1.AlertFiring, "other")) // takes the place
	event := s.Post(s.titled("Disk full"))
	s.incidents.loading = fair.NewPlaces(1)
	writes := 0
	s.faults.beforeStatus = func() error {
		writes++
		place, err := s.incidents.loading.Enter(s.Ctx, "another namespace", 0)
		s.Expect(err).NotTo(HaveOccurred(), "it does not wait for the write")
		place.Leave()
		return nil
	}
	s.fold("disk")
	s.Expect(writes).To(Equal(1))
	s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal("Disk full"))
	s.ExpectCounted("disk", event)

	c := &confirmed{facts{key: s.KeyOf("disk")}}
	cached, err := replica.EventsOf(s.Ctx, s.cache, c.key)
	s.Expect(err).NotTo(HaveOccurred())
	c.toFold = cached
	unload, err := s.incidents.loadContent(s.Ctx, c)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(c.toFold[0].Alerts[0].Title).To(Equal("Disk full"))
	unload()
	s.Expect(c.toFold).To(HaveLen(1))
	s.Expect(c.toFold[0].Alerts[0].Title).To(BeEmpty())
}

// The names of AlertEvents are in another order than their commits, since the clocks of replicas differ.
func TestAlertsWithoutContentInTheCacheAreFoldedInCommitOrder(t *testing.T) {
	s := newSite(t)
	s.memory.Cached = queue.NewBoundedCached(fair.Limit{All: 1, Share: 1}, fair.Limit{All: 1 << 20, Share: 1})
	var events []*v1alpha1.AlertEvent
	for _, name := range []string{"c", "b", "a"} { // the last one takes the place
		events = append(events, s.PostAs(name, s.titled("Disk "+name)))
	}
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal("Disk a"))
	s.Expect(s.Incident("disk").Status.Episode.Title).To(Equal("Disk c"))
	s.ExpectCounted("disk", events...)
}

func TestAnAlertEventWithoutContentThatCannotBeReadIsNotFolded(t *testing.T) {
	s := newSite(t)
	s.memory.Cached = queue.NewBoundedCached(fair.Limit{All: 1, Share: 1}, fair.Limit{All: 1 << 20, Share: 1})
	s.Post(s.Alert(v1alpha1.AlertFiring, "other")) // takes the place
	event := s.PostAs("disk-1", s.titled("Disk full"))
	s.incidents.live = &failingReader{s.incidents.live}
	_, err := s.incidents.load(s.Ctx, event)
	s.Expect(err).To(MatchError(errCrash))
	s.Expect(err).NotTo(MatchError(errStale))

	s.incidents.live = s.live
	s.Expect(s.Live.Delete(s.Ctx, event)).To(Succeed())
	s.PostAs("disk-1", s.titled("Another one of the name"))
	_, err = s.incidents.load(s.Ctx, event)
	s.Expect(err).To(MatchError(errStale))
}

// failingReader cannot read an AlertEvent.
type failingReader struct{ client.Client }

func (r *failingReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errCrash
}

func TestAnAlertEventThatIsGoneKeepsNoPlace(t *testing.T) {
	s := newSite(t)
	s.memory.Cached = queue.NewBoundedCached(fair.Limit{All: 1, Share: 1}, fair.Limit{All: 1 << 20, Share: 1})
	s.Post(s.Alert(v1alpha1.AlertFiring, "other")) // takes the place
	event := s.Post(s.titled("Disk full"))
	s.incidents.loading = fair.NewPlaces(1)
	c := &confirmed{facts{key: s.KeyOf("disk")}}
	var err error
	c.toFold, err = replica.EventsOf(s.Ctx, s.cache, c.key)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.Live.Delete(s.Ctx, event)).To(Succeed())
	_, err = s.incidents.loadContent(s.Ctx, c)
	s.Expect(err).To(MatchError(errStale))
	_, err = s.incidents.loading.Enter(s.Ctx, "another namespace", 0)
	s.Expect(err).NotTo(HaveOccurred())
}

// A resolve whose firing is a stub must not be released as one that matches nothing: then the Incident would stay open.
func TestAResolveWaitsForAnOlderStub(t *testing.T) {
	s := newSite(t)
	s.memory.Cached = queue.NewBoundedCached(fair.Limit{All: 1 << 20, Share: 1}, fair.Limit{All: 1, Share: 1})
	firing := s.Post(s.Alert(v1alpha1.AlertFiring, "disk"))
	s.cache.hidden[firing.UID] = true
	resolve := s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.watch() // it takes the place
	delete(s.cache.hidden, firing.UID)
	s.watch()
	s.Expect(s.memory.HasStub(firing.UID)).To(BeTrue())
	_, _ = s.reconcile("disk")
	s.Expect(s.incidents.releases.IsSettled(resolve, "disk")).To(BeFalse())
	s.release()
	s.Expect(s.EventNames()).To(ConsistOf(firing.Name, resolve.Name))

	s.memory.Cached.Forget(resolve)                       // makes a place
	_, err := s.memory.Cached.Condense(firing.DeepCopy()) // the watch has read it, and the cache does not show it yet
	s.Expect(err).NotTo(HaveOccurred())
	s.incidents.cache = &laggingReader{s.cache, resolve}
	_, _ = s.reconcile("disk")
	s.Expect(s.incidents.releases.IsSettled(resolve, "disk")).To(BeFalse())
	s.incidents.cache = s.cache
	s.watch()
	s.Expect(s.memory.HasStub(firing.UID)).To(BeFalse())
	s.memory.Cached = queue.NewCached(1)
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
}

// What a namespace has beyond its share of bytes is written without content, and shows why.
func TestContentIsBoundedInEachNamespace(t *testing.T) {
	s := newSite(t)
	counts := &listedCounts{site: s, incidents: 1000, bytes: 100 << 10}
	s.incidents.counts = counts
	large := func(key string) {
		alert := s.Alert(v1alpha1.AlertFiring, key)
		alert.Description = strings.Repeat("x", 16<<10)
		s.Post(alert)
		s.fold(key)
		s.release()
	}
	for n := range 10 {
		large(fmt.Sprint(n))
	}
	own := counts.usage(s.Namespace)
	s.Expect(own.Incidents).To(BeEquivalentTo(10), "each alert opens its Incident")
	s.Expect(own.Bytes).To(BeNumerically("<", 100<<10+10*(2<<10)+16<<10))
	last := s.Incident("9").Status
	s.Expect(last.State).To(Equal(v1alpha1.IncidentOpen))
	s.Expect(last.Alert.Description).To(BeEmpty())
	s.Expect(last.Timeline).To(ContainElement(And(
		HaveField("Type", v1alpha1.TransitionContentRejected), HaveField("Message", noSpace))))

	for _, key := range []string{"0", "1", "2"} {
		s.Post(s.Alert(v1alpha1.AlertResolved, key))
		s.fold(key)
		s.Expect(s.Incident(key).Status.State).To(Equal(v1alpha1.IncidentResolved))
	}
	large("10")
	s.Expect(s.Incident("10").Status.Alert.Description).NotTo(BeEmpty(), "there is space again")
}
