package v1alpha1

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// tokenReservation is the time for which the hashes of a deleted integration stay reserved for its namespace, so that no
// other namespace takes them over while the integration is being replaced.
const tokenReservation = time.Hour

// maxReservedTokens bounds the reserved hashes of a namespace.
const maxReservedTokens = 1000

// TokenRegistry decides which integration owns a token. The webhook server looks tokens up in one, and the controller
// records the decisions of another in status.tokens. It does no I/O: an informer of the WebhookIntegrations of all
// watched namespaces feeds it.
//
// A token with a tag belongs to the integration with that tag, if the integration lists the hash. For any other secret,
// the integration that held the hash first owns it:
//
//  1. A refused claim stays refused until the hash is removed from that integration's spec. A claim is refused if
//     status.tokens says so, or if this registry has observed that another integration owns the hash.
//  2. Of the remaining claims, one that is Held in status.tokens wins.
//  3. Otherwise, the hash belongs to the last owner that this registry has observed. After that owner was deleted, the
//     hash is reserved for integrations of its namespace, for up to tokenReservation.
//  4. Otherwise, a single claim wins. Of several claims, the oldest integration's wins, but only the controller makes
//     this decision: until then, the token is not valid.
//
// The registry's own observations are lost when the process ends. The controller records refusals within milliseconds,
// so this matters only while there is no leader.
//
// +kubebuilder:object:generate=false
type TokenRegistry struct {
	mu       sync.RWMutex
	claims   map[TokenSum][]*tokenClaim // by hash, the oldest integration first
	entries  map[types.NamespacedName]*tokenEntry
	owners   map[TokenSum]tokenOwner
	reserved []reservedToken // oldest first
	counts   map[string]int  // of reserved, by namespace
	now      func() time.Time
}

// TokenSum is the SHA-256 of a token.
//
// +kubebuilder:object:generate=false
type TokenSum [sha256.Size]byte

// tokenEntry is an integration in the registry.
//
// +kubebuilder:object:generate=false
type tokenEntry struct {
	integration *WebhookIntegration // never modified
	claims      tokenClaims
}

// tokenClaim is a hash in an integration's spec.
//
// +kubebuilder:object:generate=false
type tokenClaim struct {
	sum         TokenSum
	integration *WebhookIntegration // never modified
	key         types.NamespacedName
	tag         string
	expires     time.Time // zero: never
	state       TokenClaimState
}

// tokenClaims are the claims of an integration: at most eight, so that a map would cost more.
//
// +kubebuilder:object:generate=false
type tokenClaims []*tokenClaim

// of returns the claim of a hash; nil if there is none.
func (c tokenClaims) of(sum TokenSum) *tokenClaim {
	for _, claim := range c {
		if claim.sum == sum {
			return claim
		}
	}
	return nil
}

// tokenOwner is the last observed owner of a hash.
//
// +kubebuilder:object:generate=false
type tokenOwner struct {
	key     types.NamespacedName
	deleted time.Time // zero while it exists
}

// reservedToken is a hash whose owner was deleted.
//
// +kubebuilder:object:generate=false
type reservedToken struct {
	sum       TokenSum
	namespace string
	deleted   time.Time
}

// NewTokenRegistry returns an empty registry.
func NewTokenRegistry() *TokenRegistry {
	return &TokenRegistry{
		claims:  map[TokenSum][]*tokenClaim{},
		entries: map[types.NamespacedName]*tokenEntry{},
		owners:  map[TokenSum]tokenOwner{},
		counts:  map[string]int{},
		now:     time.Now,
	}
}

