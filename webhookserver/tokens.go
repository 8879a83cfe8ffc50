package webhookserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=get;list;watch

// tokenHash is the SHA-256 of a token. The index is looked up by hash alone, so how long a lookup takes
// says nothing about any token.
type tokenHash [sha256.Size]byte

// claim is the right of an integration to one token.
type claim struct {
	integration *v1alpha1.WebhookIntegration // from the cache, never modified
	expires     time.Time                    // zero: never
}

// tokenIndex finds the integration of a token. It is fed by the informer of the WebhookIntegrations, so a
// token works and ceases to work as soon as the watch has brought the change.
type tokenIndex struct {
	mu     sync.RWMutex
	claims map[tokenHash][]claim                // of each hash the oldest integration's first
	hashes map[types.NamespacedName][]tokenHash // the hashes of each integration, to forget them by
}

func newTokenIndex() *tokenIndex {
	return &tokenIndex{
		claims: map[tokenHash][]claim{},
		hashes: map[types.NamespacedName][]tokenHash{},
	}
}

// verdict is what the index says of a token.
type verdict int

const (
	tokenUnknown verdict = iota
	tokenExpired
	tokenValid
)

// lookup returns the integration that token belongs to, also when the token has expired.
//
// When two integrations list the same hash, the older one has it, whether or not it has expired there:
// nobody can take a token over by listing its hash.
func (x *tokenIndex) lookup(token string, now time.Time) (*v1alpha1.WebhookIntegration, verdict) {
	var buffer [maxTokenLength]byte
	if token == "" || len(token) > len(buffer) {
		return nil, tokenUnknown
	}
	hash := tokenHash(sha256.Sum256(buffer[:copy(buffer[:], token)]))

	x.mu.RLock()
	defer x.mu.RUnlock()
	claims := x.claims[hash]
	if len(claims) == 0 {
		return nil, tokenUnknown
	}
	owner := claims[0].integration
	for _, c := range claims {
		if c.integration == owner && (c.expires.IsZero() || now.Before(c.expires)) {
			return owner, tokenValid
		}
	}
	return owner, tokenExpired
}

// set makes the index say what the integration's spec says.
func (x *tokenIndex) set(integration *v1alpha1.WebhookIntegration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := types.NamespacedName{Namespace: integration.Namespace, Name: integration.Name}
	x.forget(key)
	if !integration.DeletionTimestamp.IsZero() {
		return
	}
	hashes := make([]tokenHash, 0, len(integration.Spec.Tokens))
	for _, token := range integration.Spec.Tokens {
		decoded, err := hex.DecodeString(token.SHA256)
		if err != nil || len(decoded) != sha256.Size {
			continue // the API server lets none pass
		}
		hash := tokenHash(decoded)
		c := claim{integration: integration}
		if token.ExpiresAt != nil {
			c.expires = token.ExpiresAt.Time
		}
		x.claims[hash] = append(x.claims[hash], c)
		slices.SortStableFunc(x.claims[hash], func(a, b claim) int { return byAge(a.integration, b.integration) })
		hashes = append(hashes, hash)
	}
	x.hashes[key] = hashes
}

// remove makes the index forget an integration.
func (x *tokenIndex) remove(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(key)
}

func (x *tokenIndex) forget(key types.NamespacedName) {
	for _, hash := range x.hashes[key] {
		rest := slices.DeleteFunc(x.claims[hash], func(c claim) bool {
			return c.integration.Namespace == key.Namespace && c.integration.Name == key.Name
		})
		if len(rest) == 0 {
			delete(x.claims, hash)
		} else {
			x.claims[hash] = rest
		}
	}
	delete(x.hashes, key)
}

// byAge orders integrations by who has a token that both list.
func byAge(a, b *v1alpha1.WebhookIntegration) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// handler feeds the index from an informer.
func (x *tokenIndex) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if integration, ok := obj.(*v1alpha1.WebhookIntegration); ok {
				x.set(integration)
			}
		},
		UpdateFunc: func(_, obj any) {
			if integration, ok := obj.(*v1alpha1.WebhookIntegration); ok {
				x.set(integration)
			}
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if integration, ok := obj.(*v1alpha1.WebhookIntegration); ok {
				x.remove(types.NamespacedName{Namespace: integration.Namespace, Name: integration.Name})
				forgetIntegration(integration.Namespace, integration.Name)
			}
		},
	}
}
