package clustercache

import (
	"context"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// stubInterval is how often a watch looks for stubs that have a place now. It reads them for stubDuration at most, one at a
	// time, and stubTimeout bounds each read: meanwhile the watch shows nothing else.
	stubInterval = time.Second
	stubDuration = time.Second
	stubTimeout  = 2 * time.Second
)

// stubSource knows the stubs of a kind.
type stubSource interface {
	NextStub(isOwn func(namespace string) bool) (next queue.Stub, ok bool)
	PostponeStub(s queue.Stub)
}

// stubsOf returns the source of the stubs of a kind, nil if it has none.
func (i *Informers) stubsOf(kind reflect.Type) stubSource {
	switch {
	case i.Events != nil && kind == reflect.TypeFor[*v1alpha1.AlertEvent]():
		return i.Events
	case i.Integrations != nil && kind == reflect.TypeFor[*v1alpha1.WebhookIntegration]():
		return i.Integrations
	}
	return nil
}

// readStubs reads stubs from the quorum as long as there is a place for one, and shows them as if the watch did. It returns false
// when nobody takes them.
//
// The goroutine that passes the watch on reads them. So an object that it reads existed after all that the watch has shown, and
// the watch will show its end. A bookmark follows each: a watch that begins again must not begin at an old object.
func (i *Informers) readStubs(ctx context.Context, g *guardedWatch, stubs stubSource) bool {
	for began := time.Now(); time.Since(began) < stubDuration; {
		next, ok := stubs.NextStub(g.owner.hasStubs)
		if !ok {
			return true
		}
		object := g.newObject()
		reading, cancel := context.WithTimeout(ctx, stubTimeout)
		err := i.read(reading, next.Name, object)
		cancel()
		if apierrors.IsNotFound(err) || err == nil && object.GetUID() != next.UID {
			stubs.PostponeStub(next) // the watch will show its end
			return true
		}
		if err != nil {
			return true // it is tried again
		}
		if !g.send(watch.Event{Type: watch.Modified, Object: object}) || !g.sendBookmark() {
			return false
		}
	}
	return true
}

// newObject returns an empty object of the kind.
func (g *guardedWatch) newObject() client.Object {
	object, _ := reflect.TypeAssert[client.Object](reflect.New(g.kind.Elem()))
	return object
}
