package app

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/utils/clock"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/heartbeat"
	"github.com/tocsin-dev/tocsin/controllers/incident"
	"github.com/tocsin-dev/tocsin/controllers/maintenance"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// gate passes connections on to the API server, or holds them up.
type gate struct {
	t       *testing.T
	address string

	mu       sync.Mutex
	changed  *sync.Cond
	frozen   bool
	listener net.Listener // nil: connections are refused
	conns    map[net.Conn]struct{}
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{t: t, address: freeAddress(t), conns: map[net.Conn]struct{}{}}
	g.changed = sync.NewCond(&g.mu)
	t.Cleanup(g.refuse)
	return g
}

// open lets connections through.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.frozen = false
	g.changed.Broadcast()
	g.listen()
}

// freeze takes connections, and passes nothing on in any.
func (g *gate) freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.frozen = true
	g.listen()
}

// refuse breaks all connections and takes no new ones.
func (g *gate) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.frozen = false
	g.changed.Broadcast()
	if g.listener != nil {
		_ = g.listener.Close()
	}
	g.listener = nil
	for conn := range g.conns {
		_ = conn.Close()
	}
}

func (g *gate) listen() {
	if g.listener != nil {
		return
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", g.address)
	NewWithT(g.t).Expect(err).NotTo(HaveOccurred())
	g.listener = listener
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go g.serve(conn)
		}
	}()
}

func (g *gate) serve(conn net.Conn) {
	target, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, true)
	NewWithT(g.t).Expect(err).NotTo(HaveOccurred())
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target.Host)
	if err != nil {
		_ = conn.Close()
		return
	}
	g.mu.Lock()
	g.conns[conn], g.conns[server] = struct{}{}, struct{}{}
	g.mu.Unlock()
	go g.pass(conn, server)
	g.pass(server, conn)
}

func (g *gate) pass(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		g.mu.Lock()
		for g.frozen {
			g.changed.Wait()
		}
		g.mu.Unlock()
		if n > 0 {
			_, _ = to.Write(buffer[:n])
		}
		if err != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}

// managerProcess is a manager that runs in the test.
type managerProcess struct {
	webhook, probe string
	namespace      string
	client         client.Client
	ended          chan error
	stop           context.CancelFunc
}

// startProcess starts a manager with leader election for a namespace of its own, in which there is an integration.
func startProcess(t *testing.T, host string) *managerProcess {
	t.Helper()
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	free := freeAddresses(t, 2)
	p := &managerProcess{
		webhook: free[0], probe: free[1], namespace: testenv.Namespace(t, c),
		client: c, ended: make(chan error, 1),
	}
	g.Expect(c.Create(t.Context(), &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "test"},
		Spec:       v1alpha1.WebhookIntegrationSpec{Tokens: testenv.Tokens(p.namespace, "test")},
	})).To(Succeed())
	t.Setenv("KUBECONFIG", kubeconfigFor(t, host))
	o, err := ParseFlags([]string{
		"--webhook-bind-address=" + p.webhook, "--health-probe-bind-address=" + p.probe, "--metrics-bind-address=0",
		"--leader-elect", "--leader-election-namespace=" + p.namespace, "--watch-namespaces=" + p.namespace, "--shutdown-delay=0s",
	})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	go func() { p.ended <- run(ctx, o) }()
	t.Cleanup(stop)
	return p
}

