package v1alpha1

import (
	"errors"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"
)

// Limits of an alert's content in characters, equal to those of the schema.
const (
	MaxLineChars        = 1024 // of a title, type, hostname or region
	MaxLinkChars        = 2048
	MaxDescriptionChars = 16384
	MaxCommentChars     = 1024
)

// Limits of an alert's other fields in characters, equal to those of the schema.
const (
	maxIDChars           = 64
	maxIncidentNameChars = 253
	maxDedupKeyChars     = 1024
	maxByChars           = 256
	maxPresetChars       = 64
)

// MaxSilence is the longest silence that an alert may request, equal to that of the schema.
const MaxSilence = 720 * time.Hour

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
		{"comment", a.Comment, MaxCommentChars},
		{"title", a.Title, MaxLineChars},
		{"description", a.Description, MaxDescriptionChars},
		{"type", a.Type, MaxLineChars},
		{"link", a.Link, MaxLinkChars},
		{"hostname", a.Hostname, MaxLineChars},
		{"region", a.Region, MaxLineChars},
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
	case AlertFiring, AlertResolved, AlertAcknowledged, AlertUnacknowledged, AlertNoted, AlertSilenced:
	default:
		return errors.New("unknown status")
	}
	if _, err := a.SilenceDuration(); err != nil {
		return err
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
	case a.Status == AlertSilenced && a.SilenceFor == "":
		return errors.New("it is silenced and needs silenceFor")
	}
	return nil
}

// SilenceDuration returns silenceFor; zero without it. It is a string in the resource, because an AlertEvent is immutable
// and a client that decodes 2h as a duration encodes it as 2h0m0s.
func (a *Alert) SilenceDuration() (time.Duration, error) {
	if a.SilenceFor == "" {
		return 0, nil
	}
	silence, err := time.ParseDuration(a.SilenceFor)
	if err != nil || silence < 0 || silence > MaxSilence {
		return 0, errors.New("silenceFor is not a duration from 0s to 720h")
	}
	return silence, nil
}
