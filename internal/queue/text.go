package queue

import (
	"cmp"
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
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// The alerts of an AlertEvent are one text, which costs the API server a fraction of what their fields would. It does not see
// what is in the text.
//
// Bounds of the alerts of one event: of their JSON and its levels of nesting, and of the memory that they take with entryBytes
// for each entry of a bag beside its text. Without them, a few small objects made by hand would fill the memory of every replica,
// and one of thousands of levels would become an Incident that no informer can read. Ingest accepts 64 levels.
const (
	maxTextBytes = 4 << 20
	maxMemory    = 8 << 20
	maxDepth     = 100
	entryBytes   = 90
)

// MinCompressed is the length in bytes from which on a text is compressed. People can read a shorter one.
const MinCompressed = 4 << 10

// Limits of an alert's fields in characters, beside those of package v1alpha1.
const (
	maxIDChars       = 64
	maxDedupKeyChars = 1024
	maxPresetChars   = 64
)

// statuses are those that an alert of a text may have.
var statuses = []v1alpha1.AlertStatus{
	v1alpha1.AlertFiring, v1alpha1.AlertResolved, v1alpha1.AlertAcknowledged, v1alpha1.AlertUnacknowledged, v1alpha1.AlertNoted,
}

var onlyOfReports = []v1alpha1.AlertStatus{v1alpha1.AlertSilenced, v1alpha1.AlertAssigned, v1alpha1.AlertUnassigned}

// compressors pools them, which are large.
var compressors = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// Encode writes the alerts of an event, at least one, into its spec: their JSON, compressed if it is long, their number and a
// summary. It returns an error and changes nothing if Decode would not read them.
func Encode(event *v1alpha1.AlertEvent) error {
	for i := range event.Alerts {
		if err := validate(&event.Alerts[i]); err != nil {
			return fmt.Errorf("alert %d: %w", i, err)
		}
	}
	text, err := json.Marshal(event.Alerts)
	if err != nil {
		return fmt.Errorf("encoding the alerts: %w", err)
	}
	if err := checkBounds(text); err != nil {
		return err
	}
	spec := &event.Spec
	spec.Alerts, spec.Encoding = v1alpha1.AlertsText(text), ""
	if len(text) >= MinCompressed {
		compressed, err := compress(text)
		if err != nil {
			return fmt.Errorf("compressing the alerts: %w", err)
		}
		if len(compressed) < len(text) {
			spec.Alerts, spec.Encoding = v1alpha1.AlertsText(compressed), v1alpha1.AlertsGzip
		}
	}
	spec.Count, spec.Summary = int64(len(event.Alerts)), summarize(event.Alerts)
	return nil
}

func compress(text []byte) (string, error) {
	var compressed strings.Builder
	encoder := base64.NewEncoder(base64.StdEncoding, &compressed)
	w, _ := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	w.Reset(encoder)
	_, err := w.Write(text)
	err = errors.Join(err, w.Close(), encoder.Close())
	return compressed.String(), err
}

func summarize(alerts []v1alpha1.Alert) string {
	first := &alerts[0]
	words := string(first.Status)
	if first.Severity != "" {
		words += " " + string(first.Severity)
	}
	more := ""
	if others := len(alerts) - 1; others > 0 {
		more = fmt.Sprintf(", and %d more", others)
	}
	const most = 200
	return words + ": " + plaintext.OneLine(cmp.Or(first.Title, first.DedupKey, first.IncidentName), most, most) + more
}

// Decode fills in the alerts of an event from its spec. If that fails, it returns the reason and changes nothing. It bounds the
// keys and the origins of the alerts, whoever made them.
func Decode(event *v1alpha1.AlertEvent) error {
	alerts, err := decode(&event.Spec)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	for i := range alerts {
		alertcontent.LimitKeys(&alerts[i].AlertContent)
		if len(alerts[i].Origins) > v1alpha1.MaxOriginsChars { // another version may know more; the alert counts all the same
			alerts[i].Origins = ""
		}
	}
	event.Alerts = alerts
	return nil
}

func decode(spec *v1alpha1.AlertEventSpec) (alerts []v1alpha1.Alert, err error) {
	if r := spec.Report; r != nil {
		return []v1alpha1.Alert{{
			IncidentName: r.IncidentName, DedupKey: r.DedupKey, Status: r.Status,
			IsReport: true, By: r.By, Comment: r.Comment, Assignee: r.Assignee, AcknowledgeFor: r.AcknowledgeFor,
			SilenceFor: r.SilenceFor,
		}}, nil
	}
	text := []byte(spec.Alerts)
	if spec.Encoding == v1alpha1.AlertsGzip {
		if text, err = decompress(string(spec.Alerts)); err != nil {
			return nil, err
		}
	}
	if err := checkBounds(text); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &alerts); err != nil {
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

func decompress(text string) ([]byte, error) {
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxTextBytes+1))
}

