package clustercache

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxWatchSilence is how long a watch may show nothing. API servers send a bookmark to every watch about once a minute.
const maxWatchSilence = 90 * time.Second

// watches are the open watches of the informers. They end those that have stalled: the connection is open, but it shows nothing
// any more. An informer would notice that only when the watch times out, after up to ten minutes.
type watches struct {
	bookmarks atomic.Bool // the API server sends bookmarks; without a watch cache it does not

	mu   sync.Mutex
	open map[*guardedWatch]struct{}
}

// guardedWatch passes the events of a watch on until it ends or stalls, or its informer is to watch again.
type guardedWatch struct {
	source  watch.Interface
	kind    reflect.Type
	events  chan watch.Event
	restart chan bool // whether to list anew
	stop    func()
	stopped <-chan struct{}
}

// start starts a watch of a kind of objects. One that does not begin in time is called off.
func (w *watches) start(
	ctx context.Context, log logr.Logger, object runtime.Object, start func(context.Context) (watch.Interface, error),
) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	deadline := time.AfterFunc(maxWatchSilence, func() {
		if w.bookmarks.Load() {
			cancel()
		}
	})
	source, err := start(ctx)
	deadline.Stop()
	if err != nil {
		cancel()
		return nil, err
	}
	g := &guardedWatch{
		source: source, kind: reflect.TypeOf(object), events: make(chan watch.Event), restart: make(chan bool, 1),
		stop: cancel, stopped: ctx.Done(),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[*guardedWatch]struct{}{}
	}
	w.open[g] = struct{}{}
	go func() {
		defer w.remove(g)
		g.pass(&w.bookmarks, log.WithValues("kind", fmt.Sprintf("%T", object)))
	}()
	return g, nil
}

func (w *watches) remove(g *guardedWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, g)
}

// pass passes events on until the watch is to end.
func (g *guardedWatch) pass(bookmarks *atomic.Bool, log logr.Logger) {
	defer close(g.events)
	defer g.source.Stop()
	defer g.stop()
	silence := time.NewTimer(maxWatchSilence)
	defer silence.Stop()
	for {
		select {
		case event, ok := <-g.source.ResultChan():
			if !ok || !g.send(event) {
				return
			}
			if event.Type == watch.Bookmark {
				bookmarks.Store(true)
			}
		case <-silence.C:
			if bookmarks.Load() {
				log.Info("A watch showed nothing, watching again", "for", maxWatchSilence.String())
				return
			}
		case anew := <-g.restart:
			log.Info("A watch lacks objects, watching again", "listsAnew", anew)
			if anew {
				expired := apierrors.NewResourceExpired("the watch has stalled").Status()
				g.send(watch.Event{Type: watch.Error, Object: &expired})
			}
			return
		case <-g.stopped:
			return
		}
		silence.Reset(maxWatchSilence)
	}
}

// send passes one event on. It returns false when nobody takes it.
func (g *guardedWatch) send(event watch.Event) bool {
	select {
	case g.events <- event:
		return true
	case <-g.stopped:
		return false
	}
}

// ResultChan implements watch.Interface.
func (g *guardedWatch) ResultChan() <-chan watch.Event { return g.events }

// Stop implements watch.Interface.
func (g *guardedWatch) Stop() { g.stop() }

// RestartWatches ends the watches of a kind. Its informers watch again, from the last object or bookmark that they have seen on;
// or else they list all objects anew.
func (i *Informers) RestartWatches(kind client.Object, listAnew bool) {
	i.watches.mu.Lock()
	defer i.watches.mu.Unlock()
	for g := range i.watches.open {
		if g.kind == reflect.TypeOf(kind) {
			select {
			case g.restart <- listAnew:
			default: // it ends already
			}
		}
	}
}

// watch returns the function by which an informer watches objects of a kind.
func (i *Informers) watch(
	object runtime.Object, source func(context.Context, metav1.ListOptions) (watch.Interface, error),
) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return retry(ctx, i.Log, func() (watch.Interface, error) {
			return i.watches.start(ctx, i.Log, object, func(ctx context.Context) (watch.Interface, error) {
				return source(ctx, options)
			})
		})
	}
}
