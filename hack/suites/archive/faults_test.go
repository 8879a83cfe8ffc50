//go:build slow

package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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
func (r *rig) outage(begin, end func() error) {
	deletedAll(r)
	before := r.deleted.count()
	fails := r.rises(failures)
	r.Must(begin())
	r.episodes(tenant, 200)
	r.episodes(another, 20)
	r.wait(220)
	r.Pause(2 * retention)
	fails()
	r.episodes(another, 5)
	r.wait(225)
	r.noneDeleted(before, "while the store was unavailable")
	r.Must(end())
	r.storeAnswers()
	r.judge()
	r.wait(0)
}

// noneDeleted makes sure that no more Incidents were deleted.
func (r *rig) noneDeleted(before int, when string) {
	r.T.Helper()
	if count := r.deleted.count(); count != before {
		r.T.Fatalf("%d Incidents were deleted %s", count-before, when)
	}
}

// wait waits until n Incidents wait for the archive, as their statuses and the metric of the archivers say.
func (r *rig) wait(n int) {
	r.T.Helper()
	const timeout = 2 * time.Minute
	r.Await(timeout, func(ctx context.Context) error {
		var list v1alpha1.IncidentList
		err := r.Client.List(ctx, &list, client.MatchingFields{v1alpha1.ArchiveStateField: string(v1alpha1.ArchiveWaiting)})
		shown, other := r.metric(ctx, waiting)
		if err := errors.Join(err, other); err != nil || len(list.Items) != n || int(shown) != n {
			return fmt.Errorf("%d Incidents wait, %v by the metric, not %d: %w", len(list.Items), shown, n, err)
		}
		return nil
	})
}

func storeDown(r *rig) { r.outage(func() error { r.store.Kill(); return nil }, r.store.Start) }

func storeHangs(r *rig) { r.outage(r.store.Freeze, r.store.Thaw) }

func wrongCredentials(r *rig) {
	restart := func(secret string) func() error {
		return func() error {
			r.store.Kill()
			r.store.SetArg(secretFlag, secret)
			return r.store.Start()
		}
	}
	r.outage(restart(otherSecret), restart(secretKey))
}

func bucketMissing(r *rig) {
	away := filepath.Join(r.Folder, "away")
	move := func(from, to string) func() error { return func() error { return os.Rename(from, to) } }
	r.outage(move(r.storeFolder(), away), move(away, r.storeFolder()))
}

// writing has the archiver write something, and returns its number. If the store is to hang, another write is under way then.
func (r *rig) writing(hang bool) (at int) {
	at = r.Leader(r.archivers)
	writes := r.rises(written)
	load := func() {
		r.episodes(tenant, 200)
		r.episodes(another, 50)
	}
	load()
	writes()
	if hang {
		const batch = 3 * time.Second // to read it
		r.Must(r.store.Freeze())
		load()
		r.Pause(roundInterval + batch)
	}
	return at
}

func killArchiver(r *rig) {
	for _, hang := range []bool{false, true, false} { // it notes, or it writes
		a := r.archivers[r.writing(hang)]
		a.Kill()
		m := r.managers[r.Leader(r.managers)]
		m.Kill()
		r.Must(r.store.Thaw())
		r.Start(a.Process, m.Process)
		r.led()
		r.judge()
	}
}

func zombieArchiver(r *rig) {
	at := r.writing(true)
	a := r.archivers[at]
	r.Must(errors.Join(a.Freeze(), r.store.Thaw()))
	r.Successor(r.archivers, at)
	r.judge()
	r.Wake(a)
}

// wrongClock has a manager lead whose clock is wrong. It deletes what is archived in time, by the API server's clock.
func (r *rig) wrongClock(skew string) {
	wrong, right := r.manager(len(r.managers), r.SkewedManager(), "TOCSIN_CLOCK_SKEW="+skew), r.managers
	for _, m := range right {
		m.Kill()
	}
	r.managers = []*testenv.Manager{wrong}
	r.Leader(r.managers)
	r.episodes(tenant, 100)
	r.judge()
	deletedAll(r)
	wrong.Kill()
	r.managers = right
	for _, m := range right {
		r.Start(m.Process)
	}
}

// flood has a user of one namespace forge the days of thousands of episodes while the store hangs. When it is back, episodes
// of another namespace, which ended after those, are archived before most of them.
func flood(r *rig) {
	const days, perDay, others = 300, 10, 20
	r.judge()
	r.Must(r.store.Freeze())
	for day := range days {
		var alerts []v1alpha1.Alert
		for n := range perDay {
			alerts = append(alerts, r.episode(tenant, fmt.Sprintf("flood-%d-%d", day, n))...)
		}
		r.create(tenant, time.Now().AddDate(0, 0, -day), alerts)
	}
	r.wait(days * perDay)
	r.episodes(another, others)
	r.wait(days*perDay + others)
	r.Must(r.store.Thaw())
	r.Await(archiveTimeout, func(ctx context.Context) error {
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
