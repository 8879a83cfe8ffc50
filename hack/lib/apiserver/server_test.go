package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
)

// faults injects faults into the calls of a client by functions, which may be nil.
type faults struct {
	arrive  func(call *apiserver.Call) (*metav1.Status, error)
	leave   func(call *apiserver.Call) error
	deliver func(call *apiserver.Call) error
}

func (f *faults) Arrive(_ context.Context, call *apiserver.Call) (*metav1.Status, error) {
	if f.arrive == nil {
		return nil, nil
	}
	return f.arrive(call)
}

func (f *faults) Leave(_ context.Context, call *apiserver.Call, _ int) error {
	if f.leave == nil {
		return nil
	}
	return f.leave(call)
}

func (f *faults) Deliver(_ context.Context, call *apiserver.Call, _ int64) error {
	if f.deliver == nil {
		return nil
	}
	return f.deliver(call)
}

// bubble runs a test of a server with a namespace in a bubble, which checks that nothing goes on after the test.
func bubble(t *testing.T, options apiserver.Options, f apiserver.Faults, test func(g *WithT, server *apiserver.Server, s *site)) {
	t.Helper()
	definitions(t) // outside the bubble
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t, options)
		test(NewWithT(t), server, newSite(t, provider{config: server.Config("one", f)}))
	})
}

func newClient(g *WithT, config *rest.Config) client.Client {
	mapper, err := clustercache.RESTMapper(nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme(), Mapper: mapper})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

func newIncident(namespace, name string) *v1alpha1.Incident {
	return &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "app", DedupKey: name},
	}
}

