package webhookserver

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memoryBudget bounds the memory that requests hold at a time. A namespace may hold half of it and an integration a
// quarter, so that a sender with many slow connections leaves capacity for the others.
type memoryBudget struct {
	total int64

	mu    sync.Mutex
	held  map[types.NamespacedName]int64 // by integration, by namespace (without a name) and in total (without either)
	freed chan struct{}                  // closed when memory is released
}

// memoryReservation is the memory that one request holds.
type memoryReservation struct {
	budget *memoryBudget
	sender types.NamespacedName
	size   int64
}

func newMemoryBudget(total int64) *memoryBudget {
	return &memoryBudget{total: total, held: map[types.NamespacedName]int64{}, freed: make(chan struct{})}
}

// reserve reserves size bytes for a request of the sender, and waits for them until the timeout. It returns nil when
// they are not available. A request that is alone in its integration, in its namespace or in total is admitted there,
// however large it is: or a limit of bodies above a share would refuse everybody.
func (b *memoryBudget) reserve(sender types.NamespacedName, size int64, timeout time.Duration) *memoryReservation {
	var expired <-chan time.Time
	for {
		ok, freed := b.tryReserve(sender, size)
		switch {
		case ok:
			return &memoryReservation{b, sender, size}
		case timeout <= 0:
			return nil
		case expired == nil:
			expired = time.After(timeout)
		}
		select {
		case <-freed:
		case <-expired:
			return nil
		}
	}
}

func (b *memoryBudget) tryReserve(sender types.NamespacedName, size int64) (ok bool, freed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	levels := memoryLevels(sender)
	for i, level := range levels {
		if held := b.held[level]; held > 0 && held+size > b.total>>i {
			return false, b.freed
		}
	}
	for _, level := range levels {
		b.held[level] += size
	}
	return true, nil
}

// memoryLevels returns the keys under which the memory of a sender counts: in total, its namespace's and its own. Each
// may hold half as much as the one before.
func memoryLevels(sender types.NamespacedName) [3]types.NamespacedName {
	return [3]types.NamespacedName{{}, {Namespace: sender.Namespace}, sender}
}

// shrink releases all but size bytes.
func (r *memoryReservation) shrink(size int64) {
	if size >= r.size {
		return
	}
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, level := range memoryLevels(r.sender) {
		if b.held[level] -= r.size - size; b.held[level] <= 0 {
			delete(b.held, level)
		}
	}
	r.size = size
	close(b.freed)
	b.freed = make(chan struct{})
}

func (r *memoryReservation) release() {
	if r != nil {
		r.shrink(0)
	}
}
