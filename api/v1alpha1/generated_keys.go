package v1alpha1

import "strings"

// generatedKeyPrefix begins the dedup keys that the operator makes for alerts that have none.
const generatedKeyPrefix = "tocsin:"

// GeneratedKey returns the dedup key of an alert without one, made of the alert's id: a UUID or 128 bits in
// hexadecimal.
func GeneratedKey(id string) string { return generatedKeyPrefix + id }

// IsGeneratedKey says whether GeneratedKey made the dedup key. No alert but a resolve that quotes it has the
// same key, so its Incident hears of nothing more unless somebody resolves it.
func IsGeneratedKey(dedupKey string) bool {
	id, ok := strings.CutPrefix(dedupKey, generatedKeyPrefix)
	if !ok {
		return false
	}
	id = strings.ReplaceAll(id, "-", "")
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}
