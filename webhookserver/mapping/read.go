package mapping

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// Result is what a payload was read as.
type Result struct {
	Alerts   []Alert           // in the order of the payload
	Preset   string            // that the payload was read with; empty if there was none
	Warnings []payload.Warning // about the payload as a whole
	Failures []Failure         // each expression once, those first that matter most
}

// Failure is an expression that failed on a payload, and would fail on it again.
type Failure struct {
	Field      string // that the expression is of, as in a mapping: "title", "alerts", "drop"
	Expression string // its source
	Message    string // why it failed for the first time, in one line that may quote the payload
	Count      int    // how often it failed
}

// ErrInterrupted says that the time for evaluating ran out. Another attempt may succeed. It is an error because
// what a payload means must not depend on how busy the machine is.
var ErrInterrupted = errors.New("the mapping took too long")

// Alert is one alert of a payload.
type Alert struct {
	v1alpha1.Alert

	Dropped   bool              // accepted but not to be stored: the mapping wants it so, or it is Forwarded
	Forwarded bool              // a Tocsin forwarded it to an Alertmanager, and it came back from there
	Warnings  []payload.Warning // what was not taken as sent or as mapped

	from   [fieldCount]*expression // those that gave a field
	object map[string]any          // what was normalised
}

// TooManyError says that a payload has more alerts than are read at a time.
type TooManyError struct{ Count int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("the payload has %d alerts; at most %d are read at a time", e.Count, MaxAlerts)
}

// Mapped reports whether the program has expressions, or may get those of a preset.
func (p *Program) Mapped() bool {
	return p.auto || slices.ContainsFunc(p.expressions[:], func(e *expression) bool { return e != nil })
}

// Forget drops what the alert refers to of the payload. Without it there are no Sources.
func (a *Alert) Forget() { a.object = nil }

// Alerts reads a payload, as payload.ParseAny gives it, as alerts. headers are those of the request, received
// is when it came in. When ctx ends before all is evaluated the error is ErrInterrupted. The other errors are
// ErrNotObject of the package payload and *TooManyError; both are about the payload and would come without a
// mapping too. Neither the payload nor the headers are changed.
func (p *Program) Alerts(ctx context.Context, body any, headers http.Header, received time.Time) (Result, error) {
	r := newReader(ctx, p, body, headers, received)
	if p.broken {
		r.warn("the mapping of the integration does not compile; the payload is read without it")
	}
	if p.auto {
		r.recognize()
		r.meter.left = maxFindWork
	}
	if Groups(r.program.preset) {
		r.extraLeft += groupByteWork * weighNative(body, math.MaxInt/groupByteWork/2)
	}
	elements, err := r.elements(body)
	if err != nil {
		return Result{}, r.orInterrupted(err)
	}
	if len(elements) > MaxAlerts {
		return Result{}, r.orInterrupted(&TooManyError{Count: len(elements)})
	}
	if len(elements) == 0 {
		r.warn("the payload holds no alert; nothing is stored")
	}
	builders := make([]builder, len(elements))
	for i, element := range elements {
		b := r.newBuilder(element)
		r.begin(element, len(elements))
		b.out.Dropped = r.dropped(&b.out)
		b.evaluate()
		r.end()
		builders[i] = b
		if ctx.Err() != nil {
			break
		}
	}
	if err := r.orInterrupted(nil); err != nil {
		return Result{}, err
	}
	once := r.share(builders)
	result := Result{Preset: r.program.preset, Alerts: make([]Alert, 0, len(elements))}
	for i := range builders {
		alert := builders[i].normalise()
		alert.Preset = r.program.recognized
		result.Alerts = append(result.Alerts, alert)
		if once {
			r.shared = nil
		}
	}
	r.bound(&result)
	result.Warnings, result.Failures = r.warnings, r.sortedFailures()
	return result, nil
}

type reader struct {
	ctx      context.Context // ends the evaluation
	program  *Program
	body     any // the payload
	alert    any // the current one; nil while they are looked for
	vars     variables
	meter    meter
	warnings []payload.Warning
	failures []Failure

	granted   int // the work that the current alert may do
	extraLeft int // the work for alerts that need more than maxAlertWork

	list   any            // what the expression alerts gave; nil if it did not find the alerts
	shared map[string]any // what is left of the payload around that list
}

