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

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// Series of the leader.
const (
	failures = `tocsin_archive_failures_total\{operation="(?:read|write)"\}`
	waiting  = `tocsin_archive_waiting_incidents`
	written  = `tocsin_archive_records_total`
)

// outage has episodes end before and while the store is unavailable: nothing is deleted then, the condition and the metrics
// say so, alerts are folded as usual, and everything is archived after it.
func (r *rig) outage(ctx context.Context, begin, end func() error) error {
	if err := deletedAll(ctx, r); err != nil {
		return err
	}
	before := r.deleted.count()
	at, err := testenv.Leader(ctx, waitTimeout, r.managers)
	if err != nil {
		return err
	}
	failed, err := metric(ctx, r.managers[at], failures)
	if err != nil {
		return err
	}
	if err := errors.Join(begin(), r.episodes(ctx, tenant, 200), r.episodes(ctx, another, 20)); err != nil {
		return err
	}
	if err := r.condition(ctx, v1alpha1.ReasonArchiveUnavailable); err != nil {
		return err
	}
	if err := r.shown(ctx, at, failed, before); err != nil {
		return err
	}
	if err := r.episodes(ctx, another, 5); err != nil {
		return err
	}
	const complaint = "alerts are not folded while the store is unavailable"
	err = testenv.AwaitThat(ctx, waitTimeout, complaint, func(ctx context.Context) bool {
		waits, err := metric(ctx, r.managers[at], waiting)
		return err == nil && waits == 225
	})
	if err := errors.Join(err, end(), r.storeAnswers(ctx), r.judge(ctx)); err != nil {
		return err
	}
	return r.condition(ctx, v1alpha1.ReasonArchiving)
}

// shown makes sure that the metrics of the leader tell of the outage, and that no Incident was deleted in it.
func (r *rig) shown(ctx context.Context, at int, failed float64, deleted int) error {
	if now, err := testenv.Leader(ctx, waitTimeout, r.managers); err != nil || now != at {
		return fmt.Errorf("another manager leads, since the machine is too slow: %w", err)
	}
	now, err := metric(ctx, r.managers[at], failures)
	if err != nil || now <= failed {
		return fmt.Errorf("the metric does not count failures: %v, then %v: %w", failed, now, err)
	}
	if waits, err := metric(ctx, r.managers[at], waiting); err != nil || waits != 220 {
		return fmt.Errorf("%v Incidents wait by the metric, not 220: %w", waits, err)
	}
	if count := r.deleted.count(); count != deleted {
		return fmt.Errorf("%d Incidents were deleted while the store was unavailable", count-deleted)
	}
	return nil
}

// condition waits until the condition Archived of all integrations has a reason.
func (r *rig) condition(ctx context.Context, reason string) error {
	const timeout = 3 * time.Minute
	return testenv.Await(ctx, timeout, func(ctx context.Context) error {
		for _, namespace := range []string{tenant, another} {
			var integration v1alpha1.WebhookIntegration
			if err := r.cluster.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: namespace}, &integration); err != nil {
				return err
			}
			has := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionArchived)
			if has == nil || has.Reason != reason {
				return fmt.Errorf("the condition Archived of %s is %+v, not %s", namespace, has, reason)
			}
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

// writing has the leader stand before a store that hangs, with a write under way, and returns its number.
func (r *rig) writing(ctx context.Context) (at int, err error) {
	if at, err = testenv.Leader(ctx, waitTimeout, r.managers); err != nil {
		return at, err
	}
	before, err := metric(ctx, r.managers[at], written)
	if err != nil {
		return at, err
	}
	if err := errors.Join(r.episodes(ctx, tenant, 2000), r.episodes(ctx, another, 500)); err != nil {
		return at, err
	}
	err = testenv.AwaitThat(ctx, waitTimeout, "no record is written", func(ctx context.Context) bool {
		now, err := metric(ctx, r.managers[at], written)
		return err == nil && now > before
	})
	if err := errors.Join(err, r.store.Freeze()); err != nil {
		return at, err
	}
	const batch = 3 * time.Second // to read it
	testenv.Pause(ctx, batch)
	return at, nil
}

func killLeader(ctx context.Context, r *rig) error {
	for range 3 {
		at, err := r.writing(ctx)
		if err != nil {
			return err
		}
		m := r.managers[at]
		m.Kill()
		if err := errors.Join(r.store.Thaw(), m.Start(), m.WaitReady(ctx)); err != nil {
			return err
		}
		if _, err := testenv.Leader(ctx, waitTimeout, r.managers); err != nil {
			return err
		}
		if err := r.judge(ctx); err != nil {
			return err
		}
	}
	return nil
}

func zombieLeader(ctx context.Context, r *rig) error {
	at, err := r.writing(ctx)
	if err != nil {
		return err
	}
	m := r.managers[at]
	if err := errors.Join(m.Signal(syscall.SIGSTOP), r.store.Thaw()); err != nil {
		return err
	}
	err = testenv.AwaitThat(ctx, waitTimeout, "nobody takes over", func(ctx context.Context) bool {
		now, err := testenv.Leader(ctx, waitTimeout, r.managers)
		return err == nil && now != at
	})
	if err := errors.Join(err, r.judge(ctx), m.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	// It exits, or goes on as a follower.
	select {
	case <-m.Exited():
		return errors.Join(m.Start(), m.WaitReady(ctx))
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
	at, err := testenv.Leader(ctx, waitTimeout, r.managers)
	if err != nil {
		return err
	}
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
	waits := func(n float64) error {
		return testenv.AwaitThat(ctx, 2*time.Minute, "the flood is not folded", func(ctx context.Context) bool {
			now, err := metric(ctx, r.managers[at], waiting)
			return err == nil && now >= n
		})
	}
	if err := waits(days * perDay); err != nil {
		return err
	}
	if err := errors.Join(r.episodes(ctx, another, others), waits(days*perDay+others), r.store.Thaw()); err != nil {
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