func TestInformerFollowsThroughExpiry(t *testing.T) {
	var expire bool
	var mu sync.Mutex
	f := &faults{deliver: func(call *apiserver.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if expire && call.Resource == "incidents.tocsin.dev" {
			expire = false
			return apiserver.ErrExpired
		}
		return nil
	}}
	bubble(t, apiserver.Options{}, f, func(g *WithT, server *apiserver.Server, s *site) {
		ctx, cancel := context.WithCancel(s.t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		mapper, err := clustercache.RESTMapper(nil, nil)
		g.Expect(err).NotTo(HaveOccurred())
		incidents, err := cache.New(s.config, cache.Options{Scheme: testenv.Scheme(), Mapper: mapper})
		g.Expect(err).NotTo(HaveOccurred())
		running.Go(func() { _ = incidents.Start(ctx) })
		g.Expect(incidents.WaitForCacheSync(ctx)).To(BeTrue())
		c := newClient(g, s.config)
		listed := func() (names []string) {
			var list v1alpha1.IncidentList
			g.Expect(incidents.List(ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
			for _, incident := range list.Items {
				names = append(names, incident.Name+":"+string(incident.Status.State))
			}
			return names
		}
		a := newIncident(s.namespace, "a")
		g.Expect(c.Create(ctx, a)).To(Succeed())
		g.Expect(listed()).To(ConsistOf("a:"))

		a.Status.State = v1alpha1.IncidentOpen
		g.Expect(c.Status().Update(ctx, a)).To(Succeed())
		synctest.Wait()
		g.Expect(listed()).To(ConsistOf("a:Open"))

		mu.Lock()
		expire = true
		mu.Unlock()
		server.Expire()
		g.Expect(c.Create(ctx, newIncident(s.namespace, "b"))).To(Succeed())
		g.Expect(c.Delete(ctx, a, client.Preconditions{UID: &a.UID})).To(Succeed())
		time.Sleep(time.Minute)
		g.Expect(expire).To(BeFalse())
		g.Expect(listed()).To(ConsistOf("b:"))
	})
}

func TestFaults(t *testing.T) {
	const path = "incidents"
	refused, lost := errors.New("refused"), errors.New("lost")
	once := func(faulty func(call *apiserver.Call) bool) func(call *apiserver.Call) bool {
		done := false
		return func(call *apiserver.Call) bool {
			if done || !faulty(call) {
				return false
			}
			done = true
			return true
		}
	}
	create := func(call *apiserver.Call) bool {
		return call.Verb == "create" && call.Resource == "incidents.tocsin.dev"
	}
	for sentence, c := range map[string]struct {
		faults func() *faults
		err    error
		stored int
		after  time.Duration
	}{
		"a request that does not arrive changes nothing": {func() *faults {
			is := once(create)
			return &faults{arrive: func(call *apiserver.Call) (*metav1.Status, error) {
				if is(call) {
					return nil, refused
				}
				return nil, nil
			}}
		}, refused, 0, 0},
		"a request whose response is lost is done": {func() *faults {
			is := once(create)
			return &faults{leave: func(call *apiserver.Call) error {
				if is(call) && call.Name == "a" {
					return lost
				}
				return nil
			}}
		}, lost, 1, 0},
		"a client waits as long as the server tells it to": {func() *faults {
			is := once(create)
			return &faults{arrive: func(call *apiserver.Call) (*metav1.Status, error) {
				if is(call) {
					return &apierrors.NewTooManyRequests("busy", 7).ErrStatus, nil
				}
				return nil, nil
			}}
		}, nil, 1, 7 * time.Second},
	} {
		t.Run(sentence, func(t *testing.T) {
			bubble(t, apiserver.Options{}, c.faults(), func(g *WithT, server *apiserver.Server, s *site) {
				began := time.Now()
				err := newClient(g, s.config).Create(s.t.Context(), newIncident(s.namespace, "a"))
				if c.err == nil {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(c.err))
				}
				g.Expect(time.Since(began)).To(Equal(c.after))
				g.Expect(server.Objects(path + ".tocsin.dev")).To(HaveLen(c.stored))
			})
		})
	}
}

// stale are Faults with an API server whose cache lags by this many resourceVersions.
type stale struct {
	apiserver.NoFaults
	lag int64
}

func (s *stale) Lag(*apiserver.Call) int64 { return s.lag }

func TestStaleReads(t *testing.T) {
	f := &stale{}
	bubble(t, apiserver.Options{}, f, func(g *WithT, _ *apiserver.Server, s *site) {
		s.incidents("a", "Open")
		s.create("incidents", incident("b"))
		f.lag = 2
		g.Expect(names(s.send("GET", s.path("incidents")+"?resourceVersion=0", nil))).To(ConsistOf("a"))
		g.Expect(s.send("GET", s.path("incidents", "b")+"?resourceVersion=0", nil).code).To(Equal(http.StatusNotFound))
		g.Expect(s.send("GET", s.path("incidents", "a")+"?resourceVersion=0", nil).at("status")).To(BeNil())
		g.Expect(names(s.send("GET", s.path("incidents"), nil))).To(ConsistOf("a", "b"))
		s.watch("incidents", query("watch", "true", "resourceVersion", "0")).next(3)
		g.Expect(s.notes).To(Equal([]string{"ADDED Incident a", "MODIFIED Incident a", "ADDED Incident b"}))
	})
}

func TestBookmarksAndEnds(t *testing.T) {
	bubble(t, apiserver.Options{WatchTimeout: 3*time.Minute - time.Second}, nil, func(g *WithT, server *apiserver.Server, s *site) {
		began := time.Now()
		w := s.watch("incidents", query("watch", "true", "resourceVersion", fmt.Sprint(server.Revision()), "allowWatchBookmarks",
			"true",
			"timeoutSeconds", "600"))
		s.create("alertevents", alertEvent("a"))
		bookmark := w.next(1)
		g.Expect(time.Since(began)).To(Equal(time.Minute))
		g.Expect(at(bookmark, "object", "metadata", "resourceVersion")).To(Equal(fmt.Sprint(server.Revision())))
		w.next(2)
		g.Expect(time.Since(began)).To(Equal(3*time.Minute - time.Second))
		g.Expect(s.notes).To(Equal([]string{"BOOKMARK Incident ", "BOOKMARK Incident ", "end"}))
	})
}

func TestHistoryIsBounded(t *testing.T) {
	bubble(t, apiserver.Options{History: 2}, nil, func(g *WithT, server *apiserver.Server, s *site) {
		first := fmt.Sprint(server.Revision())
		slow := s.watch("alertevents", query("watch", "true", "resourceVersion", first))
		for i := range 5 {
			s.create("alertevents", alertEvent(fmt.Sprint(i)))
		}
		slow.next(1)
		s.watch("alertevents", query("watch", "true", "resourceVersion", first)).next(1)
		g.Expect(s.notes).To(Equal([]string{"end", "ERROR Status "}))
	})
}

func TestNamespaceIsEmptiedAndDeleted(t *testing.T) {
	bubble(t, apiserver.Options{}, nil, func(g *WithT, server *apiserver.Server, s *site) {
		path := "/api/v1/namespaces/" + s.namespace
		s.create("alertevents", alertEvent("a"))
		s.create("incidents", with(incident("held"), []string{"example.com/hold"}, "metadata", "finalizers"))
		s.send("DELETE", path, nil)
		g.Expect(server.Objects("alertevents.tocsin.dev")).To(HaveLen(1))
		time.Sleep(time.Second)
		synctest.Wait()
		g.Expect(server.Objects("alertevents.tocsin.dev")).To(BeEmpty())
		held := s.send("GET", s.path("incidents", "held"), nil)
		g.Expect(held.at("metadata", "deletionTimestamp")).NotTo(BeNil())
		g.Expect(s.send("GET", path, nil).at("status", "phase")).To(Equal("Terminating"))

		s.send("PUT", s.path("incidents", "held"), with(held.body, nil, "metadata", "finalizers"))
		g.Expect(s.send("GET", path, nil).code).To(Equal(http.StatusNotFound))
		s.send("POST", "/api/v1/namespaces", object{"kind": "Namespace", "apiVersion": "v1", "metadata": object{"name": s.namespace}})
		s.create("alertevents", alertEvent("a"))
	})
}

func TestObserversSeeCommitsInOrder(t *testing.T) {
	bubble(t, apiserver.Options{}, nil, func(g *WithT, server *apiserver.Server, s *site) {
		var seen []string
		server.OnCommit(func(c apiserver.Commit) {
			seen = append(seen, fmt.Sprintf("%s %s %s %v", c.Client, c.Type, c.Resource, c.Old != nil))
		})
		s.incidents("a", "Open")
		s.send("POST", s.path("incidents")+"?dryRun=All", incident("b"))
		s.send("POST", "/api/v1/namespaces/"+s.namespace+"/events",
			object{"kind": "Event", "apiVersion": "v1", "metadata": object{"generateName": "e"}})
		s.send("DELETE", s.path("incidents", "a"), nil)
		g.Expect(seen).To(Equal([]string{
			"one ADDED incidents.tocsin.dev false", "one MODIFIED incidents.tocsin.dev true", "one DELETED incidents.tocsin.dev true",
		}))
	})
}

// Two servers that get the same requests at the same times commit the same bytes.
func TestServersAreDeterministic(t *testing.T) {
	run := func() (commits []string) {
		bubble(t, apiserver.Options{}, nil, func(g *WithT, server *apiserver.Server, s *site) {
			server.OnCommit(func(c apiserver.Commit) {
				c.Call, c.Faults, c.JSON = nil, nil, nil // the order of keys in a body is random, and JSON is Object again
				text, err := json.Marshal(c)
				g.Expect(err).NotTo(HaveOccurred())
				commits = append(commits, s.plainNamespace(string(text)))
			})
			for range 20 {
				s.create("alertevents", with(with(alertEvent("a"), "event-", "metadata", "generateName"), nil, "metadata", "name"))
			}
			s.incidents("a", "Open", "b", "Resolved")
			s.send("DELETE", s.path("alertevents"), nil)
			s.create("incidents", with(incident("c"), object{"x": "1", "y": "2", "z": "3"}, "metadata", "labels"))
			s.send("DELETE", "/api/v1/namespaces/"+s.namespace, nil)
			time.Sleep(time.Minute)
			g.Expect(s.send("GET", "/api/v1/namespaces/"+s.namespace, nil).code).To(Equal(http.StatusNotFound))
		})
		return commits
	}
	first := run()
	NewWithT(t).Expect(first).To(HaveLen(20 + 4 + 20 + 1 + 1 + 3 + 1))
	NewWithT(t).Expect(run()).To(Equal(first))
}

func TestHandlerServesANetwork(t *testing.T) {
	server := newServer(t, apiserver.Options{})
	network := httptest.NewServer(server.Handler("one", nil))
	t.Cleanup(network.Close)
	s := newSite(t, provider{config: &rest.Config{Host: network.URL}})
	w := s.watch("incidents", query("watch", "true", "resourceVersion", fmt.Sprint(server.Revision()), "timeoutSeconds", "60"))
	s.create("incidents", incident("a"))
	w.next(1)
	NewWithT(t).Expect(s.notes).To(Equal([]string{"ADDED Incident a"}))
}

func TestTheClockIsThatOfTheOptions(t *testing.T) {
	ahead := time.Hour
	options := apiserver.Options{Now: func() time.Time { return time.Now().Add(ahead) }}
	bubble(t, options, nil, func(g *WithT, _ *apiserver.Server, s *site) {
		want := time.Now().Add(ahead).UTC()
		a := s.create("alertevents", alertEvent("a"))
		g.Expect(a.at("metadata", "creationTimestamp")).To(Equal(want.Format(time.RFC3339)))
	})
}

func TestAPropertyIsNotPublished(t *testing.T) {
	bubble(t, apiserver.Options{}, nil, func(g *WithT, server *apiserver.Server, s *site) {
		path := []string{"properties", "spec", "properties", "report", "properties", "comment"}
		published := func() any {
			a := s.send("GET", "/openapi/v3/apis/tocsin.dev/v1alpha1", nil, "Accept", "application/json")
			return a.at(append([]string{"components", "schemas", "dev.tocsin.v1alpha1.AlertEvent"}, path...)...)
		}
		g.Expect(published()).NotTo(BeNil())
		server.PublishWithout("AlertEvent", path...)
		g.Expect(published()).To(BeNil())
		server.PublishWithout("AlertEvent")
		g.Expect(published()).NotTo(BeNil())
	})
}
