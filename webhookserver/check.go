package webhookserver

import (
	"cmp"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// dryRunParameter is the parameter of a query that is no field of an alert. Its case is of no account.
const dryRunParameter = "dryRun"

// checked is a request whose query and headers are valid, to an integration that accepts it.
type checked struct {
	*authenticated
	parameters
	key       string     // idempotency key of the headers, empty without one
	signature *signature // nil: none is required
	gzipped   bool
	limit     int64 // of the body in bytes, as sent and after decompression
}

// parameters are what the query says.
type parameters struct {
	dryRun   bool
	defaults map[string]any // the parameters that are fields of an alert
}

func (c *checked) isDryRun() bool { return c.dryRun }

// check checks all that can be wrong with a request before its body is read.
func (h *handler) check(a *authenticated) (_ *checked, p *problem) {
	if p = cmp.Or(h.checkService(a.arrived), a.checkIntegration()); p != nil {
		return nil, p
	}
	c := &checked{authenticated: a}
	if a.operation.IsQuery() {
		return c, nil
	}
	if !a.operation.IsHeartbeat() {
		if c.gzipped, c.limit, p = h.checkBody(a); p != nil {
			return nil, p
		}
	}
	if c.parameters, p = a.parseParameters(); p != nil {
		return nil, p
	}
	if c.key, p = idempotencyKey(a.Header); p != nil {
		return nil, p
	}
	if a.integration.Spec.Verify != nil {
		if c.signature, p = a.readSignature(); p != nil {
			return nil, p
		}
		c.key = c.signature.key()
	}
	return c, nil
}

// checkIntegration returns why the integration accepts no request of this kind; nil if it does.
func (a *authenticated) checkIntegration() *problem {
	switch {
	case a.integration.Spec.Suspend:
		return &problemSuspended
	case !integrations.IsWhole(a.integration):
		return &problemIntegrationsTooLarge
	case a.integration.Spec.Verify != nil && a.operation.Path != "":
		return &problemUnsignedPath
	}
	return nil
}

// parseParameters reads the query. It rejects a misspelled dryRun, or the alert of a test would be stored, and a misspelled field
// of an alert; all other names are the sender's own.
func (a *authenticated) parseParameters() (found parameters, p *problem) {
	given := false
	for name, value := range a.queryParts() {
		switch {
		case strings.EqualFold(name, dryRunParameter):
			dryRun, err := strconv.ParseBool(value)
			if err != nil || given && dryRun != found.dryRun {
				return found, &problemDryRun
			}
			given, found.dryRun = true, dryRun
		case resemblesDryRun(name):
			return found, &problemParameter
		case a.operation.Path == "":
			if p := found.addDefault(name, value, a.integration.Spec.Verify != nil); p != nil {
				return found, p
			}
		}
	}
	return found, nil
}

// addDefault adds a parameter that is a field of an alert; there may be none if the integration requires signatures.
func (s *parameters) addDefault(name, value string, isSigned bool) *problem {
	field, same, isText := payload.FieldOf(name)
	invalid := func(why string) *problem {
		shown := plaintext.Shorten(plaintext.SanitizeLine(name), maxShownParameter)
		return problemDryRun.withDetail(fmt.Sprintf("The parameter %q %s. Nothing was stored.", shown, why))
	}
	given, twice := s.defaults[field]
	switch {
	case field == "", strings.TrimSpace(value) == "":
	case !same:
		return invalid("resembles " + field + ": write that, or another name")
	case !isText:
		return invalid("is not possible: " + field + " is read from the body only")
	case isSigned:
		return invalid("is not possible: the integration requires signatures, which do not include it")
	case twice && given != value:
		return invalid("is given twice")
	default:
		if s.defaults == nil {
			s.defaults = map[string]any{}
		}
		s.defaults[field] = value
	}
	return nil
}

// maxShownParameter is how many characters of a parameter's name are quoted.
const maxShownParameter = 32

// queryParts yields the names and values of the query. It splits the query itself: url.Values lacks the parts that do not parse.
// Text that cannot be unescaped stays as it is.
func (a *arrived) queryParts() iter.Seq2[string, string] {
	unescape := func(text string) string {
		if unescaped, err := url.QueryUnescape(text); err == nil {
			return unescaped
		}
		return text
	}
	return func(yield func(name, value string) bool) {
		for part := range strings.FieldsFuncSeq(a.URL.RawQuery, func(r rune) bool { return strings.ContainsRune("&;?", r) }) {
			if name, value, _ := strings.Cut(part, "="); !yield(unescape(name), unescape(value)) {
				return
			}
		}
	}
}

// maxTypos is how many letters of a misspelling of dryRun are wrong.
const maxTypos = 2

// resemblesDryRun says whether a name looks like a misspelling of dryRun: dry-run, dryrn, dyrRun or dry, but not run.
func resemblesDryRun(name string) bool {
	name = strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	word := strings.ToLower(dryRunParameter)
	return name == "dry" || strings.Contains(name, word) || strings.HasPrefix(name, "d") && payload.Distance(name, word) <= maxTypos
}
