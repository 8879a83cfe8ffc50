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

// tokenReservation is how long the hashes of a deleted integration stay reserved for its namespace, so that nobody
// takes them over while it is being replaced.
const tokenReservation = time.Hour

// maxReservedTokens bounds the hashes that stay reserved for one namespace.
const maxReservedTokens = 1000

// TokenRegistry decides which integration a token belongs to, for the server that looks tokens up and for the
// controller that records the decision. It does no I/O: an informer of the WebhookIntegrations of every watched
// namespace feeds it.
//
// A token that carries a tag belongs to the integration with that tag, if it lists the hash. For any other secret,
// the integration that held the hash first owns it:
//
//  1. A claim that was refused stays refused until the hash leaves that integration's spec. It is refused when
//     status.tokens says so, or when this registry has seen another integration own the hash.
//  2. Of the claims that are not refused, one that status.tokens calls Held wins.
//  3. Otherwise the hash belongs to the last owner that this registry has seen. While that one is deleted, for up to
//     tokenReservation, the hash is reserved for integrations of its namespace.
//  4. Otherwise a single claim wins. Of several, the oldest integration's wins, but only the controller decides so:
//     until it has, none is served.
//
// What it has seen itself is lost with the process. The controller records refusals within milliseconds, so that
// matters only while there is no leader.
//
// +kubebuilder:object:generate=false
type TokenRegistry struct {
	mu       sync.RWMutex
	claims   map[TokenSum][]*tokenClaim // of each hash the oldest integration's first
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

// tokenEntry is what the registry knows of an integration.
//
// +kubebuilder:object:generate=false
type tokenEntry struct {
	uid     types.UID
	version string
	claims  map[TokenSum]*tokenClaim
}

// tokenClaim is one integration's listing of one hash.
//
// +kubebuilder:object:generate=false
type tokenClaim struct {
	integration *WebhookIntegration // never modified
	key         types.NamespacedName
	tag         string
	expires     time.Time // zero: never
	state       TokenClaimState
}

// tokenOwner is the last owner that was seen of a hash.
//
// +kubebuilder:object:generate=false
type tokenOwner struct {
	key  types.NamespacedName
	gone time.Time // when it was deleted; zero while it exists
}

// reservedToken is a hash whose owner was deleted.
//
// +kubebuilder:object:generate=false
type reservedToken struct {
	sum       TokenSum
	namespace string
	gone      time.Time
}

// NewTokenRegistry returns a registry that knows no integration.
func NewTokenRegistry() *TokenRegistry {
	return &TokenRegistry{
		claims:  map[TokenSum][]*tokenClaim{},
		entries: map[types.NamespacedName]*tokenEntry{},
		owners:  map[TokenSum]tokenOwner{},
		counts:  map[string]int{},
		now:     time.Now,
	}
}

// Set takes an integration in as it is now. It ignores an older version of one that it knows. Initial says that the
// integration comes from an informer's first list: its place in that list does not tell who was first.
func (x *TokenRegistry) Set(integration *WebhookIntegration, initial bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := types.NamespacedName{Namespace: integration.Namespace, Name: integration.Name}
	old := x.entries[key]
	same := old != nil && old.uid == integration.UID
	if same && isOlderVersion(integration.ResourceVersion, old.version) {
		return
	}
	if !integration.DeletionTimestamp.IsZero() {
		x.drop(key)
		return
	}
	claims := claimsOf(integration, key)
	for sum := range claims {
		x.settle(sum, initial) // whoever is there already was first
	}
	if same {
		for sum, claim := range old.claims {
			if next := claims[sum]; next != nil && next.state == "" {
				next.state = claim.state
			}
		}
		x.unlink(key, old, claims)
	} else {
		x.drop(key)
	}
	x.entries[key] = &tokenEntry{uid: integration.UID, version: integration.ResourceVersion, claims: claims}
	for sum, claim := range claims {
		x.claims[sum] = append(x.claims[sum], claim)
		slices.SortFunc(x.claims[sum], func(a, b *tokenClaim) int { return byAge(a.integration, b.integration) })
		x.settle(sum, initial)
	}
}

// Remove forgets a deleted integration. It does nothing when another one has the name by now.
func (x *TokenRegistry) Remove(key types.NamespacedName, uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if entry := x.entries[key]; entry != nil && entry.uid == uid {
		x.drop(key)
	}
}

// drop forgets an integration and reserves the hashes that it owned.
func (x *TokenRegistry) drop(key types.NamespacedName) {
	entry := x.entries[key]
	if entry == nil {
		return
	}
	for sum := range entry.claims {
		x.settle(sum, false)
	}
	x.unlink(key, entry, entry.claims)
	now := x.now()
	for len(x.reserved) > 0 && now.Sub(x.reserved[0].gone) >= tokenReservation {
		x.endReservation(x.reserved[0])
		x.reserved = x.reserved[1:]
	}
	for sum := range entry.claims {
		if x.owners[sum].key != key {
			continue
		}
		if x.counts[key.Namespace] >= maxReservedTokens {
			delete(x.owners, sum)
			continue
		}
		x.owners[sum] = tokenOwner{key: key, gone: now}
		x.reserved = append(x.reserved, reservedToken{sum: sum, namespace: key.Namespace, gone: now})
		x.counts[key.Namespace]++
	}
}

func (x *TokenRegistry) endReservation(r reservedToken) {
	if x.counts[r.namespace]--; x.counts[r.namespace] == 0 {
		delete(x.counts, r.namespace)
	}
	if x.owners[r.sum].gone.Equal(r.gone) {
		delete(x.owners, r.sum)
	}
}

// unlink takes the claims of an integration out. A hash that it owned and that is not in kept is free again.
func (x *TokenRegistry) unlink(key types.NamespacedName, entry *tokenEntry, kept map[TokenSum]*tokenClaim) {
	for sum, claim := range entry.claims {
		rest := slices.DeleteFunc(x.claims[sum], func(c *tokenClaim) bool { return c == claim })
		if len(rest) == 0 {
			delete(x.claims, sum)
		} else {
			x.claims[sum] = rest
		}
		if kept[sum] == nil && x.owners[sum].key == key {
			delete(x.owners, sum)
		}
	}
	delete(x.entries, key)
}

// settle remembers who owns a hash, and that the others do not.
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

// owner returns the claim that a hash belongs to, nil for none, and whether that is beyond doubt.
func (x *TokenRegistry) owner(sum TokenSum) (owner *tokenClaim, decided bool) {
	last, known := x.owners[sum]
	known = known && (last.gone.IsZero() || x.now().Sub(last.gone) < tokenReservation)
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

// Find returns the integration that a token belongs to and when the token expires there, zero for never. The
// integration is nil when there is none. When decided is false, the controller has yet to say to which of several
// integrations the token belongs.
func (x *TokenRegistry) Find(sum TokenSum, token string) (integration *WebhookIntegration, expires time.Time, decided bool) {
	tag, tagged := TokenTagOf(token)
	x.mu.RLock()
	defer x.mu.RUnlock()
	var owner *tokenClaim
	decided = true
	if tagged {
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

// Claims returns what status.tokens of an integration has to say, which Set has taken in before. It takes the
// decision where there is one to take, and remembers it.
func (x *TokenRegistry) Claims(key types.NamespacedName) []TokenClaim {
	x.mu.Lock()
	defer x.mu.Unlock()
	entry := x.entries[key]
	if entry == nil {
		return nil
	}
	var claims []TokenClaim
	for sum, claim := range entry.claims {
		state := TokenRefused
		if owner, _ := x.owner(sum); owner == claim {
			state = TokenHeld
		}
		claim.state = state
		x.settle(sum, false)
		claims = append(claims, TokenClaim{SHA256: hex.EncodeToString(sum[:]), State: state})
	}
	slices.SortFunc(claims, func(a, b TokenClaim) int { return cmp.Compare(a.SHA256, b.SHA256) })
	return claims
}

// Len returns the number of hashes that integrations list.
func (x *TokenRegistry) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.claims)
}

// claimsOf returns what an integration's spec lists, with what its status says of it.
func claimsOf(integration *WebhookIntegration, key types.NamespacedName) map[TokenSum]*tokenClaim {
	claims := map[TokenSum]*tokenClaim{}
	tag := TokenTag(key.Namespace, key.Name)
	for i := range integration.Spec.Tokens {
		token := &integration.Spec.Tokens[i]
		var sum TokenSum
		if n, err := hex.Decode(sum[:], []byte(token.SHA256)); err != nil || n != len(sum) {
			continue // the API server lets none pass
		}
		var expires time.Time
		if token.ExpiresAt != nil {
			expires = token.ExpiresAt.Time
		}
		if other := claims[sum]; other != nil { // listed twice: the later end counts
			if !other.expires.IsZero() && (expires.IsZero() || expires.After(other.expires)) {
				other.expires = expires
			}
			continue
		}
		claims[sum] = &tokenClaim{integration: integration, key: key, tag: tag, expires: expires}
	}
	for i := range integration.Status.Tokens {
		var sum TokenSum
		recorded := &integration.Status.Tokens[i]
		if n, err := hex.Decode(sum[:], []byte(recorded.SHA256)); err == nil && n == len(sum) && claims[sum] != nil {
			claims[sum].state = recorded.State
		}
	}
	return claims
}

// byAge orders integrations by age, oldest first; those made in one second by namespace and name.
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
