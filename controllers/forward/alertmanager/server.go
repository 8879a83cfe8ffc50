package alertmanager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	promconfig "github.com/prometheus/common/config"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tocsin-dev/tocsin/internal/buildinfo"
)

const (
	// maxAddresses bounds what DNS makes of a host name, and resolveTimeout each lookup.
	maxAddresses   = 16
	resolveTimeout = 5 * time.Second

	// clientName is a label of connection metrics that prometheus/common keeps and Tocsin does not serve.
	clientName = "alertmanager"
)

// Server is one Alertmanager, or all those behind one DNS name.
type Server struct {
	URL  *url.URL // without user, query and fragment
	HTTP promconfig.HTTPClientConfig
}

// Name returns the name of the server in metrics, logs and conditions: host, port and path of the URL.
func (s *Server) Name() string { return s.hostPort() + s.URL.Path }

// hostPort returns the host and port of the URL; the port is that of the scheme by default.
func (s *Server) hostPort() string {
	port := s.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[s.URL.Scheme]
	}
	return net.JoinHostPort(s.URL.Hostname(), port)
}

// Dialer connects as a *net.Dialer does.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// NewClient returns a client of the Alertmanager at an address of the server's host. The host stays in the URL, so certificates
// and virtual hosts work. If the address is the host itself, the connection or the proxy resolves it.
func (s *Server) NewClient(address string, dialer Dialer) (*Client, error) {
	host := s.hostPort()
	client, err := promconfig.NewClientFromConfig(s.HTTP, clientName,
		promconfig.WithUserAgent("tocsin/"+buildinfo.Read().Version),
		promconfig.WithDialContextFunc(func(ctx context.Context, network, to string) (net.Conn, error) {
			if to == host {
				to = address
			}
			return dialer.DialContext(ctx, network, to)
		}))
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	return &Client{HTTP: client, URL: s.URL}, nil
}

// Resolver is implemented by net.Resolver.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Addresses returns the addresses of the server's host, each with the port. It returns the last ones if they cannot be looked up
// now, and the name itself if there are none: then its client reports the error. With a proxy, only the proxy knows the
// addresses.
func (s *Server) Addresses(ctx context.Context, resolver Resolver, last []string) []string {
	host, proxy := s.URL.Hostname(), &s.HTTP.ProxyConfig
	byName := s.hostPort()
	if _, err := netip.ParseAddr(host); err == nil || proxy.ProxyFromEnvironment || proxy.ProxyURL.URL != nil {
		return []string{byName}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	unknown := false
	for _, network := range []string{"ip4", "ip6"} { // a pod with both families has an address of each; one is enough
		found, err := resolver.LookupNetIP(ctx, network, host)
		if len(found) > 0 {
			_, port, _ := net.SplitHostPort(byName) // which hostPort joined
			addresses := sets.New[string]()
			for _, ip := range found {
				addresses.Insert(net.JoinHostPort(ip.Unmap().String(), port))
			}
			return sets.List(addresses)[:min(len(addresses), maxAddresses)]
		}
		var failure *net.DNSError
		unknown = unknown || err != nil && (!errors.As(err, &failure) || !failure.IsNotFound)
	}
	if unknown && len(last) > 0 {
		return last
	}
	return []string{byName}
}
