package mapping

import (
	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// field is one field of an alert that a mapping can give.
type field struct {
	name       string // in a mapping
	key        string // in a payload, where the value goes to be normalised
	object     bool   // it holds an object, not a text
	expression func(*v1alpha1.MappingFields) *v1alpha1.Expression
}

// fields are the fields of an alert in the order in which they are shown.
var fields = []field{
	{"title", "title", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Title }},
	{"description", "description", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Description }},
	{"severity", "severity", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Severity }},
	{"status", "status", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Status }},
	{"dedupKey", "dedup_key", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.DedupKey }},
	{"type", "type", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Type }},
	{"link", "link", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Link }},
	{"hostname", "hostname", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Hostname }},
	{"region", "region", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Region }},
	{"startsAt", "starts_at", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.StartsAt }},
	{"endsAt", "ends_at", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.EndsAt }},
	{"leaseEndsAt", "lease_ends_at", false, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.LeaseEndsAt }},
	{"labels", "labels", true, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Labels }},
	{"annotations", "annotations", true, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Annotations }},
	{"values", "values", true, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Values }},
	{"custom", "custom", true, func(m *v1alpha1.MappingFields) *v1alpha1.Expression { return &m.Custom }},
}

// fieldCount is the number of fields; the others are the places of some of them.
const (
	fieldCount    = 16
	statusIndex   = 3
	dedupKeyIndex = 4
	customIndex   = fieldCount - 1
)

// expressions is a set of the expressions of the fields: bit i stands for fields[i].
type expressions uint32

// fieldOfKey finds the field that the payload rules read a key for.
var fieldOfKey = func() map[string]int {
	found := map[string]int{}
	for i, f := range fields {
		for _, name := range payload.Names(f.key) {
			found[name] = i
		}
	}
	return found
}()
