package mapping

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// Source says where one field of an alert comes from.
type Source struct {
	Field      string `json:"field"`                // its name as in a payload: "dedup_key"
	From       string `json:"from"`                 // one of the constants
	Key        string `json:"key,omitempty"`        // of the payload, for FromKey; empty if it is not known
	Preset     string `json:"preset,omitempty"`     // for FromPreset
	Expression string `json:"expression,omitempty"` // that gave the field, for FromPreset and FromMapping

	// Earlier says that an earlier alert of the Incident gave the field, and Changed that the expression is not known, because the
	// mapping or the preset has changed since. Only Explain sets them.
	Earlier bool `json:"earlier,omitempty"`
	Changed bool `json:"changed,omitempty"`
}

// String describes the source in words. Keys and expressions in it are as they were written, with any characters.
func (s Source) String() string {
	text := sourceTexts[s.From]
	switch {
	case s.From == FromKey && s.Key != "":
		text = "key " + s.Key
	case s.From == FromPreset:
		text = "preset " + s.Preset
	case s.From == FromGenerated && s.Field != origins.DedupKey.String():
		text = "time of receipt"
	}
	switch {
	case s.Changed && s.From == FromPreset:
		text += " of another version"
	case s.Changed:
		text += ", changed or deleted since"
	case s.Expression != "":
		text += ": " + s.Expression
	}
	if s.Earlier {
		text = "earlier alert: " + text
	}
	return text
}

var sourceTexts = map[string]string{
	FromKey: "another key", FromMapping: "mapping", FromRequest: "request", FromUnmapped: "unmapped keys",
	FromGenerated: "generated", FromFailed: "failed expression", FromDefault: "default of the integration", FromBuiltIn: "default",
	FromFirstLine: "first line of the description", FromEarlier: "earlier alert", FromUnknown: "unknown to this version of Tocsin",
}

// What fields come from.
const (
	FromKey       = "key"
	FromMapping   = "mapping"
	FromPreset    = "preset"
	FromRequest   = "request"
	FromUnmapped  = "unmapped"
	FromGenerated = "generated"
	FromFailed    = "failed"      // the expression of status failed
	FromDefault   = "default"     // the integration's
	FromBuiltIn   = "builtin"     // the operator's default
	FromFirstLine = "description" // its first line
	FromEarlier   = "earlier"     // an earlier alert, of which nothing else is known
	FromUnknown   = "unknown"     // another version of Tocsin knows it
)

var fromOfKind = map[origins.Kind]string{
	origins.Key: FromKey, origins.Alias: FromKey, origins.OtherName: FromKey, origins.Mapping: FromMapping,
	origins.Preset: FromPreset, origins.PresetSeverity: FromPreset, origins.Failed: FromFailed, origins.Request: FromRequest,
	origins.Unmapped: FromUnmapped, origins.Generated: FromGenerated, origins.Default: FromDefault,
	origins.BuiltIn: FromBuiltIn, origins.FirstLine: FromFirstLine, origins.Absent: FromEarlier,
}

// sourceOf returns the source of a field that there is, without its expression.
func sourceOf(of *origins.Origins, field origins.Field, preset string) Source {
	kind := of.Kinds[field]
	source := Source{Field: field.String(), From: fromOfKind[kind], Earlier: of.Earlier[field]}
	names := payload.Names(source.Field)
	switch {
	case source.From == "":
		source.From = FromUnknown
	case source.From == FromPreset:
		source.Preset = preset
	case kind == origins.Key:
		source.Key = names[0]
	case kind == origins.Alias:
		source.Key = names[len(names)-1]
	case kind == origins.OtherName:
		source.Key = of.Keys[field]
	}
	return source
}

// Sources returns for each field that the alert has where it comes from, in the order of the fields.
func (a *Alert) Sources() (sources []Source) {
	a.From.Settle(&a.Alert)
	for i, kind := range a.From.Kinds {
		if kind == origins.Absent {
			continue
		}
		source := sourceOf(&a.From, origins.Field(i), a.Preset)
		if kind == origins.Mapping || kind == origins.Preset {
			source.Expression = a.by[i].source
		}
		sources = append(sources, source)
	}
	return sources
}

// Explanation says where the content of an Incident comes from.
type Explanation struct {
	Preset   string            `json:"preset,omitempty"` // of the newest alert that one has read
	Sources  []Source          `json:"sources"`          // in the order of the fields
	Warnings []payload.Warning `json:"warnings"`         // about the newest alert, without what its sender wrote
}

// Explain explains an Incident by what is stored with it, and by the mapping that its integration has now; nil if it has none.
// known is false if nothing is stored.
func Explain(incident *v1alpha1.Incident, own *v1alpha1.Mapping) (e Explanation, known bool) {
	content := &incident.Status.Alert
	from, known := origins.Parse(content.Origins)
	if !known {
		return e, false
	}
	e = Explanation{Preset: content.Preset, Warnings: []payload.Warning{}}
	present := origins.Present(&v1alpha1.Alert{DedupKey: incident.Spec.DedupKey, AlertContent: *content})
	for i, kind := range from.Kinds {
		if kind == origins.Absent && !present[i] {
			continue
		}
		source := sourceOf(&from, origins.Field(i), content.Preset)
		switch kind {
		case origins.Mapping:
			source.Expression, source.Changed = expressionOf(own, i, from.Mapping)
		case origins.Preset:
			source.Expression, source.Changed = expressionOf(&presetNamed(content.Preset).Mapping, i, from.Preset)
		default: // it has no expression
		}
		e.Sources = append(e.Sources, source)
	}
	for _, w := range from.Warnings {
		e.Warnings = append(e.Warnings, payload.Reason(w.Reason).General(w.Field.String()))
	}
	return e, true
}

// expressionOf returns the expression of a field; changed is true if the mapping is not the one with the digest.
func expressionOf(m *v1alpha1.Mapping, field int, digest string) (source string, changed bool) {
	if m == nil || digestOf(m) != digest {
		return "", true
	}
	return string(expressionsOf(&m.Fields)[field]), false
}

// digests tell the mappings that the expressions of a program are from; empty for none.
type digests struct{ mapping, preset string }

// digestOf returns a digest of what decides on the fields. It is short, because it is stored with each alert: once in 2^36 times,
// a change of a mapping goes unnoticed.
func digestOf(m *v1alpha1.Mapping) string {
	const characters = 6
	hash := sha256.New()
	add := func(source v1alpha1.Expression) {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(source))))
		hash.Write([]byte(source))
	}
	add(m.Alerts)
	for _, source := range expressionsOf(&m.Fields) {
		add(source)
	}
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil))[:characters]
}
