package payload

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// rule says how one field that holds text is read.
type rule struct {
	field   string   // its name in a payload
	aliases []string // names used in this order when field has no usable value
	// read takes the value, never blank, and its text into the alert. It returns false when the value is
	// of no use, so that an alias gets its turn.
	read func(n *normaliser, name string, value any, text string) bool
	// fallback, if any, is called when the field was given but nothing was of use.
	fallback func(n *normaliser)
}

// rules are the fields that hold text, in the order in which they are read. status comes before ends_at,
// whose fallback looks at it.
var rules = []rule{
	{field: "title", aliases: []string{"subject"}, read: oneLine(maxLine, func(a *v1alpha1.Alert) *string { return &a.Title })},
	{field: "description", aliases: []string{"message"}, read: readDescription},
	{field: "severity", aliases: []string{"priority"}, read: readSeverity},
	{field: "type", read: oneLine(maxLine, func(a *v1alpha1.Alert) *string { return &a.Type })},
	{field: "link", read: oneLine(maxLink, func(a *v1alpha1.Alert) *string { return &a.Link })},
	{field: "hostname", read: oneLine(maxLine, func(a *v1alpha1.Alert) *string { return &a.Hostname })},
	{field: "region", read: oneLine(maxLine, func(a *v1alpha1.Alert) *string { return &a.Region })},
	{field: "status", read: readStatus},
	{field: "dedup_key", read: readDedupKey},
	{field: "starts_at", read: readStartsAt, fallback: startsWhenReceived},
	{field: "ends_at", read: readEndsAt, fallback: endsWhenReceived},
	{field: "lease_ends_at", read: readLeaseEndsAt},
}

// bagFields are the fields that hold an object. The fourth bag, custom, takes everything else: see custom.
var bagFields = []string{"labels", "annotations", "values"}

// listed are the top-level keys that have a rule; every other one goes into the custom bag.
var listed = func() map[string]bool {
	names := map[string]bool{customField: true}
	for _, r := range rules {
		names[r.field] = true
		for _, alias := range r.aliases {
			names[alias] = true
		}
	}
	for _, field := range bagFields {
		names[field] = true
	}
	return names
}()

// oneLine reads a field that is printed on one line of at most limit characters.
func oneLine(limit int, place func(*v1alpha1.Alert) *string) func(*normaliser, string, any, string) bool {
	return func(n *normaliser, name string, _ any, text string) bool {
		return n.store(place(&n.alert), name, v1alpha1.SanitizeLine(text), limit)
	}
}

// readDescription reads the one text that may have several lines.
func readDescription(n *normaliser, name string, _ any, text string) bool {
	return n.store(&n.alert.Description, name, v1alpha1.SanitizeText(text), maxDescription)
}

// store puts a sanitised text in its place, cut to limit characters. Nothing left of it is no use.
func (n *normaliser) store(place *string, name, text string, limit int) bool {
	if text == "" {
		return false
	}
	short, cut := shorten(text, limit)
	if cut {
		n.warnings.addf(name, "it is longer than %d characters and was cut", limit)
	}
	*place = short
	return true
}

// readDedupKey reads the key that ties the alerts of one incident together. Equal keys must stay equal and
// different ones different, so a key that is too long keeps the hash of the whole of it.
func readDedupKey(n *normaliser, name string, _ any, text string) bool {
	key := v1alpha1.SanitizeLine(text)
	if len(key) > maxDedupKeyBytes {
		sum := sha256.Sum256([]byte(key))
		key = CutBytes(key, dedupKeyPrefixBytes) + "-" + hex.EncodeToString(sum[:])
		n.warnings.addf(name, "it is longer than %d bytes and was shortened; the response gives the key in use", maxDedupKeyBytes)
	}
	n.alert.DedupKey = key
	return key != ""
}
