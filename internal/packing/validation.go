package packing

import (
	"errors"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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
	switch a.Status {
	case v1alpha1.AlertFiring, v1alpha1.AlertResolved, v1alpha1.AlertAcknowledged, v1alpha1.AlertUnacknowledged, v1alpha1.AlertNoted, v1alpha1.AlertSilenced:
	default:
		return errors.New("unknown status")
	}
	if _, err := SilenceDuration(a); err != nil {
		return err
	}
	switch a.Severity {
	case "", v1alpha1.SeverityCritical, v1alpha1.SeverityError, v1alpha1.SeverityWarning, v1alpha1.SeverityInfo:
	default:
		return errors.New("severity is not critical, error, warning or info")
	}
	switch {
	case a.IncidentName == "" && a.DedupKey == "":
		return errors.New("it needs incidentName or dedupKey")
	case a.Status == v1alpha1.AlertFiring && a.DedupKey == "":
		return errors.New("it fires and needs dedupKey")
	case a.Status == v1alpha1.AlertSilenced && a.SilenceFor == "":
		return errors.New("it is silenced and needs silenceFor")
	}
	return nil
}

// SilenceDuration returns silenceFor; zero without it. It is a string in the resource, because an AlertEvent is immutable
// and a client that decodes 2h as a duration encodes it as 2h0m0s.
func SilenceDuration(a *v1alpha1.Alert) (time.Duration, error) {
	if a.SilenceFor == "" {
		return 0, nil
	}
	silence, err := time.ParseDuration(a.SilenceFor)
	if err != nil || silence < 0 || silence > v1alpha1.MaxSilence {
		return 0, errors.New("silenceFor is not a duration from 0s to 720h")
	}
	return silence, nil
}
