package payload

import (
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// resolvedSynonyms resolve, with a warning. The list is short on purpose: a wrong resolve hides an outage,
// a missed one only leaves an incident open.
var resolvedSynonyms = []string{"ok", "recovered", "closed", "cleared", "up"}

// firingSynonyms are words that tools use for a problem that has begun or goes on. Any other word fires as
// well, but with a warning, since it might have been meant as something else.
var firingSynonyms = []string{
	"alerting", "triggered", "trigger", "problem", "active", "activated", "open", "opened", "new", "created",
	"down", "alarm", "alert", "failed", "failing", "failure", "critical", "error", "warning", "warn",
}

// readStatus reads what the alert reports. It never gives up on a text: what is not known fires.
func readStatus(n *normaliser, name string, value any, text string) bool {
	word := strings.ToLower(v1alpha1.SanitizeLine(text))
	switch {
	case word == string(v1alpha1.AlertFiring), slices.Contains(firingSynonyms, word):
		n.alert.Status = v1alpha1.AlertFiring
	case word == string(v1alpha1.AlertAcknowledged):
		n.alert.Status = v1alpha1.AlertAcknowledged
	case word == string(v1alpha1.AlertResolved):
		n.alert.Status = v1alpha1.AlertResolved
	case slices.Contains(resolvedSynonyms, word):
		n.alert.Status = v1alpha1.AlertResolved
		n.warnings.addf(name, "%s is read as resolved", quote(text))
	default:
		n.keep("status", name, value)
		n.warnings.addf(name, "%s is not a known status; the alert fires, and the word is kept in custom", quote(text))
	}
	return true
}
