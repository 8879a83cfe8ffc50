package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// Series of the archivers.
const (
	failures = `tocsin_archive_failures_total\{operation="(?:read|write)"\}`
	waiting  = `tocsin_archive_waiting_incidents`
	written  = `tocsin_archive_records_total`
)

// outage has episodes end before and while the store is unavailable: nothing is deleted then, the statuses and the metrics
// say what waits, alerts are folded as usual, and everything is archived after it.
func (r *rig) outage(ctx context.Context, begin, end func() error) error {
	if err := deletedAll(ctx, r); err != nil {
		return err
	}
	before := r.deleted.count()
	failed, err := r.metric(ctx, failures)
	if err != nil {
		return err
	}
	if err := errors.Join(begin(), r.episodes(ctx, tenant, 200), r.episodes(ctx, another, 20), r.wait(ctx, 220)); err != nil {
		return err
	}
	testenv.Pause(ctx, 2*retention)
	err = testenv.AwaitThat(ctx, waitTimeout, "the metric does not count failures", func(ctx context.Context) bool {
		now, err := r.metric(ctx, failures)
		return err == nil && now > failed
	})
	if err := errors.Join(err, r.episodes(ctx, another, 5), r.wait(ctx, 225)); err != nil {
		return err
	}
	if count := r.deleted.count(); count != before {
		return fmt.Errorf("%d Incidents were deleted while the store was unavailable", count-before)
	}
	return errors.Join(end(), r.storeAnswers(ctx), r.judge(ctx), r.wait(ctx, 0))
}

// wait waits until n Incidents wait for the archive, as their statuses and the metric of the archivers say.
func (r *rig) wait(ctx context.Context, n int) error {
	const timeout = 2 * time.Minute
	return testenv.Await(ctx, timeout, func(ctx context.Context) error {
		var list v1alpha1.IncidentList
		err := r.cluster.Client.List(ctx, &list, client.MatchingFields{v1alpha1.ArchiveStateField: string(v1alpha1.ArchiveWaiting)})
		shown, other := r.metric(ctx, waiting)
		if err := errors.Join(err, other); err != nil || len(list.Items) != n || int(shown) != n {
			return fmt.Errorf("%d Incidents wait, %v by the metric, not %d: %w", len(list.Items), shown, n, err)
		}
		return nil
	})
}

func storeDown(ctx context.Context, r *rig) error {
	return r.outage(ctx, func() error { r.store.Kill(); return nil }, r.store.Start)
}

func storeHangs(ctx context.Context, r *rig) error {
	return r.outage(ctx, r.store.Freeze, r.store.Thaw)
}

func wrongCredentials(ctx context.Context, r *rig) error {
	restart := func(secret string) func() error {
		return func() error {
			r.store.Kill()
			r.store.SetArg(secretFlag, secret)
			return r.store.Start()
		}
	}
	return r.outage(ctx, restart(otherSecret), restart(secretKey))
}

func bucketMissing(ctx context.Context, r *rig) error {
	away := filepath.Join(r.folder, "away")
	move := func(from, to string) func() error { return func() error { return os.Rename(from, to) } }
	return r.outage(ctx, move(r.storeFolder(), away), move(away, r.storeFolder()))
}

// writing has the archiver write something, and returns its number. If the store is to hang, another write is under way then.
func (r *rig) writing(ctx context.Context, hang bool) (at int, err error) {
	if at, err = testenv.Leader(ctx, waitTimeout, r.archivers); err != nil {
		return at, err
	}
	before, err := r.metric(ctx, written)
	if err != nil {
		return at, err
	}
	load := func() error { return errors.Join(r.episodes(ctx, tenant, 200), r.episodes(ctx, another, 50)) }
	if err := load(); err != nil {
		return at, err
	}
	err = testenv.AwaitThat(ctx, waitTimeout, "no record is written", func(ctx context.Context) bool {
		now, err := r.metric(ctx, written)
		return err == nil && now > before
	})
	if err == nil && hang {
		const batch = 3 * time.Second // to read it
		err = errors.Join(r.store.Freeze(), load())
		testenv.Pause(ctx, roundInterval+batch)
	}
	return at, err
}

