// Package maintenance evaluates MaintenanceWindows. It reads no clock.
package maintenance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/cronspec"
)

const (
	// maxLinks bounds the openings that follow each other without a break, and are looked at to find when the last one ends.
	maxLinks = 16

	// maxKnown bounds the openings of a recurring window that are computed ahead: rare ones take a search through years, and every
	// fold asks for them.
	maxKnown = 32

	// maxOverlaps bounds how often in a row a recurring window may open again before it ends. One that does so for ever would
	// mute for ever.
	maxOverlaps = 100
)

// Window is a MaintenanceWindow that can be evaluated. It never changes, and may be used by many goroutines.
type Window struct {
	*v1alpha1.MaintenanceWindow
	schedule cron.Schedule // nil: it is open once
	known    *atomic.Pointer[known]
}

// known are the first openings that a recurring window has after a time, or at it. Other ones begin at the time until, or later;
// zero: there are none.
type known struct {
	after, until time.Time
	openings     []time.Time
}

// Plan has windows that are in force together. Nil has none.
type Plan []*Window

// Opening is one opening of a window.
type Opening struct {
	Window string
	Until  time.Time
}

// New returns the plan of some windows. It shares them, and leaves out those that are invalid.
func New(windows ...v1alpha1.MaintenanceWindow) (p Plan) {
	for i := range windows {
		if w, err := Compile(&windows[i]); err == nil {
			p = append(p, w)
		}
	}
	return p
}

// skipping is a schedule without the times before another one.
type skipping struct {
	cron.Schedule
	until *v1alpha1.Timestamp // nil: it has all
}

func (s skipping) Next(after time.Time) time.Time {
	if s.until == nil || !after.Before(s.until.Time) {
		return s.Schedule.Next(after)
	}
	return s.Schedule.Next(s.until.Add(-time.Nanosecond))
}

// Compile returns a window that can be evaluated, and shares the object. It checks what the schema cannot, and what reaches a
// client without a schema.
func Compile(window *v1alpha1.MaintenanceWindow) (*Window, error) {
	w := &Window{MaintenanceWindow: window, known: &atomic.Pointer[known]{}}
	once, recurring := window.Spec.Once, window.Spec.Recurring
	switch {
	case recurring == nil && (once == nil || !once.EndTime.After(once.StartTime.Time)):
		return nil, errors.New("needs an endTime after its startTime, or a cron expression")
	case recurring == nil:
		return w, nil
	case once != nil:
		return nil, errors.New("has once and recurring")
	case recurring.Duration == nil || recurring.Duration.Duration <= 0:
		return nil, errors.New("the cron expression needs a duration")
	}
	schedule, err := cronspec.Parse(recurring.Cron, recurring.TimeZone)
	if err != nil {
		return nil, err
	}
	w.schedule = schedule
	opens := w.schedule.Next(time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)) // a leap year
	for range maxOverlaps {
		next := w.schedule.Next(opens)
		if next.IsZero() || next.After(opens.Add(w.length())) {
			w.schedule = skipping{w.schedule, recurring.SkipUntil}
			return w, nil
		}
		opens = next
	}
	return nil, fmt.Errorf("the window never closes: it is open for %s, and cron expression %q opens it again before that has "+
		"passed", w.length(), recurring.Cron)
}

func (w *Window) length() time.Duration { return w.Spec.Recurring.Duration.Duration }

// Opening returns from when and until when the window is open at a time, as its oldest opening then has it; zero if it is not.
func (w *Window) Opening(at time.Time) (from, until time.Time) {
	w.learn(at)
	return w.opening(at)
}

func (w *Window) opening(at time.Time) (from, until time.Time) {
	if once := w.Spec.Once; once != nil {
		if !at.Before(once.StartTime.Time) && at.Before(once.EndTime.Time) {
			return once.StartTime.Time, once.EndTime.Time
		}
		return from, until
	}
	if opens := w.opens(at.Add(-w.length())); !opens.IsZero() && !opens.After(at) {
		return opens, opens.Add(w.length())
	}
	return from, until
}

