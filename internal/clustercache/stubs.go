package clustercache

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// stubInterval is how often a watch looks for stubs that have a place now. It reads them for stubDuration at most, one at a
	// time, and stubTimeout bounds each read: meanwhile the watch shows nothing else.
	stubInterval = time.Second
	stubDuration = time.Second
	stubTimeout  = 2 * time.Second
)

// readStubs reads stubs from the quorum as long as there is a place for one, and shows them as if the watch did. It returns false
// when nobody takes them.
//
// The goroutine that passes the watch on reads them. So an AlertEvent that it reads existed after all that the watch has shown,
// and the watch will show its end. A bookmark follows each: a watch that begins again must not begin at an old AlertEvent.
func (i *Informers) readStubs(ctx context.Context, g *guardedWatch) bool {
	for began := time.Now(); time.Since(began) < stubDuration; {
		next, ok := i.Events.nextStub(g.isOwn)
		if !ok {
			return true
		}
		event := &v1alpha1.AlertEvent{}
		reading, cancel := context.WithTimeout(ctx, stubTimeout)
		err := i.read(reading, next.name, event)
		cancel()
		if apierrors.IsNotFound(err) || err == nil && event.UID != next.uid {
			i.Events.postponeStub(next) // the watch will show its end
			return true
		}
		if err != nil {
			return true // it is tried again
		}
		last := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{ResourceVersion: g.version}}
		if !g.send(watch.Event{Type: watch.Modified, Object: event}) || !g.send(watch.Event{Type: watch.Bookmark, Object: last}) {
			return false
		}
	}
	return true
}