func newReader(ctx context.Context, p *Program, body any, headers http.Header, received time.Time) *reader {
	r := &reader{ctx: ctx, program: p, body: body, meter: meter{left: maxFindWork}, extraLeft: maxExtraWork,
		vars: variables{header: headers, received: received}}
	r.vars.meter = &r.meter
	return r
}

func (r *reader) newBuilder(element any) builder {
	none := func() leftovers { return leftovers{whole: map[identity]bool{}, keys: map[string]bool{}} }
	return builder{reader: r, element: element, isPayload: isSame(element, r.body), left: none(), around: none()}
}

func (r *reader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, payload.Warning{Detail: fmt.Sprintf(format, args...)})
}

// elements returns the alerts in a payload, as they were sent.
func (r *reader) elements(body any) ([]any, error) {
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
			r.warn("the mapping could not find the alerts (%s); the payload itself is read as one", oneLine(err.Error()))
		} else {
			r.warn("the mapping found no list of alerts; the payload itself is read as one")
		}
	}
	switch v := body.(type) {
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

// begin sets how much work the expressions of an alert, one of several, may do. That does not depend on what its
// neighbours need, unless several of them need very much.
func (r *reader) begin(element any, several int) {
	r.alert = element
	r.granted = maxAlertWork + min(r.extraLeft, maxExtraWork/min(several, maxExtraShares))
	r.meter.left = r.granted
}

// end subtracts what an alert needed beyond maxAlertWork from what is left for such alerts.
func (r *reader) end() {
	r.extraLeft -= max(0, r.granted-r.meter.left-maxAlertWork)
}

// orInterrupted returns err, or ErrInterrupted if the time has run out.
func (r *reader) orInterrupted(err error) error {
	if r.ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// fail counts the failure of an expression.
func (r *reader) fail(e *expression, err error) {
	for i := range r.failures {
		if r.failures[i].Field == e.name {
			r.failures[i].Count++
			return
		}
	}
	r.failures = append(r.failures, Failure{Field: e.name, Expression: e.source, Message: oneLine(err.Error()), Count: 1})
}

// failureOrder are the expressions whose failure changes what becomes of an incident, the worst first.
var failureOrder = []string{"alerts", "dedupKey", "status", "drop"}

// sortedFailures returns the failures in an order that does not depend on that of the alerts.
func (r *reader) sortedFailures() []Failure {
	rank := func(f Failure) int {
		if at := slices.Index(failureOrder, f.Field); at >= 0 {
			return at
		}
		return len(failureOrder)
	}
	slices.SortStableFunc(r.failures, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Field, b.Field))
	})
	return r.failures
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
		out.warn("", "the mapping could not tell whether to drop the alert (%s); it is kept", oneLine(err.Error()))
	}
	return drop
}

func (a *Alert) warn(field, format string, args ...any) {
	a.Warnings = append(a.Warnings, payload.Warning{Field: field, Detail: fmt.Sprintf(format, args...)})
}

// bound keeps all alerts together within maxContentTotal, or maxGroupTotal. Only a mapping that puts the same large thing into
// many alerts comes near it.
func (r *reader) bound(result *Result) {
	total := maxContentTotal
	if Groups(r.program.preset) {
		total = maxGroupTotal
	}
	allowed := total
	for i := range result.Alerts {
		allowed -= perAlert + len(`\u003c`)*len(result.Alerts[i].DedupKey) // the JSON of <
	}
	allowed = max(allowed, minContentTotal)
	if len(result.Alerts)*alertcontent.MaxBytes <= allowed {
		return // they are few, and each is within its bound
	}
	sizes, size := make([]int, len(result.Alerts)), 0
	for i := range result.Alerts {
		sizes[i] = alertcontent.Size(&result.Alerts[i].AlertContent)
		size += sizes[i]
	}
	if size <= allowed {
		return
	}
	limit := share(sizes, allowed)
	for i := range result.Alerts {
		if sizes[i] > limit {
			result.Alerts[i].shrink(limit, total)
		}
	}
}

// share returns the most that each may have so that all together have no more than total: what is smaller
// leaves its rest to the others.
func share(sizes []int, total int) int {
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
		a.warn("", "the alerts of the payload are larger than %d bytes as stored; dropped from this one: %s",
			total, oneLine(strings.Join(dropped, ", ")))
	case cut:
		a.warn("", "the alerts of the payload are larger than %d bytes as stored; the texts of this one were cut", total)
	}
}