// Set adds or updates an integration. It ignores an older version than the one it has. initial means that the integration
// is from an informer's first list, whose order does not tell which integration was first.
func (x *TokenRegistry) Set(integration *WebhookIntegration, initial bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := types.NamespacedName{Namespace: integration.Namespace, Name: integration.Name}
	old := x.entries[key]
	same := old != nil && old.integration.UID == integration.UID
	switch version := integration.ResourceVersion; {
	case !same:
	case isOlderVersion(version, old.integration.ResourceVersion):
		return
	case version != "" && version == old.integration.ResourceVersion:
		integration = old.integration // a copy of it would take as much memory again
	}
	if !integration.DeletionTimestamp.IsZero() {
		x.drop(key)
		return
	}
	claims := claimsOf(integration, key)
	for _, claim := range claims {
		x.settle(claim.sum, initial) // existing claims were first
	}
	if same {
		for _, claim := range old.claims {
			if next := claims.of(claim.sum); next != nil && next.state == "" {
				next.state = claim.state
			}
		}
		x.unlink(key, old, claims)
	} else {
		x.drop(key)
	}
	x.entries[key] = &tokenEntry{integration, claims}
	for _, claim := range claims {
		x.claims[claim.sum] = append(x.claims[claim.sum], claim)
		slices.SortFunc(x.claims[claim.sum], func(a, b *tokenClaim) int { return byAge(a.integration, b.integration) })
		x.settle(claim.sum, initial)
	}
}

// Remove removes a deleted integration. It does nothing if a new integration has the same name.
func (x *TokenRegistry) Remove(key types.NamespacedName, uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if entry := x.entries[key]; entry != nil && entry.integration.UID == uid {
		x.drop(key)
	}
}

// drop removes an integration and reserves the hashes that it owned.
func (x *TokenRegistry) drop(key types.NamespacedName) {
	entry := x.entries[key]
	if entry == nil {
		return
	}
	for _, claim := range entry.claims {
		x.settle(claim.sum, false)
	}
	x.unlink(key, entry, entry.claims)
	now := x.now()
	for len(x.reserved) > 0 && now.Sub(x.reserved[0].deleted) >= tokenReservation {
		x.endReservation(x.reserved[0])
		x.reserved = x.reserved[1:]
	}
	for _, claim := range entry.claims {
		sum := claim.sum
		if x.owners[sum].key != key {
			continue
		}
		if x.counts[key.Namespace] >= maxReservedTokens {
			delete(x.owners, sum)
			continue
		}
		x.owners[sum] = tokenOwner{key: key, deleted: now}
		x.reserved = append(x.reserved, reservedToken{sum: sum, namespace: key.Namespace, deleted: now})
		x.counts[key.Namespace]++
	}
}

func (x *TokenRegistry) endReservation(r reservedToken) {
	if x.counts[r.namespace]--; x.counts[r.namespace] == 0 {
		delete(x.counts, r.namespace)
	}
	if x.owners[r.sum].deleted.Equal(r.deleted) {
		delete(x.owners, r.sum)
	}
}

// unlink removes the claims of an integration. A hash that it owned and that is not in kept becomes available.
func (x *TokenRegistry) unlink(key types.NamespacedName, entry *tokenEntry, kept tokenClaims) {
	for _, claim := range entry.claims {
		sum := claim.sum
		rest := slices.DeleteFunc(x.claims[sum], func(c *tokenClaim) bool { return c == claim })
		if len(rest) == 0 {
			delete(x.claims, sum)
		} else {
			x.claims[sum] = rest
		}
		if kept.of(sum) == nil && x.owners[sum].key == key {
			delete(x.owners, sum)
		}
	}
	delete(x.entries, key)
}

// settle records the owner of a hash, and refuses the other claims.
func (x *TokenRegistry) settle(sum TokenSum, initial bool) {
	owner, decided := x.owner(sum)
	if !decided || owner != nil && initial && owner.state != TokenHeld {
		return
	}
	if owner != nil {
		x.owners[sum] = tokenOwner{key: owner.key}
	}
	for _, claim := range x.claims[sum] {
		if claim != owner {
			claim.state = TokenRefused
		}
	}
}

