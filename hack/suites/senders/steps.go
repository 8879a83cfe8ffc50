package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// How full disks are.
const (
	full  = 0.97
	empty = 0.25
)

// steps are what happens, one after the other. After each the Incidents agree with Prometheus, and every
// acknowledged alert is counted once.
var steps = []struct {
	name string
	run  func(ctx context.Context, r *rig) error
}{
	{"alerts fire and become Incidents", fire},
	{"repeats count and do not duplicate", repeat},
	{"the manager is restarted while alerts are repeated", restart},
	{"the manager is killed while alerts are repeated", kill},
	{"alerts end and begin while the manager is away longer than Alertmanager tries", outage},
	{"alerts end and their Incidents are resolved", resolve},
	{"an alert that comes back reopens its Incident", reopen},
	{"Prometheus cannot reach Alertmanager, which resolves what goes on", partition},
}

func fire(ctx context.Context, r *rig) error {
	r.target.set("sda", full)
	r.target.set("sdb", full)
	r.target.set("sdc", empty)
	return r.settle(ctx, "DiskFull sda", "DiskFull sdb", "Watchdog")
}

func repeat(ctx context.Context, r *rig) error {
	if err := r.repeated(ctx, 2); err != nil {
		return err
	}
	return r.settle(ctx, "DiskFull sda", "DiskFull sdb", "Watchdog")
}

func restart(ctx context.Context, r *rig) error {
	if err := r.manager.Stop(); err != nil {
		return fmt.Errorf("stopping the manager: %w", err)
	}
	return r.startAgain(ctx, "DiskFull sda", "DiskFull sdb", "Watchdog")
}

func kill(ctx context.Context, r *rig) error {
	r.manager.Kill()
	return r.startAgain(ctx, "DiskFull sda", "DiskFull sdb", "Watchdog")
}

// startAgain starts the manager, after it was ended, and waits until alerts were repeated.
func (r *rig) startAgain(ctx context.Context, names ...string) error {
	if err := r.manager.Start(); err != nil {
		return err
	}
	if err := r.waitManager(ctx); err != nil {
		return err
	}
	if err := r.repeated(ctx, 1); err != nil {
		return err
	}
	return r.settle(ctx, names...)
}

func outage(ctx context.Context, r *rig) error {
	r.manager.Kill()
	r.target.set("sda", empty)
	r.target.set("sdc", full)
	r.target.setDown(true)
	if err := r.fires(ctx, "DiskFull sdb", "DiskFull sdc", "ExporterDown", "Watchdog"); err != nil {
		return err
	}
	// Those that were under way when the alerts changed may be given up first.
	before, err := r.givenUp(ctx)
	if err != nil {
		return err
	}
	err = testenv.Await(ctx, waitTimeout, func(ctx context.Context) error {
		now, err := r.givenUp(ctx)
		if err == nil && now < before+2*groups {
			err = fmt.Errorf("%d notifications were given up", now-before)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.startAgain(ctx, "DiskFull sdb", "DiskFull sdc", "ExporterDown", "Watchdog")
}

// groups is how many groups of alerts Alertmanager makes: one for each rule.
const groups = 3

func resolve(ctx context.Context, r *rig) error {
	r.target.set("sdb", empty)
	r.target.set("sdc", empty)
	r.target.setDown(false)
	return r.settle(ctx, "Watchdog")
}

func reopen(ctx context.Context, r *rig) error {
	r.target.set("sda", full)
	if err := r.settle(ctx, "DiskFull sda", "Watchdog"); err != nil {
		return err
	}
	for _, w := range r.ways() {
		incidents, err := r.incidents(ctx, w)
		if err != nil {
			return err
		}
		if len(incidents) != 5 {
			return fmt.Errorf("%s: there are %d Incidents, not 5", w.preset, len(incidents))
		}
		for labels, incident := range incidents {
			episodes := int64(1)
			if strings.Contains(labels, "device:sda") {
				episodes = 2
			}
			if incident.Status.Episode == nil || incident.Status.Episode.Number != episodes {
				return fmt.Errorf("%s: %s has the episode %v, not %d", w.preset, labels, incident.Status.Episode, episodes)
			}
			if resolved := incident.Status.State == v1alpha1.IncidentResolved; resolved != (incident.Status.ResolvedTime != nil) {
				return fmt.Errorf("%s: %s is %s and was resolved at %v", w.preset, labels,
					incident.Status.State, incident.Status.ResolvedTime)
			}
		}
	}
	return nil
}

// partition cuts Prometheus off from Alertmanager until that resolves an alert which goes on. When it hears of the alert
// again, with the startsAt of before, the Incident reopens: a resolve that was none hides nothing.
func partition(ctx context.Context, r *rig) error {
	before, err := r.diskIncident(ctx)
	if err != nil {
		return err
	}
	r.link.cut.Store(true)
	defer r.link.cut.Store(false)
	err = testenv.Await(ctx, waitTimeout, func(ctx context.Context) error {
		incident, err := r.diskIncident(ctx)
		if err == nil && incident.Status.State != v1alpha1.IncidentResolved {
			err = fmt.Errorf("the Incident of what Alertmanager hears no more of is %s", incident.Status.State)
		}
		return err
	})
	if err != nil {
		return err
	}
	select {
	case <-time.After(lateFiringWindow + time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.link.cut.Store(false)
	if err := r.settle(ctx, "DiskFull sda", "Watchdog"); err != nil {
		return err
	}
	after, err := r.diskIncident(ctx)
	if err != nil {
		return err
	}
	was, is := before.Status, after.Status
	if is.Episode.Number != was.Episode.Number+1 || !is.Alert.StartTime.Equal(was.Alert.StartTime.Time) {
		return fmt.Errorf("episode %d starts at %v, after episode %d, which started at %v",
			is.Episode.Number, is.Alert.StartTime, was.Episode.Number, was.Alert.StartTime)
	}
	return nil
}

// lateFiringWindow is the operator's default.
const lateFiringWindow = 30 * time.Second

// diskIncident is that of the disk sda on the way through Alertmanager.
func (r *rig) diskIncident(ctx context.Context) (*v1alpha1.Incident, error) {
	incidents, err := r.incidents(ctx, r.through)
	if err != nil {
		return nil, err
	}
	for labels, incident := range incidents {
		if strings.Contains(labels, "device:sda") {
			return incident, nil
		}
	}
	return nil, errors.New("there is no Incident of sda")
}

// fires waits until just these alerts fire in Prometheus.
func (r *rig) fires(ctx context.Context, names ...string) error {
	return testenv.Await(ctx, waitTimeout, func(ctx context.Context) error {
		have, err := r.names(ctx)
		if err == nil && !slices.Equal(have, names) {
			err = fmt.Errorf("there fire %v, not %v", have, names)
		}
		return err
	})
}

// settle waits until just these alerts fire and the Incidents agree, and compares the counts.
func (r *rig) settle(ctx context.Context, names ...string) error {
	if err := r.fires(ctx, names...); err != nil {
		return err
	}
	if err := testenv.Await(ctx, waitTimeout, r.agree); err != nil {
		return err
	}
	if err := testenv.Await(ctx, waitTimeout, r.agreeInGroups); err != nil {
		return err
	}
	return r.counts(ctx)
}
