package forward

import (
	"context"
	"maps"
	"slices"
	"sync"
)

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
