package alertmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
)

// dns answers as net.Resolver does, by network.
type dns struct {
	records map[string][]string // by network: ip4 or ip6
	errs    map[string]error
	lookups int
}

var errTimeout = &net.DNSError{Err: "i/o timeout", IsTimeout: true}

// LookupNetIP implements Resolver.
func (d *dns) LookupNetIP(_ context.Context, network, _ string) ([]netip.Addr, error) {
	d.lookups++
	if err := d.errs[network]; err != nil {
		return nil, err
	}
	var found []netip.Addr
	for _, record := range d.records[network] {
		found = append(found, netip.MustParseAddr(record))
	}
	if found == nil {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return found, nil
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
			server := &Server{URL: parsed(t, cmp.Or(c.url, "http://am:9093"))}
			g.Expect(server.Addresses(t.Context(), c.dns, c.last)).To(Equal(c.want))
		})
	}

	t.Run("behind a proxy, nothing is looked up", func(t *testing.T) {
		g := NewWithT(t)
		server, names := &Server{URL: parsed(t, "http://alertmanager:9093")}, &dns{}
		server.HTTP.ProxyURL.URL = parsed(t, "http://proxy:3128")
		g.Expect(server.Addresses(t.Context(), names, nil)).To(Equal([]string{"alertmanager:9093"}))
		g.Expect(names.lookups).To(BeZero())
	})
}

func parsed(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return u
}
