package archive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// turn is an Incident that waits, and decides when it has its turn.
type turn struct {
	client.ObjectKey
	since    time.Time // as far as this process knows
	resolved time.Time // zero if the Incident is open again
	failures int       // how often it could not be read
}

// waiting returns the Incidents that wait in the order of their turns, and sets the gauges. Namespaces take turns, so that one
// with very many does not hold up the others. Within one, those that could not be read come last.
func (a *archiver) waiting(ctx context.Context) ([]*turn, error) {
	var names v1alpha1.IncidentList
	if err := a.cache.List(ctx, &names, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the Incidents that wait: %w", err)
	}
	now := a.now()
	known, oldest, turns := a.turns, now, make([]*turn, len(names.Items))
	a.turns = make(map[client.ObjectKey]*turn, len(turns))
	for i := range names.Items {
		key := client.ObjectKeyFromObject(&names.Items[i])
		t := cmp.Or(known[key], &turn{ObjectKey: key, since: now})
		t.resolved = names.Items[i].Status.ResolvedTime.OrZero()
		if t.since.Before(oldest) {
			oldest = t.since
		}
		a.turns[key], turns[i] = t, t
	}
	waitingIncidents.Set(float64(len(turns)))
	oldestWaiting.Set(now.Sub(oldest).Seconds())
	// Of a namespace, those of one day come together: a batch has few days of each.
	slices.SortFunc(turns, func(a, b *turn) int {
		return cmp.Or(cmp.Compare(a.failures, b.failures), a.since.Compare(b.since), a.resolved.Compare(b.resolved),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return fair.InTurns(turns, func(t *turn) string { return t.Namespace }), nil
}
