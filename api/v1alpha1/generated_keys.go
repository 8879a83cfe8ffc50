package v1alpha1

import "strings"

// generatedKeyPrefix is the prefix of generated dedup keys.
const generatedKeyPrefix = "tocsin:"

// GeneratedKey returns the dedup key for an alert that has none. id is the alert's id: a UUID or 128 bits in
// hexadecimal.
func GeneratedKey(id string) string { return generatedKeyPrefix + id }

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
