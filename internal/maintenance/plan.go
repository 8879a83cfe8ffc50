// Package maintenance evaluates the maintenance windows of integrations. It does no I/O and reads no clock.
package maintenance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	_ "time/tzdata" // the names of time zones must not depend on the image

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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

	// keptCalls is for how many calls, for each plan, a Cache keeps a plan at least, and minCalls for how many in all. Whoever
	// asks for all plans in turn finds each of them again.
	keptCalls = 8
	minCalls  = 8192
)

// Plan has the windows of an integration, which never change. It may be used by many goroutines. Nil has none.
type Plan struct {
	windows []window
	err     error
}

// window is a window that can be evaluated.
type window struct {
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

// Opening is one opening of a window.
type Opening struct {
	Window  string
	Until   time.Time
	Comment string
}

// New returns the plan for windows. It shares them, and leaves out those that are invalid, see Err.
func New(windows []v1alpha1.MaintenanceWindow) *Plan {
	p := &Plan{}
	var errs []error
	for i := range windows {
		w, err := compile(&windows[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", windows[i].Name, err))
			continue
		}
		p.windows = append(p.windows, w)
	}
	p.err = errors.Join(errs...)
	return p
}

// Err returns why windows are invalid, with a line for each; nil if none is.
func (p *Plan) Err() error { return p.err }

// skipping is a schedule without the times before another one.
type skipping struct {
	cron.Schedule
	until *v1alpha1.Timestamp // nil: it has all
}

// Next returns the first time after another one; zero if there is none.
func (s skipping) Next(after time.Time) time.Time {
	if s.until == nil || !after.Before(s.until.Time) {
		return s.Schedule.Next(after)
	}
	return s.Schedule.Next(s.until.Add(-time.Nanosecond))
}

// parser reads what the schema of the field admits. An interval (@every) would count from whenever it is evaluated.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// compile returns a window that can be evaluated. It checks what the schema cannot, and what reaches a client without a schema.
func compile(spec *v1alpha1.MaintenanceWindow) (w window, err error) {
	w.MaintenanceWindow, w.known = spec, &atomic.Pointer[known]{}
	switch {
	case spec.Schedule == "" && (spec.StartTime == nil || spec.EndTime == nil || !spec.EndTime.After(spec.StartTime.Time)):
		return w, errors.New("needs an endTime after its startTime, or a schedule")
	case spec.Schedule == "":
		return w, nil
	case spec.Duration == nil || spec.Duration.Duration <= 0:
		return w, errors.New("the schedule needs a duration")
	}
	if w.schedule, err = parse(spec.Schedule, spec.TimeZone); err != nil {
		return w, err
	}
	opens := w.schedule.Next(time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)) // a leap year
	if opens.IsZero() {
		return w, fmt.Errorf("schedule %q names no day that exists", spec.Schedule)
	}
	for range maxOverlaps {
		next := w.schedule.Next(opens)
		if next.IsZero() || next.After(opens.Add(spec.Duration.Duration)) {
			w.schedule = skipping{w.schedule, spec.SkipUntil}
			return w, nil
		}
		opens = next
	}
	return w, fmt.Errorf("the window never closes: it is open for %s, and schedule %q opens it again before that has passed",
		spec.Duration.Duration, spec.Schedule)
}

// parse returns a schedule in a time zone.
func parse(expression, zone string) (cron.Schedule, error) {
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, fmt.Errorf("timeZone %q is not in the IANA database", zone)
	}
	if strings.Contains(expression, "=") || strings.HasPrefix(expression, "@every") {
		return nil, fmt.Errorf("schedule %q is not a cron expression", expression)
	}
	schedule, err := parser.Parse(expression)
	if err != nil {
		return nil, fmt.Errorf("schedule %q is not a cron expression: %w", expression, err)
	}
	if s, ok := schedule.(*cron.SpecSchedule); ok {
		s.Location = location
	}
	return schedule, nil
}

// end returns when the oldest opening at a time ends; zero if the window is not open then.
func (w *window) end(at time.Time) (end time.Time) {
	if w.schedule == nil {
		if !at.Before(w.StartTime.Time) && at.Before(w.EndTime.Time) {
			end = w.EndTime.Time
		}
		return end
	}
	opens := w.opening(at.Add(-w.Duration.Duration))
	if !opens.IsZero() && !opens.After(at) {
		end = opens.Add(w.Duration.Duration)
	}
	return end
}

