package archive

import (
	"cmp"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// queue orders the Incidents that wait. The zero value is ready to use.
type queue struct{ waits map[client.ObjectKey]wait }

// wait is how long an Incident has waited, as far as this process knows, and how often it could not be read.
type wait struct {
	since    time.Time
	resolved time.Time // zero if the Incident is open again
	failures int
}

// update takes in which Incidents wait, and returns them in the order of their turns: namespaces take turns, so that one with
// very many does not hold up the others.
func (q *queue) update(waiting []v1alpha1.Incident, now time.Time) []client.ObjectKey {
	known := q.waits
	q.waits = make(map[client.ObjectKey]wait, len(waiting))
	keys, oldest := make([]client.ObjectKey, len(waiting)), now
	for i := range waiting {
		key := client.ObjectKeyFromObject(&waiting[i])
		own, ok := known[key]
		if !ok {
			own.since = now
		}
		own.resolved = time.Time{}
		if resolved := waiting[i].Status.ResolvedTime; resolved != nil {
			own.resolved = resolved.Time
		}
		if own.since.Before(oldest) {
			oldest = own.since
		}
		q.waits[key] = own
		keys[i] = key
	}
	waitingIncidents.Set(float64(len(waiting)))
	oldestWaiting.Set(now.Sub(oldest).Seconds())
	// Of a namespace, those of one day come together: a batch has few days of each.
	slices.SortFunc(keys, func(a, b client.ObjectKey) int {
		first, second := q.waits[a], q.waits[b]
		return cmp.Or(cmp.Compare(first.failures, second.failures), first.since.Compare(second.since),
			first.resolved.Compare(second.resolved), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return fair.InTurns(keys, func(key client.ObjectKey) string { return key.Namespace })
}

// putOff has an Incident that could not be read come after the others of its namespace.
func (q *queue) putOff(key client.ObjectKey) {
	own := q.waits[key]
	own.failures++
	q.waits[key] = own
}
