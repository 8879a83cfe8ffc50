package controllers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
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

// eventLoads reads AlertEvents again that the cache has without content, for few folds at a time: they may be large. It keeps the
// latest ones, since each may have alerts of hundreds of Incidents.
type eventLoads struct {
	folds chan struct{} // those that may read at once

	mu     sync.Mutex
	latest []*v1alpha1.AlertEvent // newest first
}

func newEventLoads() *eventLoads { return &eventLoads{folds: make(chan struct{}, loadingFolds)} }

// begin waits until a fold may read. It calls end when it is over.
func (l *eventLoads) begin(ctx context.Context) (end func(), err error) {
	select {
	case l.folds <- struct{}{}:
		return func() { <-l.folds }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to read AlertEvents: %w", ctx.Err())
	}
}

// find returns one of the latest AlertEvents, nil if it is none of them. It must not be modified.
func (l *eventLoads) find(uid types.UID) *v1alpha1.AlertEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, event := range l.latest {
		if event.UID == uid {
			return event
		}
	}
	return nil
}

func (l *eventLoads) keep(event *v1alpha1.AlertEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = append([]*v1alpha1.AlertEvent{event}, l.latest[:min(len(l.latest), keptLoads-1)]...)
}