// owner returns the claim that owns a hash, nil for none, and whether this is decided.
func (x *TokenRegistry) owner(sum TokenSum) (owner *tokenClaim, decided bool) {
	last, known := x.owners[sum]
	known = known && (last.deleted.IsZero() || x.now().Sub(last.deleted) < tokenReservation)
	var candidates int
	var first, sameName, sameNamespace *tokenClaim
	for _, claim := range x.claims[sum] {
		switch claim.state {
		case TokenRefused:
			continue
		case TokenHeld:
			return claim, true
		}
		candidates++
		first = cmp.Or(first, claim)
		if known && claim.key.Namespace == last.key.Namespace {
			sameNamespace = cmp.Or(sameNamespace, claim)
			if claim.key == last.key {
				sameName = claim
			}
		}
	}
	if known {
		return cmp.Or(sameName, sameNamespace), true
	}
	return first, candidates < 2
}

// Find returns the integration that owns a token, nil for none, and when the token expires, zero for never. If decided is
// false, the controller has not yet decided which of several integrations owns the token.
func (x *TokenRegistry) Find(sum TokenSum, token string) (integration *WebhookIntegration, expires time.Time, decided bool) {
	tag := TokenTagOf(token)
	x.mu.RLock()
	defer x.mu.RUnlock()
	var owner *tokenClaim
	decided = true
	if tag != "" {
		for _, claim := range x.claims[sum] {
			if claim.tag == tag {
				owner = claim
			}
		}
	} else {
		owner, decided = x.owner(sum)
	}
	if owner == nil {
		return nil, time.Time{}, decided
	}
	return owner.integration, owner.expires, decided
}

// Claims returns the status.tokens of an integration that was passed to Set. It makes and records pending decisions.
func (x *TokenRegistry) Claims(key types.NamespacedName) []TokenClaim {
	x.mu.Lock()
	defer x.mu.Unlock()
	entry := x.entries[key]
	if entry == nil {
		return nil
	}
	var claims []TokenClaim
	for _, claim := range entry.claims {
		state := TokenRefused
		if owner, _ := x.owner(claim.sum); owner == claim {
			state = TokenHeld
		}
		claim.state = state
		x.settle(claim.sum, false)
		claims = append(claims, TokenClaim{SHA256: hex.EncodeToString(claim.sum[:]), State: state})
	}
	slices.SortFunc(claims, func(a, b TokenClaim) int { return cmp.Compare(a.SHA256, b.SHA256) })
	return claims
}

// Len returns the number of hashes in the specs of all integrations.
func (x *TokenRegistry) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.claims)
}

// claimsOf returns the claims of an integration's spec, with their states from its status.
func claimsOf(integration *WebhookIntegration, key types.NamespacedName) tokenClaims {
	var claims tokenClaims
	tag := TokenTag(key.Namespace, key.Name)
	for i := range integration.Spec.Tokens {
		token := &integration.Spec.Tokens[i]
		var sum TokenSum
		if n, err := hex.Decode(sum[:], []byte(token.SHA256)); err != nil || n != len(sum) {
			continue // the schema permits none
		}
		var expires time.Time
		if token.ExpiresAt != nil {
			expires = token.ExpiresAt.Time
		}
		if other := claims.of(sum); other != nil { // listed twice: the later expiry counts
			if !other.expires.IsZero() && (expires.IsZero() || expires.After(other.expires)) {
				other.expires = expires
			}
			continue
		}
		claims = append(claims, &tokenClaim{sum: sum, integration: integration, key: key, tag: tag, expires: expires})
	}
	for i := range integration.Status.Tokens {
		var sum TokenSum
		recorded := &integration.Status.Tokens[i]
		if n, err := hex.Decode(sum[:], []byte(recorded.SHA256)); err != nil || n != len(sum) {
			continue
		}
		if claim := claims.of(sum); claim != nil {
			claim.state = recorded.State
		}
	}
	return claims
}

// byAge orders integrations by age, oldest first, and those of the same second by namespace and name.
func byAge(a, b *WebhookIntegration) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

func isOlderVersion(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
