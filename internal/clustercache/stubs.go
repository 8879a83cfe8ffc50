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
	// time, and stubTimeout bounds each read: meanwhile the watch shows nothing else. If there are more, it shows what comes for as
	// long as it has read: else a tenant with many stubs would delay the alerts of all.
	stubInterval = time.Second
	stubDuration = 50 * time.Millisecond
	stubTimeout  = 2 * time.Second
)

type stubSource interface {
	NextStub(isOwn func(namespace string) bool) (next queue.Stub, ok bool)
	PostponeStub(s queue.Stub)
}

func (i *Informers) stubsOf(kind reflect.Type) stubSource {
	switch {
	case i.Events != nil && kind == reflect.TypeFor[*v1alpha1.AlertEvent]():
		return i.Events
	case i.Integrations != nil && kind == reflect.TypeFor[*v1alpha1.WebhookIntegration]():
		return i.Integrations
	}
	return nil
}

// readStubs reads stubs from the quorum while there is a place for one, and shows them as if the watch did. It returns after how
// long to go on; ok is false when nobody takes them.
//
// The goroutine that passes the watch on reads them. So an object that it reads existed after all that the watch has shown, and
// the watch will show its end. A bookmark follows each: a watch that begins again must not begin at an old object.
func (i *Informers) readStubs(ctx context.Context, g *guardedWatch) (pause time.Duration, ok bool) {
	stubs := i.stubsOf(g.kind)
	if stubs == nil {
		return stubInterval, true
	}
	began := time.Now()
	for time.Since(began) < stubDuration {
		next, found := stubs.NextStub(g.owner.hasStubs)
		if !found {
			return stubInterval, true
		}
		object := g.newObject()
		reading, cancel := context.WithTimeout(ctx, stubTimeout)
		err := i.read(reading, next.Name, object)
		cancel()
		if apierrors.IsNotFound(err) || err == nil && object.GetUID() != next.UID {
			stubs.PostponeStub(next) // the watch will show its end
			return stubInterval, true
		}
		if err != nil {
			return stubInterval, true // it is tried again
		}
		if !g.send(watch.Event{Type: watch.Modified, Object: object}) || !g.sendBookmark() {
			return 0, false
		}
	}
	return time.Since(began), true
}

func (g *guardedWatch) newObject() client.Object {
	object, _ := reflect.TypeAssert[client.Object](reflect.New(g.kind.Elem()))
	return object
}
