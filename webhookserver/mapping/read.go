package mapping

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// Result is what a payload was read as.
type Result struct {
	Alerts   []Alert           // in the order of the payload
	Preset   string            // that the payload was read with; empty if there was none
	Warnings []payload.Warning // about the payload as a whole
	Failures []Failure         // each expression once, those first that matter most

	// Handshake is what a person has to do before the tool sends alerts; empty: nothing.
	Handshake string
}

// Failure is an expression that failed on a payload, and would fail on it again.
type Failure struct {
	Field      string // that the expression is of, as in a mapping: "title", "alerts", "drop"
	Expression string // its source
	Message    string // why it failed for the first time, in one line that may quote the payload
	Count      int    // how often it failed
}

// ErrInterrupted says that the time for evaluating ran out. Another attempt may succeed.
var ErrInterrupted = errors.New("the mapping took too long")

// Alert is one alert of a payload.
type Alert struct {
	v1alpha1.Alert

	Dropped   bool              // accepted but not to be stored: the mapping wants it so
	DroppedBy string            // the drop expression that matched, shortened; empty if none did
	Hops      int               // how many Tocsins have forwarded it
	Returned  string            // why the webhook server dropped it for its Hops; empty if it did not
	Warnings  []payload.Warning // what was not taken as sent or as mapped

	From origins.Origins            // where its fields come from; see TellOrigins
	by   [origins.Count]*expression // those that gave a field
}

// TooManyError says that a payload has more alerts than are read at a time.
type TooManyError struct{ Count int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("the payload has %d alerts; at most %d are read at a time", e.Count, MaxAlerts)
}

// Mapped reports whether the program has expressions, or may get those of a preset.
func (p *Program) Mapped() bool { return p.auto || p.hasExpressions() }

func (p *Program) hasExpressions() bool {
	return slices.ContainsFunc(p.expressions[:], func(e *expression) bool { return e != nil })
}

// Alerts reads a payload, as payload.ParseAny gives it, as alerts. headers are those of the request, received is when it came
// in. The errors are payload.ErrNotObject and *TooManyError, which would come without a mapping too. It changes neither the
// payload nor the headers.
func (p *Program) Alerts(body any, headers http.Header, received time.Time) (Result, error) {
	return p.AlertsWithQuery(nil, body, nil, headers, received)
}

// AlertsWithQuery does what Alerts does for a payload that gets the fields which it lacks from the query, see
// payload.WithMissingFields. It is recognized as it was sent, and what it says under any name of a field stays. When the
// Pauser, nil for none, says that the time is over before all is evaluated, the error is ErrInterrupted.
func (p *Program) AlertsWithQuery(
	pauser Pauser, body any, query map[string]any, headers http.Header, received time.Time,
) (Result, error) {
	r := newReader(p, body, headers, received)
	r.query, r.meter.pauser = query, pauser
	err := r.read()
	switch {
	case err == nil:
		return r.result, nil
	case r.isOver():
		err = ErrInterrupted
	}
	return Result{}, err
}

// Pauser may let others go first.
type Pauser interface {
	// Pause is called about every millisecond while expressions are evaluated.
	Pause()

	// IsOver reports whether the time for evaluating is over.
	IsOver() bool
}

type reader struct {
	program *Program
	body    any // the payload

	query map[string]any // the fields that the payload gets if it lacks them, until they are in the body

	alert  any // the current one; nil while they are looked for
	vars   variables
	meter  meter
	result Result

	extraLeft int // the work for alerts that need more than maxAlertWork

	list   any            // what the expression alerts gave; nil if it did not find the alerts
	shared map[string]any // what is left of the payload around that list
}

func newReader(p *Program, body any, headers http.Header, received time.Time) *reader {
	r := &reader{program: p, body: body, meter: meter{left: maxFindWork}, extraLeft: maxExtraWork,
		vars: variables{header: headers, received: received}}
	r.vars.meter = &r.meter
	return r
}

func (r *reader) begin() {
	switch {
	case r.program.broken && r.program.auto:
		r.warn(payload.PresetUnknown)
	case r.program.broken:
		r.warn(payload.MappingBroken)
	}
	if r.program.auto {
		r.recognize()
		r.meter.left = maxFindWork
	}
	r.result.Preset = r.program.preset
	if r.program.hasExpressions() { // else normalise does, after it has read the names
		r.body, r.query = payload.WithMissingFields(r.body, r.query), nil
	}
}

