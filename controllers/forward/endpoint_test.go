package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// dns answers as net.Resolver does, by network.
type dns struct {
	mu      sync.Mutex
	records map[string][]string // by network: ip4 or ip6
	errs    map[string]error
	lookups int
}

var (
	errNoHost  = &net.DNSError{Err: "no such host", IsNotFound: true}
	errTimeout = &net.DNSError{Err: "i/o timeout", IsTimeout: true}
)

// LookupNetIP implements resolver.
func (d *dns) LookupNetIP(_ context.Context, network, _ string) ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookups++
	if err := d.errs[network]; err != nil {
		return nil, err
	}
	var found []netip.Addr
	for _, record := range d.records[network] {
		found = append(found, netip.MustParseAddr(record))
	}
	if found == nil {
		return nil, errNoHost
	}
	return found, nil
}

// set replaces the addresses, or makes every lookup fail.
func (d *dns) set(err error, records ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records, d.errs = map[string][]string{"ip4": records}, map[string]error{"ip4": err, "ip6": err}
}

func TestResolve(t *testing.T) {
	last := []string{"10.0.0.7:9093"}
	many := make([]string, 2*maxAddresses)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.1.%d", i+1)
	}
	for sentence, c := range map[string]struct {
		url  string // default: http://am:9093
		dns  *dns
		last []string
		want []string
	}{
		"all pods of a headless Service": {
			dns:  &dns{records: map[string][]string{"ip4": {"10.0.0.3", "10.0.0.1", "10.0.0.2", "10.0.0.1", "::ffff:10.0.0.2"}}},
			want: []string{"10.0.0.1:9093", "10.0.0.2:9093", "10.0.0.3:9093"},
		},
		"the port of the scheme": {
			url: "https://am", dns: &dns{records: map[string][]string{"ip4": {"10.0.0.1"}}}, want: []string{"10.0.0.1:443"},
		},
		"pods with both families are not two Alertmanagers": {
			dns: &dns{records: map[string][]string{"ip4": {"10.0.0.1"}, "ip6": {"fd00::1"}}}, want: []string{"10.0.0.1:9093"},
		},
		"a cluster of IPv6": {
			dns: &dns{records: map[string][]string{"ip6": {"fd00::2", "fd00::1"}}}, want: []string{"[fd00::1]:9093", "[fd00::2]:9093"},
		},
		"an address that is gone is not used again": {
			dns: &dns{records: map[string][]string{"ip4": {"10.0.0.8"}}}, last: last, want: []string{"10.0.0.8:9093"},
		},
		"no more than the bound": {
			dns: &dns{records: map[string][]string{"ip4": many}}, want: func() []string {
				all := make([]string, len(many))
				for i := range many {
					all[i] = many[i] + ":9093"
				}
				slices.Sort(all)
				return all[:maxAddresses]
			}(),
		},
		"a resolver that fails keeps the last addresses": {
			dns: &dns{errs: map[string]error{"ip4": errTimeout, "ip6": errTimeout}}, last: last, want: last,
		},
		"so does one that fails for one family": {
			dns: &dns{errs: map[string]error{"ip6": errors.New("server misbehaving")}}, last: last, want: last,
		},
		"a resolver that fails at the start leaves the name": {
			dns: &dns{errs: map[string]error{"ip4": errTimeout, "ip6": errTimeout}}, want: []string{"am:9093"},
		},
		"a name that does not exist any more is not an outage": {
			dns: &dns{}, last: last, want: []string{"am:9093"},
		},
		"an address is not looked up": {
			url: "http://10.0.0.9:9093", dns: &dns{errs: map[string]error{"ip4": errTimeout}}, want: []string{"10.0.0.9:9093"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			target := targetOf(&Config{})
			if c.url != "" {
				target.url = parsed(t, c.url)
			} else {
				target.url = parsed(t, "http://am:9093")
			}
			e := newEndpoint(newCluster().term, target)
			e.term.resolver = c.dns
			g.Expect(e.resolve(t.Context(), target, c.last)).To(Equal(c.want))
		})
	}

	t.Run("behind a proxy, nothing is looked up", func(t *testing.T) {
		g := NewWithT(t)
		target, names := targetOf(&Config{}), &dns{}
		target.http.ProxyURL.URL = parsed(t, "http://proxy:3128")
		e := newEndpoint(newCluster().term, target)
		e.term.resolver = names
		g.Expect(e.resolve(t.Context(), target, nil)).To(Equal([]string{"alertmanager:9093"}))
		g.Expect(names.lookups).To(BeZero())
	})
}

func parsed(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return u
}

// pods are Alertmanagers at one port of several loopback addresses, as the pods of a headless Service have one port.
func pods(t *testing.T, n int) (addresses []string, port string, alertmanagers []*alertmanager) {
	t.Helper()
	port = "0"
	for i := range n {
		address := fmt.Sprintf("127.0.0.%d", i+1)
		listener, err := net.Listen("tcp4", net.JoinHostPort(address, port))
		if err != nil {
			t.Skipf("this system has no second loopback address, or the port is taken: %v", err)
		}
		_, port, _ = net.SplitHostPort(listener.Addr().String())
		am := newAlertmanager()
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
	target := targetOf(&Config{})
	target.url = parsed(t, "http://alertmanager-headless:"+port)
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
		incidents.term.notify(keyOf(after), time.Now())
	}
	has := func(want int, pods ...int) {
		t.Helper()
		for _, pod := range pods {
			g.Eventually(ams[pod].firing, "10s", "2ms").Should(HaveLen(want), addresses[pod])
		}
	}
	lookAgain := func(senders ...int) {
		t.Helper()
		e.signal.give()
		g.Eventually(func() []string {
			var at []string
			for _, s := range e.senders.all() {
				at = append(at, s.address)
			}
			return at
		}, "10s", "2ms").Should(ConsistOf(func() (want []any) {
			for _, pod := range senders {
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

	names.set(errTimeout)
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
