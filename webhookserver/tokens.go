package webhookserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=list;watch

const (
	listedTokens   = 8           // the maximum length of spec.tokens
	searchInterval = time.Second // the least between two searches, however many wrong tokens come
)

// tokenIndex finds the integration of a token. The tag in the token names the integration, so an integration gains nothing
// by listing the hash of another one's token. The informer of the WebhookIntegrations feeds the index: a token works and
// ceases to work as soon as the watch has brought the change.
type tokenIndex struct {
	mu       sync.RWMutex
	byTag    map[string]*v1alpha1.WebhookIntegration // never modified
	searched atomic.Int64                            // the time of the last search, in nanoseconds
}

func newTokenIndex() *tokenIndex {
	return &tokenIndex{byTag: map[string]*v1alpha1.WebhookIntegration{}}
}

// lookup returns the integration that token belongs to, the valid token there, and the problem if it is not valid; the
// integration of an expired token as well. It makes the same comparisons whether or not there is an integration with the tag, so
// how long it takes says nothing about integrations and tokens.
func (x *tokenIndex) lookup(token string, now time.Time) (owner *v1alpha1.WebhookIntegration, used *v1alpha1.Token, p *problem) {
	tag := tokens.TagOf(token)
	switch {
	case token == "":
		return nil, nil, &problemNoToken
	case len(token) > maxTokenLength:
		return nil, nil, &problemToken
	case tag == "":
		return nil, nil, &problemUntagged
	}
	x.mu.RLock()
	integration := x.byTag[tag]
	x.mu.RUnlock()
	var own []v1alpha1.Token
	if integration != nil {
		own = integration.Spec.Tokens
	}
	hash, known := []byte(tokens.Hash(token)), false
	for i := range max(len(own), listedTokens) {
		var listed [2 * sha256.Size]byte
		if i < len(own) {
			copy(listed[:], own[i].SHA256)
		}
		if subtle.ConstantTimeCompare(hash, listed[:]) == 1 { // of two entries with this hash, the valid one counts
			expires := own[i].ExpirationTime
			known = true
			if expires == nil || expires.IsZero() || now.Before(expires.Time) {
				used = &own[i]
			}
		}
	}
	switch {
	case used != nil:
		return integration, used, nil
	case known:
		return integration, nil, &problemToken
	}
	return nil, nil, &problemToken
}

// tagged returns the integration whose tag the token has, whether or not the token is valid; nil if there is none.
func (x *tokenIndex) tagged(token string) *v1alpha1.WebhookIntegration {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.byTag[tokens.TagOf(token)]
}

// search calls report for each integration that lists the token although its tag is another one's, with the name of the token
// there. It looks at every integration, so it searches at most once per searchInterval.
func (x *tokenIndex) search(token string, now time.Time, report func(lister *v1alpha1.WebhookIntegration, name string)) {
	last := x.searched.Load()
	if time.Duration(now.UnixNano()-last).Abs() < searchInterval || !x.searched.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	hash, own := tokens.Hash(token), tokens.TagOf(token)
	x.mu.RLock()
	defer x.mu.RUnlock()
	for tag, integration := range x.byTag {
		if tag == own {
			continue // the cache has shown it since lookup
		}
		for i := range integration.Spec.Tokens {
			if listed := &integration.Spec.Tokens[i]; listed.SHA256 == hash {
				report(integration, listed.Name)
				break
			}
		}
	}
}

func (x *tokenIndex) set(integration *v1alpha1.WebhookIntegration) {
	if !integration.DeletionTimestamp.IsZero() {
		x.remove(integration)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	tag := tokens.Tag(integration.Namespace, integration.Name)
	named.Add(client.ObjectKeyFromObject(integration))
	observeExpirations(x.byTag[tag], integration)
	x.byTag[tag] = integration
}

func (x *tokenIndex) remove(integration *v1alpha1.WebhookIntegration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byTag, tokens.Tag(integration.Namespace, integration.Name))
}
