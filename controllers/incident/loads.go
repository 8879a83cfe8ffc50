package incident

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// maxLoadedContent bounds what one fold reads of AlertEvents without content, loadingFolds how many folds do so at a time, and
	// keptLoads is how many of them are kept for the folds of their other Incidents.
	maxLoadedContent = 8 << 20
	loadingFolds     = 4
	keptLoads        = 4
)

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
