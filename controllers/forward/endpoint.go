package forward

import (
	"context"
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
	e.silencer = newSilencer(term, e.name, e.posters)
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
			s := newPoster(e.term, e.name, address)
			s.configure(t)
			return s
		})
		for _, s := range e.posters.all() {
			s.configure(t)
		}
		sleep(ctx, resolveInterval, e.signal)
	}
}
