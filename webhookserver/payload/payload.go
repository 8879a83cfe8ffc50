// Package payload reads what monitoring tools send: it decodes the body of a webhook request into a JSON
// object and normalises the object into an alert.
//
// It is pure: bytes in, values out, with no client, no context, no network and no clock of its own. docs/payload.md describes
// its rules for users; the variable rules lists them, one for each field.
//
// Guarantees:
//   - Nothing that decodes as a JSON object is rejected. What cannot be used as sent is kept in the custom bag, with a warning.
//   - The API server accepts what it returns, and gives it back byte for byte: strings are within the bounds of the resource,
//     numbers and strings in the bags are spelt as the API server spells them.
//   - What gets printed by kubectl (the strings, not the bags) holds no control characters.
//   - The same object and time always give the same alert and warnings.
package payload

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

type normaliser struct {
	object   map[string]any
	received time.Time
	alert    v1alpha1.Alert
	encoder  encoder
	buffer   []byte // of the encoder
	bagBytes int    // at least what the encoded entries of the bags take
	kept     []kept
	// guessedStart is true when the alert's StartTime is the time of receipt.
	guessedStart bool
	keys         Keys
	warnings     warnings
}

// Keys are the keys of a payload that the fields were read from; empty for a field that was read from none.
type Keys [origins.Count]string

type kept struct {
	name  string // in the bag
	from  string // in the payload
	value any
}

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

// Read reads a payload, as ParseAny gives it, as an alert, and returns from which keys it read the fields. received is when the
// request came in, for times that cannot be read. What the payload does not say stays empty: defaults, ID, IncidentName and an
// absent DedupKey are left to the caller. The object is not changed and shares no memory with the alert.
func Read(object map[string]any, received time.Time) (v1alpha1.Alert, Keys, []Warning) {
	n := &normaliser{object: object, received: received, kept: make([]kept, 0, len(object))}
	n.alert.Status = v1alpha1.AlertFiring
	for i := range rules {
		n.apply(&rules[i])
	}
	n.settleTimes()
	n.alert.Labels, n.alert.Annotations = n.textsOf(origins.Labels), n.textsOf(origins.Annotations)
	if object := n.objectOf(origins.Values); len(object) > 0 {
		n.alert.Values = n.bagOf("values", object)
	}
	n.alert.Custom = n.custom()
	if n.alert.DedupKey == "" && n.alert.Status != v1alpha1.AlertFiring {
		n.warnings.add(NoMatch, "dedup_key", n.alert.Status)
	}
	n.trim()
	return n.alert, n.keys, n.warnings.list()
}

// apply reads one field from the first of its names that holds a usable value, the canonical one first.
func (n *normaliser) apply(r *rule) {
	given, winner := false, ""
	for _, name := range r.names {
		value := n.object[name]
		text, scalar := TextOf(value)
		switch {
		case value == nil:
		case !scalar:
			given = true
			n.keep(r.names[0], name, value)
			n.warnings.add(notText, name, r.names[0])
		case isBlank(text):
		case winner != "": // kept, unless it says the same
			if used, _ := TextOf(n.object[winner]); used != text {
				n.keep(name, name, value)
				n.warnings.add(givenTwice, name, winner)
			}
		default:
			given = true
			if r.read(n, name, value, text) {
				winner = name
			}
		}
	}
	n.keys[r.field] = winner
	if given && winner == "" && r.fallback != nil {
		r.fallback(n)
	}
}

func (n *normaliser) keep(name, from string, value any) {
	n.kept = append(n.kept, kept{name: name, from: from, value: value})
}

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

var fieldOfKey = func() map[string]origins.Field {
	keys := map[string]origins.Field{}
	for bag := origins.Labels; bag.IsBag(); bag++ {
		keys[bag.String()] = bag
	}
	for _, r := range rules {
		for _, name := range r.names {
			keys[name] = r.field
		}
	}
	return keys
}()

