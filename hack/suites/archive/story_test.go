//go:build slow

package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/records"
)

// perEvent is how many episodes one AlertEvent has, with two alerts each.
const perEvent = 100

// episodes has n Incidents open and end at once, in AlertEvents as a user of the namespace can create them.
func (r *rig) episodes(namespace string, n int) {
	for ; n > 0; n -= perEvent {
		var alerts []v1alpha1.Alert
		for range min(n, perEvent) {
			alerts = append(alerts, r.episode(namespace, fmt.Sprint("key-", r.serial.Add(1)))...)
		}
		r.create(namespace, time.Time{}, alerts)
	}
}

// episode returns the alerts of an episode, and expects its record.
func (r *rig) episode(namespace, key string) []v1alpha1.Alert {
	r.expected[namespace+"/"+v1alpha1.IncidentName(namespace, key)] += 2
	content := v1alpha1.AlertContent{Title: "Title of " + key, Severity: v1alpha1.SeverityError}
	return []v1alpha1.Alert{
		{DedupKey: key, Status: v1alpha1.AlertFiring, AlertContent: content}, {DedupKey: key, Status: v1alpha1.AlertResolved},
	}
}

// create creates an AlertEvent. A time of receipt that is not zero is forged.
func (r *rig) create(namespace string, received time.Time, alerts []v1alpha1.Alert) {
	r.T.Helper()
	r.Must(r.Client.Create(r.Context, &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "suite-"},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: namespace, ReceivedTime: v1alpha1.NewTimestamp(received), Alerts: testenv.Text(alerts...),
		},
	}))
}

// archived returns the records of the archive.
func (r *rig) archived(ctx context.Context) ([]records.Record, error) {
	var found []records.Record
	for record, err := range records.All(ctx, r.bucket, records.Query{WithoutContent: true}) {
		if err != nil {
			return nil, err
		}
		if record.Namespace != filler {
			found = append(found, record)
		}
	}
	return found, nil
}

// judge waits until every episode has its record, and makes sure that each has one, that no Incident was deleted before, and
// that no object lies elsewhere.
func (r *rig) judge() {
	r.T.Helper()
	for deadline := time.Now().Add(archiveTimeout); ; r.Pause(time.Second) {
		missing, err := r.missing(r.Context)
		r.Must(err)
		if len(missing) == 0 {
			break
		}
		if time.Now().After(deadline) {
			r.T.Fatalf("%d of %d Incidents are not archived, or not with all alerts: %s", len(missing), len(r.expected),
				strings.Join(missing[:min(5, len(missing))], ", "))
		}
	}
	found, err := r.archived(r.Context)
	r.Must(err)
	r.summary = fmt.Sprintf("%d episodes have one record each; %d Incidents were deleted, all of them after that.",
		len(found), r.deleted.count())
	r.Must(errors.Join(r.deleted.check(found), r.checkKeys()))
}

// missing returns the Incidents whose records do not have all their alerts. It fails if they have too many.
func (r *rig) missing(ctx context.Context) (missing []string, err error) {
	found, err := r.archived(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	for i := range found {
		counts[found[i].Namespace+"/"+found[i].Incident] += found[i].AlertCount
	}
	for name, count := range counts {
		if want, known := r.expected[name]; !known || count > want {
			return nil, fmt.Errorf("the records of %s have %d alerts, not %d", name, count, want)
		}
	}
	for name, want := range r.expected {
		if counts[name] < want {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

var goodKey = regexp.MustCompile(`^` + prefix + `v1/day=\d{4}-\d\d-\d\d/[0-9a-f]{32}\.ndjson\.gz$`)

// checkKeys makes sure that the store has only objects of the archive, wherever a sender would like to have them.
func (r *rig) checkKeys() error {
	return filepath.WalkDir(filepath.Dir(r.storeFolder()), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // combined meanwhile
			return nil
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), "."): // of the server
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		if key, err := filepath.Rel(r.storeFolder(), path); err != nil || !goodKey.MatchString(key) {
			return fmt.Errorf("an object outside of the archive: %s", path)
		}
		return nil
	})
}

// deletions are the ended episodes of Incidents that were deleted.
type deletions struct {
	mu       sync.Mutex
	episodes []deletedEpisode
}

type deletedEpisode struct {
	incident string
	key      records.Key
	digest   string
}

// watchDeletions notes every Incident that is deleted from now on, as it was at its end.
func watchDeletions(ctx context.Context, cluster *testenv.Cluster) (*deletions, error) {
	d := &deletions{}
	objects, err := cache.New(cluster.Config, cache.Options{Scheme: testenv.Scheme()})
	if err != nil {
		return nil, err
	}
	_, err = informers.Feed(objects, &v1alpha1.Incident{}, func(*v1alpha1.Incident, bool) {}, d.note)
	if err != nil {
		return nil, err
	}
	go func() { _ = objects.Start(ctx) }() // it ends with ctx
	if !objects.WaitForCacheSync(ctx) {
		return nil, errors.New("the watch of Incidents did not start")
	}
	return d, nil
}

func (d *deletions) note(incident *v1alpha1.Incident) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, episode := range fold.EndedEpisodes(&incident.Status) {
		d.episodes = append(d.episodes, deletedEpisode{
			incident.Namespace + "/" + incident.Name, records.Key{UID: string(incident.UID), Episode: episode.Number}, episode.Digest,
		})
	}
}

func (d *deletions) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.episodes)
}

// check makes sure that the archive has the last version of each deleted episode.
func (d *deletions) check(found []records.Record) error {
	digests := map[records.Key]string{}
	for i := range found {
		digests[found[i].Key()] = found[i].Digest
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.episodes {
		if digests[e.key] != e.digest {
			return fmt.Errorf("%s was deleted, and the archive lacks the last version of its episode %d", e.incident, e.key.Episode)
		}
	}
	return nil
}
