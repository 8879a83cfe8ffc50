package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// lagDetector tells a leader whose watch of AlertEvents has stalled, and which therefore folds nothing, that another replica
// should have the lease. It compares the quorum lists of one term with the AlertEvents that the watch has shown, and makes such
// a list when nobody else does. Before it gives up, it restarts the watch.
type lagDetector struct {
	cache   cache.Informers
	lists   *quorumList
	restart func(listAnew bool) // the watch of AlertEvents

	mu      sync.Mutex
	shown   map[types.UID]struct{}
	deleted map[types.UID]struct{}  // shown as deleted since the last list began, which may have them
	lacking map[types.UID]time.Time // listed, but never shown; since when
	tried   time.Time               // when the last list began
	listed  time.Time               // when the last list began that succeeded
	remedy  watchRemedy
}

// watchRemedy is what was done about a watch that lacks AlertEvents.
type watchRemedy int

const (
	none watchRemedy = iota
	restarted
	relisted
)

// newLagDetector makes a detector that observes the quorum lists that it shares. list makes one of them.
func newLagDetector(
	objects cache.Informers, list func(context.Context) (*eventList, error), restart func(listAnew bool),
) *lagDetector {
	d := &lagDetector{
		cache: objects, restart: restart,
		shown: map[types.UID]struct{}{}, deleted: map[types.UID]struct{}{}, lacking: map[types.UID]time.Time{},
	}
	d.lists = &quorumList{list: func(ctx context.Context) (*eventList, error) {
		began := d.begin()
		events, err := list(ctx)
		if err == nil {
			d.compare(events, began)
		}
		return events, err
	}}
	return d
}

// begin notes that a list begins. It cannot have what the watch has shown as deleted by now.
func (d *lagDetector) begin() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.deleted)
	d.tried = time.Now()
	return d.tried
}

// compare notes which AlertEvents of a list the watch has not shown.
func (d *lagDetector) compare(events *eventList, began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lacking := map[types.UID]time.Time{}
	for uid := range events.events {
		_, shown := d.shown[uid]
		_, deleted := d.deleted[uid]
		if shown || deleted {
			continue
		}
		lacking[uid] = time.Now()
		if since, known := d.lacking[uid]; known {
			lacking[uid] = since
		}
	}
	d.lacking, d.listed = lacking, began
}

func (d *lagDetector) show(event *v1alpha1.AlertEvent, _ bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shown[event.UID] = struct{}{}
	delete(d.lacking, event.UID)
}

func (d *lagDetector) forget(event *v1alpha1.AlertEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.shown, event.UID)
	delete(d.lacking, event.UID)
	d.deleted[event.UID] = struct{}{}
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
// list began: what happened since is not known.
func (d *lagDetector) lag() (lag time.Duration, remedy watchRemedy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, since := range d.lacking {
		lag = max(lag, d.listed.Sub(since))
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
	if _, err := informers.Feed(ctx, d.cache, &v1alpha1.AlertEvent{}, d.show, d.forget); err != nil {
		return err
	}
	ticker := time.NewTicker(stuckCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if d.isDue() {
			_, _ = d.lists.join(ctx) // compare gets it; the stuckDetector sees lists that fail
		}
		if err := d.check(); err != nil {
			return err
		}
	}
}
