package webhookserver

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// bodyBudget bounds the bodies that are held in memory at a time, in all and for each integration.
type bodyBudget struct {
	mu    sync.Mutex
	total int64
	lanes map[types.NamespacedName]int64
}

func newBodyBudget() *bodyBudget {
	return &bodyBudget{lanes: map[types.NamespacedName]int64{}}
}

// reserve sets size bytes aside for a request of the integration. It returns false when there is no room.
// A first body is let in however large it is, or a body limit above the budget would shut everybody out.
func (b *bodyBudget) reserve(key types.NamespacedName, size int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := b.lanes[key]
	if b.total > 0 && b.total+size > maxBodyBudget || held > 0 && held+size > maxLaneBodyBudget {
		return false
	}
	b.total += size
	b.lanes[key] += size
	return true
}

// release gives back what was reserved.
func (b *bodyBudget) release(key types.NamespacedName, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= size
	if b.lanes[key] -= size; b.lanes[key] <= 0 {
		delete(b.lanes, key)
	}
}
