package controllers

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// changeFunc handles a change of an object. before is nil when the cache did not have the object, after when it is gone.
// initial says that the object was there when the informer began.
type changeFunc[T client.Object] func(before, after T, initial bool)

// follow has the cache's informer report every change of the objects of a kind. synced reports whether it has reported all
// those that were there at first.
func follow[T client.Object](objects cache.Informers, kind T, changed changeFunc[T]) (synced func() bool, err error) {
	informer, err := objects.GetInformer(context.Background(), kind)
	if err != nil {
		return nil, fmt.Errorf("getting the informer of %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(changed.handler())
	if err != nil {
		return nil, fmt.Errorf("listening to the informer of %T: %w", kind, err)
	}
	return registration.HasSynced, nil
}

func (changed changeFunc[T]) handler() toolscache.ResourceEventHandler {
	var none T
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if after, ok := object.(T); ok {
				changed(none, after, initial)
			}
		},
		UpdateFunc: func(old, object any) {
			before, isT := old.(T)
			if after, ok := object.(T); ok && isT {
				changed(before, after, false)
			}
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if before, ok := object.(T); ok {
				changed(before, none, false)
			}
		},
	}
}
