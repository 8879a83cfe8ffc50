package incident

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// should have the lease. It compares the quorum lists of one term with the AlertEvents that the watch has shown, and makes one of
// all namespaces when nobody else does. Before it gives up, it restarts the watch.
type lagDetector struct {
	watch      watchedEvents
	clock      replica.Clock
	namespaces []string
	lists      *quorumLists
	restart    func(listAnew bool) // the watch of AlertEvents

	mu      sync.Mutex
	lacking map[types.UID]lack
	tried   time.Time // when the last list of all namespaces began, or ended
	remedy  watchRemedy
}

// watchedEvents knows what the watch of AlertEvents has shown.
type watchedEvents interface {
	// HasShown reports whether the watch shows an AlertEvent, or has shown its deletion since then.
	HasShown(event replica.EventRef, since time.Time) bool
}

// lack is an AlertEvent that lists have, and that the watch has never shown.
type lack struct {
	name  types.NamespacedName
	since time.Time // when the first list ended that has it
	last  time.Time // when the last one began
}

// watchRemedy is what was done about a watch that lacks AlertEvents.
type watchRemedy int

const (
	none watchRemedy = iota
	restarted
	relisted
)

// newLagDetector makes a detector that tracks the quorum lists that it shares: those of all these namespaces, and of single
// ones.
func newLagDetector(
	watch watchedEvents, clock replica.Clock, list func(namespaces ...string) lister, namespaces []string,
	restart func(listAnew bool),
) *lagDetector {
	d := &lagDetector{watch: watch, clock: clock, namespaces: namespaces, restart: restart, lacking: map[types.UID]lack{}}
	d.lists = newQuorumLists(func(namespaces ...string) lister { return d.track(list(namespaces...), namespaces) }, namespaces)
	return d
}

// track returns a lister whose lists the detector sees.
func (d *lagDetector) track(list lister, namespaces []string) lister {
	return func(ctx context.Context, most int64) (*eventList, error) {
		began := d.begin(namespaces)
		events, err := list(ctx, most)
		d.end(events, err, namespaces, began)
		return events, err
	}
}

// begin notes that a list of these namespaces begins, and returns when. It cannot have what the watch has shown as deleted.
func (d *lagDetector) begin(namespaces []string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note(namespaces, time.Now())
	return d.clock.Now()
}

// note keeps when there was a list of all namespaces.
func (d *lagDetector) note(namespaces []string, at time.Time) {
	if slices.Equal(namespaces, d.namespaces) {
		d.tried = at
	}
}

// end notes which AlertEvents of a list of these namespaces the watch has not shown.
func (d *lagDetector) end(events *eventList, err error, namespaces []string, began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note(namespaces, time.Now())
	if err != nil {
		return
	}
	before := maps.Clone(d.lacking)
	maps.DeleteFunc(d.lacking, func(_ types.UID, lack lack) bool {
		return slices.Contains(namespaces, lack.name.Namespace) || slices.Contains(namespaces, metav1.NamespaceAll)
	})
	for uid, event := range events.events {
		if d.watch.HasShown(replica.EventRef{NamespacedName: event.key, UID: uid}, began) {
			continue
		}
		since := time.Now()
		if lack, known := before[uid]; known {
			since = lack.since
		}
		d.lacking[uid] = lack{event.key, since, began}
	}
}

// isDue reports whether to make a list.
func (d *lagDetector) isDue() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	interval := idleListInterval
	if len(d.lacking) > 0 {
		interval = lagListInterval
	}
	return time.Since(d.tried) >= interval
}

// check restarts a watch that has stalled, and returns an error when that did not help.
func (d *lagDetector) check() error {
	lag, remedy := d.lag()
	switch {
	case lag >= lagLimit:
		return fmt.Errorf("cannot fold: the watch of AlertEvents has not shown one for %s", lagLimit)
	case lag >= lagRelistAfter && remedy != relisted:
		d.setRemedy(relisted)
		d.restart(true)
	case lag >= lagRestartAfter && remedy == none:
		d.setRemedy(restarted)
		d.restart(false)
	case lag == 0:
		d.setRemedy(none)
	}
	return nil
}

// lag returns for how long an AlertEvent has been lacking at most, and what was done about it. It had been lacking until the last
// list of its namespace began: what happened since is not known.
func (d *lagDetector) lag() (lag time.Duration, remedy watchRemedy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.lacking, func(uid types.UID, lack lack) bool {
		return d.watch.HasShown(replica.EventRef{NamespacedName: lack.name, UID: uid}, lack.last)
	})
	for _, lack := range d.lacking {
		lag = max(lag, lack.last.Sub(lack.since))
	}
	return lag, d.remedy
}

func (d *lagDetector) setRemedy(remedy watchRemedy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remedy = remedy
}

// Start is a runnable of the term that fails when the watch of AlertEvents has stalled.
func (d *lagDetector) Start(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if d.isDue() {
			_, _ = d.lists.all.join(ctx) // end gets it; the stuckDetector sees lists that fail
		}
		if err := d.check(); err != nil {
			return err
		}
	}
}