// opening returns when a recurring window opens next after a time; zero if it does not.
func (w *window) opening(after time.Time) time.Time {
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
func (w *window) learn(at time.Time) {
	if w.schedule == nil {
		return
	}
	after := at.Add(-w.Duration.Duration)
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

// next returns when the window opens or ends next after a time; zero if it does not.
func (w *window) next(at time.Time) (next time.Time) {
	if end := w.end(at); !end.IsZero() {
		return end
	}
	switch {
	case w.schedule != nil:
		return w.opening(at)
	case at.Before(w.StartTime.Time):
		return w.StartTime.Time
	}
	return next
}

// matches reports whether the window mutes Incidents with this content.
func (w *window) matches(content *v1alpha1.AlertContent) bool {
	m := w.Match
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

// Mutes reports whether an Incident with this content is muted at a time. The opening is the last of those that overlap or follow
// each other without a break, and until its end the Incident stays muted. If there are too many of them, it has no end.
func (p *Plan) Mutes(content *v1alpha1.AlertContent, at time.Time) (last Opening, muted bool) {
	if p == nil {
		return last, false
	}
	p.learn(at)
	var first Opening
	for range maxLinks {
		var link Opening
		for i := range p.windows {
			if w := &p.windows[i]; w.matches(content) {
				if end := w.end(at); end.After(link.Until) {
					link = Opening{w.Name, end, w.Comment}
				}
			}
		}
		if link.Until.IsZero() {
			return last, muted
		}
		first = cmp.Or(first, link)
		last, at, muted = link, link.Until, true
	}
	first.Until = time.Time{}
	return first, true
}

// learn computes the openings ahead of a time, unless they are known.
func (p *Plan) learn(at time.Time) {
	for i := range p.windows {
		p.windows[i].learn(at)
	}
}

// Open returns the openings at a time, in the order of the spec, each until its own end.
func (p *Plan) Open(at time.Time) (open []Opening) {
	if p == nil {
		return nil
	}
	p.learn(at)
	for i := range p.windows {
		w := &p.windows[i]
		if end := w.end(at); !end.IsZero() {
			open = append(open, Opening{w.Name, end, w.Comment})
		}
	}
	return open
}

// Next returns when a window opens or ends next after a time; zero if none does.
func (p *Plan) Next(at time.Time) (next time.Time) {
	if p == nil {
		return next
	}
	p.learn(at)
	for i := range p.windows {
		if change := p.windows[i].next(at); !change.IsZero() && (next.IsZero() || change.Before(next)) {
			next = change
		}
	}
	return next
}

// Cache keeps the plans of integrations, which are needed at every fold, until nobody has asked for them for many calls. Their
// number has no other bound: a plan has little more than its integration, and takes long to make.
type Cache struct {
	mu            sync.Mutex
	plans, former map[planKey]func() *Plan // those asked for of late, and before
	calls         int                      // since plans was empty
}

// NewCache returns an empty Cache.
func NewCache() *Cache { return &Cache{plans: map[planKey]func() *Plan{}} }

// planKey is a version of an integration's spec.
type planKey struct {
	uid        types.UID
	generation int64
}

// Of returns the plan of an integration, which may be nil and must not be modified afterwards; nil if it has no windows.
func (c *Cache) Of(integration *v1alpha1.WebhookIntegration) *Plan {
	if integration == nil || len(integration.Spec.Maintenance) == 0 {
		return nil
	}
	return c.find(planKey{integration.UID, integration.Generation}, integration.Spec.Maintenance)()
}

// find returns a function that returns the plan, and makes it if it is the first to be asked.
func (c *Cache) find(key planKey, windows []v1alpha1.MaintenanceWindow) func() *Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.calls > max(minCalls, keptCalls*len(c.plans)) {
		c.plans, c.former, c.calls = map[planKey]func() *Plan{}, c.plans, 0
	}
	plan, known := c.plans[key]
	if !known {
		if plan, known = c.former[key]; !known {
			plan = sync.OnceValue(func() *Plan { return New(windows) })
		}
		c.plans[key] = plan
	}
	return plan
}
