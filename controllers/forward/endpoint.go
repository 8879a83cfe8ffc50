package forward

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tocsin-dev/tocsin/controllers/forward/config"
)

// endpoint is one entry of the configuration: it keeps a poster for each address of the entry's host, and their silences.
type endpoint struct {
	term     *term
	name     string // of the target
	target   atomic.Pointer[config.Target]
	signal   signal          // the target changed
	posters  *group[*poster] // by address
	silencer *silencer
}

func newEndpoint(term *term, t *config.Target) *endpoint {
	e := &endpoint{term: term, name: t.Name(), signal: newSignal(), posters: newGroup[*poster]()}
	e.target.Store(t)
	e.silencer = &silencer{term: term, name: e.name, posters: e.posters}
	return e
}

// configure sets the target.
func (e *endpoint) configure(t *config.Target) {
	if e.target.Swap(t) != t {
		e.signal.give()
	}
}

// run resolves the host and keeps the posters until ctx ends. It returns when all of them have stopped.
func (e *endpoint) run(ctx context.Context) {
	defer e.posters.running.Wait()
	e.posters.running.Go(func() { e.silencer.run(ctx) })
	var addresses []string
	for ctx.Err() == nil {
		t := e.target.Load()
		addresses = t.Addresses(ctx, e.term.resolver, addresses)
		e.posters.keep(ctx, addresses, func(address string) *poster {
			p := newPoster(e.term, e.name, address)
			p.configure(t)
			return p
		})
		for _, p := range e.posters.all() {
			p.configure(t)
		}
		sleep(ctx, resolveInterval, e.signal)
	}
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
