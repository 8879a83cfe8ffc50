package payload

// What docs/payload.md lists, for the test that compares the two.
var (
	SeverityWords    = severityWords
	ResolvedSynonyms = resolvedSynonyms
	FiringSynonyms   = firingSynonyms
	Rules            = rules
	BagFields        = bagFields

	Limits = map[string]int{
		"`title`, `type`, `hostname`, `region`": maxLine,
		"`link`":                                maxLink,
		"`description`":                         maxDescription,
		"`dedup_key`":                           maxDedupKeyBytes,
		"levels of objects and arrays, the payload's own included": maxDepth,
		"warnings in one response":                                 maxWarnings,
	}
)

// Field is the rule's field.
func (r rule) Field() string { return r.field }

// Aliases are the rule's other names.
func (r rule) Aliases() []string { return r.aliases }