func (r *reader) read() error {
	r.begin()
	r.readHandshake()
	if Groups(r.program.preset) {
		r.extraLeft += groupByteWork * weighNative(r.body, math.MaxInt/groupByteWork/2)
	}
	elements, err := r.elements()
	if err != nil {
		return err
	}
	if len(elements) > MaxAlerts {
		return &TooManyError{Count: len(elements)}
	}
	if len(elements) == 0 {
		r.tell("the payload holds no alert; nothing is stored")
	}
	builders := make([]*builder, len(elements))
	for i, element := range elements {
		builders[i] = r.evaluateAlert(element, len(elements))
		if r.isOver() {
			return ErrInterrupted
		}
	}
	once := r.share(builders)
	r.result.Alerts = make([]Alert, 0, len(elements))
	for _, b := range builders {
		r.result.Alerts = append(r.result.Alerts, b.normalise())
		if once {
			r.shared = nil
		}
	}
	r.bound()
	slices.SortFunc(r.result.Failures, worstFirst)
	return nil
}

func (r *reader) isOver() bool {
	return r.meter.pauser != nil && r.meter.pauser.IsOver()
}

// readHandshake finds what a person has to do before the tool sends alerts.
func (r *reader) readHandshake() {
	e := r.program.handshake
	if e == nil {
		return
	}
	value, err := r.evaluate(e)
	if text, _ := payload.TextOf(value); err == nil && value != nil && text != "" {
		r.result.Handshake = plaintext.Shorten(plaintext.SanitizeLine(text), maxHandshake)
		r.tell(r.result.Handshake)
	}
}

// evaluateAlert evaluates the expressions for an alert, one of several. How much work they may do does not depend on the others,
// unless several of those need very much.
func (r *reader) evaluateAlert(element any, several int) *builder {
	none := func() leftovers { return leftovers{whole: map[identity]bool{}, keys: map[string]bool{}} }
	b := &builder{reader: r, element: element, isPayload: isSame(element, r.body), left: none(), around: none()}
	r.alert = element
	granted := maxAlertWork + min(r.extraLeft, maxExtraWork/min(several, maxExtraShares))
	r.meter.left = granted
	b.out.Dropped = r.dropped(&b.out)
	b.evaluate()
	r.extraLeft -= max(0, granted-r.meter.left-maxAlertWork)
	return b
}

// normalise assembles the object from the results of the expressions and what they left of the payload, and normalises it.
func (b *builder) normalise() Alert {
	var warnings []payload.Warning
	var named map[string]string
	if element, ok := b.element.(map[string]any); ok && !b.reader.program.hasExpressions() {
		b.object, named, warnings = payload.ReadNames(element) // of our own format: nothing to leave out
		b.out.Warnings = append(b.out.Warnings, warnings...)
		b.addQuery()
	} else {
		b.assemble()
	}
	var keys payload.Keys
	b.out.Alert, keys, warnings = payload.Read(b.object, b.reader.vars.received)
	b.out.Warnings = append(b.out.Warnings, warnings...)
	b.noteOrigins(&keys, named)
	if b.out.Status != v1alpha1.AlertFiring && b.isMessageKey() {
		b.out.DedupKey, b.out.From.Kinds[origins.DedupKey] = "", origins.Absent
		b.out.warn(payload.NoMatch, origins.DedupKey.String(), b.out.Status)
	}
	b.out.Preset = b.reader.program.preset
	if recognized := b.reader.program.recognized; b.out.Dropped && recognized != "" { // nobody has chosen it
		b.out.Warn("", "the preset %s, which recognizes the payload, drops the alert", recognized)
	}
	b.out.Hops = b.hops()
	return b.out
}

// addQuery gives the object the fields that it lacks by now. In a list it gets no key: all alerts would be of one Incident.
func (b *builder) addQuery() {
	query := b.reader.query
	if _, isList := b.reader.body.([]any); isList {
		query = maps.Clone(query)
		delete(query, origins.DedupKey.String())
	}
	b.object, _ = payload.WithMissingFields(b.object, query).(map[string]any)
}

func (r *reader) warn(reason payload.Reason, args ...any) {
	r.result.Warnings = append(r.result.Warnings, reason.Warn("", args...))
}

// tell adds a warning that is not stored.
func (r *reader) tell(detail string) {
	r.result.Warnings = append(r.result.Warnings, payload.Warning{Detail: detail})
}

// elements returns the alerts in a payload, as they were sent.
func (r *reader) elements() ([]any, error) {
	if e := r.program.expressions[alertsIndex]; e != nil {
		value, err := r.evaluate(e)
		switch found := value.(type) {
		case []any:
			r.list = found
			return found, nil
		case map[string]any:
			r.list = found
			return []any{found}, nil
		}
		if err != nil {
			r.fail(e, err)
			r.warn(payload.AlertsNotFound, oneLine(err.Error()))
		} else {
			r.warn(payload.AlertsNoList)
		}
	}
	switch v := r.body.(type) {
	case map[string]any:
		return []any{v}, nil
	case []any:
		for _, element := range v {
			if _, ok := element.(map[string]any); !ok {
				return nil, payload.ErrNotObject
			}
		}
		return v, nil
	}
	return nil, payload.ErrNotObject
}

