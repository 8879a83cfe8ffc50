package v1alpha1

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"regexp"
	"strings"
)

// keyedEventPrefix is the prefix of AlertEvents of requests with an idempotency key.
const keyedEventPrefix = "key-"

// CanaryName is the name of an Incident that never exists. The AlertEvents by which each replica tests the way of an alert belong
// to it, in the operator's own namespace, and their names begin with it.
const CanaryName = "tocsin-canary"

// nameEncoding encodes hashes in letters and digits that are valid in names.
var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// IncidentName returns the name of the Incident for an integration and a dedup key: the integration's name, a dash and
// 130 bits of a SHA-256 hash in 26 characters. A key is scoped to its integration, so one sender cannot resolve
// another's incident.
func IncidentName(integration, dedupKey string) string {
	return integration + "-" + nameHash(integration, dedupKey)
}

// IsIncidentName reports whether IncidentName returns the name for a dedup key of the integration.
func IsIncidentName(name, integration string) bool {
	return integration != "" && IntegrationOf(name) == integration
}

// IntegrationOf returns the integration that IncidentName has made the name of an Incident for; empty if it has not made it.
func IntegrationOf(incidentName string) string {
	at := len(incidentName) - nameHashLength - 1
	if at <= 0 || incidentName[at] != '-' {
		return ""
	}
	return incidentName[:at]
}

// KeyedEventName returns the name of the AlertEvent for a request with an idempotency key. It is the same for every copy
// of the request, so that the API server stores only one.
func KeyedEventName(integration, idempotencyKey string) string {
	return keyedEventPrefix + nameHash(integration, idempotencyKey)
}

// IsKeyedEventName reports whether KeyedEventName returned the name.
func IsKeyedEventName(name string) bool { return strings.HasPrefix(name, keyedEventPrefix) }

// generatedEventName matches the UUIDs that name AlertEvents without an idempotency key.
var generatedEventName = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// IsGeneratedEventName reports whether the webhook server generated the name, which is unique to one AlertEvent.
func IsGeneratedEventName(name string) bool {
	return len(name) == 36 && generatedEventName.MatchString(name)
}

// IncidentNameFor returns the name of the Incident that an alert of the event belongs to: its incidentName, or else the
// name derived from its integration and dedup key.
func (e *AlertEvent) IncidentNameFor(alert *Alert) string {
	if alert.IncidentName != "" {
		return alert.IncidentName
	}
	return IncidentName(e.Spec.IntegrationName, alert.DedupKey)
}

// nameHashLength is the length of a nameHash.
const nameHashLength = 26

// nameHash returns the first 130 bits of a hash in letters and digits. Each part is preceded by its length, so that different
// lists never have the same input.
func nameHash(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return nameEncoding.EncodeToString(h.Sum(nil))[:nameHashLength]
}

// generatedKeyPrefix is the prefix of generated dedup keys.
const generatedKeyPrefix = "tocsin:"

// GeneratedKey returns the dedup key for an alert that has none. id is the alert's id: a UUID or 128 bits in
// hexadecimal.
func GeneratedKey(id string) string { return generatedKeyPrefix + id }

// IsOwnKey reports whether a dedup key may be that of an Incident that Tocsin itself opens, for a heartbeat.
func IsOwnKey(dedupKey string) bool { return strings.HasPrefix(dedupKey, heartbeatKeyPrefix) }

// IsGeneratedKey reports whether GeneratedKey returned the dedup key. No further alert has the same key, except for a
// resolve by a sender that has kept the key from the response.
func IsGeneratedKey(dedupKey string) bool {
	id, ok := strings.CutPrefix(dedupKey, generatedKeyPrefix)
	if !ok {
		return false
	}
	id = strings.ReplaceAll(id, "-", "")
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}