func killArchiver(ctx context.Context, r *rig) error {
	for _, hang := range []bool{false, true, false} { // it notes, or it writes
		at, err := r.writing(ctx, hang)
		if err != nil {
			return err
		}
		a := r.archivers[at]
		a.Kill()
		if at, err = testenv.Leader(ctx, waitTimeout, r.managers); err != nil {
			return err
		}
		m := r.managers[at]
		m.Kill()
		err = errors.Join(r.store.Thaw(), a.Start(), m.Start(), a.WaitReady(ctx), m.WaitReady(ctx), r.led(ctx), r.judge(ctx))
		if err != nil {
			return err
		}
	}
	return nil
}

func zombieArchiver(ctx context.Context, r *rig) error {
	at, err := r.writing(ctx, true)
	if err != nil {
		return err
	}
	a := r.archivers[at]
	if err := errors.Join(a.Signal(syscall.SIGSTOP), r.store.Thaw()); err != nil {
		return err
	}
	err = testenv.AwaitThat(ctx, waitTimeout, "nobody takes over", func(ctx context.Context) bool {
		now, err := testenv.Leader(ctx, waitTimeout, r.archivers)
		return err == nil && now != at
	})
	if err := errors.Join(err, r.judge(ctx), a.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	// It exits, or goes on as a follower.
	select {
	case <-a.Exited():
		return errors.Join(a.Start(), a.WaitReady(ctx))
	case <-time.After(waitTimeout / 4):
		return nil
	}
}

func clockAhead(ctx context.Context, r *rig) error  { return r.wrongClock(ctx, "ahead", "1h") }
func clockBehind(ctx context.Context, r *rig) error { return r.wrongClock(ctx, "behind", "-1h") }

// wrongClock has a manager lead whose clock is wrong. It archives, in time, and deletes nothing; others do that after it.
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
	wrong, err := r.runManager(ctx, len(r.managers), binary, "TOCSIN_CLOCK_SKEW="+skew)
	if err != nil {
		return err
	}
	right := r.managers
	for _, m := range right {
		m.Kill()
	}
	r.managers = []*testenv.Manager{wrong}
	if _, err := testenv.Leader(ctx, waitTimeout, r.managers); err != nil {
		return err
	}
	before := r.deleted.count()
	if err := errors.Join(r.episodes(ctx, tenant, 100), r.judge(ctx)); err != nil {
		return err
	}
	if count := r.deleted.count(); count != before {
		return fmt.Errorf("%d Incidents were deleted by a wrong clock", count-before)
	}
	wrong.Kill()
	r.managers = right
	for _, m := range right {
		if err := errors.Join(m.Start(), m.WaitReady(ctx)); err != nil {
			return err
		}
	}
	return deletedAll(ctx, r)
}

// flood has a user of one namespace forge the days of thousands of episodes while the store hangs. When it is back, episodes
// of another namespace, which ended after those, are archived before most of them.
func flood(ctx context.Context, r *rig) error {
	const days, perDay, others = 300, 10, 20
	if err := errors.Join(r.judge(ctx), r.store.Freeze()); err != nil {
		return err
	}
	for day := range days {
		var alerts []v1alpha1.Alert
		for n := range perDay {
			alerts = append(alerts, r.episode(tenant, fmt.Sprintf("flood-%d-%d", day, n))...)
		}
		if err := r.create(ctx, tenant, time.Now().AddDate(0, 0, -day), alerts); err != nil {
			return err
		}
	}
	if err := errors.Join(r.wait(ctx, days*perDay), r.episodes(ctx, another, others), r.wait(ctx, days*perDay+others)); err != nil {
		return err
	}
	if err := r.store.Thaw(); err != nil {
		return err
	}
	return testenv.Await(ctx, archiveTimeout, func(ctx context.Context) error {
		missing, err := r.missing(ctx)
		if err != nil {
			return err
		}
		switch ofOthers := slices.IndexFunc(missing, func(name string) bool { return strings.HasPrefix(name, another+"/") }); {
		case ofOthers >= 0:
			return fmt.Errorf("%s is not archived", missing[ofOthers])
		case len(missing) < days*perDay/2:
			return fmt.Errorf("only %d of the flood still wait: the other namespace was no faster", len(missing))
		}
		return nil
	})
}
