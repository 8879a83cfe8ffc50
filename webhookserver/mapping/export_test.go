package mapping

import (
	"context"
	"time"
)

// CostOf is the most that the expressions for one alert of a payload cost.
func CostOf(p *Program, body any, received time.Time) uint64 {
	const all = 1 << 40
	r := &reader{program: p, vars: variables{payload: body, received: received}, ctx: context.Background(), costLeft: all}
	defer r.close()
	elements, err := r.elements(body)
	if err != nil {
		return 0
	}
	most := uint64(0)
	for _, element := range elements {
		b := builder{reader: r, element: element}
		r.begin(element, len(elements))
		r.costLeft = all
		r.dropped(&b.out)
		b.evaluate()
		most = max(most, all-r.costLeft)
	}
	return most
}

// MaxAlertCost is what they may cost.
const MaxAlertCost = maxAlertCost

// Discards reports whether the mapping discards what is at a path of keys and indexes in the payload.
func (p *Program) Discards(at []any) bool {
	for _, d := range p.discards {
		same := len(d.steps) > 0 && len(d.steps) <= len(at)
		for i := 0; same && i < len(d.steps); i++ {
			same = any(d.steps[i].key) == at[i] || d.steps[i].isIndex && at[i] == int(d.steps[i].index)
		}
		if same {
			return true
		}
	}
	return false
}