// KeyField returns the field that is read from a top-level key. listed is false for keys that go into the custom bag.
func KeyField(key string) (field origins.Field, listed bool) {
	field, listed = fieldOfKey[key]
	return field, listed
}

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

// severityWords are the words for each severity, in lower case and without spaces, hyphens and
// underscores. They come from syslog (RFC 5424), Zabbix, PagerDuty, Opsgenie, New Relic, Datadog and
// common incident scales. Bare digits are left out: 1 is the best on some scales and the worst on others.
var severityWords = map[v1alpha1.Severity][]string{
	v1alpha1.SeverityCritical: {
		"critical", "crit", "fatal", "disaster", "emergency", "emerg", "panic", "alert", "severe", "urgent",
		"p0", "p1", "sev0", "sev1",
	},
	v1alpha1.SeverityError:   {"error", "err", "high", "major", "failure", "p2", "sev2"},
	v1alpha1.SeverityWarning: {"warning", "warn", "medium", "moderate", "average", "minor", "p3", "sev3"},
	v1alpha1.SeverityInfo: {
		"info", "information", "informational", "notice", "low", "debug", "notclassified", "p4", "p5", "sev4", "sev5",
	},
}

// readSeverity reads how bad the alert is. A severity that is not known counts as absent, never as a reason
// to reject: the alert matters more than its rank.
func readSeverity(n *normaliser, name string, value any, text string) bool {
	if severity := severityOf(text); severity != "" {
		n.alert.Severity = severity
		return true
	}
	n.keep("severity", name, value)
	n.warnings.add(unknownSeverity, name, quote(text))
	return false
}

// severityOf returns the severity that a word means; empty if it means none.
func severityOf(text string) v1alpha1.Severity {
	word := squeeze(text)
	for severity, words := range severityWords {
		if slices.Contains(words, word) {
			return severity
		}
	}
	return ""
}

// squeeze makes the spellings of a word equal: "Not classified", "not_classified", "SEV-1".
func squeeze(word string) string {
	return separators.Replace(strings.ToLower(plaintext.SanitizeLine(word)))
}

var separators = strings.NewReplacer(" ", "", "-", "", "_", "")

// resolvedSynonyms resolve, with a warning. They are words that mean nothing else: a wrong resolve hides an outage, a missed one
// only leaves an incident open.
var resolvedSynonyms = []string{
	"ok", "recovered", "closed", "cleared", "up", "recovery", "resolve", "close", "clear", "normal", "inactive", "ended",
}

// firingSynonyms are words that tools use for a problem that has begun or goes on. Any other word fires as
// well, but with a warning, since it might have been meant as something else.
var firingSynonyms = []string{
	"alerting", "triggered", "trigger", "problem", "active", "activated", "open", "opened", "new", "created",
	"down", "alarm", "alert", "failed", "failing", "failure", "critical", "error", "warning", "warn",
}

// unacknowledge withdraws an acknowledgement. Unlike unacknowledged, it tells what to do and describes no alert.
const unacknowledge = "unacknowledge"

// readStatus reads what the alert reports. It never gives up on a text: what is not known fires.
func readStatus(n *normaliser, name string, value any, text string) bool {
	word := strings.ToLower(plaintext.SanitizeLine(text))
	n.alert.Status = v1alpha1.AlertFiring
	switch {
	case word == string(v1alpha1.AlertFiring), slices.Contains(firingSynonyms, word):
	case word == string(v1alpha1.AlertAcknowledged), word == string(v1alpha1.AlertResolved):
		n.alert.Status = v1alpha1.AlertStatus(word)
	case word == unacknowledge:
		n.alert.Status = v1alpha1.AlertUnacknowledged
	case slices.Contains(resolvedSynonyms, word):
		n.alert.Status = v1alpha1.AlertResolved
		n.warnings.add(readAsResolved, name, quote(text))
	default:
		n.keep("status", name, value)
		n.warnings.add(unknownStatus, name, quote(text))
	}
	return true
}
