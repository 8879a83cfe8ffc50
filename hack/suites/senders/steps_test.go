//go:build slow

package senders

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
	run  func(r *rig)
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

func fire(r *rig) {
	r.target.set("sda", full)
	r.target.set("sdb", full)
	r.target.set("sdc", empty)
	r.settle("DiskFull sda", "DiskFull sdb", "Watchdog")
}

func repeat(r *rig) {
	r.repeated(2)
	r.settle("DiskFull sda", "DiskFull sdb", "Watchdog")
}

func restart(r *rig) {
	r.Must(r.manager.Stop())
	r.startAgain("DiskFull sda", "DiskFull sdb", "Watchdog")
}

func kill(r *rig) {
	r.manager.Kill()
	r.startAgain("DiskFull sda", "DiskFull sdb", "Watchdog")
}

// startAgain starts the manager, after it was ended, and waits until alerts were repeated.
func (r *rig) startAgain(names ...string) {
	r.Start(r.manager.Process)
	r.repeated(1)
	r.settle(names...)
}

func outage(r *rig) {
	r.manager.Kill()
	r.target.set("sda", empty)
	r.target.set("sdc", full)
	r.target.setDown(true)
	r.fires("DiskFull sdb", "DiskFull sdc", "ExporterDown", "Watchdog")
	// Those that were under way when the alerts changed may be given up first.
	before, err := r.givenUp(r.Context)
	r.Must(err)
	r.Await(testenv.WaitTimeout, func(ctx context.Context) error {
		now, err := r.givenUp(ctx)
		if err == nil && now < before+2*groups {
			err = fmt.Errorf("%v notifications were given up", now-before)
		}
		return err
	})
	r.startAgain("DiskFull sdb", "DiskFull sdc", "ExporterDown", "Watchdog")
}

// groups is how many groups of alerts Alertmanager makes: one for each rule.
const groups = 3

func resolve(r *rig) {
	r.target.set("sdb", empty)
	r.target.set("sdc", empty)
	r.target.setDown(false)
	r.settle("Watchdog")
}

func reopen(r *rig) {
	r.target.set("sda", full)
	r.settle("DiskFull sda", "Watchdog")
	for _, w := range r.ways() {
		incidents, err := r.incidents(r.Context, w)
		r.Must(err)
		if len(incidents) != 5 {
			r.T.Fatalf("%s: there are %d Incidents, not 5", w.preset, len(incidents))
		}
		for labels, incident := range incidents {
			episodes := int64(1)
			if strings.Contains(labels, "device:sda") {
				episodes = 2
			}
			if incident.Status.Episode == nil || incident.Status.Episode.Number != episodes {
				r.T.Fatalf("%s: %s has the episode %v, not %d", w.preset, labels, incident.Status.Episode, episodes)
			}
			if resolved := incident.Status.State == v1alpha1.IncidentResolved; resolved != (incident.Status.ResolvedTime != nil) {
				r.T.Fatalf("%s: %s is %s and was resolved at %v", w.preset, labels,
					incident.Status.State, incident.Status.ResolvedTime)
			}
		}
	}
}

// partition cuts Prometheus off from Alertmanager until that resolves an alert which goes on. When it hears of the alert
// again, with the startsAt of before, the Incident reopens: a resolve that was none hides nothing.
func partition(r *rig) {
	before, err := r.diskIncident(r.Context)
	r.Must(err)
	r.link.cut.Store(true)
	defer r.link.cut.Store(false)
	r.Await(testenv.WaitTimeout, func(ctx context.Context) error {
		incident, err := r.diskIncident(ctx)
		if err == nil && incident.Status.State != v1alpha1.IncidentResolved {
			err = fmt.Errorf("the Incident of what Alertmanager hears no more of is %s", incident.Status.State)
		}
		return err
	})
	r.Pause(lateFiringWindow + time.Second)
	r.link.cut.Store(false)
	r.settle("DiskFull sda", "Watchdog")
	after, err := r.diskIncident(r.Context)
	r.Must(err)
	was, is := before.Status, after.Status
	if is.Episode.Number != was.Episode.Number+1 || !is.Alert.StartTime.Equal(was.Alert.StartTime.Time) {
		r.T.Fatalf("episode %d starts at %v, after episode %d, which started at %v",
			is.Episode.Number, is.Alert.StartTime, was.Episode.Number, was.Alert.StartTime)
	}
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
func (r *rig) fires(names ...string) {
	r.T.Helper()
	r.Await(testenv.WaitTimeout, func(ctx context.Context) error {
		have, err := r.names(ctx)
		if err == nil && !slices.Equal(have, names) {
			err = fmt.Errorf("there fire %v, not %v", have, names)
		}
		return err
	})
}

// settle waits until just these alerts fire and the Incidents agree, and compares the counts.
func (r *rig) settle(names ...string) {
	r.T.Helper()
	r.fires(names...)
	r.Await(testenv.WaitTimeout, r.agree)
	r.Await(testenv.WaitTimeout, r.agreeInGroups)
	r.counts()
}
