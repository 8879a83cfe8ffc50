package clustercache

import (
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Watch is what a watch does with an AlertEvent that comes. It reports whether the cache has it.
func (h *Hidden) Watch(event *v1alpha1.AlertEvent) (shown bool) {
	if shown = h.events.passes(watch.Event{Type: watch.Added, Object: event}, nil); !shown {
		h.events.count(watch.Added, event.Namespace, nil)
	}
	return shown
}

// Gone is what the cache does once an AlertEvent is gone.
func (h *Hidden) Gone(event *v1alpha1.AlertEvent) {
	if !h.events.passes(watch.Event{Type: watch.Deleted, Object: event}, nil) {
		h.events.count(watch.Deleted, event.Namespace, nil)
	}
	h.events.forget(event)
}
