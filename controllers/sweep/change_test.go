package sweep

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/pages"
)

// definitions are those of the CustomResourceDefinitions.
var definitions = sync.OnceValues(func() (*apiserver.Definitions, error) {
	return apiserver.ReadDefinitions(os.DirFS(filepath.Join(testenv.Root(), "config", "crd", "bases")))
})

// Two namespaces that the API server begins with.
const crowded, calm = metav1.NamespaceDefault, metav1.NamespacePublic

// stage is a Sweeper on an API server in memory.
type stage struct {
	apiserver.NoFaults
	*WithT
	*Sweeper

	ctx     context.Context
	users   client.Client
	mu      sync.Mutex
	calls   []string        // of the Sweeper, such as "list" and "get a"
	arrive  func(call int)  // right before the Sweeper's n-th call, of which the first has 0
	failing map[int]bool    // calls that get no answer
	told    []string        // Incidents of which the Listener was told
	due     map[string]bool // Incidents that are to be folded
	queue   requests.Queue
}

// onStage runs a test in a bubble. A namespace may have so many Incidents.
func onStage(t *testing.T, share int, test func(s *stage)) {
	t.Helper()
	if _, err := definitions(); err != nil { // outside the bubble
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		compiled, _ := definitions()
		server, err := apiserver.New(apiserver.Options{Definitions: compiled})
		s := &stage{WithT: NewWithT(t), ctx: t.Context(), due: map[string]bool{}, failing: map[int]bool{}}
		s.Expect(err).NotTo(HaveOccurred())
		connect := func(name string, faults apiserver.Faults) client.Client {
			mapper, err := clustercache.RESTMapper(nil, nil)
			s.Expect(err).NotTo(HaveOccurred())
			c, err := client.New(server.Config(name, faults), client.Options{Scheme: testenv.Scheme(), Mapper: mapper})
			s.Expect(err).NotTo(HaveOccurred())
			return c
		}
		s.users = connect("users", nil)
		live := connect("sweeper", s)
		s.Sweeper = New(Options{
			Live: live, Namespaces: []string{metav1.NamespaceAll}, Listener: (*listener)(s),
			Capacity: capacity.New(capacity.Limits{Incidents: 2 * share, Share: 0.5}, nil, clock.RealClock{}),
			Clock:    testsite.APIClock{PassiveClock: clock.RealClock{}},
		})
		s.queue = workqueue.NewTypedRateLimitingQueue(requests.Backoff[reconcile.Request]())
		defer func() {
			s.queue.ShutDown()
			time.Sleep(time.Minute) // until its goroutines have ended
		}()
		s.folds, s.Sweeper.queue = exactFolds{s, live}, s.queue
		test(s)
	})
}

// Arrive implements apiserver.Faults.
func (s *stage) Arrive(_ context.Context, call *apiserver.Call) (*metav1.Status, error) {
	s.mu.Lock()
	n := len(s.calls)
	s.calls = append(s.calls, call.Verb+" "+call.Name)
	s.mu.Unlock()
	if s.arrive != nil {
		s.arrive(n)
	}
	if s.failing[n] {
		return &metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError}, nil
	}
	return nil, nil
}

type listener stage

func (l *listener) Observe(incident *v1alpha1.Incident) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, incident.Name)
}

// exactFolds delete Incidents as package incident does: exactly as they were read.
type exactFolds struct {
	*stage
	live client.Client
}

func (f exactFolds) IsDue(_ context.Context, incident *v1alpha1.Incident) bool {
	return f.due[incident.Name]
}

func (f exactFolds) Delete(ctx context.Context, _ string, incidents []*v1alpha1.Incident, more func() bool) (deleted int, err error) {
	for _, read := range incidents {
		if !more() {
			break
		}
		object := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: read.Namespace, Name: read.Name}}
		err := f.live.Delete(ctx, object, client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion})
		if err == nil {
			f.NoteWritten(read, nil)
			deleted++
		}
	}
	return deleted, nil
}

// incident reads an Incident; nil if there is none.
func (s *stage) incident(namespace, name string) *v1alpha1.Incident {
	incident := &v1alpha1.Incident{}
	err := s.users.Get(s.ctx, client.ObjectKey{Namespace: namespace, Name: name}, incident)
	s.Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil {
		return nil
	}
	return incident
}

// write writes the state of an Incident, and makes it if there is none. noted says that a fold of this process does so.
func (s *stage) write(namespace, name string, state v1alpha1.IncidentState, noted bool) {
	incident := s.incident(namespace, name)
	if incident == nil {
		incident = &v1alpha1.Incident{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1alpha1.IncidentSpec{IntegrationName: "app", DedupKey: name},
		}
		s.Expect(s.users.Create(s.ctx, incident)).To(Succeed())
	}
	before := incident.DeepCopy()
	incident.Status.State = state
	incident.Status.Episode = &v1alpha1.Episode{Number: 1, StartTime: v1alpha1.NewTimestamp(time.Now())}
	incident.Status.ResolvedTime = nil
	if state == v1alpha1.IncidentResolved {
		incident.Status.ResolvedTime = new(v1alpha1.NewTimestamp(time.Now()))
	}
	s.Expect(s.users.Status().Update(s.ctx, incident)).To(Succeed())
	if noted {
		s.NoteWritten(before, incident)
	}
}

