package payload

import (
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

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
