package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	// outage stands for ten minutes of 15: two thirds of the lease.
	outage = 2 * lease / 3

	// each is how many Incidents are in each state during a fault.
	each = 10
)

// during puts a fault upon Incidents: some fire all the time, some begin and some end during the fault. Nobody may miss one,
// and none that fires may be resolved, also not within a lease after the fault.
func (r *rig) during(ctx context.Context, name string, begin, end func() error) error {
	key := func(kind string, n int) string { return fmt.Sprintf("%s-%s-%d", name, kind, n) }
	all := func(kind, status string) error {
		for n := range each {
			if err := r.happens(ctx, key(kind, n), "critical", status); err != nil {
				return err
			}
		}
		return nil
	}
	if err := errors.Join(all("on", firing), all("off", firing), r.told(ctx)); err != nil {
		return err
	}
	r.receiver.fault()
	if err := errors.Join(begin(), all("new", firing), all("off", resolved), end()); err != nil {
		return err
	}
	if err := r.told(ctx); err != nil {
		return err
	}
	// A lease that nobody renews ends, and a post that a zombie had in flight arrives.
	if err := r.unchanged(ctx, func() bool { return testenv.Pause(ctx, lease+quietTime) }); err != nil {
		return err
	}
	return errors.Join(all("on", resolved), all("new", resolved), r.told(ctx))
}

func killLeader(ctx context.Context, r *rig) error {
	at, err := testenv.Leader(ctx, waitTimeout, r.managers)
	if err != nil {
		return err
	}
	m := r.managers[at]
	return r.during(ctx, "kill", func() error { m.Kill(); return nil }, func() error {
		return errors.Join(m.Start(), m.WaitReady(ctx))
	})
}

func zombieLeader(ctx context.Context, r *rig) error {
	at, err := testenv.Leader(ctx, waitTimeout, r.managers)
	if err != nil {
		return err
	}
	m := r.managers[at]
	return r.during(ctx, "zombie", func() error { return m.Signal(syscall.SIGSTOP) }, func() error {
		takeover := testenv.AwaitThat(ctx, waitTimeout, "nobody takes over", func(ctx context.Context) bool {
			now, err := testenv.Leader(ctx, waitTimeout, r.managers)
			return err == nil && now != at
		})
		if err := errors.Join(takeover, r.told(ctx)); err != nil {
			return err
		}
		if err := m.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		// It exits, or goes on as a follower.
		select {
		case <-m.Exited():
			return errors.Join(m.Start(), m.WaitReady(ctx))
		case <-time.After(quietTime):
			return nil
		}
	})
}

func oneDown(ctx context.Context, r *rig) error {
	return r.during(ctx, "one", func() error { r.alertmanagers[0].Kill(); return nil }, func() error {
		return errors.Join(r.told(ctx), r.alertmanagers[0].Start(), r.alertmanagersReady(ctx))
	})
}

func bothDown(ctx context.Context, r *rig) error {
	down := func() error {
		for _, alertmanager := range r.alertmanagers {
			// In good order: one that lost its log of notifications does not tell the end of an alert.
			if err := alertmanager.Stop(); err != nil {
				return err
			}
		}
		return nil
	}
	return r.during(ctx, "both", down, func() error {
		testenv.Pause(ctx, outage)
		for _, alertmanager := range r.alertmanagers {
			if err := alertmanager.Start(); err != nil {
				return err
			}
		}
		return r.alertmanagersReady(ctx)
	})
}

func tocsinDown(ctx context.Context, r *rig) error {
	for n := range each {
		if err := r.happens(ctx, fmt.Sprint("down-", n), "critical", firing); err != nil {
			return err
		}
	}
	if err := r.told(ctx); err != nil {
		return err
	}
	r.receiver.fault()
	for _, m := range r.managers {
		m.Kill()
	}
	testenv.Pause(ctx, outage)
	for _, m := range r.managers {
		if err := errors.Join(m.Start(), m.WaitReady(ctx)); err != nil {
			return err
		}
	}
	if err := r.unchanged(ctx, func() bool { return testenv.Pause(ctx, lease+quietTime) }); err != nil {
		return err
	}
	for n := range each {
		if err := r.happens(ctx, fmt.Sprint("down-", n), "critical", resolved); err != nil {
			return err
		}
	}
	return r.told(ctx)
}

