package payload

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	maxNamedKeys = 64 // of a payload whose names are looked at: nobody writes more of them by hand
	maxNameBytes = 24 // of such a name
	shortName    = 4  // a shorter name resembles too many words
	longName     = 8  // a name that is as long may differ by two letters
)

// usualNames are names that other tools give to our fields. A field that is absent is read from the first of its names that suits
// it, if what it means is beyond doubt; else the answer asks whether it was meant.
var usualNames = []struct {
	field origins.Field
	names []string // in the order of preference, without separators and in lower case
	reads func(text string) bool
}{
	{origins.Title, []string{"summary", "name", "text", "headline", "alertname"}, func(string) bool { return true }},
	{origins.Severity, []string{"level", "sev", "urgency", "criticality"}, isSeverity},
	{origins.Status, []string{"state"}, isEnd},
	{origins.DedupKey, []string{"dedupid", "incidentkey", "alertkey", "alertid", "fingerprint"}, nil},
	{origins.Description, []string{"body", "details", "desc", "msg"}, nil},
	{origins.Hostname, []string{"host"}, nil},
	{origins.Link, []string{"url", "href"}, nil},
	{origins.Labels, []string{"tags"}, nil},
}

func isSeverity(text string) bool { return severityOf(text) != "" }

func isEnd(text string) bool {
	word := strings.ToLower(strings.TrimSpace(text))
	return word == "resolved" || slices.Contains(resolvedSynonyms, word)
}

type ownName struct {
	squeezed string // see squeeze
	field    origins.Field
}

// ownNames are all of them, in a fixed order: the same payload always gets the same warnings.
var ownNames = func() (names []ownName) {
	for _, name := range slices.Sorted(maps.Keys(fieldOfKey)) {
		names = append(names, ownName{squeeze(name), fieldOfKey[name]})
	}
	return names
}()

// likeness is how a key of a payload comes to mean a field, the clearest first.
type likeness int

const (
	sameLetters likeness = iota // but for case, hyphens and underscores
	usualName
	resembles // but for a letter or two
)

type candidate struct {
	key      string
	likeness likeness
	rank     int // among the usual names
	reads    bool
}

// ReadNames returns a payload of our own format with the fields that are absent and that it names in another way which is beyond
// doubt: in other letters, such as dedupKey, or by a usual name. The key that was read stays in it, so it is kept in custom as
// well. named has the keys that were read, by field. The warnings tell of them, and which keys may have been meant as a field.
// The payload is not changed.
func ReadNames(object map[string]any) (whole map[string]any, named map[string]string, told []Warning) {
	if len(object) > maxNamedKeys {
		return object, nil, nil
	}
	meant := map[string][]candidate{}
	for key := range object {
		if _, listed := fieldOfKey[key]; listed || len(key) > maxNameBytes {
			continue
		}
		if field, found := meaningOf(key, object[key]); field != "" {
			meant[field] = append(meant[field], found)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(meant)) {
		if IsGiven(object, field) {
			continue
		}
		candidates := meant[field]
		slices.SortFunc(candidates, func(a, b candidate) int {
			return strings.Compare(a.order(), b.order())
		})
		best := candidates[0]
		if !best.reads || isAmbiguous(object, candidates) {
			for _, c := range candidates {
				told = append(told, maybeMeant.Warn(c.key, field))
			}
			continue
		}
		object = maps.Clone(object)
		object[field] = object[best.key]
		if named == nil {
			named = map[string]string{}
		}
		named[field] = plaintext.SanitizeLine(best.key)
		told = append(told, Warning{
			Field: named[field], Detail: fmt.Sprintf("it is read as %s, which is absent, and kept in custom", field),
		})
	}
	return object, named, told
}

func (c candidate) order() string {
	return fmt.Sprintf("%t %d %2d %s", !c.reads, c.likeness, c.rank, c.key)
}

// isAmbiguous reports whether two keys are equally likely to mean a field, and say different things.
func isAmbiguous(object map[string]any, candidates []candidate) bool {
	if len(candidates) < 2 || candidates[1].likeness != sameLetters {
		return false
	}
	a, _ := TextOf(object[candidates[0].key])
	b, _ := TextOf(object[candidates[1].key])
	return a != b
}

// IsGiven reports whether a payload has a usable value under one of a field's own names.
func IsGiven(object map[string]any, field string) bool {
	return slices.ContainsFunc(Names(field), func(name string) bool { return isUsable(object[name]) })
}

func isUsable(value any) bool {
	text, scalar := TextOf(value)
	return scalar && !isBlank(text) || !scalar && value != nil
}

// meaningOf returns the field that a key may mean; empty if it means none.
func meaningOf(key string, value any) (field string, c candidate) {
	name := squeeze(key)
	text, scalar := TextOf(value)
	if !isUsable(value) {
		return "", c
	}
	for _, known := range ownNames {
		if known.squeezed == name && known.field.IsBag() == !scalar {
			return known.field.String(), candidate{key: key, likeness: sameLetters, reads: true}
		}
	}
	for _, usual := range usualNames {
		if at := slices.Index(usual.names, name); at >= 0 && usual.field.IsBag() == !scalar {
			return usual.field.String(), candidate{key: key, likeness: usualName, rank: at, reads: usual.reads != nil && usual.reads(text)}
		}
	}
	for _, known := range ownNames {
		if isMisspelt(name, known.squeezed) {
			return known.field.String(), candidate{key: key, likeness: resembles}
		}
	}
	return "", c
}

// FieldOf returns the field that a name outside of a payload stands for, such as that of a parameter; empty if it resembles none.
// same is false if it differs by a letter or two, and isText is true if the values of the field are plain texts.
func FieldOf(name string) (field string, same, isText bool) {
	name = squeeze(name)
	for _, known := range ownNames {
		if known.squeezed == name {
			return known.field.String(), true, !known.field.IsBag() && !strings.HasSuffix(known.field.String(), "_at")
		}
	}
	for _, known := range ownNames {
		if isMisspelt(name, known.squeezed) {
			return known.field.String(), false, false
		}
	}
	return "", false, false
}

// WithMissingFields returns a payload, which is an object or a list of objects, with the fields that it lacks. A list gets no
// dedup_key: its alerts would be of one Incident. The payload is not changed.
func WithMissingFields(value any, defaults map[string]any) any {
	if len(defaults) == 0 {
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		with := maps.Clone(value)
		for field, text := range defaults {
			if !IsGiven(value, field) {
				with[field] = text
			}
		}
		return with
	case []any:
		defaults = maps.Clone(defaults)
		delete(defaults, "dedup_key")
		with := make([]any, len(value))
		for i, element := range value {
			with[i] = element
			if object, ok := element.(map[string]any); ok {
				with[i] = WithMissingFields(object, defaults)
			}
		}
		return with
	}
	return value
}

// isMisspelt reports whether two names differ by one letter that is missing, added, wrong or at its neighbour's place, or by two
// such if they are long.
func isMisspelt(a, b string) bool {
	most := 1
	if min(len(a), len(b)) >= longName {
		most = 2
	}
	if min(len(a), len(b)) <= shortName || max(len(a), len(b))-min(len(a), len(b)) > most {
		return false
	}
	return Distance(a, b) <= most
}

// Distance is the number of letters to insert, delete, replace or exchange with their neighbours that turns one text into
// another.
func Distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
