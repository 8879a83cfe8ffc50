package simulation

import (
	"cmp"
	"reflect"
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

// disturbanceOf returns which namespace an operation disturbs, and for how long. What is not named here disturbs all of them,
// unless it has a tenant, for as long as its d says. A d of zero is to the end of the story.
func disturbanceOf(o operation) (namespace string, length time.Duration, disturbs bool) {
	ofTenant := true
	switch o := o.(type) {
	case wait, post, burst, flood, hush, maintain, breakAlertmanager, breakBucket, disturbArchiver:
		return "", 0, false
	case trouble:
		length = o.delay
	case deleteNamespace: // and what it leaves
		ofTenant = false
	}
	fields := reflect.ValueOf(o)
	if tenant := fields.FieldByName("tenant"); tenant.IsValid() && ofTenant {
		namespace = tenantName(int(tenant.Int()))
	}
	if d := fields.FieldByName("d"); d.IsValid() {
		length += cmp.Or(time.Duration(d.Int()), forEver)
	}
	return namespace, length, true
}
