package mapping

import "time"

// CostOf is what the expressions for a payload cost.
func CostOf(p *Program, body any, received time.Time) uint64 {
	const all = 1 << 40
	r := &reader{program: p, vars: variables{payload: body, received: received}, costLeft: all}
	defer r.close()
	elements, err := r.elements(body)
	if err != nil {
		return 0
	}
	for _, element := range elements {
		b := builder{reader: r, element: element}
		r.vars.alert = element
		r.dropped(&b.out)
		b.evaluate()
	}
	return all - r.costLeft
}

// AllowedCost is what they may cost.
func AllowedCost(alerts int) uint64 {
	return maxPayloadCost + uint64(alerts)*maxAlertCost
}
