package incident

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// maxLoadedContent bounds what one fold reads of AlertEvents without content, loadingFolds how many folds do so at a time, and
	// keptLoads is how many of them are kept for the folds of their other Incidents. A reconciliation ends before loadingWait.
	maxLoadedContent = 8 << 20
	loadingFolds     = 4
	keptLoads        = 4
	loadingWait      = time.Minute
)

// loadContent reads the AlertEvents to be folded anew of which the cache has no content, when it is their namespace's turn. If
// they take too much memory, the later ones wait. The caller calls unload as soon as the plan is decided, which needs them no
// longer: its write may hang, and must hold up no other namespace, nor keep the content in memory.
func (r *reconciler) loadContent(ctx context.Context, c *confirmed) (unload func(), err error) {
	isReduced := func(event *v1alpha1.AlertEvent) bool { return !r.Memory.Cached.IsWhole(event) }
	if !slices.ContainsFunc(c.toFold, isReduced) {
		return func() {}, nil
	}
	place, err := r.loading.Enter(ctx, r.Memory.Turn(c.key).Namespace, loadingWait)
	if err != nil {
		return nil, fmt.Errorf("waiting to read AlertEvents: %w", err)
	}
	cached := slices.SortedFunc(slices.Values(c.toFold), r.inCommitOrder)
	unload = func() {
		c.toFold = cached[:len(c.toFold)]
		place.Leave()
	}
	c.toFold = slices.Clone(cached)
	left := int64(maxLoadedContent)
	for i, event := range cached {
		if !isReduced(event) {
			continue
		}
		if left <= 0 {
			c.toFold, c.nextFold = c.toFold[:i], c.now.Add(writeInterval)
			break
		}
		whole, err := r.load(ctx, event)
		if err != nil {
			unload()
			return nil, err
		}
		c.toFold[i] = whole
		left -= queue.MemorySize(whole)
	}
	return unload, nil
}

// load reads an AlertEvent from the quorum. The latest ones are kept, since each may have alerts of hundreds of Incidents: they
// must not be modified.
func (r *reconciler) load(ctx context.Context, event *v1alpha1.AlertEvent) (*v1alpha1.AlertEvent, error) {
	kept, _ := r.loaded.Get(event.UID)
	if whole, ok := kept.(*v1alpha1.AlertEvent); ok {
		return whole, nil
	}
	whole := &v1alpha1.AlertEvent{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(event), whole)
	if apierrors.IsNotFound(err) || err == nil && whole.UID != event.UID {
		return nil, fmt.Errorf("%w: the AlertEvent %s is gone", errStale, event.Name)
	}
	if err == nil {
		err = queue.Decode(whole)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the AlertEvent %s: %w", event.Name, err)
	}
	r.loaded.Add(event.UID, whole)
	return whole, nil
}
