package webhookserver

import (
	"crypto/sha256"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=list;watch

// tokenIndex finds the integration of a token. It is fed by the informer of the WebhookIntegrations, so a
// token works and ceases to work as soon as the watch has brought the change.
type tokenIndex struct{ registry *v1alpha1.TokenRegistry }

func newTokenIndex() *tokenIndex {
	return &tokenIndex{registry: v1alpha1.NewTokenRegistry()}
}

// verdict is the result of looking up a token.
type verdict int

const (
	tokenUnknown   verdict = iota
	tokenUndecided         // several integrations list it, and it is not yet recorded whose it is
	tokenExpired
	tokenValid
)

// lookup returns the integration that token belongs to, also when the token has expired. The index is looked up by
// the SHA-256 of the token alone, so how long a lookup takes says nothing about any token.
func (x *tokenIndex) lookup(token string, now time.Time) (*v1alpha1.WebhookIntegration, verdict) {
	var buffer [maxTokenLength]byte
	if token == "" || len(token) > len(buffer) {
		return nil, tokenUnknown
	}
	sum := sha256.Sum256(buffer[:copy(buffer[:], token)])
	owner, expires, decided := x.registry.Find(sum, token)
	switch {
	case !decided:
		return nil, tokenUndecided
	case owner == nil:
		return nil, tokenUnknown
	case expires.IsZero() || now.Before(expires):
		return owner, tokenValid
	default:
		return owner, tokenExpired
	}
}

// set updates the index from the integration's spec and status.
func (x *tokenIndex) set(integration *v1alpha1.WebhookIntegration) {
	x.registry.Set(integration, false)
}
