package payload

import (
	"fmt"
	"regexp"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Reason is why something was not taken as sent. It is stored with the alert in place of the warning, whose detail may quote the
// sender, so a reason never changes its letter.
type Reason byte

// The reasons of this package.
const (
	notText         Reason = 't'
	givenTwice      Reason = '2'
	tooLong         Reason = 'l'
	keyTooLong      Reason = 'h'
	unknownSeverity Reason = 's'
	readAsResolved  Reason = 'r'
	unknownStatus   Reason = 'w'
	unreadableTime  Reason = 'z'
	startsAhead     Reason = 'a'
	endsBeforeStart Reason = 'e'
	notObject       Reason = 'o'
	nameTaken       Reason = 'c'
	inexactNumber   Reason = 'n'
	inexactNumbers  Reason = 'N'
	tooManyKeys     Reason = 'k'
	tooLarge        Reason = 'b'
	maybeMeant      Reason = 'y'
	NoMatch         Reason = 'm' // the alert has no effect, because it has no dedup_key
)

// The reasons of package mapping.
const (
	ExpressionFailed Reason = 'f'
	StatusFailed     Reason = 'F'
	DropFailed       Reason = 'd'
	CustomIsNoMap    Reason = 'C'
	AlertsTooLarge   Reason = 'B'
	TextsCut         Reason = 'T'
	PresetUnknown    Reason = 'P'
	MappingBroken    Reason = 'M'
	AlertsNotFound   Reason = 'A'
	AlertsNoList     Reason = 'L'
	SeveralPresets   Reason = 'R'
	AroundTooLarge   Reason = 'S'
)

var details = map[Reason]string{
	notText:         "it is not a string; it is kept in custom as %s",
	givenTwice:      "%s is given too and used; this is kept in custom",
	tooLong:         "it is longer than %d characters and was cut",
	keyTooLong:      "it is longer than %d bytes and was shortened; the response gives the key in use",
	unknownSeverity: "%s is not a known severity; it is kept in custom",
	readAsResolved:  "%s is read as resolved",
	unknownStatus:   "%s is not a known status; the alert fires, and the word is kept in custom",
	unreadableTime:  "%s cannot be read as a time with its zone; it is kept in custom%s",
	startsAhead: "it is %s ahead: check the clock and the time zone of the sender, since a resolve with an earlier time may be " +
		"ignored",
	endsBeforeStart: "it is before starts_at and was dropped",
	notObject:       "it is not an object; it is kept in custom",
	nameTaken:       "custom has %s already; this value is kept there as %s",
	inexactNumber:   "the number %s cannot be stored exactly; it is kept as a string",
	inexactNumbers:  "%d numbers in it cannot be stored exactly; they are kept as strings",
	tooManyKeys: "labels, annotations, values and custom have more than %d keys together; this object is kept as text in " +
		"%s.%s",
	tooLarge:   "the alert is larger than %d bytes as stored; dropped: %s",
	maybeMeant: "it is kept in custom; did you mean %s?",
	NoMatch:    "an alert that is %s matches no incident without it",

	ExpressionFailed: "the mapping's expression failed (%s); the field is read by the payload rules",
	StatusFailed:     "the mapping's expression failed (%s); the alert counts as firing",
	DropFailed:       "the mapping could not tell whether to drop the alert (%s); it is kept",
	CustomIsNoMap:    "the mapping gives no map for it; what it gives is kept in it as %s",
	AlertsTooLarge:   "the alerts of the payload are larger than %d bytes as stored; dropped from this one: %s",
	TextsCut:         "the alerts of the payload are larger than %d bytes as stored; the texts of this one were cut",
	PresetUnknown:    "this version has no preset of the name that the integration gives; the payload is read without it",
	MappingBroken:    "the mapping of the integration does not compile; the payload is read without it",
	AlertsNotFound:   "the mapping could not find the alerts (%s); the payload itself is read as one",
	AlertsNoList:     "the mapping found no list of alerts; the payload itself is read as one",
	SeveralPresets:   "more than one preset recognizes the payload (%s); it is read by the payload rules",
	AroundTooLarge:   "what the payload says beside its alerts is large; it is kept in custom of the first alert only",
}

// Warn returns the warning about a field, whose name may be of the sender's making.
func (r Reason) Warn(field string, args ...any) Warning {
	return Warning{
		Field: plaintext.Shorten(plaintext.SanitizeLine(field), maxQuoted), Detail: fmt.Sprintf(details[r], args...), Reason: r,
	}
}

var verb = regexp.MustCompile(`%[sd](\.%[sd])?`)

// General returns the warning about a field without what a sender wrote.
func (r Reason) General(field string) Warning {
	detail, known := details[r]
	if !known {
		detail = "another version of Tocsin warned of it"
	}
	return Warning{Field: field, Detail: verb.ReplaceAllString(detail, "…"), Reason: r}
}
