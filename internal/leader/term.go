package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Term is the manager of the controllers of one term. It shares everything with the replica's manager except the
// runnables, which it starts itself, and the event handlers, which it removes from the informers when it ends.
type Term struct {
	ctrl.Manager
	cache     *termCache
	runnables []manager.Runnable
}

// NewTerm returns a term on a replica's manager, which does not validate the names of controllers: every term uses the same ones.
// Controllers wait for objects, the manager's cache, to sync.
func NewTerm(mgr ctrl.Manager, objects cache.Cache) *Term {
	return &Term{Manager: mgr, cache: &termCache{Cache: objects}}
}

// Add implements manager.Manager: the runnable runs during this term.
func (t *Term) Add(runnable manager.Runnable) error {
	t.runnables = append(t.runnables, runnable)
	return nil
}

// GetCache implements cluster.Cluster.
func (t *Term) GetCache() cache.Cache { return t.cache }

// Run runs the runnables until ctx ends or one of them fails, and returns when all have ended.
func (t *Term) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	for _, runnable := range t.runnables {
		group.Go(func() error { return runnable.Start(running) })
	}
	err := group.Wait()
	if ctx.Err() != nil {
		err = nil // a controller that was still starting fails when the term ends
	}
	if removing := t.cache.close(); removing != nil {
		err = errors.Join(err, fmt.Errorf("removing event handlers: %w", removing))
	}
	return err
}

// termCache is a cache that remembers the event handlers added through it.
type termCache struct {
	cache.Cache

	mu      sync.Mutex
	closed  bool
	removes []func() error
}

var errClosed = errors.New("the term has ended")

func (c *termCache) close() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, remove := range c.removes {
		err = errors.Join(err, remove())
	}
	return err
}

// GetInformer implements cache.Informers. Controllers get their informers by no other method.
func (c *termCache) GetInformer(
	ctx context.Context, object client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	informer, err := c.Cache.GetInformer(ctx, object, opts...)
	if err != nil {
		return nil, err
	}
	return &termInformer{Informer: informer, cache: c}, nil
}

type termInformer struct {
	cache.Informer
	cache *termCache
}

func (i *termInformer) AddEventHandler(
	handler toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
}

func (i *termInformer) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	if i.cache.closed {
		return nil, errClosed
	}
	registration, err := i.Informer.AddEventHandlerWithOptions(handler, options)
	if err == nil {
		i.cache.removes = append(i.cache.removes, func() error { return i.RemoveEventHandler(registration) })
	}
	return registration, err
}
