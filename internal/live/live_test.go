package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// server is an API server in memory with troubles of its own.
type server struct {
	client.WithWatch
	hangs       atomic.Bool
	refuses     atomic.Bool
	denyWatches atomic.Bool
	slowAll     atomic.Bool // a list of all Incidents takes a minute
}

// IsWatchListSemanticsUnSupported tells the informer that lists are not streamed.
func (*server) IsWatchListSemanticsUnSupported() bool { return true }

func newServer(objects ...client.Object) *server {
	s := &server{}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	state := func(object client.Object) []string {
		incident, _ := object.(*v1alpha1.Incident)
		return []string{string(incident.Status.State)}
	}
	s.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&v1alpha1.Incident{}, "status.state", state).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if err := s.trouble(ctx); err != nil {
					return err
				}
				_, whole := list.(*v1alpha1.IncidentList)
				if of := (&client.ListOptions{}).ApplyOptions(options); whole && of.FieldSelector == nil && s.slowAll.Load() {
					time.Sleep(time.Minute)
				}
				return c.List(ctx, list, options...)
			},
			Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
				if err := s.trouble(ctx); err != nil {
					return nil, err
				}
				if s.denyWatches.Load() {
					return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "incidents"}, "", errors.New("no"))
				}
				return c.Watch(ctx, list, options...)
			},
		}).Build()
	return s
}

func (s *server) trouble(ctx context.Context) error {
	if s.refuses.Load() {
		return &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/apis", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	}
	if s.hangs.Load() {
		<-ctx.Done()
		return &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/apis", Err: ctx.Err()}
	}
	return nil
}

func incident(name string) *v1alpha1.Incident {
	return &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

// follow runs a feed in a bubble of its own time.
func follow(t *testing.T, s *server, test func(g *WithT, f *Feed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		f := Follow(s, "", Prune, func(Change) {})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx)
		}()
		time.Sleep(2 * time.Second)
		test(g, f)
		cancel()
		<-done
	})
}

func TestPrune(t *testing.T) {
	g := NewWithT(t)
	pruned := incident("a")
	want := pruned.DeepCopy()
	pruned.Status.UnarchivedEpisodes = []v1alpha1.UnarchivedEpisode{{Number: 1, Packed: "packed"}}
	pruned.Status.Ledger.Digest = "digest"
	pruned.Status.Alert.Description, pruned.Status.Alert.Custom = "long", v1alpha1.Bag{"a": []byte("1")}
	Prune(pruned)
	g.Expect(pruned).To(Equal(want))
}

func TestAnAPIServerThatHangsIsNoticedWithinSeconds(t *testing.T) {
	s := newServer(incident("a"))
	follow(t, s, func(g *WithT, f *Feed) {
		time.Sleep(time.Hour)
		g.Expect(f.Problem()).NotTo(HaveOccurred())
		g.Expect(f.Age()).To(BeNumerically("<=", probeInterval), "silence alone is no trouble")
		s.hangs.Store(true)
		time.Sleep(probeInterval + probeTimeout + time.Second)
		g.Expect(f.Problem()).To(HaveOccurred())
		g.Expect(Sentence(f.Problem())).To(Equal("the API server does not respond"))
		time.Sleep(time.Minute)
		g.Expect(f.Age()).To(BeNumerically(">", time.Minute))
		g.Expect(f.Incidents()).To(HaveLen(1), "what was known stays")
		s.hangs.Store(false)
		time.Sleep(probeInterval + probeTimeout)
		g.Expect(f.Problem()).NotTo(HaveOccurred())
		g.Expect(f.Age()).To(BeNumerically("<=", probeInterval))
	})
}

func TestAFeedIsBackWithinSecondsAfterALongOutage(t *testing.T) {
	s := newServer(incident("a"))
	s.refuses.Store(true)
	follow(t, s, func(g *WithT, f *Feed) {
		time.Sleep(time.Hour)
		g.Expect(Sentence(f.Problem())).To(Equal("the API server refuses connections"))
		g.Expect(f.Synced()).To(BeFalse())
		s.refuses.Store(false)
		time.Sleep(2 * probeInterval)
		g.Expect(f.Synced()).To(BeTrue())
		g.Expect(f.Problem()).NotTo(HaveOccurred())
	})
}

