package webhookserver

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// checked is a request whose query and headers are valid, to an integration that accepts it.
type checked struct {
	*authenticated
	dryRun    bool
	query     map[string]any // the parameters of the query that are fields of an alert
	key       string         // idempotency key of the headers, empty without one
	signature *signature     // nil: none is required
	gzipped   bool
	limit     int64 // of the body in bytes, as sent and after decompression
}

// check checks all that can be wrong with a request before its body is read.
func (h *handler) check(a *authenticated) (_ *checked, p *problem) {
	if p = cmp.Or(h.checkServable(a.arrived), a.checkIntegration()); p != nil {
		return nil, p
	}
	c := &checked{authenticated: a}
	if a.operation.IsQuery() {
		return c, nil
	}
	if a.feature == nil {
		if p = h.checkBody(c); p != nil {
			return nil, p
		}
	}
	if p = c.parseParameters(); p != nil {
		return nil, p
	}
	if c.key, p = idempotencyKey(a.Header); p != nil {
		return nil, p
	}
	return c, c.checkSignature()
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
func (c *checked) parseParameters() *problem {
	given := false
	for name, value := range c.queryParts() {
		switch {
		case strings.EqualFold(name, protocol.DryRunParameter):
			dryRun, err := strconv.ParseBool(value)
			if err != nil || given && dryRun != c.dryRun {
				return &problemParameterValue
			}
			given, c.dryRun = true, dryRun
		case resemblesDryRun(name):
			return &problemParameter
		case c.operation.Path == "":
			if p := c.addField(name, value); p != nil {
				return p
			}
		}
	}
	return nil
}

// addField adds a parameter that is a field of an alert; there may be none if the integration requires signatures.
func (c *checked) addField(name, value string) *problem {
	field, same, isText := payload.FieldOf(name)
	invalid := func(why string) *problem {
		shown := plaintext.Shorten(plaintext.SanitizeLine(name), maxShownParameter)
		return problemParameterValue.WithDetail(fmt.Sprintf("The parameter %q %s. Nothing was stored.", shown, why))
	}
	given, twice := c.query[field]
	switch {
	case field == "", strings.TrimSpace(value) == "":
	case !same:
		return invalid("resembles " + field + ": write that, or another name")
	case !isText:
		return invalid("is not possible: " + field + " is read from the body only")
	case c.integration.Spec.Verify != nil:
		return invalid("is not possible: the integration requires signatures, which do not include it")
	case twice && given != value:
		return invalid("is given twice")
	case c.query == nil:
		c.query = map[string]any{field: value}
	default:
		c.query[field] = value
	}
	return nil
}

// queryIdentity returns the fields that the query gives, with their values, in order. Without any it is empty, so that the ids of
// such requests stay the same across versions.
func (c *checked) queryIdentity() (parts [][]byte) {
	for _, field := range slices.Sorted(maps.Keys(c.query)) {
		text, _ := c.query[field].(string)
		parts = append(parts, []byte(field), []byte(text))
	}
	return parts
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
	word := strings.ToLower(protocol.DryRunParameter)
	return name == "dry" || strings.Contains(name, word) || strings.HasPrefix(name, "d") && payload.Distance(name, word) <= maxTypos
}

// read is a request whose body has been read to its end.
type read struct {
	*checked
	memory *fair.Reservation // of the body
	body   []byte            // as sent, until decode takes it
}

// read reads the body, unless its alerts could not be stored soon. It reads no more than a byte beyond the limit.
func (h *handler) read(c *checked) (*read, *problem) {
	switch {
	case h.options.Capacity.Full(c.integration.Namespace) == v1alpha1.ReasonQueueFull:
		return nil, &problemNamespaceFull
	case h.committer.CheckSpace(c.integrationName()) != nil:
		return nil, &problemOverload
	}
	memory, p := h.reserve(c.authenticated, c.bodyMemory())
	if p != nil {
		return nil, p
	}
	first := int64(firstRead)
	if c.ContentLength >= 0 {
		first = c.ContentLength + 1 // checked against the limit before
	}
	body, err := readAll(c.Body, first, c.limit)
	if err != nil {
		return nil, bodyProblem(err, c.limit, &problemUnreadable)
	}
	return &read{checked: c, memory: memory, body: body}, nil
}

// takeBody returns the body, decompressed, if its signature is valid or none is required. From then on only the caller has it: it
// may be collected while the alerts wait.
func (r *read) takeBody() (body []byte, p *problem) {
	body, r.body = r.body, nil
	if r.gzipped {
		var err error
		if body, err = inflate(bytes.NewReader(body), r.limit); err != nil {
			return nil, bodyProblem(err, r.limit, &problemGzip)
		}
	}
	r.memory.Shrink(max(int64(cap(body)), minBodyMemory))
	return body, r.signature.verify(r.integration.Spec.Verify, body)
}

// bodyLimit returns the most bytes of a body that is read. Tools that send groups of alerts, such as Alertmanager, give a group
// up for good when it is rejected as too large. Where the payload tells the preset, checkSize has the last word; a length that
// is not announced would need memory for the largest body.
func (h *handler) bodyLimit(a *authenticated, gzipped bool) int64 {
	preset := a.preset(true)
	if preset == mapping.Auto && a.integration.Spec.Preset == "" && (a.ContentLength < 0 || gzipped) {
		return h.options.MaxBodyBytes
	}
	return h.limitFor(preset)
}

// checkSize rejects a body that is too large for the preset which has read it, if one has.
func (h *handler) checkSize(a *authenticated, size int, d *decoded) *problem {
	preset := a.preset(true)
	if preset == mapping.Auto {
		preset = ""
	}
	if d != nil {
		preset = cmp.Or(d.Preset, preset)
	}
	if limit := h.limitFor(preset); int64(size) > limit {
		return tooLargeFor(limit)
	}
	return nil
}

func tooLargeFor(limit int64) *problem {
	p := problemTooLarge
	p.Limit = limit
	return &p
}

// limitFor returns the most bytes of a body that the preset reads.
func (h *handler) limitFor(preset string) int64 {
	limit := h.options.MaxBodyBytes
	if mapping.IsLarge(preset) {
		limit = max(limit, min(largeFactor*limit, maxLargeBody))
	}
	return limit
}

// checkBody finds out whether the body is compressed, and how many bytes of it are read. It returns why it cannot be read, as its
// headers say.
func (h *handler) checkBody(c *checked) *problem {
	switch strings.ToLower(strings.TrimSpace(strings.Join(c.Header.Values("Content-Encoding"), ","))) {
	case "", "identity":
	case "gzip", "x-gzip": // RFC 9110, section 8.4.1.3: the same
		c.gzipped = true
	default:
		return &problemEncoding
	}
	c.limit = h.bodyLimit(c.authenticated, c.gzipped)
	switch {
	case c.ContentLength > c.limit:
		return tooLargeFor(c.limit)
	case c.gzipped && c.integration.Spec.Verify != nil:
		return problemEncoding.WithDetail("The integration requires signatures of the body as it is: send it uncompressed.")
	}
	return nil
}

// bodyMemory returns how much memory reading the request's body may take.
func (c *checked) bodyMemory() int64 {
	unknown := c.limit + firstRead
	size := c.ContentLength
	if size < 0 {
		size = unknown
	}
	if c.gzipped {
		size += unknown
	}
	return max(size+2*bytes.MinRead, minBodyMemory)
}

// readAll reads at most limit bytes, into memory for the first ones or, if there are more, for all. A buffer that grows would
// hold up to three times as much, more than is reserved.
func readAll(source io.Reader, first, limit int64) ([]byte, error) {
	source = http.MaxBytesReader(nil, io.NopCloser(source), limit)
	part := bytes.NewBuffer(make([]byte, 0, first+bytes.MinRead))
	if n, err := part.ReadFrom(io.LimitReader(source, first)); err != nil || n < first {
		return part.Bytes(), err
	}
	whole := bytes.NewBuffer(make([]byte, 0, limit+bytes.MinRead))
	whole.Write(part.Bytes())
	_, err := whole.ReadFrom(source)
	return whole.Bytes(), err
}

// bodyProblem returns the problem of an error of reading a body within a limit, or another one if the error tells nothing.
func bodyProblem(err error, limit int64, otherwise *problem) *problem {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return tooLargeFor(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &problemSlow
	case errors.Is(err, io.EOF): // not even the header of gzip
		return &problemEmpty
	}
	return otherwise
}

var inflaters = sync.Pool{New: func() any { return new(gzip.Reader) }}

// inflate decompresses at most limit bytes. When there are more, it fails as the http.MaxBytesReader does.
func inflate(source io.Reader, limit int64) ([]byte, error) {
	unzip, _ := inflaters.Get().(*gzip.Reader)
	defer inflaters.Put(unzip)
	if err := unzip.Reset(source); err != nil {
		return nil, err
	}
	return readAll(unzip, firstRead, limit)
}
