package webhookserver

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memoryShares are how much of a kind of memory all requests may hold together, those of one namespace and
// those of one integration.
type memoryShares struct{ total, namespace, integration int64 }

// memoryBudget bounds the memory that requests hold at a time.
type memoryBudget struct {
	shares memoryShares

	mu    sync.Mutex
	held  map[types.NamespacedName]int64 // by integration, by namespace (without a name) and in all (without either)
	freed chan struct{}                  // closed when memory is given back
}

func newMemoryBudget(shares memoryShares) *memoryBudget {
	return &memoryBudget{shares: shares, held: map[types.NamespacedName]int64{}, freed: make(chan struct{})}
}

// reserve sets size bytes aside for a request of the integration, and waits for them until the timeout. It
// returns false when there is no room. What is alone in its integration, in its namespace or in all is let in
// there, however large it is: or a limit of bodies above a share would shut everybody out.
func (b *memoryBudget) reserve(integration types.NamespacedName, size int64, timeout time.Duration) bool {
	var over <-chan time.Time
	for {
		ok, freed := b.try(integration, size)
		if ok || timeout <= 0 {
			return ok
		}
		if over == nil {
			timer := time.NewTimer(timeout)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-freed:
		case <-over:
			return false
		}
	}
}

func (b *memoryBudget) try(integration types.NamespacedName, size int64) (ok bool, freed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, level := range b.levels(integration) {
		if held := b.held[level.key]; held > 0 && held+size > level.limit {
			return false, b.freed
		}
	}
	for _, level := range b.levels(integration) {
		b.held[level.key] += size
	}
	return true, nil
}

// release gives back what was reserved.
func (b *memoryBudget) release(integration types.NamespacedName, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, level := range b.levels(integration) {
		if b.held[level.key] -= size; b.held[level.key] <= 0 {
			delete(b.held, level.key)
		}
	}
	close(b.freed)
	b.freed = make(chan struct{})
}

type memoryLevel struct {
	key   types.NamespacedName
	limit int64
}

func (b *memoryBudget) levels(integration types.NamespacedName) [3]memoryLevel {
	return [3]memoryLevel{
		{integration, b.shares.integration},
		{types.NamespacedName{Namespace: integration.Namespace}, b.shares.namespace},
		{types.NamespacedName{}, b.shares.total},
	}
}
