package mapping

import (
	"context"
	"slices"
	"time"
)

// WorkOf is the most work that the expressions for one alert of a payload do.
func WorkOf(p *Program, body any, received time.Time) int {
	r := newReader(context.Background(), p, body, nil, received)
	elements, err := r.elements(body)
	if err != nil {
		return 0
	}
	most := 0
	for _, element := range elements {
		b := builder{reader: r, element: element}
		r.begin(element, 1)
		r.dropped(&b.out)
		b.evaluate()
		most = max(most, r.granted-r.meter.left)
	}
	return most
}

// MaxAlertWork is what they may do.
const MaxAlertWork = maxAlertWork

// Discards reports whether the mapping discards what is at a path of keys and indexes in the payload.
func (p *Program) Discards(at []any) bool {
	return slices.ContainsFunc(p.discards, func(d *path) bool {
		return len(d.steps) > 0 && len(d.steps) <= len(at) && slices.Equal(d.steps, at[:len(d.steps)])
	})
}
