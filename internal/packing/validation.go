package packing

import (
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
)

// Limits of an alert's other fields in characters, equal to those of the schema.
const (
	maxIDChars           = 64
	maxIncidentNameChars = 253
	maxDedupKeyChars     = 1024
	maxByChars           = 256
	maxPresetChars       = 64
)

var namePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// validate checks an alert against the limits and rules of the schema, for packed alerts, which the API server cannot
// validate. Its errors quote nothing of the alert.
func validate(a *v1alpha1.Alert) error {
	if err := validateTexts(a); err != nil {
		return err
	}
	if err := validateWords(a); err != nil {
		return err
	}
	switch {
	case a.IncidentName == "" && a.DedupKey == "":
		return errors.New("it needs incidentName or dedupKey")
	case a.Status == v1alpha1.AlertFiring && a.DedupKey == "":
		return errors.New("it fires and needs dedupKey")
	case a.Status == v1alpha1.AlertSilenced && a.SilenceFor == nil:
		return errors.New("it is silenced and needs silenceFor")
	case a.SilenceFor != nil && (a.SilenceFor.Duration < 0 || a.SilenceFor.Duration > v1alpha1.MaxSilence):
		return errors.New("silenceFor is not a duration from 0s to 720h")
	case max(len(a.Labels), len(a.Annotations)) > alertcontent.MaxKeys:
		return fmt.Errorf("labels or annotations have more than %d entries", alertcontent.MaxKeys)
	}
	return nil
}

func validateTexts(a *v1alpha1.Alert) error {
	for _, text := range []struct {
		field, value string
		max          int
	}{
		{"id", a.ID, maxIDChars},
		{"incidentName", a.IncidentName, maxIncidentNameChars},
		{"dedupKey", a.DedupKey, maxDedupKeyChars},
		{"by", a.By, maxByChars},
		{"comment", a.Comment, v1alpha1.MaxCommentChars},
		{"title", a.Title, v1alpha1.MaxLineChars},
		{"description", a.Description, v1alpha1.MaxDescriptionChars},
		{"type", a.Type, v1alpha1.MaxLineChars},
		{"link", a.Link, v1alpha1.MaxLinkChars},
		{"hostname", a.Hostname, v1alpha1.MaxLineChars},
		{"region", a.Region, v1alpha1.MaxLineChars},
		{"preset", a.Preset, maxPresetChars},
	} {
		// A character has at least one byte, so most texts need no counting.
		if len(text.value) > text.max && utf8.RuneCountInString(text.value) > text.max {
			return fmt.Errorf("%s has more than %d characters", text.field, text.max)
		}
	}
	if a.IncidentName != "" && !namePattern.MatchString(a.IncidentName) {
		return errors.New("incidentName is not a name")
	}
	return nil
}

func validateWords(a *v1alpha1.Alert) error {
	switch a.Status {
	case v1alpha1.AlertFiring, v1alpha1.AlertResolved, v1alpha1.AlertAcknowledged, v1alpha1.AlertUnacknowledged,
		v1alpha1.AlertNoted, v1alpha1.AlertSilenced:
	default:
		return errors.New("unknown status")
	}
	switch a.Severity {
	case "", v1alpha1.SeverityCritical, v1alpha1.SeverityError, v1alpha1.SeverityWarning, v1alpha1.SeverityInfo:
	default:
		return errors.New("severity is not critical, error, warning or info")
	}
	return nil
}
