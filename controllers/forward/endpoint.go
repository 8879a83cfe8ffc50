package forward

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// resolver is implemented by net.Resolver.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// endpoint is one entry of the configuration: it keeps a sender for each address of the entry's host.
type endpoint struct {
	name     string // of the Alertmanager
	store    store
	clock    clock
	resolver resolver
	log      logr.Logger
	signal   signal // the target changed

	mu      sync.Mutex
	target  *target
	senders map[string]*running          // by address
	covered map[incidentKey]fold.Silence // the silences of Incidents; nil: not read yet
}

// running is a sender that runs.
type running struct {
	*sender
	configured *target // what the sender was configured with; nil if that failed
	stop       context.CancelFunc
}

func newEndpoint(t *target, store store, clock clock, resolver resolver, log logr.Logger) *endpoint {
	return &endpoint{
		name: t.entry.name(), store: store, clock: clock, resolver: resolver, log: log,
		signal: newSignal(), target: t, senders: map[string]*running{},
	}
}

// configure sets the target.
func (e *endpoint) configure(t *target) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.target = t
	e.signal.give()
}

// current returns the target and the senders.
func (e *endpoint) current() (*target, []*sender) {
	e.mu.Lock()
	defer e.mu.Unlock()
	senders := make([]*sender, 0, len(e.senders))
	for _, r := range e.senders {
		senders = append(senders, r.sender)
	}
	return e.target, senders
}

// run resolves the host and keeps the senders until ctx ends. It returns when all of them have stopped.
func (e *endpoint) run(ctx context.Context, silenceChanged func(incidentKey)) {
	var senders sync.WaitGroup
	defer senders.Wait()
	senders.Go(func() { e.pollSilences(ctx, silenceChanged) })
	var addresses []string
	for ctx.Err() == nil {
		t, _ := e.current()
		addresses = e.resolve(ctx, t, addresses)
		e.reconcile(ctx, t, addresses, &senders)
		sleep(ctx, resolveInterval, e.signal)
	}
}

// reconcile starts and stops senders so that there is one for each address, with the newest target.
func (e *endpoint) reconcile(ctx context.Context, t *target, addresses []string, group *sync.WaitGroup) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for address, r := range e.senders {
		if !slices.Contains(addresses, address) {
			r.stop()
			delete(e.senders, address)
		}
	}
	for _, address := range addresses {
		r := e.senders[address]
		started := r == nil
		if started {
			r = &running{sender: newSender(e.name, address, e.store, e.clock, e.log)}
			e.senders[address] = r
		}
		if r.configured != t {
			client, err := newClient(t, pinned(t, address))
			if err != nil {
				e.log.Error(err, "Alertmanager cannot be configured", "alertmanager", e.name)
				client = nil
			} else {
				r.configured = t
			}
			r.configure(t, client)
		}
		if started {
			var running context.Context
			running, r.stop = context.WithCancel(ctx)
			group.Go(func() { r.run(running) })
		}
	}
}

// pinned returns the address to connect to; empty if connections have to resolve the host themselves.
func pinned(t *target, address string) string {
	if address == hostPort(t.entry.URL) {
		return ""
	}
	return address
}

// resolve returns the addresses of the target's host, each with the port. It returns the last ones if they cannot be
// looked up now, and the name itself if there are none: then its sender reports the error. With a proxy, only the proxy
// knows the addresses.
func (e *endpoint) resolve(ctx context.Context, t *target, last []string) []string {
	host, proxy := t.entry.URL.Hostname(), &t.entry.HTTP.ProxyConfig
	byName := []string{hostPort(t.entry.URL)}
	if _, err := netip.ParseAddr(host); err == nil || proxy.ProxyFromEnvironment || proxy.ProxyURL.URL != nil {
		return byName
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	unknown := false
	for _, network := range []string{"ip4", "ip6"} { // a pod with both families has an address of each; one is enough
		found, err := e.resolver.LookupNetIP(ctx, network, host)
		if len(found) > 0 {
			return withPort(found, t.entry.URL)
		}
		var failure *net.DNSError
		unknown = unknown || err != nil && (!errors.As(err, &failure) || !failure.IsNotFound)
	}
	if unknown && len(last) > 0 {
		return last
	}
	return byName
}

// withPort returns addresses with the port of a URL, sorted.
func withPort(found []netip.Addr, u *url.URL) []string {
	_, port, _ := net.SplitHostPort(hostPort(u)) // which joined them
	addresses := make([]string, 0, len(found))
	for _, ip := range found {
		addresses = append(addresses, net.JoinHostPort(ip.Unmap().String(), port))
	}
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	return addresses[:min(len(addresses), maxAddresses)]
}

// notify puts a changed Incident in the queue of every sender.
func (e *endpoint) notify(key incidentKey, received time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.senders {
		r.queue.add(key, received)
	}
}