// post posts an alert and returns the status and the type of the problem.
func (p *managerProcess) post(key string) (status int, problem string) {
	request, err := http.NewRequest(http.MethodPost, "http://"+p.webhook+"/api/v1/events/webhook",
		strings.NewReader(`{"title":"It works","dedup_key":"`+key+`"}`))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+testenv.Token(p.namespace, "test"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	var body struct{ Type string }
	_ = json.NewDecoder(response.Body).Decode(&body)
	return response.StatusCode, body.Type
}

// ready asks /readyz.
func (p *managerProcess) ready() (status int, text string) {
	response, err := http.Get("http://" + p.probe + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	raw, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(raw)
}

// state is the state of the Incident with this key, empty when there is none.
func (p *managerProcess) state(ctx context.Context, key string) v1alpha1.IncidentState {
	var incident v1alpha1.Incident
	name := client.ObjectKey{Namespace: p.namespace, Name: v1alpha1.IncidentName("test", key)}
	_ = p.client.Get(ctx, name, &incident)
	return incident.Status.State
}

func (p *managerProcess) expectEnd(g *WithT) {
	p.stop()
	g.Eventually(p.ended, "10s").Should(Receive(BeNil()))
}

func TestAStartWaitsForTheAPIServer(t *testing.T) {
	for sentence, outage := range map[string]func(*gate){
		"that refuses connections": (*gate).refuse,
		"that is frozen":           (*gate).freeze,
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			gate := newGate(t)
			outage(gate)
			p := startProcess(t, "https://"+gate.address)
			g.Eventually(func() int { code, _ := p.ready(); return code }, "10s", "20ms").Should(Equal(http.StatusServiceUnavailable))
			_, reason := p.ready()
			g.Expect(reason).To(ContainSubstring("not"), "the answer has a reason")
			g.Expect(status(http.Get("http://" + p.probe + "/healthz"))).To(Equal(http.StatusOK))
			g.Eventually(func() int { code, _ := p.post("one"); return code }, "5s", "20ms").Should(Equal(http.StatusServiceUnavailable))
			g.Consistently(p.ended, "3s").ShouldNot(Receive())
			_, problem := p.post("one")
			g.Expect(problem).To(Equal("tag:tocsin.dev,2026:not-ready"))

			gate.open()
			opened := time.Now()
			g.Eventually(func() int { code, _ := p.post("one"); return code }, "5s", "20ms").Should(Equal(http.StatusAccepted))
			t.Logf("stored again after %s", time.Since(opened))
			g.Eventually(func() int { code, _ := p.ready(); return code }, "5s", "20ms").Should(Equal(http.StatusOK))
			g.Eventually(func() v1alpha1.IncidentState { return p.state(t.Context(), "one") }, "30s", "50ms").
				Should(Equal(v1alpha1.IncidentOpen))
			p.expectEnd(g)
		})
	}
}

func TestAStartDuringAnOutageCanBeStopped(t *testing.T) {
	g := NewWithT(t)
	gate := newGate(t)
	gate.freeze()
	p := startProcess(t, "https://"+gate.address)
	g.Eventually(func() int { code, _ := p.post("one"); return code }, "10s", "20ms").Should(Equal(http.StatusServiceUnavailable))
	p.expectEnd(g)
}

func TestLosingTheLeaseEndsFoldingOnly(t *testing.T) {
	g := NewWithT(t)
	p := startProcess(t, config.Host)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: leaseName}}
	g.Eventually(func() error { return p.client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease) }, "20s", "50ms").Should(Succeed())

	// Somebody else takes the lease for ten seconds.
	g.Eventually(func() error {
		if err := p.client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
			return err
		}
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime = new("somebody else"), &now, &now
		lease.Spec.LeaseDurationSeconds = new(int32(10))
		return p.client.Update(t.Context(), lease)
	}, "5s", "10ms").Should(Succeed())
	taken := time.Now()
	g.Consistently(p.ended, "1s").ShouldNot(Receive())
	g.Expect(p.post("one")).To(Equal(http.StatusAccepted))
	g.Consistently(func() v1alpha1.IncidentState { return p.state(t.Context(), "one") }, "7s", "50ms").Should(BeEmpty())
	g.Eventually(func() v1alpha1.IncidentState { return p.state(t.Context(), "one") }, "30s", "50ms").
		Should(Equal(v1alpha1.IncidentOpen))
	g.Expect(time.Since(taken)).To(BeNumerically(">", 10*time.Second))
	p.expectEnd(g)

	// A replica that stops hands over at once.
	g.Expect(p.client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	g.Expect(lease.Spec.HolderIdentity).To(HaveValue(BeEmpty()))
}

