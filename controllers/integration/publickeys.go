package integration

import (
	"fmt"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// invalidKey describes the first key of spec.verify that cannot be used, empty if all can.
func invalidKey(integration *v1alpha1.WebhookIntegration) string {
	if integration.Spec.Verify == nil {
		return ""
	}
	for i := range integration.Spec.Verify.PublicKeys {
		key := &integration.Spec.Verify.PublicKeys[i]
		if _, err := tokens.ParsePublicKey(key); err != nil {
			return fmt.Sprintf("The public key %q of spec.verify cannot be used: %v.", key.Name, err)
		}
	}
	return ""
}
