package simulation

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/traces"
	"github.com/tocsin-dev/tocsin/internal/records"
)

// archiveTime is how long after its end, or after the end of all faults, an episode is archived.
const archiveTime = time.Minute

// archiveJudge judges, by docs/archive.md, what the bucket has.
type archiveJudge struct {
	bucket *bucket

	mu        sync.Mutex
	incidents map[types.UID]*archivedIncident
	read      map[string][]records.Record // by the key of their object
	found     oracle.Findings
}

// archivedIncident is what the commits tell of an Incident.
type archivedIncident struct {
	name    string
	opened  map[int64]v1alpha1.Timestamp // by episode
	ended   map[int64]endedEpisode
	omitted map[int64]bool // episodes that had no space while the archiver was late, and that another one counts
	archive v1alpha1.ArchiveState
	before  v1alpha1.IncidentStatus // of the last commit
	exists  bool
	exempt  bool // a user has deleted it, archived or not
}

// endedEpisode is what the archive must have of an episode.
type endedEpisode struct {
	digest   string
	resolved v1alpha1.Timestamp
	omitted  int64     // later episodes that it counts
	alerts   int64     // -1: a commit that tells it was never seen
	since    time.Time // when it became so
}

func newArchiveJudge(b *bucket) *archiveJudge {
	return &archiveJudge{bucket: b, incidents: map[types.UID]*archivedIncident{}, read: map[string][]records.Record{}}
}

// commit is for apiserver.Server.OnCommit.
func (j *archiveJudge) commit(c apiserver.Commit) {
	if c.Resource != traces.Incidents {
		return
	}
	incident := decode[v1alpha1.Incident](c.JSON)
	j.mu.Lock()
	defer j.mu.Unlock()
	known := j.incidents[incident.UID]
	if known == nil {
		known = &archivedIncident{
			name: incident.Namespace + "/" + incident.Name, exists: true,
			opened: map[int64]v1alpha1.Timestamp{}, ended: map[int64]endedEpisode{}, omitted: map[int64]bool{},
		}
		j.incidents[incident.UID] = known
	}
	isDeletion := known.exists && !known.exempt && (c.Type == watch.Deleted || !incident.DeletionTimestamp.IsZero())
	switch {
	case isDeletion && !isReplica(c.Client): // a user, or the deletion of the namespace
		known.exempt = true
	case isDeletion:
		for _, wrong := range j.compare(incident.UID, known, time.Now()) {
			j.found.Add("R: the operator deleted %s: %s", known.name, wrong)
		}
	}
	known.exists = c.Type != watch.Deleted
	if known.exists {
		if isReplica(c.Client) && !reflect.DeepEqual(known.before, incident.Status) { // not a write of its labels
			j.judgeWaiting(known, incident.Status.UnarchivedEpisodes)
		}
		j.enter(known, &incident.Status)
	}
	known.before = incident.Status
}

// judgeWaiting judges what a fold has left in the status to be archived: nothing that was archived before.
func (j *archiveJudge) judgeWaiting(known *archivedIncident, waiting []v1alpha1.UnarchivedEpisode) {
	for _, e := range waiting {
		if fold.InArchive(&known.before, &e) {
			j.found.Add("R: a fold of %s keeps its episode %d, which is archived", known.name, e.Number)
		}
	}
}

// enter enters the episodes of a status that have ended.
func (j *archiveJudge) enter(known *archivedIncident, status *v1alpha1.IncidentStatus) {
	known.archive = v1alpha1.ArchiveComplete
	if status.Archive != nil {
		known.archive = status.Archive.State
	}
	if status.Episode == nil {
		return
	}
	if waiting := status.UnarchivedEpisodes; known.wait(waiting) && !isFull(waiting) {
		j.found.Add("R: %s omits an episode, and only %d wait for the archive", known.name, len(waiting))
	}
	number := status.Episode.Number
	if status.OpenedTime != nil {
		known.opened[number] = *status.OpenedTime
	}
	last := number // of the episodes that have ended
	if status.State == v1alpha1.IncidentResolved && status.ResolvedTime != nil {
		known.end(number, endedEpisode{
			digest: status.Ledger.Digest, resolved: *status.ResolvedTime, alerts: status.Episode.AlertCount,
		})
	} else {
		last--
	}
	if accounted := int64(len(known.ended) + len(known.omitted)); accounted < last {
		j.found.Add("R: %s has had %d episodes, and only %d of them were ever shown as ended", known.name, last, accounted)
	}
}

// wait enters the episodes that wait in a status, and reports whether it omits another one. Those that an episode counts came
// right after it.
func (known *archivedIncident) wait(waiting []v1alpha1.UnarchivedEpisode) (omits bool) {
	for _, e := range waiting {
		known.end(e.Number, endedEpisode{digest: e.Digest, resolved: e.ResolvedTime, omitted: e.OmittedEpisodes, alerts: -1})
		for number := e.Number + 1; number <= e.Number+e.OmittedEpisodes; number++ {
			omits = omits || !known.omitted[number]
			known.omitted[number] = true
			delete(known.ended, number)
		}
	}
	return omits
}

