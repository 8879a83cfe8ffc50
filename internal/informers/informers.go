// Package informers feeds typed functions from the informers of a manager's cache.
package informers

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Feed calls set for every object of the kind that exists, appears or changes, and remove for every object that is
// deleted, with its last known state. Objects that existed from the start are initial. synced reports whether set has been called
// for all of these: that the cache has synced does not say so.
func Feed[T client.Object](
	objects cache.Informers, kind T, set func(object T, initial bool), remove func(T),
) (synced toolscache.InformerSynced, err error) {
	informer, err := objects.GetInformer(context.Background(), kind)
	if err != nil {
		return nil, fmt.Errorf("getting the informer of %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(Handler(set, remove))
	if err != nil {
		return nil, fmt.Errorf("listening to the informer of %T: %w", kind, err)
	}
	return registration.HasSynced, nil
}

// Handler returns the event handler with which Feed listens. When an informer lists anew, it shows every object as an update; the
// handler skips those with the resourceVersion that they had. If another object has taken the name, the former is removed first.
func Handler[T client.Object](set func(object T, initial bool), remove func(T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if typed, ok := object.(T); ok {
				set(typed, initial)
			}
		},
		UpdateFunc: func(old, object any) {
			before, known := old.(T)
			typed, ok := object.(T)
			replaced := ok && known && before.GetUID() != typed.GetUID()
			if replaced {
				remove(before)
			}
			if ok && (!known || replaced || before.GetResourceVersion() != typed.GetResourceVersion()) {
				set(typed, false)
			}
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if typed, ok := object.(T); ok {
				remove(typed)
			}
		},
	}
}