func (r *reader) fail(e *expression, err error) {
	failures := &r.result.Failures
	at := slices.IndexFunc(*failures, func(f Failure) bool { return f.Field == e.name })
	if at < 0 {
		at = len(*failures)
		*failures = append(*failures, Failure{Field: e.name, Expression: e.source, Message: oneLine(err.Error())})
	}
	(*failures)[at].Count++
}

// worstFirst compares failures by what they change: the last of these fields most, others least.
func worstFirst(a, b Failure) int {
	rank := func(f Failure) int { return slices.Index([]string{"drop", "status", "dedupKey", "alerts"}, f.Field) }
	return cmp.Or(cmp.Compare(rank(b), rank(a)), strings.Compare(a.Field, b.Field))
}

// evaluate returns the value of an expression: nil when it gives nothing.
func (r *reader) evaluate(e *expression) (any, error) {
	r.vars.set(r.alert, r.body)
	r.meter.exceeded = false
	if err := r.meter.spend(e.nodes * nodeWork); err != nil {
		return nil, err
	}
	result, _, err := e.program.Eval(&r.vars)
	if r.meter.exceeded {
		return nil, errTooMuchWork // though a || b made up for it
	}
	if err != nil {
		return nil, errors.New(reword(err.Error()))
	}
	isAlerts := e == r.program.expressions[alertsIndex]
	limit := maxResult
	if isAlerts { // which are parts of the payload, and that may be larger than a field
		limit += weighNative(r.body, math.MaxInt/2)
	}
	value, weight, err := convert(result, limit)
	if err == nil && !isAlerts {
		err = r.meter.spend(weight * resultWork)
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

// dropped reports whether the mapping wants the alert dropped. Anything but a plain true keeps it.
func (r *reader) dropped(out *Alert) bool {
	e := r.program.expressions[dropIndex]
	if e == nil {
		return false
	}
	value, err := r.evaluate(e)
	drop, isBool := value.(bool)
	if err == nil && !isBool && value != nil {
		err = errors.New("it is neither true nor false")
	}
	if err != nil {
		r.fail(e, err)
		out.warn(payload.DropFailed, "", oneLine(err.Error()))
	}
	if drop {
		out.DroppedBy = oneLine(e.source)
	}
	return drop
}

// Warn adds a warning about a field, or about the alert as a whole, that is not stored with it.
func (a *Alert) Warn(field, format string, args ...any) {
	a.Warnings = append(a.Warnings, payload.Warning{Field: field, Detail: fmt.Sprintf(format, args...)})
}

// warn adds a warning whose reason is stored with the alert.
func (a *Alert) warn(reason payload.Reason, field string, args ...any) {
	a.Warnings = append(a.Warnings, reason.Warn(field, args...))
}

// bound keeps all alerts together within maxContentTotal, or maxGroupTotal. Only a mapping that puts the same large thing into
// many alerts comes near it.
func (r *reader) bound() {
	total := maxContentTotal
	if Groups(r.program.preset) {
		total = maxGroupTotal
	}
	alerts, allowed := r.result.Alerts, total
	sizes, size := make([]int, len(alerts)), 0
	for i := range alerts {
		allowed -= perAlert + len(`\u003c`)*len(alerts[i].DedupKey) // the JSON of <
		sizes[i] = alertcontent.Size(&alerts[i].AlertContent)
		size += sizes[i]
	}
	if allowed = max(allowed, minContentTotal); size <= allowed {
		return
	}
	limit := fairLimit(sizes, allowed)
	for i := range alerts {
		if sizes[i] > limit {
			alerts[i].shrink(limit, total)
		}
	}
}

// fairLimit returns the most that each may have so that all together have no more than total: what is smaller
// leaves its rest to the others.
func fairLimit(sizes []int, total int) int {
	sorted := slices.Sorted(slices.Values(sizes))
	for i, size := range sorted {
		each := total / (len(sorted) - i)
		if size > each {
			return each
		}
		total -= size
	}
	return total
}

// shrink brings the content down to limit bytes: the largest entries of the bags go first, then the texts
// are cut. total is the bound of all alerts, for the warning.
func (a *Alert) shrink(limit, total int) {
	dropped := alertcontent.TrimTo(&a.AlertContent, limit)
	cut := alertcontent.Size(&a.AlertContent) > limit
	if cut {
		for _, text := range []*string{&a.Title, &a.Description, &a.Type, &a.Link, &a.Hostname, &a.Region} {
			*text = payload.CutBytes(*text, limit/16)
		}
	}
	switch {
	case len(dropped) > 0:
		a.warn(payload.AlertsTooLarge, "", total, oneLine(strings.Join(dropped, ", ")))
	case cut:
		a.warn(payload.TextsCut, "", total)
	}
}
