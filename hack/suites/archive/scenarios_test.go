//go:build slow

package archive

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/records"
)

// scenarios are run one after the other. The judge looks at all records after each. The last one leaves Incidents with forged
// days, which only the hourly sweep deletes.
var scenarios = []struct {
	name  string
	short bool
	run   func(r *rig)
}{
	{"hostile names and content", true, hostile},
	{"alerts after the resolve make newer versions of the record", true, newerVersion},
	{"ended episodes are archived within a minute", true, endedEpisodes},
	{"history and report read the archive", true, plugin},
	{"small objects are combined, of days that are over and of today", true, combined},
	{"archived Incidents are deleted", true, deletedAll},
	{"episodes that end without pause for a minute make few objects", false, withoutPause},
	{"a day with thousands of small objects is combined", false, thousands},
	{"the store is down", false, storeDown},
	{"the store hangs", false, storeHangs},
	{"the store rejects the credentials", false, wrongCredentials},
	{"the bucket is missing", false, bucketMissing},
	{"the archiver is killed while it writes and while it notes, with the leader", false, killArchiver},
	{"a zombie archiver: it stands still while it writes, another takes over, it goes on", false, zombieArchiver},
	{"the leader's clock is an hour ahead", false, func(r *rig) { r.wrongClock("1h") }},
	{"the leader's clock is an hour behind", false, func(r *rig) { r.wrongClock("-1h") }},
	{"a namespace with thousands of ended episodes on forged days holds up no other", false, flood},
}

// TestArchive runs the scenarios, with -short those that need one process of each and no fault.
func TestArchive(t *testing.T) {
	r := startRig(t)
	for _, s := range scenarios {
		if testing.Short() && !s.short {
			continue
		}
		r.Run(s.name, func() {
			s.run(r)
			if !testing.Short() {
				r.judge()
			}
		})
	}
	r.judge()
	t.Log(r.summary)
}

// filler is the namespace of the records that are in the archive before the archivers start.
const filler = "filler"

// fill writes small objects of three days: two large ones, which together need an upload in parts, a few, and very many.
func (r *rig) fill() {
	const (
		many      = 70
		incidents = 15
		large     = 176 << 10
	)
	for range 3 {
		r.object(3, incidents, large)
		r.object(2, 2, 10)
	}
	r.objects(many, 0)
}

// objects writes so many small objects of the day that was so many days ago.
func (r *rig) objects(n, age int) {
	for range n {
		r.object(age, 1, 10)
	}
}

// object writes an object with n records, each with so many bytes of content.
func (r *rig) object(age, n, content int) {
	day := time.Now().UTC().AddDate(0, 0, -age)
	var list []records.Record
	for range n {
		noise := make([]byte, content*3/4)
		_, _ = rand.Read(noise) // never fails
		list = append(list, records.Record{
			SchemaVersion: records.SchemaVersion, Namespace: filler, Integration: filler, UID: fmt.Sprint("uid-", r.serial.Add(1)),
			ResourceVersion: "1",
			EndedEpisode: fold.EndedEpisode{
				Number: 1, ResolvedTime: v1alpha1.NewTimestamp(day), OpenedTime: v1alpha1.NewTimestamp(day.Add(-time.Minute)),
				Alert: v1alpha1.AlertContent{Description: base64.StdEncoding.EncodeToString(noise)},
			},
		})
	}
	_, _, err := records.Write(r.Context, r.bucket, records.Day(day), list)
	r.Must(err)
}

// combined waits until the archiver has combined the objects that fill wrote.
func combined(r *rig) {
	want := r.fillers()
	for age, most := range map[int]int{3: 1, 2: 1, 0: 20} { // of today, there are newer ones
		r.fewer(age, most)
	}
	if now := r.fillers(); now != want || want != 45+6+70 {
		r.T.Fatalf("%d records before, %d after", want, now)
	}
}

// fewer waits until a day has at most so many objects.
func (r *rig) fewer(age, most int) {
	r.T.Helper()
	day := records.Day(time.Now().AddDate(0, 0, -age))
	r.Await(combineTimeout, func(ctx context.Context) error {
		page, _, err := r.bucket.ListPage(ctx, blob.FirstPageToken, 100, &blob.ListOptions{Prefix: "v1/day=" + day + "/"})
		if err != nil || len(page) <= most {
			return err
		}
		return fmt.Errorf("%s has %d objects", day, len(page))
	})
}

// thousands has another archiver take over that finds a day with thousands of small objects.
func thousands(r *rig) {
	const n, age = 2000, 2
	before := r.fillers()
	r.objects(n, age)
	a := r.archivers[r.Leader(r.archivers)]
	a.Kill()
	r.Must(a.Start())
	r.led()
	begin := time.Now()
	r.fewer(age, 1)
	r.T.Logf("%d objects were combined in %.0f s", n, time.Since(begin).Seconds())
	if now := r.fillers(); now != before+n {
		r.T.Fatalf("%d records before, %d after", before+n, now)
	}
}

// withoutPause has episodes end for a minute, and counts the objects that they become.
func withoutPause(r *rig) {
	const atOnce = 20
	begin, episodes := time.Now(), 0
	for ; time.Since(begin) < time.Minute; episodes += atOnce {
		r.episodes(tenant, atOnce)
		r.Pause(time.Second / 2)
	}
	r.judge()
	rounds := int(time.Since(begin)/roundInterval) + 1
	objects, err := r.writtenSince(r.Context, begin)
	r.Must(err)
	r.T.Logf("%d episodes became %d objects, in at most %d rounds", episodes, objects, rounds)
	if objects > rounds+2 { // a round may have a second batch, or objects of two days
		r.T.Fatalf("%d objects in %d rounds", objects, rounds)
	}
}

