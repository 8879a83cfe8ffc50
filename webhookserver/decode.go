package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// decoder turns bodies into alerts.
type decoder struct {
	memory   *memoryBudget
	mappings *mapping.Cache
	timeout  time.Duration // of a mapping, for one request
	reports  reporter
}

// decodedAlerts are the alerts of a body.
type decodedAlerts struct {
	alerts   []mapping.Alert
	sources  [][]mapping.Source // of each alert; only for dryRun
	warnings []payload.Warning
}

// kept returns the alerts that the mapping does not drop.
func (d *decodedAlerts) kept() []v1alpha1.Alert {
	alerts := make([]v1alpha1.Alert, 0, len(d.alerts))
	for i := range d.alerts {
		if !d.alerts[i].Dropped {
			alerts = append(alerts, d.alerts[i].Alert)
		}
	}
	return alerts
}

// decode decodes a body and evaluates the integration's mapping, if it has one. The decoded body counts against
// the memory budget as long as anything refers to it.
func (d *decoder) decode(x *exchange, body []byte) (*decodedAlerts, *problem) {
	text := body
	if json, ok := payload.FromForm(body); ok {
		text = json
	}
	size := payload.Footprint(text)
	if size > maxDecodedMemory {
		return nil, &problemTooComplex
	}
	memory := d.memory.reserve(x.sender(), size, maxDecodeWait)
	if memory == nil {
		return nil, &problemOverload
	}
	defer memory.release()
	value, warnings, err := payload.ParseAny(text)
	if err != nil {
		return nil, syntaxProblem(err)
	}
	result, p := d.evaluate(x, value)
	if p != nil {
		return nil, p
	}
	decoded := &decodedAlerts{alerts: result.Alerts, warnings: allWarnings(warnings, &result)}
	identify(decoded.alerts, x.integration.Name, x.key, body)
	for i := range decoded.alerts {
		if x.dryRun {
			decoded.sources = append(decoded.sources, decoded.alerts[i].Sources())
		}
		decoded.alerts[i].Forget()
	}
	return decoded, nil
}

// evaluate applies the integration's mapping to a decoded body.
func (d *decoder) evaluate(x *exchange, value any) (mapping.Result, *problem) {
	program, err := d.mappings.Program(x.integration)
	if err != nil {
		unusableMappings.WithLabelValues(x.integration.Namespace, x.integration.Name).Inc()
	}
	ctx := context.Background()
	if program.Mapped() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.timeout)
		defer cancel()
	}
	result, err := program.Alerts(ctx, value, x.Header, x.start)
	var tooMany *mapping.TooManyError
	switch {
	case errors.Is(err, mapping.ErrInterrupted):
		return result, &problemMappingTimeout
	case errors.As(err, &tooMany):
		return result, problemTooManyAlerts.withDetail(tooMany.Error() + ".")
	case errors.Is(err, payload.ErrNotObject):
		return result, &problemNotObject
	case err != nil:
		return result, problemNotObject.withDetail(v1alpha1.SanitizeLine(err.Error()))
	}
	if len(result.Failures) > 0 && !x.dryRun {
		observeMappingFailures(x.integration, result.Failures)
		d.reports.reportFailures(x.integration, result.Failures)
	}
	return result, nil
}

// syntaxProblem returns the problem for an error of payload.ParseAny.
func syntaxProblem(err error) *problem {
	var syntax *payload.SyntaxError
	switch {
	case errors.Is(err, payload.ErrEmpty):
		return &problemEmpty
	case errors.Is(err, payload.ErrTooDeep):
		return &problemTooDeep
	case errors.As(err, &syntax):
		p := problemSyntax.withDetail(fmt.Sprintf("At byte %d: %s.", syntax.Offset, strings.TrimSuffix(syntax.Detail, ".")))
		p.offset = &syntax.Offset
		return p
	default:
		return problemSyntax.withDetail("It could not be decoded.")
	}
}

// allWarnings lists the warnings about the body and about each alert, for the answer.
func allWarnings(ofBody []payload.Warning, result *mapping.Result) []payload.Warning {
	warnings := append(append([]payload.Warning{}, ofBody...), result.Warnings...) // an empty list, not null
	for i := range result.Alerts {
		for _, warning := range result.Alerts[i].Warnings {
			if len(result.Alerts) > 1 {
				warning.Field = fmt.Sprintf("[%d].%s", i, warning.Field)
			}
			if len(warnings) < maxWarnings {
				warnings = append(warnings, warning)
			}
		}
	}
	return warnings
}