// Next returns the first opening that begins after a time; zero if there is none.
func (w *Window) Next(at time.Time) (from, until time.Time) {
	if once := w.Spec.Once; once != nil {
		if at.Before(once.StartTime.Time) {
			return once.StartTime.Time, once.EndTime.Time
		}
		return from, until
	}
	w.learn(at)
	if from = w.opens(at); !from.IsZero() {
		until = from.Add(w.length())
	}
	return from, until
}

// opens returns when a recurring window opens next after a time; zero if it does not.
func (w *Window) opens(after time.Time) time.Time {
	k := w.known.Load()
	if k == nil || after.Before(k.after) || !k.until.IsZero() && !after.Before(k.until) {
		return w.schedule.Next(after)
	}
	for _, opens := range k.openings {
		if opens.After(after) {
			return opens
		}
	}
	return k.until
}

// learn computes the openings ahead of a time, unless they are known.
func (w *Window) learn(at time.Time) {
	if w.schedule == nil {
		return
	}
	after := at.Add(-w.length())
	if k := w.known.Load(); k != nil && !after.Before(k.after) && (k.until.IsZero() || at.Before(k.until)) {
		return
	}
	k := &known{after: after}
	next := w.schedule.Next(after)
	for ; !next.IsZero() && len(k.openings) < maxKnown; next = w.schedule.Next(next) {
		k.openings = append(k.openings, next)
	}
	k.until = next
	w.known.Store(k)
}

// Covers reports whether the window is for the Incidents of an integration.
func (w *Window) Covers(integration *v1alpha1.WebhookIntegration) bool {
	selection := w.Spec.Integrations
	switch {
	case selection == nil:
		return true
	case selection.Selector == nil:
		return slices.Contains(selection.Names, integration.Name)
	}
	for name, value := range selection.Selector.MatchLabels {
		if has, ok := integration.Labels[name]; !ok || has != string(value) {
			return false
		}
	}
	return len(selection.Selector.MatchLabels) > 0
}

func (w *Window) matches(content *v1alpha1.AlertContent) bool {
	m := w.Spec.Match
	if m == nil {
		return true
	}
	if len(m.Severities) > 0 && !slices.Contains(m.Severities, content.Severity) {
		return false
	}
	for name, value := range m.Labels {
		if has, ok := content.Labels[name]; !ok || has != string(value) {
			return false
		}
	}
	return true
}

// Mutes implements fold.Muting. The window is the one of the last of the openings that overlap or follow each other without a
// break, and until its end the Incident stays muted. If there are too many of them, it is the first, and there is no end.
func (p Plan) Mutes(content *v1alpha1.AlertContent, at time.Time) (window string, until time.Time, muted bool) {
	for _, w := range p {
		w.learn(at) // not of later times, at which only this call looks
	}
	var first string
	for range maxLinks {
		var link Opening
		for _, w := range p {
			if w.matches(content) {
				if _, until := w.opening(at); until.After(link.Until) {
					link = Opening{w.Name, until}
				}
			}
		}
		if link.Until.IsZero() {
			return window, until, muted
		}
		first = cmp.Or(first, link.Window)
		window, until, at, muted = link.Window, link.Until, link.Until, true
	}
	return first, time.Time{}, true
}

// Open returns the openings at a time, in the order of the windows, each until its own end.
func (p Plan) Open(at time.Time) (open []Opening) {
	for _, w := range p {
		if _, until := w.Opening(at); !until.IsZero() {
			open = append(open, Opening{w.Name, until})
		}
	}
	return open
}

// Next returns when a window opens or ends next after a time; zero if none does.
func (p Plan) Next(at time.Time) (next time.Time) {
	for _, w := range p {
		_, change := w.Opening(at)
		if change.IsZero() {
			change, _ = w.Next(at)
		}
		if !change.IsZero() && (next.IsZero() || change.Before(next)) {
			next = change
		}
	}
	return next
}

// Of returns the windows that are for the Incidents of an integration.
func (p Plan) Of(integration *v1alpha1.WebhookIntegration) (own Plan) {
	for _, w := range p {
		if w.Covers(integration) {
			own = append(own, w)
		}
	}
	return own
}
