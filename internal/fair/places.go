package fair

import (
	"context"
	"sync"
)

// Places are places that keys take in turns, for work that takes a processor, or the time of somebody else. It is safe for
// concurrent use.
type Places struct {
	mu    sync.Mutex
	turns Turns[*visit]
}

// visit is the use of a place.
type visit struct {
	turn    *Turn[*visit]
	begun   bool
	entered chan struct{} // closed when it has a place; nil if it had one at once
}

// NewPlaces returns so many places.
func NewPlaces(places int) *Places { return &Places{turns: NewTurns[*visit](places)} }

// Enter waits for a place, and returns the function that leaves it, which is to be called once. It fails when ctx ends before.
func (p *Places) Enter(ctx context.Context, key string) (leave func(), err error) {
	v := p.join(key)
	if v.entered != nil {
		select {
		case <-v.entered:
		case <-ctx.Done():
			if p.giveUp(key, v) {
				return nil, ctx.Err()
			}
		}
	}
	return func() { p.leave(v) }, nil
}

func (p *Places) join(key string) *visit {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := &visit{}
	p.turns.Add(key, v, false)
	if p.fill(); !v.begun {
		v.entered = make(chan struct{})
	}
	return v
}

// fill gives the places that are free to those whose turn it is.
func (p *Places) fill() {
	for {
		next, turn, ok := p.turns.Next()
		if !ok {
			return
		}
		next.turn, next.begun = turn, true
		if next.entered != nil {
			close(next.entered)
		}
	}
}

// giveUp reports whether a visit that has waited does not begin any more.
func (p *Places) giveUp(key string, v *visit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turns.Remove(key, v)
}

func (p *Places) leave(v *visit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v.turn.Done()
	p.fill()
}
