package forward

import (
	"context"
	"sync/atomic"

	"github.com/tocsin-dev/tocsin/controllers/forward/config"
)

// endpoint is one entry of the configuration: it keeps a sender for each address of the entry's host, and their silences.
type endpoint struct {
	term     *term
	name     string // of the target
	target   atomic.Pointer[config.Target]
	signal   signal          // the target changed
	senders  *group[*sender] // by address
	silencer *silencer
}

func newEndpoint(term *term, t *config.Target) *endpoint {
	e := &endpoint{term: term, name: t.Name(), signal: newSignal(), senders: newGroup[*sender]()}
	e.target.Store(t)
	e.silencer = newSilencer(term, e.name, e.senders)
	return e
}

// configure sets the target.
func (e *endpoint) configure(t *config.Target) {
	if e.target.Swap(t) != t {
		e.signal.give()
	}
}

// run resolves the host and keeps the senders until ctx ends. It returns when all of them have stopped.
func (e *endpoint) run(ctx context.Context) {
	defer e.senders.running.Wait()
	e.senders.running.Go(func() { e.silencer.run(ctx) })
	var addresses []string
	for ctx.Err() == nil {
		t := e.target.Load()
		addresses = t.Addresses(ctx, e.term.resolver, addresses)
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
