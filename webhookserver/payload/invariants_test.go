package payload_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// violation is the first thing in an alert that must never be, whatever the payload; nil if there is none.
func violation(alert *v1alpha1.Alert, warnings []payload.Warning) error {
	for _, check := range []func(*v1alpha1.Alert) error{
		textViolation, enumViolation, timeViolation, bagViolation, sizeViolation,
	} {
		if err := check(alert); err != nil {
			return err
		}
	}
	if len(warnings) > 32 {
		return fmt.Errorf("%d warnings", len(warnings))
	}
	for _, w := range warnings {
		if w.Detail == "" || len(w.Field) > 500 || len(w.Detail) > 5_000 || !isPrintable(w.Field, "") || !isPrintable(w.Detail, "") {
			return fmt.Errorf("warning %q", w)
		}
	}
	return nil
}

// textViolation looks for texts beyond their bounds or not fit to be printed.
func textViolation(alert *v1alpha1.Alert) error {
	for _, text := range []struct {
		name, value string
		limit       int
		allowed     string
	}{
		{"title", alert.Title, 1024, ""},
		{"description", alert.Description, 16384, "\n\t"},
		{"type", alert.Type, 1024, ""},
		{"link", alert.Link, 2048, ""},
		{"hostname", alert.Hostname, 1024, ""},
		{"region", alert.Region, 1024, ""},
		{"dedupKey", alert.DedupKey, 1024, ""},
	} {
		switch {
		case utf8.RuneCountInString(text.value) > text.limit:
			return fmt.Errorf("%s is too long", text.name)
		case !isPrintable(text.value, text.allowed):
			return fmt.Errorf("%s is not printable: %q", text.name, text.value)
		case strings.TrimSpace(text.value) != text.value:
			return fmt.Errorf("%s has spaces around it: %q", text.name, text.value)
		}
	}
	if len(alert.DedupKey) > 1024 {
		return fmt.Errorf("dedupKey has %d bytes", len(alert.DedupKey))
	}
	return nil
}

// isPrintable reports whether s is UTF-8 without control characters other than the allowed ones.
func isPrintable(s, allowed string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) && !strings.ContainsRune(allowed, r)
	})
}

func enumViolation(alert *v1alpha1.Alert) error {
	switch alert.Status {
	case "firing", "resolved", "acknowledged", "unacknowledged":
	default:
		return fmt.Errorf("status %q", alert.Status)
	}
	switch alert.Severity {
	case "", "critical", "error", "warning", "info":
	default:
		return fmt.Errorf("severity %q", alert.Severity)
	}
	if alert.ID != "" || alert.IncidentName != "" {
		return fmt.Errorf("id %q, incidentName %q", alert.ID, alert.IncidentName)
	}
	return nil
}

func timeViolation(alert *v1alpha1.Alert) error {
	for _, t := range []*v1alpha1.Timestamp{alert.StartTime, alert.EndTime} {
		if t != nil && (t.IsZero() || t.Year() < 1 || t.Year() > 9999 || t.Nanosecond()%1000 != 0) {
			return fmt.Errorf("time %v", t)
		}
	}
	if alert.StartTime != nil && alert.EndTime != nil && alert.EndTime.Before(alert.StartTime.Time) {
		return fmt.Errorf("ends at %v, before %v", alert.EndTime, alert.StartTime)
	}
	return nil
}

// bagViolation looks for bag entries that the API server would not store as they are.
func bagViolation(alert *v1alpha1.Alert) error {
	for name, bag := range testenv.Bags(&alert.AlertContent) {
		if bag != nil && len(bag) == 0 {
			return fmt.Errorf("%s is empty but there", name)
		}
		for key, value := range bag {
			var decoded any
			if err := utiljson.Unmarshal(value, &decoded); err != nil {
				return fmt.Errorf("%s.%q is no JSON: %w", name, key, err)
			}
			stored, err := json.Marshal(decoded)
			if err != nil {
				return fmt.Errorf("%s.%q: %w", name, key, err)
			}
			if string(stored) != string(value) {
				return fmt.Errorf("%s.%q would be stored as %.200s and not as %.200s", name, key, stored, value)
			}
			if !utf8.ValidString(key) {
				return fmt.Errorf("%s has the key %q", name, key)
			}
		}
	}
	return nil
}

// sizeViolation looks at the alert's JSON: its size, and whether it reads as the same alert again.
func sizeViolation(alert *v1alpha1.Alert) error {
	size := alertcontent.Size(&alert.AlertContent)
	if size > alertcontent.MaxBytes {
		return fmt.Errorf("the content takes %d bytes", size)
	}
	content, err := json.Marshal(alert.AlertContent)
	if err != nil {
		return err
	}
	if len(content) > size {
		return fmt.Errorf("the content takes %d bytes, but EncodedSize is %d", len(content), size)
	}
	encoded, err := json.Marshal(alert)
	if err != nil {
		return err
	}
	var again v1alpha1.Alert
	if err := json.Unmarshal(encoded, &again); err != nil {
		return err
	}
	if !reflect.DeepEqual(&again, alert) {
		return fmt.Errorf("%s reads as another alert", encoded)
	}
	return nil
}

// numberViolation compares a number of a payload with what became of it, by exact arithmetic.
func numberViolation(literal string, stored json.RawMessage) error {
	if string(stored) == `"`+literal+`"` {
		return nil
	}
	want, ok := newRat(literal)
	got, ok2 := newRat(string(stored))
	if !ok || !ok2 || want.Cmp(got) != 0 {
		return fmt.Errorf("the number %s became %s", literal, stored)
	}
	return nil
}
