package v1alpha1

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"unsafe"
)

// Bounds of unpacked alerts: of their JSON, and of the memory that they take with entryBytes for each entry of a bag beside its
// text. Without them, a few small objects made by hand would fill the memory of every replica.
const (
	maxUnpackedBytes  = 4 << 20
	maxUnpackedMemory = 8 << 20
	entryBytes        = 90
)

// packers pools compressors, which are large.
var packers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// Pack compresses the alerts of s into packedAlerts. It returns an error and changes nothing if an alert violates the
// schema, which the API server does not check in packed alerts.
func (s *AlertEventSpec) Pack() error {
	for i := range s.Alerts {
		if err := s.Alerts[i].validate(); err != nil {
			return fmt.Errorf("alert %d: %w", i, err)
		}
	}
	encoded, err := json.Marshal(s.Alerts)
	if err != nil {
		return fmt.Errorf("encoding the alerts: %w", err)
	}
	if len(encoded) > maxUnpackedBytes {
		return fmt.Errorf("the alerts have %d bytes, more than %d", len(encoded), maxUnpackedBytes)
	}
	if err := checkMemory(encoded); err != nil {
		return err
	}
	var packed strings.Builder
	text := base64.NewEncoder(base64.StdEncoding, &packed)
	w, _ := packers.Get().(*gzip.Writer)
	defer packers.Put(w)
	w.Reset(text)
	if _, err := w.Write(encoded); err != nil {
		return fmt.Errorf("compressing the alerts: %w", err)
	}
	if err := errors.Join(w.Close(), text.Close()); err != nil {
		return fmt.Errorf("compressing the alerts: %w", err)
	}
	s.Alerts, s.PackedAlerts = nil, packed.String()
	return nil
}

// UnmarshalJSON decodes a spec and unpacks packedAlerts into alerts. It keeps packedAlerts that cannot be unpacked and
// returns no error: one hand-made object must not prevent an informer from decoding all others.
func (s *AlertEventSpec) UnmarshalJSON(b []byte) error {
	type stored AlertEventSpec
	if err := json.Unmarshal(b, (*stored)(s)); err != nil {
		return err
	}
	for i := range s.Alerts {
		s.Alerts[i].LimitKeys()
	}
	if len(s.Alerts) > 0 || len(s.PackedAlerts) == 0 {
		return nil
	}
	alerts, ok := unpacked.get(s.PackedAlerts)
	if !ok {
		var size int
		var err error
		if alerts, size, err = unpack(s.PackedAlerts); err != nil {
			return nil //nolint:nilerr // CheckPacked returns it
		}
		unpacked.add(s.PackedAlerts, alerts, size)
	}
	s.Alerts, s.PackedAlerts, s.UnpackedFrom = alerts, "", s.PackedAlerts
	return nil
}

// MarshalJSON encodes a spec. Alerts that were unpacked and are unchanged are encoded as they were stored: packing them
// again might give other bytes, and a spec is immutable.
func (s AlertEventSpec) MarshalJSON() ([]byte, error) {
	if s.UnpackedFrom != "" && s.PackedAlerts == "" {
		// Not the kept alerts: those share their bags with s.
		if alerts, _, err := unpack(s.UnpackedFrom); err == nil && reflect.DeepEqual(alerts, s.Alerts) {
			s.Alerts, s.PackedAlerts = nil, s.UnpackedFrom
		}
	}
	type stored AlertEventSpec
	return json.Marshal(stored(s))
}

// CheckPacked returns the reason why packedAlerts could not be unpacked; nil if there is no such reason.
func (s *AlertEventSpec) CheckPacked() error {
	if len(s.PackedAlerts) == 0 {
		return nil
	}
	if err := condensedReason(s.PackedAlerts); err != nil {
		return err
	}
	_, _, err := unpack(s.PackedAlerts)
	return err
}

// unpack returns the alerts and the number of bytes of their JSON.
func unpack(packed string) (alerts []Alert, size int, err error) {
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	if err != nil {
		return nil, 0, fmt.Errorf("packedAlerts: %w", err)
	}
	encoded, err := io.ReadAll(io.LimitReader(r, maxUnpackedBytes+1))
	if err != nil {
		return nil, 0, fmt.Errorf("packedAlerts: %w", err)
	}
	if len(encoded) > maxUnpackedBytes {
		return nil, 0, fmt.Errorf("packedAlerts: more than %d bytes when unpacked", maxUnpackedBytes)
	}
	if err := checkMemory(encoded); err != nil {
		return nil, 0, fmt.Errorf("packedAlerts: %w", err)
	}
	if err := json.Unmarshal(encoded, &alerts); err != nil {
		// The decoder's error may quote a value.
		return nil, 0, errors.New("packedAlerts: not a JSON array of alerts")
	}
	if n := len(alerts); n == 0 || n > MaxAlertsPerEvent {
		return nil, 0, fmt.Errorf("packedAlerts: %d alerts, not 1 to %d", n, MaxAlertsPerEvent)
	}
	for i := range alerts {
		if err := alerts[i].validate(); err != nil {
			return nil, 0, fmt.Errorf("packedAlerts: alert %d: %w", i, err)
		}
		alerts[i].LimitKeys()
	}
	return alerts, len(encoded), nil
}

// checkMemory returns an error if the JSON of alerts takes too much memory when it is decoded. It counts the fields of alerts and
// the entries of their bags; what these hold is not decoded.
func checkMemory(encoded []byte) error {
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
			memory += int(unsafe.Sizeof(Alert{})) // of the next one, whatever it is
		}
	}
	if memory > maxUnpackedMemory {
		return fmt.Errorf("the alerts take more than %d bytes of memory when unpacked", maxUnpackedMemory)
	}
	return nil
}