// checkBounds returns an error if the JSON of alerts is too long or nested too deep, or takes too much memory when it is decoded.
// It counts the fields of alerts and the entries of their bags; what these hold is not decoded.
func checkBounds(encoded []byte) error {
	if len(encoded) > maxTextBytes {
		return fmt.Errorf("more than %d bytes", maxTextBytes)
	}
	const entryDepth = 3 // the list, an alert, a bag
	memory, depth, deepest := len(encoded), 0, 0
	for i := 0; i < len(encoded); i++ {
		switch encoded[i] {
		case '"':
			i += stringLen(encoded[i+1:])
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case ':':
			if depth <= entryDepth {
				memory += entryBytes
			}
		case ',':
			if depth == 1 {
				memory += int(unsafe.Sizeof(v1alpha1.Alert{})) // of the next one, whatever it is
			}
		}
	}
	switch {
	case deepest > maxDepth:
		return fmt.Errorf("nested deeper than %d levels", maxDepth)
	case memory > maxMemory:
		return fmt.Errorf("more than %d bytes of memory when decoded", maxMemory)
	}
	return nil
}

// stringLen returns how many bytes the rest of a JSON string has, with its last quote.
func stringLen(rest []byte) int {
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(rest)
}

// EncodedSize returns the size in bytes of the alerts' JSON in an AlertEvent when it is not compressed, never less.
func EncodedSize(alerts []v1alpha1.Alert) int {
	const overhead = 1 << 9 // id, incidentName and status with their field names
	size := 0
	for i := range alerts {
		alert := &alerts[i]
		size += overhead + 6*(len(alert.DedupKey)+len(alert.By)+len(alert.Comment)) + alertcontent.Size(&alert.AlertContent)
	}
	return size
}

// StoredSize returns about how many bytes the API server stores of what the spec says.
func StoredSize(spec *v1alpha1.AlertEventSpec) int {
	bytes := len(spec.Alerts)
	if r := spec.Report; r != nil {
		bytes += len(r.DedupKey) + len(r.By) + len(r.Comment)
	}
	return bytes
}

// MemorySize returns about how many bytes the alerts and the defaults take when they are decoded.
func MemorySize(event *v1alpha1.AlertEvent) int64 {
	bytes := IdentitySize(event.Alerts)
	for i := range event.Alerts {
		content := &event.Alerts[i].AlertContent
		bytes += int64(len(event.Alerts[i].Comment) + alertcontent.Size(content) + entryBytes*alertcontent.Keys(content))
	}
	if defaults := event.Spec.Defaults; defaults != nil {
		bytes += int64(len(defaults.Type) + len(defaults.Title))
		for name, value := range defaults.Labels {
			bytes += int64(len(name) + len(value) + entryBytes)
		}
	}
	return bytes
}

// IdentitySize returns about how many bytes of MemorySize the alerts take without their content.
func IdentitySize(alerts []v1alpha1.Alert) int64 {
	bytes := 0
	for i := range alerts {
		alert := &alerts[i]
		bytes += int(unsafe.Sizeof(*alert)) + len(alert.ID) + len(alert.IncidentName) + len(alert.DedupKey) + len(alert.By) +
			len(alert.Assignee)
	}
	return int64(bytes)
}

// validate checks an alert of a text. Its errors quote nothing of the alert.
func validate(a *v1alpha1.Alert) error {
	if err := validateTexts(a); err != nil {
		return err
	}
	switch {
	case slices.Contains(onlyOfReports, a.Status):
		return fmt.Errorf("only a report has the status %s", a.Status)
	case !slices.Contains(statuses, a.Status):
		return errors.New("unknown status")
	case a.Severity != "" && !slices.Contains(v1alpha1.Severities(), a.Severity):
		return errors.New("severity is not critical, error, warning or info")
	case a.IncidentName == "" && a.DedupKey == "":
		return errors.New("it needs incidentName or dedupKey")
	case a.Status == v1alpha1.AlertFiring && a.DedupKey == "":
		return errors.New("it fires and needs dedupKey")
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
