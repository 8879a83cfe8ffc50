package v1alpha1

import (
	"encoding/json"
	"time"
)

// timestampFormat is RFC 3339 with microseconds.
const timestampFormat = "2006-01-02T15:04:05.000000Z07:00"

// Timestamp is a time with microseconds, written as RFC 3339.
//
// Unlike metav1.MicroTime, it accepts any RFC 3339 time, with or without a fraction, and decodes an invalid time as zero
// instead of returning an error: one hand-made object must not prevent an informer from decoding all others. OpenAPI's
// date-time format permits times that Go cannot parse (a lower-case t, an offset of 99:99); the pattern rejects them at
// admission.
//
// The schema accepts every time that it encodes: see NewTimestamp.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Format=date-time
// +kubebuilder:validation:Pattern=`^(0[1-9]|[1-9]\d)\d{2}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:object:generate=false
type Timestamp struct {
	time.Time `json:"-"`
}

// The first and last time that the schema permits.
var (
	minTimestamp = time.Date(100, time.January, 1, 0, 0, 0, 0, time.UTC)
	maxTimestamp = time.Date(9999, time.December, 31, 23, 59, 59, int(time.Second-time.Microsecond), time.UTC)
)

// NewTimestamp returns t in UTC, truncated to microseconds and limited to the years 100 to 9999. A time in year 1 or
// before, which senders use for "none", is the zero time.
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

// OrZero returns the time, zero for nil.
func (t *Timestamp) OrZero() time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// MarshalJSON encodes the time in UTC, and a zero time as null.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	t = NewTimestamp(t.Time)
	if t.IsZero() {
		return []byte("null"), nil
	}
	quoted := append(make([]byte, 0, len(timestampFormat)+2), '"')
	return append(t.AppendFormat(quoted, timestampFormat), '"'), nil
}

// UnmarshalJSON decodes any RFC 3339 time, and anything else as the zero time.
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
