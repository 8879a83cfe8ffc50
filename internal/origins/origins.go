// Package origins says where the fields of an alert come from: which of them a mapping, a preset or a key of the payload gave.
//
// The text of that is stored with every alert, so it is short: parts between slashes, which docs/spec/v1alpha1/alertevent.md
// describes. It has no values of a payload, and of its keys only those that are other spellings of a field's name. The webhook
// server writes it, the fold merges it as it merges the fields, and package mapping explains it.
package origins

import (
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Field is a field of an alert. Its place is part of the text, so a new one comes at the end.
type Field int

// The fields, in the order in which they are shown.
const (
	Title Field = iota
	Description
	Severity
	Status
	DedupKey
	Type
	Link
	Hostname
	Region
	StartsAt
	EndsAt
	ExpiresAt
	Labels
	Annotations
	Values
	Custom

	Whole // no field: the alert as a whole, in a warning
)

// Count is the number of fields.
const Count = int(Whole)

var names = [Count]string{
	"title", "description", "severity", "status", "dedup_key", "type", "link", "hostname", "region", "starts_at", "ends_at",
	"expires_at", "labels", "annotations", "values", "custom",
}

// String returns the field's name in a payload; it is empty for Whole.
func (f Field) String() string {
	if f < 0 || f >= Whole {
		return ""
	}
	return names[f]
}

// IsBag reports whether the field holds an object, not a text.
func (f Field) IsBag() bool { return Labels <= f && f <= Custom }

// Kind is what gave a field. It is its letter in the text, in upper case if an earlier alert of the episode gave the field.
type Kind byte

// The kinds.
const (
	Absent Kind = 0 // a hyphen in the text; cmp.Or passes over it

	Key            Kind = 'k' // the payload's key of the field's own name
	Alias          Kind = 'a' // that of its other name, such as subject
	OtherName      Kind = 'n' // a key that stands for its name, such as Summary
	Mapping        Kind = 'm' // an expression of the integration's mapping
	Preset         Kind = 'p' // an expression of the preset
	PresetSeverity Kind = 's' // the preset's severity, for the alerts of a tool that has none
	Failed         Kind = 'f' // the expression of status failed, so the alert fires
	Request        Kind = 'r' // the request around the payload: its address, parameters or headers
	Unmapped       Kind = 'u' // the keys that became no other field
	Generated      Kind = 'g' // generated, or the time of receipt
	Default        Kind = 'd' // the integration's default
	BuiltIn        Kind = 'b' // the operator's default
	FirstLine      Kind = 'l' // the first line of the description
)

// isDefault reports whether a field of the kind came from no alert, but from what all alerts lack.
func (k Kind) isDefault() bool { return k == Default || k == BuiltIn || k == FirstLine }

func (k Kind) isOfPreset() bool { return k == Preset || k == PresetSeverity }

// Bounds of the text.
const (
	MaxBytes = v1alpha1.MaxOriginsChars

	maxDigest   = 8  // bytes of a digest
	maxKey      = 24 // bytes of a key
	maxWarnings = 8
)

// Origins says where the fields of an alert, or of the content that alerts were folded into, come from.
type Origins struct {
	Mapping, Preset string // digests of what had the expressions; empty if nothing had any
	Kinds           [Count]Kind
	Earlier         [Count]bool   // an earlier alert gave the field, and the newest one did not
	Keys            [Count]string // those of OtherName; empty if they are not known
	Warnings        []Warning     // each once
}

// Warning is something that was not taken as sent, without any text of the sender.
type Warning struct {
	Field  Field
	Reason byte // see payload.Reason
}

// Warn adds a warning. What is beyond the bound is left out.
func (o *Origins) Warn(field Field, reason byte) {
	if w := (Warning{field, reason}); len(o.Warnings) < maxWarnings && !slices.Contains(o.Warnings, w) {
		o.Warnings = append(o.Warnings, w)
	}
}

const (
	separator  = "/"
	firstField = 'A' // stands for Title in warnings and keys, B for Description
	absent     = '-'
)

// String returns the text, which is never empty. Keys that would exceed MaxBytes are left out.
func (o *Origins) String() string {
	text := make([]byte, 0, MaxBytes)
	text = append(append(text, o.Mapping...), separator...)
	text = append(append(text, o.Preset...), separator...)
	last := len(text)
	for f, kind := range o.Kinds {
		letter := byte(kind)
		switch {
		case kind == Absent:
			letter = absent
		case o.Earlier[f]:
			letter -= 'a' - 'A'
		}
		if text = append(text, letter); kind != Absent {
			last = len(text)
		}
	}
	text = text[:last]
	if len(o.Warnings) == 0 && o.Keys == [Count]string{} {
		return string(text)
	}
	text = append(text, separator...)
	for _, w := range o.Warnings {
		text = append(text, firstField+byte(w.Field), w.Reason)
	}
	for f, key := range o.Keys {
		if key != "" && len(text)+len(separator)+1+len(key) <= MaxBytes {
			text = append(append(append(text, separator...), firstField+byte(f)), key...)
		}
	}
	return string(text)
}

// Parse reads a text. known is false if it says nothing: it is empty, or not such a text. Users write AlertEvents, and other
// versions of the operator may know more fields, kinds and reasons; what it does not know is left out.
func Parse(text string) (o Origins, known bool) {
	mapping, rest, _ := strings.Cut(text, separator)
	preset, rest, found := strings.Cut(rest, separator)
	kinds, rest, _ := strings.Cut(rest, separator)
	warnings, keys, _ := strings.Cut(rest, separator)
	if len(text) > MaxBytes || !found || !isDigest(mapping) || !isDigest(preset) || !o.readKinds(kinds) {
		return Origins{}, false
	}
	o.Mapping, o.Preset = mapping, preset
	for ; len(warnings) >= 2; warnings = warnings[2:] {
		if field, ok := fieldOf(warnings[0]); ok && isWord(rune(warnings[1])) {
			o.Warn(field, warnings[1])
		}
	}
	for key := range strings.SplitSeq(keys, separator) {
		o.readKey(key)
	}
	return o, true
}

// readKinds reads a letter for each field. It returns false if there is something else.
func (o *Origins) readKinds(letters string) bool {
	for f, letter := range []byte(letters) {
		kind := letter | 0x20 // in lower case
		switch {
		case letter == absent:
		case kind < 'a' || kind > 'z':
			return false
		case f < Count:
			o.Kinds[f], o.Earlier[f] = Kind(kind), letter != kind
		}
	}
	return true
}

// readKey reads a letter for a field, and the key that was read as this field.
func (o *Origins) readKey(text string) {
	if len(text) < 2 || len(text) > 1+maxKey {
		return
	}
	field, ok := fieldOf(text[0])
	isEscaped := func(r rune) bool { return r < ' ' || strings.ContainsRune("\"\\<>&\u2028\u2029", r) } // and longer as JSON
	if ok && field < Whole && o.Kinds[field] == OtherName && o.Keys[field] == "" && !strings.ContainsFunc(text, isEscaped) {
		o.Keys[field] = text[1:]
	}
}

func fieldOf(letter byte) (field Field, ok bool) {
	field = Field(letter) - firstField
	return field, 0 <= field && field <= Whole
}

func isDigest(text string) bool {
	return len(text) <= maxDigest && !strings.ContainsFunc(text, func(r rune) bool { return !isWord(r) })
}

func isWord(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}
