package testsite

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// Stubs shows stubs of WebhookIntegrations, as the cache has of those that are too large.
type Stubs struct{ client.Reader }

// Get implements client.Reader.
func (s Stubs) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	err := s.Reader.Get(ctx, key, object, opts...)
	if w, ok := object.(*v1alpha1.WebhookIntegration); ok && err == nil {
		integrations.MakeStub(w, true)
	}
	return err
}

// Taken takes what is in a queue of requests, and returns the names.
func Taken(queue *fair.Queue[reconcile.Request]) []string {
	names := []string{}
	for queue.Len() > 0 {
		request, _ := queue.Get()
		names = append(names, request.Name)
		queue.Done(request)
	}
	return names
}
