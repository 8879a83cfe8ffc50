package fair

import (
	"context"
	"sync"
	"time"
)

// Places are places that keys take in turns, for work that takes a processor, or the time of somebody else. It is safe for
// concurrent use.
type Places struct {
	mu    sync.Mutex
	turns Turns[*Place]
}

// Place is the use of a place, or waits for it.
type Place struct {
	places  *Places
	key     string
	turn    *Turn[*Place] // nil while it waits
	entered chan struct{} // closed when it has a place; nil unless it waits or has waited
}

// NewPlaces returns so many places.
func NewPlaces(places int) *Places { return &Places{turns: NewTurns[*Place](places)} }

// Enter takes a place, and waits for it if there is none. It fails when the wait or ctx ends before.
func (p *Places) Enter(ctx context.Context, key string, wait time.Duration) (*Place, error) {
	place := &Place{places: p, key: key}
	p.mu.Lock()
	entered := p.join(place, false)
	p.mu.Unlock()
	if entered == nil {
		return place, nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-entered:
		return place, nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.turns.Remove(key, place) {
			return nil, ctx.Err()
		}
		return place, nil // it has just got one
	}
}

// join has a place wait for its turn. It returns what tells the turn; nil if it has come.
func (p *Places) join(place *Place, first bool) (entered chan struct{}) {
	p.turns.Add(place.key, place, first)
	if p.fill(); place.turn == nil {
		place.entered = make(chan struct{})
	}
	return place.entered
}

func (p *Places) fill() {
	for {
		next, turn, ok := p.turns.Next()
		if !ok {
			return
		}
		if next.turn = turn; next.entered != nil {
			close(next.entered)
		}
	}
}

// Leave gives the place up.
func (p *Place) Leave() {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	p.leave()
	p.places.fill()
}

func (p *Place) leave() {
	p.turn.Done()
	p.turn, p.entered = nil, nil
}

// Pause lets other keys have the place if they wait, and returns when it has one again. It comes before most of its own key.
func (p *Place) Pause() {
	all := p.places
	all.mu.Lock()
	if !all.turns.othersWait(p.key) {
		all.mu.Unlock()
		return
	}
	p.leave()
	entered := all.join(p, true)
	all.mu.Unlock()
	if entered != nil {
		<-entered
	}
}
