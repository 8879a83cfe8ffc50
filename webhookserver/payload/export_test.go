package payload

// What docs/payload.md lists, for the test that compares the two.
var (
	SeverityWords    = severityWords
	ResolvedSynonyms = resolvedSynonyms
	FiringSynonyms   = firingSynonyms
	Unacknowledge    = unacknowledge
	Rules            = rules

	Limits = map[string]int{
		"`title`, `type`, `hostname`, `region`": maxLine,
		"`link`":                                maxLink,
		"`description`":                         maxDescription,
		"`dedup_key`":                           maxDedupKeyBytes,
		"levels of objects and arrays, the payload's own included": maxDepth,
		"warnings in one response":                                 maxWarnings,
	}
)

// Parse decodes a body that holds one JSON object.
func Parse(body []byte) (map[string]any, []Warning, error) {
	value, warnings, err := ParseAny(body)
	if err != nil {
		return nil, nil, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, nil, ErrNotObject
	}
	return object, warnings, nil
}

// Field is the rule's field.
func (r rule) Field() string { return r.names[0] }

// Aliases are the rule's other names.
func (r rule) Aliases() []string { return append([]string(nil), r.names[1:]...) }
