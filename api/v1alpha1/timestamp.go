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
// decoding all the others. (OpenAPI's date-time format lets more pass than Go can read; the pattern
// closes that gap at admission.)
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Format=date-time
// +kubebuilder:validation:Pattern=`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$`
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:object:generate=false
type Timestamp struct {
	time.Time `json:"-"`
}

// NewTimestamp returns t in UTC, cut to microseconds.
func NewTimestamp(t time.Time) Timestamp {
	return Timestamp{t.UTC().Truncate(time.Microsecond)}
}

// MarshalJSON writes the time in UTC, and a zero time as null.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	b := make([]byte, 0, len(timestampFormat)+2)
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, timestampFormat)
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