func clockAhead(ctx context.Context, r *rig) error  { return r.wrongClock(ctx, "ahead", "1h") }
func clockBehind(ctx context.Context, r *rig) error { return r.wrongClock(ctx, "behind", "-1h") }

// wrongClock has a manager lead whose clock is wrong, and the other one take over after it. The binary with the wrong clock is
// that of the fault suite.
func (r *rig) wrongClock(ctx context.Context, name, skew string) error {
	binary := filepath.Join(r.folder, "skewed")
	patch := filepath.Join(testenv.Root(), "hack", "suites", "faults", "bugs", "clock.patch")
	file, _, err := overlay.Write(testenv.Root(), filepath.Join(r.folder, "overlay-"+name), patch)
	if err != nil {
		return err
	}
	if err := testenv.BuildManager(ctx, binary, "-overlay="+file); err != nil {
		return err
	}
	at, err := testenv.Leader(ctx, waitTimeout, r.managers)
	if err != nil {
		return err
	}
	right := r.managers
	var wrong *testenv.Manager
	begin := func() (err error) {
		if wrong, err = r.runManager(ctx, len(right), binary, "TOCSIN_CLOCK_SKEW="+skew); err != nil {
			return err
		}
		for _, m := range right {
			m.Kill()
		}
		r.managers = []*testenv.Manager{wrong}
		_, err = testenv.Leader(ctx, waitTimeout, r.managers)
		return err
	}
	return r.during(ctx, name, begin, func() error {
		// Longer than a sweep takes: every alert was posted by the wrong clock.
		if err := r.unchanged(ctx, func() bool { return testenv.Pause(ctx, lease/2) }); err != nil {
			return err
		}
		r.receiver.fault()
		wrong.Kill()
		r.managers = right
		for _, m := range []*testenv.Manager{right[at], right[1-at]} {
			if err := errors.Join(m.Start(), m.WaitReady(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
}

func badConfig(ctx context.Context, r *rig) error {
	if err := r.configure("- url: http://nobody.invalid:9093\n- nonsense: true\n"); err != nil {
		return err
	}
	testenv.Pause(ctx, reloadTime)
	if err := r.begins(ctx, "bad-config", "critical"); err != nil { // by the last good file
		return err
	}
	if err := r.configure("- url: http://nobody.invalid:9093\n"); err != nil {
		return err
	}
	testenv.Pause(ctx, reloadTime)
	if err := r.ends(ctx, "bad-config", "critical"); err != nil {
		return err
	}
	return r.configure("")
}

// reloadTime is longer than the manager takes to read a changed file.
const reloadTime = 7 * time.Second

func badAlertmanager(ctx context.Context, r *rig) error {
	if err := r.useFake(ctx); err != nil {
		return err
	}
	for n, mode := range []string{modeReject, modeError, modeHang} {
		refused, other := fmt.Sprint("refused-", n), fmt.Sprint("other-", n)
		r.fake.behave(mode, name(refused))
		for _, status := range []string{firing, resolved} {
			if err := errors.Join(r.happens(ctx, refused, "critical", status), r.happens(ctx, other, "critical", status)); err != nil {
				return err
			}
			if err := r.told(ctx); err != nil { // by the others, in time
				return fmt.Errorf("an Alertmanager %s: %w", mode, err)
			}
		}
		if mode != modeReject {
			continue
		}
		err := testenv.AwaitThat(ctx, waitTimeout, "the neighbours of a rejected alert do not get through", func(context.Context) bool {
			_, arrived := r.fake.arrivalOf(name(other), true)
			return arrived
		})
		if err != nil {
			return err
		}
	}
	r.fake.behave(modeAccept, "")
	return nil
}