// resolve makes Resolved Incidents, one a minute.
func (s *stage) resolve(namespace string, names ...string) {
	for _, name := range names {
		s.write(namespace, name, v1alpha1.IncidentResolved, false)
		time.Sleep(time.Minute)
	}
}

func (s *stage) sweepOnce() {
	s.Expect(s.sweep(s.ctx)).To(Succeed())
}

func (s *stage) evictOnce() (evicted int) {
	evicted, err := s.evict(s.ctx, crowded)
	s.Expect(err).NotTo(HaveOccurred())
	return evicted
}

// names returns the names of the Incidents of the crowded namespace, sorted.
func (s *stage) names() []string {
	var list v1alpha1.IncidentList
	s.Expect(s.users.List(s.ctx, &list, client.InNamespace(crowded))).To(Succeed())
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// expectRecounted compares the counts with what there is.
func (s *stage) expectRecounted(when string) {
	for _, namespace := range []string{crowded, calm} {
		var list v1alpha1.IncidentList
		s.Expect(s.users.List(s.ctx, &list, client.InNamespace(namespace))).To(Succeed())
		var there capacity.Usage
		for i := range list.Items {
			if list.Items[i].Status.State == v1alpha1.IncidentResolved {
				there = there.Plus(capacity.UsageOf(&list.Items[i]))
			}
		}
		counted := capacity.Usage{Incidents: s.counts.Incidents.Used(namespace), Bytes: s.counts.Bytes.Used(namespace)}
		s.Expect(counted).To(Equal(there), "%s, in %s", when, namespace)
	}
}

// TestAnIncidentThatIsReopenedIsNotEvicted has the oldest Incident be reopened right before each call of an eviction in turn, by
// this leader or by another one, of which it does not hear.
func TestAnIncidentThatIsReopenedIsNotEvicted(t *testing.T) {
	for sentence, noted := range map[string]bool{"by this leader": true, "by another leader": false} {
		t.Run(sentence, func(t *testing.T) {
			for n, calls := 0, 1; n < calls; n++ {
				onStage(t, 2, func(s *stage) {
					s.resolve(crowded, "a", "b", "c", "d")
					s.sweepOnce()
					s.calls = nil
					s.arrive = func(call int) {
						if call == n && s.incident(crowded, "a") != nil {
							s.write(crowded, "a", v1alpha1.IncidentOpen, noted)
						}
					}
					s.evictOnce()
					calls = len(s.calls)
					isGone := slices.Contains(s.calls[:n], "delete a")
					s.Expect(s.incident(crowded, "a") == nil).To(Equal(isGone), "before call %d of %v", n, s.calls)
					s.Expect(s.incident(crowded, "d")).NotTo(BeNil(), "the newest one stays")
					if noted && n > 0 { // what is written before the list is read counts twice, until the next list
						s.expectRecounted("after the eviction")
					}
					s.arrive = nil
					s.evictOnce()
					s.expectRecounted("after the next eviction")
					s.Expect(s.counts.Incidents.Used(crowded)).To(BeNumerically("<=", 2))
				})
			}
		})
	}
}

// TestTheCountsAreThoseOfARecount has this leader's folds write Incidents while pages are read, or a call fail.
func TestTheCountsAreThoseOfARecount(t *testing.T) {
	for sentence, list := range map[string]func(s *stage){
		"in a sweep": func(s *stage) { s.sweepOnce() }, "in an eviction": func(s *stage) { s.evictOnce() },
	} {
		t.Run(sentence, func(t *testing.T) {
			for change, write := range map[string]func(s *stage){
				"resolves one": func(s *stage) { s.write(crowded, "new", v1alpha1.IncidentResolved, true) },
				"reopens one":  func(s *stage) { s.write(crowded, "i-9", v1alpha1.IncidentOpen, true) },
				"writes one":   func(s *stage) { s.write(crowded, "i-9", v1alpha1.IncidentResolved, true) },
				"resolves another": func(s *stage) {
					s.write(calm, "a", v1alpha1.IncidentResolved, true)
					s.write(calm, "b", v1alpha1.IncidentOpen, true)
				},
			} {
				t.Run(change, func(t *testing.T) {
					onStage(t, 1000, func(s *stage) {
						for i := range 70 { // more than the first page has
							s.write(crowded, fmt.Sprint("i-", i), v1alpha1.IncidentResolved, false)
						}
						s.sweepOnce()
						s.calls, s.failing, s.reader = nil, map[int]bool{1: true}, pages.Reader{}
						s.arrive = func(call int) {
							if call == 1 { // of the second page, which is of the moment of the first, and is read again
								write(s)
							}
						}
						list(s)
						s.Expect(len(s.calls)).To(BeNumerically(">=", 3))
						s.expectRecounted("meanwhile the leader " + change)
					})
				})
			}
		})
	}
}

// TestASweepVisitsAllResolvedIncidents also if a page has to be read again: each is told of, and those that are due are folded.
func TestASweepVisitsAllResolvedIncidents(t *testing.T) {
	onStage(t, 10, func(s *stage) {
		s.resolve(crowded, "a", "b")
		s.resolve(calm, "c")
		s.write(calm, "open", v1alpha1.IncidentOpen, false)
		s.due["b"] = true
		_, known := s.CountResolved()
		s.Expect(known).To(BeFalse(), "before the first sweep")
		s.failing[0] = true
		s.sweepOnce()
		s.Expect(s.calls).To(HaveLen(2))
		s.Expect(s.told).To(ConsistOf("a", "b", "c"))
		s.Expect(s.Sweeper.queue.Len()).To(Equal(1))
		request, _ := s.Sweeper.queue.Get()
		s.Expect(request.NamespacedName).To(Equal(client.ObjectKey{Namespace: crowded, Name: "b"}))
		s.expectRecounted("after the sweep")
		count, known := s.CountResolved()
		s.Expect(known).To(BeTrue())
		s.Expect(count).To(BeEquivalentTo(3))
	})
}

// TestASweepThatFailsChangesNoCount gives up a page after some attempts: what was counted before stays, and is evicted by.
func TestASweepThatFailsChangesNoCount(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		s.resolve(crowded, "a", "b")
		s.Expect(s.overLimit()).To(BeEmpty(), "nothing is evicted before the first sweep")
		s.sweepOnce()
		s.resolve(crowded, "c")
		s.calls = nil
		for call := range pageAttempts {
			s.failing[call] = true
		}
		s.Expect(s.sweep(s.ctx)).NotTo(Succeed())
		s.Expect(s.calls).To(HaveLen(pageAttempts))
		s.Expect(s.counts.Incidents.Used(crowded)).To(BeEquivalentTo(2))
		s.Expect(s.overLimit()).To(ConsistOf(crowded))
		s.failing = map[int]bool{len(s.calls) + 1: true}
		_, err := s.evict(s.ctx, crowded)
		s.Expect(err).To(HaveOccurred(), "an Incident could not be read")
		s.Expect(s.names()).To(Equal([]string{"a", "b", "c"}))
		s.Expect(s.evictOnce()).To(Equal(2))
		s.Expect(s.names()).To(Equal([]string{"c"}))
	})
}