func TestADeniedWatchIsAProblemWhileListsWork(t *testing.T) {
	s := newServer(incident("a"))
	s.denyWatches.Store(true)
	follow(t, s, func(g *WithT, f *Feed) {
		for range 120 {
			time.Sleep(time.Second)
			g.Expect(Denied(f.Problem())).To(BeTrue())
		}
	})
}

func TestOpenIncidentsComeBeforeAllAreListed(t *testing.T) {
	open, gone, resolved := incident("open"), incident("gone"), incident("resolved")
	open.Status.State, gone.Status.State = v1alpha1.IncidentOpen, v1alpha1.IncidentOpen
	resolved.Status.State = v1alpha1.IncidentResolved
	s := newServer(open, gone, resolved)
	s.slowAll.Store(true)
	names := func(f *Feed) []string {
		names := []string{}
		for _, incident := range f.Incidents() {
			names = append(names, incident.Name)
		}
		return names
	}
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		shown := map[string]bool{}
		f := Follow(s, "", Prune, func(change Change) {
			if shown[change.Incident.Name] = true; change.Deleted {
				delete(shown, change.Incident.Name)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx)
		}()
		time.Sleep(2 * time.Second)
		g.Expect(f.Synced()).To(BeFalse())
		g.Expect(names(f)).To(ConsistOf("open", "gone"))
		g.Expect(shown).To(HaveLen(2))
		g.Expect(s.Delete(ctx, gone)).To(Succeed())
		time.Sleep(2 * time.Minute)
		g.Expect(f.Synced()).To(BeTrue())
		g.Expect(names(f)).To(ConsistOf("open", "resolved"))
		g.Expect(shown).To(Equal(map[string]bool{"open": true, "resolved": true}), "the deletion is told of, though no watch saw it")
		cancel()
		<-done
	})
}

// The page lists for many users, and a user decides how large an object is.
func TestAPageOfAListHasFewObjects(t *testing.T) {
	g := NewWithT(t)
	limits := map[string]int64{}
	c := interceptor.NewClient(newServer(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(options)
			if _, incidents := list.(*v1alpha1.IncidentList); !incidents || o.FieldSelector != nil {
				limits[fmt.Sprintf("%T", list)] = o.Limit
			}
			return c.List(ctx, list, options...)
		},
	})
	for _, err := range Integrations(t.Context(), c, "") {
		g.Expect(err).NotTo(HaveOccurred())
	}
	f := Follow(c, "", Prune, func(Change) {})
	f.listOpen(t.Context())
	g.Expect(limits).To(Equal(map[string]int64{"*v1alpha1.WebhookIntegrationList": 50, "*v1alpha1.IncidentList": 50}))
}

func TestSentence(t *testing.T) {
	const address = "https://10.0.0.1:6443/apis/tocsin.dev/v1alpha1/incidents?limit=1"
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "tocsin.dev", Resource: "incidents"}, "", errors.New("User \"x\" may not"))
	for sentence, test := range map[string]struct {
		err  error
		want string
	}{
		"a timeout":           {&url.Error{Op: "Get", URL: address, Err: context.DeadlineExceeded}, "the API server does not respond"},
		"a refusal to listen": {&url.Error{Op: "Get", URL: address, Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, "the API server refuses connections"},
		"anything else":       {&url.Error{Op: "Get", URL: address, Err: errors.New("tls: \x1b[2Jexpired")}, "the API server cannot be reached: tls: [2Jexpired"},
		"what it answers":     {forbidden, `incidents.tocsin.dev is forbidden: User "x" may not`},
	} {
		t.Run(sentence, func(t *testing.T) {
			NewWithT(t).Expect(Sentence(test.err)).To(Equal(test.want))
		})
	}
}
