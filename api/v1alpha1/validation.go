package v1alpha1

import (
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"
)

// Limits of an alert's content in characters, equal to those of the schema.
const (
	MaxLineChars        = 1024 // of a title, type, hostname or region
	MaxLinkChars        = 2048
	MaxDescriptionChars = 16384
)

// Limits of an alert's other fields in characters, equal to those of the schema.
const (
	maxIDChars           = 64
	maxIncidentNameChars = 253
	maxDedupKeyChars     = 1024
	maxByChars           = 256
	maxCommentChars      = 1024
)

var namePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// validate checks an alert against the limits and rules of the schema, for packed alerts, which the API server cannot
// validate. Its errors quote nothing of the alert.
func (a *Alert) validate() error {
	for _, text := range []struct {
		field, value string
		max          int
	}{
		{"id", a.ID, maxIDChars},
		{"incidentName", a.IncidentName, maxIncidentNameChars},
		{"dedupKey", a.DedupKey, maxDedupKeyChars},
		{"by", a.By, maxByChars},
		{"comment", a.Comment, maxCommentChars},
		{"title", a.Title, MaxLineChars},
		{"description", a.Description, MaxDescriptionChars},
		{"type", a.Type, MaxLineChars},
		{"link", a.Link, MaxLinkChars},
		{"hostname", a.Hostname, MaxLineChars},
		{"region", a.Region, MaxLineChars},
	} {
		// A character has at least one byte, so most texts need no counting.
		if len(text.value) > text.max && utf8.RuneCountInString(text.value) > text.max {
			return fmt.Errorf("%s has more than %d characters", text.field, text.max)
		}
	}
	if a.IncidentName != "" && !namePattern.MatchString(a.IncidentName) {
		return errors.New("incidentName is not a name")
	}
	switch a.Status {
	case AlertFiring, AlertResolved, AlertAcknowledged:
	default:
		return errors.New("status is not firing, resolved or acknowledged")
	}
	switch a.Severity {
	case "", SeverityCritical, SeverityError, SeverityWarning, SeverityInfo:
	default:
		return errors.New("severity is not critical, error, warning or info")
	}
	switch {
	case a.IncidentName == "" && a.DedupKey == "":
		return errors.New("it needs incidentName or dedupKey")
	case a.Status == AlertFiring && a.DedupKey == "":
		return errors.New("it fires and needs dedupKey")
	}
	return nil
}