// writtenSince counts the objects that were written since a time.
func (r *rig) writtenSince(ctx context.Context, begin time.Time) (n int, err error) {
	for objects := r.bucket.List(nil); ; {
		object, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if !object.ModTime.Before(begin.Truncate(time.Second)) {
			n++
		}
	}
}

// fillers counts the records that fill and thousands wrote.
func (r *rig) fillers() (n int) {
	r.T.Helper()
	r.Await(testenv.WaitTimeout, func(ctx context.Context) error {
		n = 0
		for record, err := range records.All(ctx, r.bucket, records.Query{WithoutContent: true}) {
			if err != nil {
				return err // an object was combined after it was listed
			}
			if record.Namespace == filler {
				n++
			}
		}
		return nil
	})
	return n
}

func endedEpisodes(r *rig) {
	r.episodes(tenant, 150)
	r.episodes(another, 150)
	r.judge()
}

// deletedAll waits until no Incident is left.
func deletedAll(r *rig) {
	r.Await(deletionTimeout, func(ctx context.Context) error {
		var left v1alpha1.IncidentList
		err := r.Client.List(ctx, &left)
		if n := len(left.Items); err == nil && n > 0 {
			err = fmt.Errorf("%d archived Incidents are not deleted", n)
		}
		return err
	})
}

// newerVersion counts alerts of an episode that has ended, just before and after it is archived.
func newerVersion(r *rig) {
	const key = "repeats"
	r.create(tenant, time.Time{}, r.episode(tenant, key))
	for range 3 {
		r.Pause(2 * time.Second)
		// By then it may be archived and deleted: a resolve that matches no Incident has no record.
		r.create(tenant, time.Time{}, r.episode(tenant, key))
	}
}

// hostile posts what a tenant could try to get out of his namespace in the archive with, or to make it unreadable.
func hostile(r *rig) {
	nasty := []string{
		"../../../outside", "/etc/passwd", "v1/day=2020-01-01/x.ndjson.gz", "a\nb", `"},{"uid":"forged"`, "\x1b[2J\x1b[31m",
		"</script><b>", "=HYPERLINK(1)", "line\u2028separator", "\u202egnp", strings.Repeat("x", 1000),
	}
	for _, key := range nasty {
		custom := map[string]string{}
		for i := range 1_000 { // nearly as large as a request may be
			custom[fmt.Sprint(key[:min(3, len(key))], i)] = strings.Repeat("x", 100)
		}
		alert := map[string]any{
			"dedup_key": key, "title": key, "hostname": key, "type": key, "description": strings.Repeat("\x01\\\"<", 4000),
			"custom": custom, "labels": map[string]any{key: json.RawMessage(`{"deep":[[[[[[{}]]]]]]}`)},
		}
		for _, status := range []v1alpha1.AlertStatus{v1alpha1.AlertFiring, v1alpha1.AlertResolved} {
			alert["status"] = status
			r.post(alert)
		}
	}
}

// post sends an alert of the tenant to any manager that accepts it, and expects it in the record of its Incident.
func (r *rig) post(alert map[string]any) {
	body, err := json.Marshal(alert)
	r.Must(err)
	var answer struct{ Alerts []struct{ Incident string } }
	// An alert that is stored after so long would count twice.
	r.Must(json.Unmarshal([]byte(r.Post(testenv.WaitTimeout/2, r.managers, r.tokens[tenant], string(body))), &answer))
	if len(answer.Alerts) != 1 {
		r.T.Fatalf("the answer to one alert has %d", len(answer.Alerts))
	}
	r.expected[answer.Alerts[0].Incident]++
}

// plugin compares what the plugin prints with what has to be in the archive.
func plugin(r *rig) {
	r.judge()
	found, err := r.archived(r.Context)
	r.Must(err)
	episodes, listed, reported := len(found), 0, 0
	for line := range bytes.SplitSeq(bytes.TrimSpace(r.runPlugin("history", "-o", "json")), []byte("\n")) {
		var record records.Record
		r.Must(json.Unmarshal(line, &record))
		if record.Namespace != filler {
			listed++
		}
	}
	var statistics struct {
		Integrations []struct {
			Namespace string
			Episodes  int
		}
	}
	r.Must(json.Unmarshal(r.runPlugin("report", "-o", "json"), &statistics))
	for _, integration := range statistics.Integrations {
		if integration.Namespace != filler {
			reported += integration.Episodes
		}
	}
	if listed != episodes || reported != episodes {
		r.T.Fatalf("of %d episodes, history lists %d and report counts %d", episodes, listed, reported)
	}
	for _, format := range []string{"", "wide", "csv"} {
		if bytes.ContainsAny(r.runPlugin("history", "-o", format), "\x1b\x00\u202e") {
			r.T.Fatalf("history -o %q prints control characters of a sender", format)
		}
	}
}

// runPlugin runs a command that reads only the archive.
func (r *rig) runPlugin(args ...string) []byte {
	r.T.Helper()
	command := exec.CommandContext(r.Context, testenv.Program("kubectl-tocsin"),
		append(args, "-A", "--archive-only", "--since", "20000d")...)
	command.Env = append(os.Environ(), "TOCSIN_ARCHIVE="+r.url)
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil || problems.Len() > 0 {
		r.T.Fatalf("kubectl tocsin %v: %v: %s", args, err, &problems)
	}
	return output
}
