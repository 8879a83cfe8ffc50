package simulation

import (
	"slices"
	"sync"
	"time"
)

const (
	// foldTime is how long an alert waits at most until it is folded, when nothing disturbs its namespace.
	foldTime = 10 * time.Second

	// calmAfter is how long after a fault replicas may still be busy with it: a new leader has to be found, and failed calls
	// are tried again with delays of up to half a minute.
	calmAfter = time.Minute
)

// disturbances knows what may slow down the folds of a namespace, and when. A fault of one namespace slows down no other one.
type disturbances struct {
	mu    sync.Mutex
	spans []disturbance
}

// disturbance is a time in which a namespace is disturbed, or every one if none is named.
type disturbance struct {
	namespace   string
	from, until time.Time
}

func (d *disturbances) add(namespace string, from, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spans = append(d.spans, disturbance{namespace, from, until})
}

// note notes an operation that begins now.
func (d *disturbances) note(o operation) {
	namespace, length, disturbs := disturbanceOf(o)
	if disturbs {
		now := time.Now()
		d.add(namespace, now, now.Add(length+calmAfter))
	}
}

// isCalm says whether nothing disturbed a namespace between two times.
func (d *disturbances) isCalm(namespace string, from, to time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.ContainsFunc(d.spans, func(s disturbance) bool {
		return (s.namespace == "" || s.namespace == namespace) && s.from.Before(to) && s.until.After(from)
	})
}

// forEver is longer than any story.
const forEver = 24 * time.Hour

// disturbanceOf returns which namespace an operation disturbs, and for how long. What is not named here disturbs all of them.
func disturbanceOf(o operation) (namespace string, length time.Duration, disturbs bool) {
	lasting := func(d time.Duration) time.Duration {
		if d == 0 {
			return forEver
		}
		return d
	}
	switch o := o.(type) {
	case wait, post, burst, flood, silence, maintain:
		return "", 0, false
	case breakWebhook:
		return tenantName(o.tenant), lasting(o.d), true
	case quota:
		return tenantName(o.tenant), lasting(o.d), true
	case suspend:
		return tenantName(o.tenant), o.d, true
	case hold:
		return tenantName(o.tenant), o.d, true
	case edit:
		return tenantName(o.tenant), 0, true
	case remove:
		return tenantName(o.tenant), 0, true
	case report:
		return tenantName(o.tenant), 0, true
	case deny:
		return "", o.d, true
	case freeze:
		return "", o.d, true
	case setClock:
		return "", lasting(o.d), true
	case trouble:
		return "", o.d + o.delay, true
	case restore:
		return "", o.d, true
	case rollBack:
		return "", o.d, true
	case setServerClock:
		return "", o.d, true
	default:
		return "", 0, true
	}
}
