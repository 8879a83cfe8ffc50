package clustercache

import (
	"context"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var config *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(c *rest.Config) { config = c }))
}

// watchedServer is an API server with WebhookIntegrations. It shows what a test sends to its newest watch.
type watchedServer struct {
	mu      sync.Mutex
	lists   int
	from    []string // the resourceVersions from which watches began
	newest  *watch.FakeWatcher
	hanging int // watches that will not begin
	stuck   int // lists that get no answer
}

func (s *watchedServer) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	s.lists++
	hangs := s.stuck > 0
	s.stuck--
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &v1alpha1.IncidentList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, nil
}

func (s *watchedServer) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	hangs := s.hanging > 0
	s.hanging--
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = append(s.from, options.ResourceVersion)
	s.newest = watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})
	return s.newest, nil
}

// bookmark shows a bookmark.
func (s *watchedServer) bookmark(version string) {
	s.newest.Action(watch.Bookmark, &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}})
}

// TestAStalledWatchBeginsAgain lets an informer list and watch, and then time pass.
func TestAStalledWatchBeginsAgain(t *testing.T) {
	const second, minute = time.Second, time.Minute
	restart := func(kind client.Object, listAnew bool) func(*watchedServer, *Informers) {
		return func(_ *watchedServer, i *Informers) { i.RestartWatches(kind, listAnew) }
	}
	bookmark := func(s *watchedServer, _ *Informers) { s.bookmark("7") }
	type step struct {
		after time.Duration
		do    func(*watchedServer, *Informers)
	}
	for sentence, test := range map[string]struct {
		steps []step
		rest  time.Duration
		from  []string
		lists int
	}{
		"a watch that shows nothing begins again from where it was": {nil, 91 * second, []string{"5", "5"}, 1},
		"a bookmark a minute is enough": {
			[]step{{minute, bookmark}, {minute, bookmark}, {minute, bookmark}}, minute, []string{"5"}, 1},
		"a watch without another bookmark begins again from the last one": {
			[]step{{minute, bookmark}}, 91 * second, []string{"5", "7"}, 1},
		"a watch that shows objects needs no bookmark": {
			[]step{{second, bookmark}, {minute, func(s *watchedServer, _ *Informers) {
				s.newest.Add(&v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "8"}})
			}}}, 89 * second, []string{"5"}, 1},
		"one that stalls at its beginning begins again": {
			[]step{{minute, bookmark}, {second, func(s *watchedServer, _ *Informers) { s.hanging = 2; s.newest.Stop() }}},
			5 * minute, []string{"5", "7", "7"}, 1},
		"a restart goes on from the last bookmark": {
			[]step{{second, bookmark}, {second, restart(&v1alpha1.Incident{}, false)}}, second, []string{"5", "7"}, 1},
		"a restart may list anew": {
			[]step{{second, bookmark}, {second, restart(&v1alpha1.Incident{}, true)}}, 10 * second, []string{"5", "5"}, 2},
		"a list without an answer is made again": {
			[]step{{second, func(s *watchedServer, i *Informers) {
				s.stuck = 1
				i.RestartWatches(&v1alpha1.Incident{}, true)
			}}}, 100 * second, []string{"5", "5"}, 3},
		"a restart of another kind does nothing": {
			[]step{{second, bookmark}, {second, restart(&v1alpha1.AlertEvent{}, true)}}, second, []string{"5"}, 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, server, incidents := NewWithT(t), &watchedServer{}, &Informers{}
				ctx, cancel := context.WithCancel(t.Context())
				informer := incidents.newInformer(&toolscache.ListWatch{
					ListWithContextFunc: server.list, WatchFuncWithContext: server.watch,
				}, &v1alpha1.Incident{}, 0, nil)
				ended := make(chan struct{})
				go func() { defer close(ended); informer.RunWithContext(ctx) }()
				synctest.Wait()
				for _, step := range test.steps {
					time.Sleep(step.after)
					step.do(server, incidents)
					synctest.Wait()
				}
				time.Sleep(test.rest)
				synctest.Wait()
				server.mu.Lock()
				g.Expect(server.from).To(Equal(test.from))
				g.Expect(server.lists).To(Equal(test.lists))
				server.mu.Unlock()
				open := func() (count int) {
					incidents.watches.Range(func(any, any) bool { count++; return true })
					return count
				}
				g.Expect(open()).To(Equal(1), "those that ended are forgotten")
				cancel()
				<-ended
				synctest.Wait()
				g.Expect(open()).To(BeZero())
			})
		})
	}
}

// stallingTransport lets the watches that are open stall: they stay open, and what they get is lost.
type stallingTransport struct {
	http.RoundTripper
	stalls, lost atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (t *stallingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil && request.URL.Query().Get("watch") != "" {
		response.Body = &stallingBody{response.Body, t, t.stalls.Load()}
	}
	return response, err
}

// stallingBody is the body of a watch.
type stallingBody struct {
	io.ReadCloser
	transport *stallingTransport
	began     int32 // after so many stalls
}

// Read implements io.Reader.
func (b *stallingBody) Read(p []byte) (int, error) {
	for {
		n, err := b.ReadCloser.Read(p)
		if err != nil || b.began == b.transport.stalls.Load() {
			return n, err
		}
		b.transport.lost.Add(1)
	}
}

func TestARestartedWatchShowsWhatWasMissed(t *testing.T) {
	for sentence, listAnew := range map[string]bool{"by a watch": false, "by a list": true} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			live, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
			g.Expect(err).NotTo(HaveOccurred())
			namespace, transport := testenv.Namespace(t, live), &stallingTransport{}
			stalling := rest.CopyConfig(config)
			stalling.Wrap(func(next http.RoundTripper) http.RoundTripper {
				transport.RoundTripper = next
				return transport
			})
			incidents := &Informers{}
			objects, err := incidents.NewCache(stalling, cache.Options{
				Scheme: testenv.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}},
			})
			g.Expect(err).NotTo(HaveOccurred())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = objects.Start(ctx) }()
			store := func(name string) func() error {
				event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
				event.Spec.IntegrationName = "shop"
				event.Spec.Alerts = `[{"dedupKey":"disk","status":"firing"}]`
				g.Expect(live.Create(ctx, event)).To(Succeed())
				return func() error { return objects.Get(ctx, client.ObjectKeyFromObject(event), &v1alpha1.AlertEvent{}) }
			}
			g.Eventually(store("before"), "30s", "50ms").Should(Succeed())
			g.Eventually(func() (open int) {
				incidents.watches.Range(func(any, any) bool { open++; return true })
				return open
			}, "30s", "50ms").ShouldNot(BeZero(), "the list may have shown it")
			transport.stalls.Add(1)
			missed := store("missed")
			g.Eventually(transport.lost.Load, "30s", "50ms").ShouldNot(BeZero())
			g.Expect(apierrors.IsNotFound(missed())).To(BeTrue())
			incidents.RestartWatches(&v1alpha1.AlertEvent{}, listAnew)
			g.Eventually(missed, "30s", "50ms").Should(Succeed())
		})
	}
}
