package testsite

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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
