package incident

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/controllers/replica"
)

const (
	// idleListInterval is the longest time between two quorum lists of all namespaces, and lagListInterval that while the watch
	// of AlertEvents has not shown one of them. After lagRestartAfter that watch begins again, after lagRelistAfter the cache
	// lists anew, and after lagLimit the term ends.
	idleListInterval = 10 * time.Second
	lagListInterval  = 5 * time.Second
	lagRestartAfter  = 15 * time.Second
	lagRelistAfter   = 20 * time.Second
	lagLimit         = 30 * time.Second
)

// lagDetector tells a leader whose watch of AlertEvents has stalled, and which therefore folds nothing, that another replica
// should have the lease. It compares quorum lists of all namespaces with the AlertEvents that the watch has shown. Before it
// gives up, it restarts the watch.
type lagDetector struct {
	hasShown func(event replica.EventRef, since time.Time) bool // that of replica.Memory
	clock    replica.Clock
	list     *quorumList         // of all namespaces; folds share it
	restart  func(listAnew bool) // the watch of AlertEvents
}

// Start is a runnable of the term that fails when the watch of AlertEvents has stalled.
func (d *lagDetector) Start(ctx context.Context) error {
	lacking := map[types.UID]time.Time{} // AlertEvents that the watch lacks, since the end of the first list that has them
	remedied := time.Duration(0)         // the lag at which the watch was restarted
	for {
		began, asked := time.Now(), d.clock.Now()
		if listed, err := d.list.join(ctx); err == nil { // the stuckDetector sees lists that fail
			lacking = d.lackingOf(listed, lacking, asked)
			switch lag := longest(lacking, began); {
			case lag >= lagLimit:
				return fmt.Errorf("cannot fold: the watch of AlertEvents has not shown one for %s", lagLimit)
			case lag >= lagRelistAfter && remedied < lagRelistAfter:
				remedied = lag
				d.restart(true)
			case lag >= lagRestartAfter && remedied < lagRestartAfter:
				remedied = lag
				d.restart(false)
			case lag == 0:
				remedied = 0
			}
		}
		interval := idleListInterval
		if len(lacking) > 0 {
			interval = lagListInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// lackingOf returns the AlertEvents of a list, asked for at this time, that the watch has not shown, and since when.
func (d *lagDetector) lackingOf(listed *eventList, before map[types.UID]time.Time, asked time.Time) map[types.UID]time.Time {
	lacking := map[types.UID]time.Time{}
	for uid, event := range listed.events {
		if d.hasShown(replica.EventRef{NamespacedName: event.key, UID: uid}, asked) {
			continue
		}
		since, known := before[uid]
		if !known {
			since = time.Now()
		}
		lacking[uid] = since
	}
	return lacking
}

// longest returns for how long an AlertEvent was lacking at most when the last list began: what happened since is not known.
func longest(lacking map[types.UID]time.Time, began time.Time) (lag time.Duration) {
	for _, since := range lacking {
		lag = max(lag, began.Sub(since))
	}
	return lag
}