// TestTheLoopOfATermSweepsAndEvicts lets a term run for some hours.
func TestTheLoopOfATermSweepsAndEvicts(t *testing.T) {
	onStage(t, 2, func(s *stage) {
		s.resolve(crowded, "a", "b", "c")
		ctx, end := context.WithCancel(s.ctx)
		defer func() {
			end()
			synctest.Wait()
		}()
		queue, folds := s.Sweeper.queue, s.folds
		s.Sweeper.queue, s.folds = nil, nil
		for call := range pageAttempts {
			s.failing[call] = true // so the first sweep fails
		}
		s.Start(ctx, queue, folds)
		lists := func(during time.Duration) (lists int) {
			before := len(s.calls)
			time.Sleep(during)
			synctest.Wait()
			for _, call := range s.calls[before:] {
				if call == "list " {
					lists++
				}
			}
			return lists
		}
		s.Expect(lists(time.Minute)).To(Equal(pageAttempts+2), "two sweeps and an eviction")
		s.Expect(s.names()).To(Equal([]string{"b", "c"}))
		s.Expect(lists(30 * time.Minute)).To(BeZero())
		s.Revisit(crowded)
		s.Expect(lists(2*time.Second)).To(Equal(1), "somebody has asked for a visit")
		s.Expect(lists(2*time.Second)).To(BeZero(), "once")
		s.Expect(lists(Interval)).To(Equal(1))

		s.write(crowded, "d", v1alpha1.IncidentResolved, true)
		s.Expect(lists(2*time.Second)).To(Equal(1), "the namespace has more than its share")
		s.Expect(s.names()).To(Equal([]string{"c", "d"}))
		s.write(crowded, "e", v1alpha1.IncidentResolved, true)
		s.Expect(lists(evictionRetry/2)).To(BeZero(), "evictions take time")
		s.Expect(lists(evictionRetry)).To(Equal(1))
		s.Expect(s.names()).To(Equal([]string{"d", "e"}))

		s.resolve(calm, "due")
		s.due["due"] = true
		s.Revisit(calm)
		s.Expect(lists(2 * time.Second)).To(Equal(1))
		s.Expect(s.Sweeper.queue.Len()).To(Equal(1), "its retention ends")

		s.options.ArchiveRequired = true // from now on, nothing may be deleted
		s.write(crowded, "f", v1alpha1.IncidentResolved, true)
		s.Expect(lists(evictionRetry + 2*time.Second)).To(Equal(1))
		s.Expect(lists(fruitlessRetry-2*evictionRetry)).To(BeZero(), "it found nothing to delete")
		s.Expect(s.names()).To(HaveLen(3))
	})
}
