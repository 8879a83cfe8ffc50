package replica

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

const (
	// maxCachedContent bounds the memory of the content of AlertEvents in the cache, and cachedContentShare is the part of it that
	// one namespace may use: more than the 25,000 alerts take that 64 senders post in six seconds. Beyond it, folding them takes
	// twice as long.
	maxCachedContent   = 128 << 20
	cachedContentShare = 0.5
)

// cachedContent bounds the memory that the content of AlertEvents takes in the cache. What the endpoint stores is bounded by the
// queue, what people create is not, and it stays while its Incidents cannot be written. Of an AlertEvent that has no place, the
// cache has what identifies its Incidents; the fold reads it again.
type cachedContent struct {
	mu     sync.Mutex
	events map[types.UID]int64 // bytes; 0: without content
	budget fair.Budget[string] // of all bytes, by namespace
}

func newCachedContent(limit fair.Limit) *cachedContent {
	return &cachedContent{events: map[types.UID]int64{}, budget: fair.Budget[string]{Limit: limit}}
}

// admit decides whether the content of an AlertEvent has a place, and removes it if not. The decision holds until release.
func (c *cachedContent) admit(event *v1alpha1.AlertEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes, known := c.events[event.UID]
	if !known {
		if c.budget.Allows(event.Namespace) {
			bytes = event.Memory()
		}
		c.events[event.UID] = bytes
		c.budget.Add(event.Namespace, bytes)
	}
	if bytes == 0 {
		event.DropContent()
	}
}

// release forgets an AlertEvent that is gone.
func (c *cachedContent) release(event *v1alpha1.AlertEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget.Add(event.Namespace, -c.events[event.UID])
	delete(c.events, event.UID)
}
