package mapping

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// HiddenHeaders returns the number of headers that expressions do not see.
func HiddenHeaders() int { return len(hiddenHeaders) }

// WorkOf is the most work that the expressions for one alert of a payload do.
func WorkOf(p *Program, body any, received time.Time) int {
	r := newReader(p, body, nil, received)
	elements, err := r.elements()
	if err != nil {
		return 0
	}
	most := 0
	for _, element := range elements {
		r.extraLeft = maxExtraWork
		r.evaluateAlert(element, 1)
		most = max(most, maxAlertWork+maxExtraWork-r.meter.left)
	}
	return most
}

// Recognize returns the work of recognizing a payload.
func Recognize(p *Program, body any, received time.Time) int {
	r := newReader(p, body, nil, received)
	r.recognize()
	return maxRecognitionWork - r.meter.left
}

// HasPath reports whether a payload has a path of a recognition.
func HasPath(body any, path string) bool {
	_, found := valueAt(body, strings.Split(path, "."))
	return found
}

// The limits of work.
const (
	MaxAlertWork       = maxAlertWork
	MaxRecognitionWork = maxRecognitionWork
)

// discards returns the paths that the mapping discards.
func (p *Program) discards() (all []*path) {
	for _, e := range p.expressions {
		if e != nil {
			all = append(all, e.discards...)
		}
	}
	return all
}

// Discards reports whether the mapping discards what is at a path of keys and indexes in the payload, in any alert of it
// and in whatever payload.
func (p *Program) Discards(place []any) bool {
	at := steps(place)
	return slices.ContainsFunc(p.discards(), func(d *path) bool {
		if d.conditional || len(d.steps) == 0 {
			return false
		}
		for skipped := range min(len(at), 3) { // the alert may be an element of a list in the payload
			if rest := at[skipped:]; len(d.steps) <= len(rest) && slices.Equal(d.steps, rest[:len(d.steps)]) {
				return true
			}
		}
		return false
	})
}

// DiscardsValue reports whether the mapping discards a value there, because it is a constant that says nothing.
func (p *Program) DiscardsValue(place []any, value any) bool {
	at := steps(place)
	return p.Discards(place) || slices.ContainsFunc(p.discards(), func(d *path) bool {
		return d.conditional && slices.Equal(d.steps, at) && isSame(d.constant, value)
	})
}

func steps(place []any) []string {
	var steps []string
	for _, step := range place {
		steps = append(steps, fmt.Sprint(step))
	}
	return steps
}