// isFull says whether there may be no space for another episode: all of them have 16 KiB, of which one needs less than four.
func isFull(waiting []v1alpha1.UnarchivedEpisode) bool {
	bytes := 0
	for _, e := range waiting {
		bytes += len(e.Packed)
	}
	return len(waiting) == v1alpha1.MaxUnarchivedEpisodes || bytes > 12<<10
}

// end enters an episode, as it is by now.
func (known *archivedIncident) end(number int64, e endedEpisode) {
	was, isKnown := known.ended[number]
	if isKnown && was.digest == e.digest && e.alerts < 0 {
		e.alerts = was.alerts
	}
	e.since = was.since
	if e != was {
		e.since = time.Now()
	}
	known.ended[number] = e
}

// judgeArchive returns what is wrong at the end of a story. Of episodes that ended lately, and of alerts that they counted
// lately, nothing is asked.
func (w *world) judgeArchive() oracle.Findings {
	j := w.archive.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	due := time.Now().Add(-archiveTime)
	for uid, known := range j.incidents {
		if known.exempt {
			continue
		}
		wrong := j.compare(uid, known, due)
		for _, text := range wrong {
			j.found.Add("R: %s: %s", known.name, text)
		}
		isLate := false
		for _, e := range known.ended {
			isLate = isLate || e.since.After(due)
		}
		// A webhook or a quota of the namespace may reject the notes.
		namespace, _, _ := strings.Cut(known.name, "/")
		if known.exists && known.archive == v1alpha1.ArchiveWaiting && len(wrong) == 0 && !isLate && !w.story.stays(namespace) {
			j.found.Add("R: %s waits for the archive, which has all of it", known.name)
		}
	}
	return j.found
}

// compare returns in what the bucket differs from the episodes of an Incident that have been as they are since then.
func (j *archiveJudge) compare(uid types.UID, known *archivedIncident, due time.Time) (wrong []string) {
	newest := j.newest(uid)
	for number, e := range known.ended {
		record, found := newest[number]
		opened, isKnown := known.opened[number]
		switch {
		case e.since.After(due):
		case !found:
			wrong = append(wrong, fmt.Sprintf("the archive has no record of episode %d, which ended at %s", number, e.resolved))
		case !e.hasVersion(&record, newest) || !record.ResolvedTime.Equal(e.resolved.Time) ||
			isKnown && !record.OpenedTime.Equal(opened.Time) || e.alerts >= 0 && record.AlertCount != e.alerts:
			wrong = append(wrong, fmt.Sprintf("episode %d is %s to %s, %d alerts, digest %s, %d omitted, "+
				"and the record has %s to %s, %d, %s, %v", number, opened, e.resolved, e.alerts, e.digest, e.omitted,
				record.OpenedTime, record.ResolvedTime, record.AlertCount, record.Digest, record.Omitted))
		case record.Namespace+"/"+record.Incident != known.name:
			wrong = append(wrong, fmt.Sprintf("the record of episode %d is of %s/%s", number, record.Namespace, record.Incident))
		}
	}
	return wrong
}

// hasVersion reports whether a record is of the newest version of its episode, and counts the episodes that had no space, but for
// those that have records of their own: the archiver was about to write them.
func (e *endedEpisode) hasVersion(record *records.Record, newest map[int64]records.Record) bool {
	counted := int64(0)
	if record.Omitted != nil {
		counted = record.Omitted.Episodes
	}
	own := e.omitted
	for own > 0 && newest[record.Number+own].Number != 0 {
		own--
	}
	return record.Digest == e.digest && counted == e.omitted || own < e.omitted && counted == own
}

// newest returns the newest record of each episode of an Incident: the one with the highest resourceVersion.
func (j *archiveJudge) newest(uid types.UID) map[int64]records.Record {
	j.bucket.mu.Lock()
	defer j.bucket.mu.Unlock()
	newest, versions := map[int64]records.Record{}, map[int64]int64{}
	for key, content := range j.bucket.objects {
		if j.read[key] == nil {
			j.read[key] = readObject(content)
		}
		for _, record := range j.read[key] {
			version, err := strconv.ParseInt(record.ResourceVersion, 10, 64)
			if err != nil {
				panic(err)
			}
			if record.UID == string(uid) && version > versions[record.Number] {
				newest[record.Number], versions[record.Number] = record, version
			}
		}
	}
	return newest
}

// readObject reads the records of an object.
func readObject(content []byte) (found []records.Record) {
	text, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		panic(err)
	}
	for decoder := json.NewDecoder(text); ; {
		var record records.Record
		if err := decoder.Decode(&record); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			panic(err)
		}
		found = append(found, record)
	}
}
