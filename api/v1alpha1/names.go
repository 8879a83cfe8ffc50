package v1alpha1

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"strings"
)

// keyedEventPrefix begins the names of AlertEvents that were posted with an idempotency key.
const keyedEventPrefix = "key-"

// quarantinePrefix begins the names of AlertEvents with alerts that could not be folded.
const quarantinePrefix = "quarantine-"

// nameEncoding writes hashes in the letters and digits that names may have.
var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// IncidentName is the name of the Incident that holds the alerts of one integration with one dedup key:
// the integration's name, a dash and 130 bits of a SHA-256 in 26 characters. A key is scoped to its
// integration, so one sender cannot resolve another's incident.
func IncidentName(integration, dedupKey string) string {
	return integration + "-" + nameHash(integration, dedupKey)
}

// KeyedEventName is the name of the AlertEvent that stores a request of an integration with an
// idempotency key: the same for every copy of the request, so that the API server stores one.
func KeyedEventName(integration, idempotencyKey string) string {
	return keyedEventPrefix + nameHash(integration, idempotencyKey)
}

// IsKeyedEventName tells the names that KeyedEventName makes from the others.
func IsKeyedEventName(name string) bool {
	return strings.HasPrefix(name, keyedEventPrefix)
}

// generatedEventName matches the UUIDs that name AlertEvents posted without an idempotency key.
var generatedEventName = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// IsGeneratedEventName reports whether a name was made by the webhook server for one AlertEvent, and is so never given twice.
func IsGeneratedEventName(name string) bool {
	return len(name) == 36 && generatedEventName.MatchString(name)
}

// QuarantineName is the name of the AlertEvent that takes over the alerts that the AlertEvent with this UID has for
// an Incident: the same whoever moves them, so that the API server stores one.
func QuarantineName(uid, incidentName string) string {
	return quarantinePrefix + hex.EncodeToString(hashParts(uid, incidentName))
}

// IsQuarantineName reports whether a name may be one that QuarantineName returns.
func IsQuarantineName(name string) bool {
	return len(name) == len(quarantinePrefix)+2*sha256.Size && strings.HasPrefix(name, quarantinePrefix)
}

// TokenHash is the form in which a WebhookIntegration holds a token: its SHA-256 as 64 lower-case
// hexadecimal digits.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// IncidentNameFor is the name of the Incident that an alert of an event belongs to: the one it gives, or
// else the one of its integration and dedup key.
func (e *AlertEvent) IncidentNameFor(alert *Alert) string {
	if alert.IncidentName != "" {
		return alert.IncidentName
	}
	return IncidentName(e.Spec.IntegrationName, alert.DedupKey)
}

// nameHash is the beginning of the parts' hash in letters and digits.
func nameHash(parts ...string) string {
	return nameEncoding.EncodeToString(hashParts(parts...))[:26]
}

// hashParts hashes the parts, each behind its length: no two lists of parts run together.
func hashParts(parts ...string) []byte {
	h := sha256.New()
	var length [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}
