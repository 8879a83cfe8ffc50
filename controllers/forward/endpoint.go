package forward

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// resolver is implemented by net.Resolver.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// endpoint is one entry of the configuration: it keeps a sender for each address of the entry's host.
type endpoint struct {
	term    *term
	name    string // of the target
	target  atomic.Pointer[target]
	signal  signal          // the target changed
	senders *group[*sender] // by address

	mu      sync.Mutex
	covered map[incidentKey]v1alpha1.Silence // the silences of Incidents; nil: not read yet
	ended   map[incidentKey]time.Time        // the endTime of requests whose silence somebody has ended
}

func newEndpoint(term *term, t *target) *endpoint {
	e := &endpoint{term: term, name: t.name(), signal: newSignal(), senders: newGroup[*sender]()}
	e.target.Store(t)
	return e
}

// configure sets the target.
func (e *endpoint) configure(t *target) {
	if e.target.Swap(t) != t {
		e.signal.give()
	}
}

// run resolves the host and keeps the senders until ctx ends. It returns when all of them have stopped.
func (e *endpoint) run(ctx context.Context) {
	defer e.senders.running.Wait()
	e.senders.running.Go(func() { e.pollSilences(ctx) })
	var addresses []string
	for ctx.Err() == nil {
		t := e.target.Load()
		addresses = e.resolve(ctx, t, addresses)
		e.senders.keep(ctx, addresses, func(address string) *sender {
			s := newSender(e.term, e.name, address)
			s.configure(t)
			return s
		})
		for _, s := range e.senders.all() {
			s.configure(t)
		}
		sleep(ctx, resolveInterval, e.signal)
	}
}

// resolve returns the addresses of the target's host, each with the port. It returns the last ones if they cannot be
// looked up now, and the name itself if there are none: then its sender reports the error. With a proxy, only the proxy
// knows the addresses.
func (e *endpoint) resolve(ctx context.Context, t *target, last []string) []string {
	host, proxy := t.url.Hostname(), &t.http.ProxyConfig
	byName := hostPort(t.url)
	if _, err := netip.ParseAddr(host); err == nil || proxy.ProxyFromEnvironment || proxy.ProxyURL.URL != nil {
		return []string{byName}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	unknown := false
	for _, network := range []string{"ip4", "ip6"} { // a pod with both families has an address of each; one is enough
		found, err := e.term.resolver.LookupNetIP(ctx, network, host)
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

// group runs members, one for each name.
type group[T interface{ run(ctx context.Context) }] struct {
	mu      sync.Mutex
	members map[string]T
	stops   map[string]context.CancelFunc
	running sync.WaitGroup
}

func newGroup[T interface{ run(ctx context.Context) }]() *group[T] {
	return &group[T]{members: map[string]T{}, stops: map[string]context.CancelFunc{}}
}

// keep stops the members that have other names, and makes and starts those that are missing. They run until ctx ends.
func (g *group[T]) keep(ctx context.Context, names []string, create func(name string) T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, stop := range g.stops {
		if !slices.Contains(names, name) {
			stop()
			delete(g.stops, name)
			delete(g.members, name)
		}
	}
	for _, name := range names {
		if _, running := g.members[name]; !running {
			ctx, stop := context.WithCancel(ctx)
			member := create(name)
			g.members[name], g.stops[name] = member, stop
			g.running.Go(func() { member.run(ctx) })
		}
	}
}

// all returns the members in the order of their names.
func (g *group[T]) all() (members []T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(g.members)) {
		members = append(members, g.members[name])
	}
	return members
}
