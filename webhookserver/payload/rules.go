package payload

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// rule says how one field that holds text is read.
type rule struct {
	field origins.Field
	names []string // in a payload: the field's own, then aliases, of which the first with a usable value counts
	read  reader
	// fallback, if any, is called when the field was given but nothing was of use.
	fallback func(n *normaliser)
}

// reader takes the value, never blank, and its text into the alert. It returns false when the value is of no use, so that an
// alias gets its turn.
type reader func(n *normaliser, name string, value any, text string) bool

// rules are the fields that hold text, in the order in which they are read. status comes before ends_at,
// whose fallback looks at it.
var rules = []rule{
	{field: origins.Title, names: []string{"title", "subject"},
		read: oneLine(maxLine, func(a *v1alpha1.Alert) *string { return &a.Title })},
	{field: origins.Description, names: []string{"description", "message"},
		read: textOfField(maxDescription, plaintext.SanitizeText, func(a *v1alpha1.Alert) *string { return &a.Description })},
	{field: origins.Severity, names: []string{"severity", "priority"}, read: readSeverity},
	{field: origins.Type, names: []string{"type"}, read: oneLine(maxLine, func(a *v1alpha1.Alert) *string { return &a.Type })},
	{field: origins.Link, names: []string{"link"}, read: oneLine(maxLink, func(a *v1alpha1.Alert) *string { return &a.Link })},
	{field: origins.Hostname, names: []string{"hostname"},
		read: oneLine(maxLine, func(a *v1alpha1.Alert) *string { return &a.Hostname })},
	{field: origins.Region, names: []string{"region"}, read: oneLine(maxLine, func(a *v1alpha1.Alert) *string { return &a.Region })},
	{field: origins.Status, names: []string{"status"}, read: readStatus},
	{field: origins.DedupKey, names: []string{"dedup_key"}, read: readDedupKey},
	{field: origins.StartsAt, names: []string{"starts_at"}, fallback: startsWhenReceived,
		read: readTime(andReceiptCounts, func(a *v1alpha1.Alert) **v1alpha1.Timestamp { return &a.StartTime })},
	{field: origins.EndsAt, names: []string{"ends_at"}, fallback: endsWhenReceived,
		read: readTime(andReceiptCounts, func(a *v1alpha1.Alert) **v1alpha1.Timestamp { return &a.EndTime })},
	{field: origins.ExpiresAt, names: []string{"expires_at"},
		read: readTime("", func(a *v1alpha1.Alert) **v1alpha1.Timestamp { return &a.ExpiryTime })},
}

// listed are the top-level keys that a field is read from; every other one goes into the custom bag.
var listed = func() map[string]bool {
	names := map[string]bool{"labels": true, "annotations": true, "values": true, "custom": true}
	for _, r := range rules {
		for _, name := range r.names {
			names[name] = true
		}
	}
	return names
}()

// Names returns the keys of a payload that a field is read from: its own, then its aliases.
func Names(field string) []string {
	for _, r := range rules {
		if r.names[0] == field {
			return r.names
		}
	}
	return []string{field}
}

// oneLine reads a field that is printed on one line of at most limit characters.
func oneLine(limit int, place func(*v1alpha1.Alert) *string) reader {
	return textOfField(limit, plaintext.SanitizeLine, place)
}

// textOfField reads a field of at most limit characters. Nothing left of it is no use.
func textOfField(limit int, sanitize func(string) string, place func(*v1alpha1.Alert) *string) reader {
	return func(n *normaliser, name string, _ any, text string) bool {
		whole := sanitize(text)
		cut := plaintext.Shorten(whole, limit)
		if cut != whole {
			n.warnings.add(tooLong, name, limit)
		}
		*place(&n.alert) = cut
		return cut != ""
	}
}

// readDedupKey reads the key that ties the alerts of one incident together. Equal keys must stay equal and
// different ones different, so a key that is too long keeps the hash of the whole of it.
func readDedupKey(n *normaliser, name string, _ any, text string) bool {
	key := plaintext.SanitizeLine(text)
	if len(key) > maxDedupKeyBytes {
		sum := sha256.Sum256([]byte(key))
		key = CutBytes(key, dedupKeyPrefixBytes) + "-" + hex.EncodeToString(sum[:])
		n.warnings.add(keyTooLong, name, maxDedupKeyBytes)
	}
	n.alert.DedupKey = key
	return key != ""
}
