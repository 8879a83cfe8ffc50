package v1alpha1

import (
	"encoding/json"
	"time"
)

// timestampFormat is RFC 3339 with microseconds.
const timestampFormat = "2006-01-02T15:04:05.000000Z07:00"

// Timestamp is a time with microseconds, written as RFC 3339.
//
// Unlike metav1.MicroTime it reads any RFC 3339 time, with or without a fraction, and a time that it
// cannot read is zero rather than an error: one object made by hand must not keep an informer from
// decoding all the others. OpenAPI's date-time format lets more pass than Go can read (a lower-case t,
// an offset of 99:99); the pattern closes that gap at admission.
//
// What it writes, the schema accepts: a time before the year 100 is the zero time, which is omitted,
// and one after the year 9999 is the last microsecond of that year.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Format=date-time
// +kubebuilder:validation:Pattern=`^(0[1-9]|[1-9]\d)\d{2}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:object:generate=false
type Timestamp struct {
	time.Time `json:"-"`
}

// Years that a Timestamp may be in. Go's zero time, which many senders print for "none", is below.
const (
	minYear = 100
	maxYear = 9999
)

// NewTimestamp returns t in UTC, cut to microseconds. Before the year 100 it is the zero time, after the
// year 9999 the end of that year.
func NewTimestamp(t time.Time) Timestamp {
	t = t.UTC().Truncate(time.Microsecond)
	switch year := t.Year(); {
	case year < minYear:
		return Timestamp{}
	case year > maxYear:
		return Timestamp{time.Date(maxYear, time.December, 31, 23, 59, 59, int(time.Second-time.Microsecond), time.UTC)}
	}
	return Timestamp{t}
}

// MarshalJSON writes the time in UTC, and a zero time as null.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	t = NewTimestamp(t.Time)
	if t.IsZero() {
		return []byte("null"), nil
	}
	b := make([]byte, 0, len(timestampFormat)+2)
	b = append(b, '"')
	b = t.AppendFormat(b, timestampFormat)
	return append(b, '"'), nil
}

// UnmarshalJSON reads any RFC 3339 time; anything else reads as the zero time.
func (t *Timestamp) UnmarshalJSON(b []byte) error {
	*t = Timestamp{}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return nil //nolint:nilerr // see the type's comment
	}
	if parsed, err := time.Parse(time.RFC3339, s); err == nil {
		*t = NewTimestamp(parsed)
	}
	return nil
}

// DeepCopyInto copies t into out.
func (t *Timestamp) DeepCopyInto(out *Timestamp) { *out = *t }

// DeepCopy returns a copy of t, nil for nil.
func (t *Timestamp) DeepCopy() *Timestamp {
	if t == nil {
		return nil
	}
	out := *t
	return &out
}
