package controllers

import (
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// feedTokens has the cache feed the registry. synced reports whether the registry knows all integrations that were there at
// first.
func feedTokens(objects cache.Informers, tokens *v1alpha1.TokenRegistry) (synced func() bool, err error) {
	return follow(objects, &v1alpha1.WebhookIntegration{}, func(before, after *v1alpha1.WebhookIntegration, initial bool) {
		if after == nil {
			tokens.Remove(client.ObjectKeyFromObject(before), before.UID)
			return
		}
		tokens.Set(after, initial)
	})
}
