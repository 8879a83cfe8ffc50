package forward

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
)

// dns is a net.Resolver with the addresses of one host.
type dns struct {
	mu        sync.Mutex
	addresses []netip.Addr
	err       error
	lookups   int
}

// LookupNetIP implements alertmanager.Resolver.
func (d *dns) LookupNetIP(_ context.Context, network, _ string) ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookups++
	if network == "ip6" && d.err == nil {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return d.addresses, d.err
}

// set replaces the addresses, or makes every lookup fail.
func (d *dns) set(err error, addresses ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addresses, d.err = nil, err
	for _, address := range addresses {
		d.addresses = append(d.addresses, netip.MustParseAddr(address))
	}
}

// pods are Alertmanagers at one port of several loopback addresses, as the pods of a headless Service have one port.
func pods(t *testing.T, n int) (addresses []string, port string, alertmanagers []*fakeAlertmanager) {
	t.Helper()
	port = "0"
	for i := range n {
		address := fmt.Sprintf("127.0.0.%d", i+1)
		listener, err := net.Listen("tcp4", net.JoinHostPort(address, port))
		if err != nil {
			t.Skipf("this system has no second loopback address, or the port is taken: %v", err)
		}
		_, port, _ = net.SplitHostPort(listener.Addr().String())
		am := newFakeAlertmanager()
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: am, ReadHeaderTimeout: time.Second}}
		server.Start()
		t.Cleanup(server.Close)
		addresses, alertmanagers = append(addresses, address), append(alertmanagers, am)
	}
	return addresses, port, alertmanagers
}

// TestEveryPodOfAHeadlessServiceGetsEveryAlert resolves again by waking the endpoint, not after resolveInterval.
func TestEveryPodOfAHeadlessServiceGetsEveryAlert(t *testing.T) {
	g := NewWithT(t)
	addresses, port, ams := pods(t, 3)
	names, incidents := &dns{}, newCluster()
	incidents.integrate(v1alpha1.WebhookIntegrationSpec{})
	target := targetOf(&config.Config{})
	target.URL = &url.URL{Scheme: "http", Host: net.JoinHostPort("alertmanager-headless", port)}
	names.set(nil, addresses[:2]...)

	ctx, cancel := context.WithCancel(t.Context())
	incidents.term.resolver = names
	e := newEndpoint(incidents.term, target)
	incidents.term.endpoints.members["headless"] = e
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	alert := func(key string) {
		alert := v1alpha1.Alert{DedupKey: key, Status: v1alpha1.AlertFiring}
		typed(key)(&alert)
		_, after := incidents.fold(alert)
		incidents.term.enqueue(client.ObjectKeyFromObject(after), time.Now())
	}
	has := func(want int, pods ...int) {
		t.Helper()
		for _, pod := range pods {
			g.Eventually(ams[pod].firing, "10s", "2ms").Should(HaveLen(want), addresses[pod])
		}
	}
	lookAgain := func(posters ...int) {
		t.Helper()
		e.signal.give()
		g.Eventually(func() []string {
			var at []string
			for _, s := range e.posters.all() {
				at = append(at, s.address)
			}
			return at
		}, "10s", "2ms").Should(ConsistOf(func() (want []any) {
			for _, pod := range posters {
				want = append(want, net.JoinHostPort(addresses[pod], port))
			}
			return want
		}()...))
	}

	lookAgain(0, 1)
	alert("a")
	has(1, 0, 1)

	names.set(nil, addresses...)
	lookAgain(0, 1, 2)
	has(1, 2) // a pod that is new learns what fires

	names.set(nil, addresses[1:]...)
	lookAgain(1, 2)
	alert("b")
	has(2, 1, 2)

	names.set(&net.DNSError{Err: "i/o timeout", IsTimeout: true})
	before := names.count()
	e.signal.give()
	g.Eventually(names.count, "10s", "2ms").Should(BeNumerically(">=", before+2), "both families were looked up")
	alert("c")
	has(3, 1, 2)
	g.Expect(ams[0].firing()).To(HaveLen(1), "nothing is posted to the pod that is gone")
}

func (d *dns) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lookups
}
