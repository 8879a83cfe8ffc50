package clustercache

import (
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxSilence is how long a watch may show nothing, and a list stay without an answer. API servers send a bookmark to every watch
// about once a minute, and end other requests after a minute. One without a watch cache sends no bookmarks; there, a silent watch
// begins again from where it was, which costs little.
const maxSilence = 90 * time.Second

// guardedWatch passes the events of a watch on until it ends or stalls, or its informer is to watch again. A watch that has
// stalled is open, but it shows nothing any more; an informer would notice that when it times out, after up to ten minutes.
type guardedWatch struct {
	*watch.ProxyWatcher
	source  watch.Interface
	events  chan watch.Event
	kind    reflect.Type
	restart chan bool // whether to list anew
	version string    // the last resourceVersion that it has shown
	owner   *pagedInformer
}

// watch starts a watch of a kind of objects. One that does not begin in time is called off.
func (i *Informers) watch(
	ctx context.Context, informer *pagedInformer, object runtime.Object, watcher toolscache.WatcherWithContext,
	options metav1.ListOptions,
) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	deadline := time.AfterFunc(maxSilence, cancel)
	source, err := watcher.WatchWithContext(ctx, options)
	deadline.Stop()
	if err != nil {
		cancel()
		return nil, err
	}
	events := make(chan watch.Event)
	g := &guardedWatch{
		ProxyWatcher: watch.NewProxyWatcher(events), source: source, events: events, kind: reflect.TypeOf(object),
		restart: make(chan bool, 1), version: options.ResourceVersion, owner: informer,
	}
	i.watches.Store(g, nil)
	go func() {
		defer cancel()
		defer i.watches.Delete(g)
		i.pass(ctx, g)
	}()
	return g, nil
}

func (i *Informers) pass(ctx context.Context, g *guardedWatch) {
	defer close(g.events)
	defer g.source.Stop()
	log := i.Log.WithValues("kind", fmt.Sprint(g.kind))
	silence := time.NewTimer(maxSilence)
	lookForPlaces := time.NewTimer(stubInterval)
	for {
		select {
		case event, ok := <-g.source.ResultChan():
			if !ok {
				return
			}
			if object, err := meta.Accessor(event.Object); err == nil {
				g.version = object.GetResourceVersion() // before the informer transforms it
			}
			if !g.show(event) {
				return
			}
			silence.Reset(maxSilence)
		case <-lookForPlaces.C:
			if g.owner.places.isDue(g.owner) {
				log.Info("There are places for hidden objects, listing anew")
				g.expire()
				return
			}
			pause, ok := i.readStubs(ctx, g)
			if !ok {
				return
			}
			lookForPlaces.Reset(pause)
		case <-silence.C:
			log.Info("A watch showed nothing, watching again", "for", maxSilence.String())
			return
		case anew := <-g.restart:
			log.Info("A watch lacks objects, watching again", "listsAnew", anew)
			if anew {
				g.expire()
			}
			return
		case <-g.StopChan():
			return
		}
	}
}

// show passes one event on. In the place of one whose object is hidden comes a bookmark: a watch that begins again does not show
// it once more.
func (g *guardedWatch) show(event watch.Event) bool {
	if g.owner.places.passes(event, g.owner) {
		return g.send(event)
	}
	if !g.sendBookmark() {
		return false
	}
	if object, err := meta.Accessor(event.Object); err == nil {
		g.owner.places.count(event.Type, object.GetNamespace(), g.owner)
	}
	return true
}

// sendBookmark tells the informer from where the watch is to begin again.
func (g *guardedWatch) sendBookmark() bool {
	last := g.newObject()
	last.SetResourceVersion(g.version)
	return g.send(watch.Event{Type: watch.Bookmark, Object: last})
}

// expire has the informer list anew.
func (g *guardedWatch) expire() {
	expired := apierrors.NewResourceExpired("the watch lacks objects").Status()
	g.send(watch.Event{Type: watch.Error, Object: &expired})
}

// send passes one event on. It returns false when nobody takes it.
func (g *guardedWatch) send(event watch.Event) bool {
	select {
	case g.events <- event:
		return true
	case <-g.StopChan():
		return false
	}
}

// RestartWatches ends the watches of a kind. Its informers watch again, from the last object or bookmark that they have seen on;
// or else they list all objects anew.
func (i *Informers) RestartWatches(kind client.Object, listAnew bool) {
	i.watches.Range(func(key, _ any) bool {
		if g, ok := key.(*guardedWatch); ok && g.kind == reflect.TypeOf(kind) {
			select {
			case g.restart <- listAnew:
			default: // it ends already
			}
		}
		return true
	})
}
