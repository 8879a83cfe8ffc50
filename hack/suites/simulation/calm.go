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
	switch o.(type) {
	case wait, post, burst, flood, hush, maintain, breakAlertmanager, breakBucket, disturbArchiver:
		return "", 0, false
	}
	if tenant, length, ok := tenantDisturbed(o); ok {
		return tenantName(tenant), length, true
	}
	return "", allDisturbed(o), true
}

// tenantDisturbed returns which tenant an operation disturbs, and for how long. ok says that it disturbs only one.
func tenantDisturbed(o operation) (tenant int, length time.Duration, ok bool) {
	switch o := o.(type) {
	case breakWebhook:
		return o.tenant, lasting(o.d), true
	case quota:
		return o.tenant, lasting(o.d), true
	case suspend:
		return o.tenant, o.d, true
	case hold:
		return o.tenant, o.d, true
	case edit:
		return o.tenant, 0, true
	case remove:
		return o.tenant, 0, true
	case report:
		return o.tenant, 0, true
	default:
		return 0, 0, false
	}
}

// allDisturbed returns for how long an operation disturbs all namespaces.
func allDisturbed(o operation) time.Duration {
	switch o := o.(type) {
	case deny:
		return o.d
	case freeze:
		return o.d
	case setClock:
		return lasting(o.d)
	case trouble:
		return o.d + o.delay
	case restore:
		return o.d
	case rollBack:
		return o.d
	case setServerClock:
		return o.d
	default:
		return 0
	}
}

// lasting returns how long what an operation begins lasts: to the end of the story if it names no time.
func lasting(d time.Duration) time.Duration {
	if d == 0 {
		return forEver
	}
	return d
}
