package webhookserver

import (
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// eventsPath is the path to which alerts are posted, followed by a slash and the token, or by nothing when the token is
// in the Authorization header.
const eventsPath = "/api/v1/events/webhook"

// dryRunParameter is the parameter of a query that is no field of an alert. Its case is of no account.
const dryRunParameter = "dryRun"

// exchange is one request and the facts gathered about it.
type exchange struct {
	*http.Request
	start    time.Time // by the clock of this process
	received time.Time // the same by the clock of the API server: by a wrong one, an alert could seem to have ended

	operation   *protocol.Operation // of the path; nil for an unknown path
	identifier  string              // in the path
	allowed     []string            // the methods of the path, if that of the request is not one of them
	token       string
	integration *v1alpha1.WebhookIntegration // of a valid token
	dryRun      bool
	defaults    map[string]any // the parameters that are fields of an alert
	gzipped     bool
	key         string      // idempotency key
	accepted    *acceptance // once the request is accepted
	place       *fair.Place // at which its body is decoded; nil while it is not
	memory      []*fair.Reservation
	read        bool       // the body has been read to its end
	cause       error      // the error behind a problem, for the log
	span        trace.Span // nil without tracing
}

func (x *exchange) sender() types.NamespacedName {
	return types.NamespacedName{Namespace: x.integration.Namespace, Name: x.integration.Name}
}

// enter has the request wait for its turn to use a processor; leave ends that.
func (h *handler) enter(x *exchange) (p *problem) {
	var err error
	if x.place, err = h.places.Enter(x.Context(), x.integration.Namespace, maxPlaceWait); err != nil {
		return &problemBusy
	}
	return nil
}

func (x *exchange) leave() {
	if x.place != nil {
		x.place.Leave()
		x.place = nil
	}
}

// reserve reserves memory until the request is answered.
func (h *handler) reserve(x *exchange, bytes int64) (*fair.Reservation, *problem) {
	memory := h.bodies.Reserve(x.sender(), bytes, 0)
	if memory == nil {
		return nil, &problemOverload
	}
	x.memory = append(x.memory, memory)
	return memory, nil
}

// parsePath finds the operation and the token. A path is eventsPath/TOKEN/OPERATION. If the token is in the Authorization header,
// it is eventsPath/OPERATION, or /OPERATION for tools whose URL can have no path.
func (x *exchange) parsePath() {
	path, found := strings.CutPrefix(x.URL.EscapedPath(), eventsPath)
	if found && path != "" && path[0] != '/' {
		return
	}
	path = strings.Trim(path, "/")
	if found || path != "" {
		x.operation, x.identifier, x.allowed = protocol.Find(x.Method, path)
	}
	if x.operation == nil && found {
		token, rest, _ := strings.Cut(path, "/")
		if x.operation, x.identifier, x.allowed = protocol.Find(x.Method, strings.TrimLeft(rest, "/")); x.operation != nil {
			x.token, _ = url.PathUnescape(token) // the path has been parsed
		}
	}
	if x.token == "" {
		x.token = headerToken(x.Header)
	}
}

// route returns the pattern of the request's path, without the token; empty for an unknown path.
func (x *exchange) route() string {
	if x.operation == nil {
		return ""
	}
	return eventsPath + "/{token}" + x.operation.Path
}

// headerToken returns the token of the Authorization header (RFC 6750, section 2.1; GenieKey is Opsgenie's scheme), empty
// when there is none.
func headerToken(header http.Header) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(scheme, "GenieKey") {
		return ""
	}
	return strings.TrimSpace(token)
}

// parseParameters reads the query and the idempotency key. It refuses a misspelled dryRun, or the alert of a test would be
// stored, and a misspelled field of an alert; all other names are the sender's own.
func (x *exchange) parseParameters() (p *problem) {
	given := false
	for name, value := range x.parameters() {
		switch {
		case strings.EqualFold(name, dryRunParameter):
			dryRun, err := strconv.ParseBool(value)
			if err != nil || given && dryRun != x.dryRun {
				return &problemDryRun
			}
			given, x.dryRun = true, dryRun
		case resemblesDryRun(name):
			return &problemParameter
		case x.operation.Path == "":
			if p := x.parseDefault(name, value); p != nil {
				return p
			}
		}
	}
	x.key, p = idempotencyKey(x.Header)
	return p
}

// parseDefault reads a parameter that is a field of an alert.
func (x *exchange) parseDefault(name, value string) *problem {
	field, same, isText := payload.FieldOf(name)
	refused := func(why string) *problem {
		shown := payload.Shorten(plaintext.SanitizeLine(name), maxShownParameter)
		return problemDryRun.withDetail(fmt.Sprintf("The parameter %q %s. Nothing was stored.", shown, why))
	}
	given, twice := x.defaults[field]
	switch {
	case field == "", strings.TrimSpace(value) == "":
	case !same:
		return refused("resembles " + field + ": write that, or another name")
	case !isText:
		return refused("is not possible: " + field + " is read from the body only")
	case x.integration.Spec.Verify != nil:
		return refused("is not possible: the integration requires signatures, which do not include it")
	case twice && given != value:
		return refused("is given twice")
	default:
		if x.defaults == nil {
			x.defaults = map[string]any{}
		}
		x.defaults[field] = value
	}
	return nil
}

// maxShownParameter is how many characters of a parameter's name are quoted.
const maxShownParameter = 32

// parameters yields the names and values of the query. It splits the query itself: url.Values lacks the parts that do not parse.
// Text that cannot be unescaped stays as it is.
func (x *exchange) parameters() iter.Seq2[string, string] {
	unescape := func(text string) string {
		if unescaped, err := url.QueryUnescape(text); err == nil {
			return unescaped
		}
		return text
	}
	return func(yield func(name, value string) bool) {
		for part := range strings.FieldsFuncSeq(x.URL.RawQuery, func(r rune) bool { return strings.ContainsRune("&;?", r) }) {
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