// TestAManagerThatMayNotListIncidentsIsNotReady withholds one permission, and then grants it.
func TestAManagerThatMayNotListIncidentsIsNotReady(t *testing.T) {
	g := NewWithT(t)
	transport, err := rest.TransportFor(config)
	g.Expect(err).NotTo(HaveOccurred())
	apiServer, err := url.Parse(config.Host)
	g.Expect(err).NotTo(HaveOccurred())
	proxy := httputil.NewSingleHostReverseProxy(apiServer)
	proxy.Transport = transport
	var permitted atomic.Bool
	var denied atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/incidents") && !permitted.Load() {
			denied.Add(1)
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p := startProcess(t, server.URL)
	ready := func() int { return status(http.Get("http://" + p.probe + "/readyz")) }
	g.Eventually(denied.Load, "20s", "20ms").Should(BeNumerically(">", 1))
	g.Consistently(ready, "2s", "50ms").ShouldNot(Equal(http.StatusOK))
	permitted.Store(true)
	g.Eventually(ready, "20s", "50ms").Should(Equal(http.StatusOK))
}

// startCache runs a manager until the test ends, and returns its context when the cache has synced.
func startCache(t *testing.T, mgr ctrl.Manager, objects cache.Cache) context.Context {
	t.Helper()
	g := NewWithT(t)
	ctx, stop := context.WithCancel(t.Context())
	managed := make(chan error, 1)
	go func() { managed <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		g.Expect(<-managed).To(Succeed())
	})
	g.Expect(objects.WaitForCacheSync(ctx)).To(BeTrue())
	return ctx
}

// newSchemas have all fields.
type newSchemas struct{}

func (newSchemas) Verdict() error { return nil }

// TestTermsLeaveNothingBehind has a replica lead a hundred times.
func TestTermsLeaveNothingBehind(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, c)
	file := filepath.Join(t.TempDir(), "alertmanager.yaml")
	g.Expect(os.WriteFile(file, []byte("alertmanagers: [{url: 'http://"+freeAddress(t)+"'}]"), 0o600)).To(Succeed())
	o, err := ParseFlags([]string{"--watch-namespaces=" + namespace, "--metrics-bind-address=0", "--alertmanager-config=" + file})
	g.Expect(err).NotTo(HaveOccurred())
	memory, health := queue.NewMemory(clock.RealClock{}), replica.NewIngestHealth(clock.RealClock{})
	mgr, objects, err := newManager(rest.CopyConfig(config), o, ctrl.Log, informersOf(), memory)
	g.Expect(err).NotTo(HaveOccurred())
	counts, err := addCapacity(mgr, o, memory, clustercache.NewHidden(1, 1), Environment{Clock: clock.RealClock{}})
	g.Expect(err).NotTo(HaveOccurred())
	muting, err := maintenance.NewMuting(mgr.GetCache(), health, counts)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(heartbeats.NewIndex().Follow(mgr.GetCache())).To(Succeed())
	folding := controllers.Options{Folds: incident.Options{
		Namespaces: o.process.WatchNamespaces, Health: health, Memory: memory, Clock: clock.RealClock{},
	}, Capacity: counts, Features: []controllers.Feature{muting, heartbeat.NewFeature(mgr.GetCache(), health, counts)}}
	canary, err := replica.NewCanary(mgr.GetConfig(), replica.CanaryOptions{
		Namespace: namespace, Health: health, Memory: memory, Schemas: newSchemas{},
	})
	g.Expect(err).NotTo(HaveOccurred())
	campaign, err := newCampaign(o, folding,
		&worker{mgr: mgr, objects: objects, clock: health, schemas: newSchemas{}, canary: canary})
	g.Expect(err).NotTo(HaveOccurred())
	ctx := startCache(t, mgr, objects)

	lead := func() {
		term, end := context.WithCancel(ctx)
		defer time.AfterFunc(50*time.Millisecond, end).Stop()
		g.Expect(campaign.Work(term)).To(Succeed())
	}
	lead()
	before := runtime.NumGoroutine()
	for range 100 {
		lead()
	}
	after := 0
	g.Eventually(func() int { after = runtime.NumGoroutine(); return after }, "10s").Should(BeNumerically("<=", before+5))
	t.Logf("%d goroutines after the first term, %d after a hundred more", before, after)
}
