// Package packing packs the alerts of an AlertEvent into one text, which costs the API server a fraction, and unpacks them.
package packing

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
)

// Bounds of unpacked alerts: of their JSON, and of the memory that they take with entryBytes for each entry of a bag beside its
// text. Without them, a few small objects made by hand would fill the memory of every replica.
const (
	maxUnpackedBytes  = 4 << 20
	maxUnpackedMemory = 8 << 20
	entryBytes        = 90
)

// Limits of an alert's other fields in characters, equal to those of the schema.
const (
	maxIDChars       = 64
	maxDedupKeyChars = 1024
	maxByChars       = 256
	maxPresetChars   = 64
)

var statuses = []v1alpha1.AlertStatus{
	v1alpha1.AlertFiring, v1alpha1.AlertResolved, v1alpha1.AlertAcknowledged, v1alpha1.AlertUnacknowledged,
	v1alpha1.AlertNoted, v1alpha1.AlertSilenced,
}

// packers pools compressors, which are large.
var packers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// Pack compresses the alerts of s, at least one, into packedAlerts. It returns an error and changes nothing if an alert
// violates the schema, which the API server does not check in packed alerts.
func Pack(s *v1alpha1.AlertEventSpec) error {
	for i := range s.Alerts {
		if err := validate(&s.Alerts[i]); err != nil {
			return fmt.Errorf("alert %d: %w", i, err)
		}
	}
	encoded, err := json.Marshal(s.Alerts)
	if err != nil {
		return fmt.Errorf("encoding the alerts: %w", err)
	}
	if err := checkMemory(encoded); err != nil {
		return err
	}
	var packed strings.Builder
	text := base64.NewEncoder(base64.StdEncoding, &packed)
	w, _ := packers.Get().(*gzip.Writer)
	defer packers.Put(w)
	w.Reset(text)
	_, err = w.Write(encoded)
	if err := errors.Join(err, w.Close(), text.Close()); err != nil {
		return fmt.Errorf("compressing the alerts: %w", err)
	}
	s.PackedFirst = []v1alpha1.PackedAlert{{IncidentName: s.Alerts[0].IncidentName, Status: s.Alerts[0].Status}}
	s.Alerts, s.PackedAlerts = nil, packed.String()
	return nil
}

// Unpack replaces packedAlerts of s by the alerts. If that fails, it returns the reason and changes nothing. It bounds the keys
// of the alerts, whoever made them.
func Unpack(s *v1alpha1.AlertEventSpec) error {
	if len(s.Alerts) == 0 {
		alerts, err := unpack(s.PackedAlerts)
		if err != nil {
			return fmt.Errorf("packedAlerts: %w", err)
		}
		s.Alerts, s.PackedAlerts, s.PackedFirst = alerts, "", nil
	}
	for i := range s.Alerts {
		alertcontent.LimitKeys(&s.Alerts[i].AlertContent)
	}
	return nil
}

func unpack(packed string) (alerts []v1alpha1.Alert, err error) {
	if packed == "" {
		return nil, errors.New("missing")
	}
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	if err != nil {
		return nil, err
	}
	encoded, err := io.ReadAll(io.LimitReader(r, maxUnpackedBytes+1))
	if err != nil {
		return nil, err
	}
	if err := checkMemory(encoded); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(encoded, &alerts); err != nil {
		// The decoder's error may quote a value.
		return nil, errors.New("not a JSON array of alerts")
	}
	if n := len(alerts); n == 0 || n > v1alpha1.MaxAlertsPerEvent {
		return nil, fmt.Errorf("%d alerts, not 1 to %d", n, v1alpha1.MaxAlertsPerEvent)
	}
	for i := range alerts {
		if err := validate(&alerts[i]); err != nil {
			return nil, fmt.Errorf("alert %d: %w", i, err)
		}
	}
	return alerts, nil
}

// checkMemory returns an error if the JSON of alerts is too long, or takes too much memory when it is decoded. It counts the
// fields of alerts and the entries of their bags; what these hold is not decoded.
func checkMemory(encoded []byte) error {
	if len(encoded) > maxUnpackedBytes {
		return fmt.Errorf("the alerts have more than %d bytes when unpacked", maxUnpackedBytes)
	}
	const entryDepth = 3 // the list, an alert, a bag
	memory, depth, quoted := len(encoded), 0, false
	for i := 0; i < len(encoded); i++ {
		switch c := encoded[i]; {
		case quoted:
			if c == '\\' {
				i++
			}
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ':' && depth <= entryDepth:
			memory += entryBytes
		case c == ',' && depth == 1:
			memory += int(unsafe.Sizeof(v1alpha1.Alert{})) // of the next one, whatever it is
		}
	}
	if memory > maxUnpackedMemory {
		return fmt.Errorf("the alerts take more than %d bytes of memory when unpacked", maxUnpackedMemory)
	}
	return nil
}

// Size returns the size in bytes of the alerts as the API server stores them when they are not packed, never less.
func Size(alerts []v1alpha1.Alert) int {
	const overhead = 1 << 9 // id, incidentName and status with their field names
	size := 0
	for i := range alerts {
		alert := &alerts[i]
		size += overhead + 6*(len(alert.DedupKey)+len(alert.By)+len(alert.Comment)) + alertcontent.Size(&alert.AlertContent)
	}
	return size
}

// Memory returns about how many bytes the alerts and the defaults take when they are decoded.
func Memory(spec *v1alpha1.AlertEventSpec) int64 {
	bytes := Identity(spec.Alerts)
	for i := range spec.Alerts {
		content := &spec.Alerts[i].AlertContent
		bytes += int64(len(spec.Alerts[i].Comment) + alertcontent.Size(content) + entryBytes*alertcontent.Keys(content))
	}
	if spec.Defaults != nil {
		bytes += int64(len(spec.Defaults.Type) + len(spec.Defaults.Title))
		for name, value := range spec.Defaults.Labels {
			bytes += int64(len(name) + len(value) + entryBytes)
		}
	}
	return bytes
}

// Identity returns about how many bytes of Memory the alerts take without their content.
func Identity(alerts []v1alpha1.Alert) int64 {
	bytes := 0
	for i := range alerts {
		alert := &alerts[i]
		bytes += int(unsafe.Sizeof(*alert)) + len(alert.ID) + len(alert.IncidentName) + len(alert.DedupKey) + len(alert.By)
	}
	return int64(bytes)
}

// validate checks an alert against the limits and rules of the schema, for packed alerts, which the API server cannot
// validate. Its errors quote nothing of the alert.
func validate(a *v1alpha1.Alert) error {
	if err := validateTexts(a); err != nil {
		return err
	}
	switch {
	case !slices.Contains(statuses, a.Status):
		return errors.New("unknown status")
	case a.Severity != "" && !slices.Contains(v1alpha1.Severities(), a.Severity):
		return errors.New("severity is not critical, error, warning or info")
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
		{"incidentName", a.IncidentName, validation.DNS1123SubdomainMaxLength},
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
	if a.IncidentName != "" && len(validation.IsDNS1123Subdomain(a.IncidentName)) > 0 {
		return errors.New("incidentName is not a name")
	}
	return nil
}
