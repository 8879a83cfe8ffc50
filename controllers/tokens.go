package controllers

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// feedTokens has the cache feed the registry, on the replicas that do not lead as well: the next leader is to know
// who held a token whose integration is gone. The result tells whether the registry knows all there were at first.
func feedTokens(objects cache.Cache, tokens *v1alpha1.TokenRegistry) (func() bool, error) {
	informer, err := objects.GetInformer(context.Background(), &v1alpha1.WebhookIntegration{})
	if err != nil {
		return nil, fmt.Errorf("getting the informer of WebhookIntegrations: %w", err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if integration, ok := object.(*v1alpha1.WebhookIntegration); ok {
				tokens.Set(integration, initial)
			}
		},
		UpdateFunc: func(_, object any) {
			if integration, ok := object.(*v1alpha1.WebhookIntegration); ok {
				tokens.Set(integration, false)
			}
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if integration, ok := object.(*v1alpha1.WebhookIntegration); ok {
				tokens.Remove(client.ObjectKeyFromObject(integration), integration.UID)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("listening to the informer of WebhookIntegrations: %w", err)
	}
	return registration.HasSynced, nil
}
