//go:build slow

package alertmanager

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	// outage stands for ten minutes of 15: two thirds of the expiry.
	outage = 2 * expiry / 3

	// each is how many Incidents are in each state during a fault.
	each = 10

	// reloadTime is longer than the manager takes to read a changed file.
	reloadTime = 7 * time.Second
)

// all has something happen to Incidents of a fault.
func (r *rig) all(fault, kind, status string) {
	for n := range each {
		r.happens(fmt.Sprintf("%s-%s-%d", fault, kind, n), "critical", status)
	}
}

// during puts a fault upon Incidents: some fire all the time, some begin and some end during the fault. Nobody may miss one,
// and none that fires may be resolved, also not within an expiry after the fault.
func (r *rig) during(fault string, begin, end func()) {
	r.all(fault, "on", firing)
	r.all(fault, "off", firing)
	r.told()
	r.receiver.fault()
	begin()
	r.all(fault, "new", firing)
	r.all(fault, "off", resolved)
	end()
	r.told()
	// What nobody posts again ends, and a post that a zombie had in flight arrives.
	r.unchanged(expiry + quietTime)
	r.all(fault, "on", resolved)
	r.all(fault, "new", resolved)
	r.told()
}

func killLeader(r *rig) {
	m := r.managers[r.Leader(r.managers)]
	r.during("kill", m.Kill, func() { r.Start(m.Process) })
}

func zombieLeader(r *rig) {
	at := r.Leader(r.managers)
	m := r.managers[at]
	r.during("zombie", func() { r.Must(m.Freeze()) }, func() {
		r.Successor(r.managers, at)
		r.told()
		r.Wake(m)
	})
}

func oneDown(r *rig) {
	r.during("one", r.alertmanagers[0].Kill, func() {
		r.told()
		r.Start(r.alertmanagers...)
	})
}

func bothDown(r *rig) {
	down := func() {
		for _, alertmanager := range r.alertmanagers {
			// In good order: one that lost its log of notifications does not tell the end of an alert.
			r.Must(alertmanager.Stop())
		}
	}
	r.during("both", down, func() {
		r.Pause(outage)
		r.Start(r.alertmanagers...)
	})
}

func tocsinDown(r *rig) {
	r.all("down", "on", firing)
	r.told()
	r.receiver.fault()
	r.killManagers()
	r.Pause(outage)
	r.startManagers()
	r.unchanged(expiry + quietTime)
	r.all("down", "on", resolved)
	r.told()
}

func (r *rig) killManagers() {
	for _, m := range r.managers {
		m.Kill()
	}
}

// startManagers starts them, one after the other.
func (r *rig) startManagers() {
	for _, m := range r.managers {
		r.Start(m.Process)
	}
}

// wrongClock has a manager lead whose clock is wrong, and the one that led before take over after it.
func (r *rig) wrongClock(fault, skew string) {
	binary, at := r.SkewedManager(), r.Leader(r.managers)
	right := []*testenv.Manager{r.managers[at], r.managers[1-at]}
	var wrong *testenv.Manager
	begin := func() {
		wrong = r.manager(len(right), binary, "TOCSIN_CLOCK_SKEW="+skew)
		r.killManagers()
		r.managers = []*testenv.Manager{wrong}
		r.Leader(r.managers)
	}
	r.during(fault, begin, func() {
		r.unchanged(expiry / 2) // Longer than a sweep takes: every alert was posted by the wrong clock.
		r.receiver.fault()
		wrong.Kill()
		r.managers = right
		r.startManagers()
	})
}

func badConfig(r *rig) {
	r.configure("- url: http://nobody.invalid:9093\n- nonsense: true\n")
	r.Pause(reloadTime)
	r.begins("bad-config", "critical") // by the last good file
	r.configure("- url: http://nobody.invalid:9093\n")
	r.Pause(reloadTime)
	r.ends("bad-config", "critical")
	r.configure("")
}

func badAlertmanager(r *rig) {
	r.useFake()
	for n, mode := range []string{modeReject, modeError, modeHang} {
		refused, other := fmt.Sprint("refused-", n), fmt.Sprint("other-", n)
		r.fake.behave(mode, name(refused))
		r.T.Log("an Alertmanager", mode)
		for _, status := range []string{firing, resolved} {
			r.happens(refused, "critical", status)
			r.happens(other, "critical", status)
			r.told() // by the others, in time
		}
		if mode == modeReject {
			r.AwaitThat("the neighbours of a rejected alert do not get through", func(context.Context) bool {
				_, arrived := r.fake.arrivalOf(name(other), true)
				return arrived
			})
		}
	}
	r.fake.behave(modeAccept, "")
}
