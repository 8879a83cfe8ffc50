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
// What it writes, the schema accepts: see NewTimestamp.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Format=date-time
// +kubebuilder:validation:Pattern=`^(0[1-9]|[1-9]\d)\d{2}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:object:generate=false
type Timestamp struct {
	time.Time `json:"-"`
}

// The schema's first and last moment.
var (
	minTimestamp = time.Date(100, time.January, 1, 0, 0, 0, 0, time.UTC)
	maxTimestamp = time.Date(9999, time.December, 31, 23, 59, 59, int(time.Second-time.Microsecond), time.UTC)
)

// NewTimestamp returns t in UTC, cut to microseconds and to the years 100 to 9999. The year 1 and what is
// before it, which senders print for "none", is the zero time.
func NewTimestamp(t time.Time) Timestamp {
	t = t.UTC().Truncate(time.Microsecond)
	switch {
	case t.Year() <= 1:
		return Timestamp{}
	case t.Before(minTimestamp):
		return Timestamp{minTimestamp}
	case t.After(maxTimestamp):
		return Timestamp{maxTimestamp}
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
