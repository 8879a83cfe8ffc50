package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// scenarios are run one after the other. The judge looks at all records after each. The last one leaves Incidents with forged
// days, which only the hourly sweep deletes.
var scenarios = []struct {
	name  string
	short bool
	run   func(ctx context.Context, r *rig) error
}{
	{"hostile names and content", true, hostile},
	{"alerts after the resolve make newer versions of the record", true, newerVersion},
	{"ended episodes are archived within a minute", true, lifecycle},
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
	{"the leader's clock is an hour ahead", false, clockAhead},
	{"the leader's clock is an hour behind", false, clockBehind},
	{"a namespace with thousands of ended episodes on forged days holds up no other", false, flood},
}

// filler is the namespace of the records that are in the archive before the archivers start.
const filler = "filler"

// fill writes small objects of three days: two large ones, which together need an upload in parts, a few, and very many.
func (r *rig) fill(ctx context.Context) error {
	const (
		many      = 70
		incidents = 15
		large     = 176 << 10
	)
	for range 3 {
		if err := errors.Join(r.object(ctx, 3, incidents, large), r.object(ctx, 2, 2, 10)); err != nil {
			return err
		}
	}
	return r.objects(ctx, many, 0)
}

// objects writes so many small objects of the day that was so many days ago.
func (r *rig) objects(ctx context.Context, n, age int) error {
	for range n {
		if err := r.object(ctx, age, 1, 10); err != nil {
			return err
		}
	}
	return nil
}

// object writes an object with n records, each with so many bytes of content.
func (r *rig) object(ctx context.Context, age, n, content int) error {
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
	_, _, err := records.Write(ctx, r.bucket, records.Day(day), list)
	return err
}

// combined waits until the archiver has combined the objects that fill wrote.
func combined(ctx context.Context, r *rig) error {
	want, err := r.fillers(ctx)
	if err != nil {
		return err
	}
	for age, most := range map[int]int{3: 1, 2: 1, 0: 20} { // of today, there are newer ones
		if err := r.fewer(ctx, age, most); err != nil {
			return err
		}
	}
	if now, err := r.fillers(ctx); err != nil || now != want || want != 45+6+70 {
		return fmt.Errorf("%d records before, %d after: %w", want, now, err)
	}
	return nil
}

// fewer waits until a day has at most so many objects.
func (r *rig) fewer(ctx context.Context, age, most int) error {
	day := records.Day(time.Now().AddDate(0, 0, -age))
	return testenv.Await(ctx, combineTimeout, func(ctx context.Context) error {
		page, _, err := r.bucket.ListPage(ctx, blob.FirstPageToken, 100, &blob.ListOptions{Prefix: "v1/day=" + day + "/"})
		if err != nil || len(page) <= most {
			return err
		}
		return fmt.Errorf("%s has %d objects", day, len(page))
	})
}

// thousands has another archiver take over that finds a day with thousands of small objects.
func thousands(ctx context.Context, r *rig) error {
	const n, age = 2000, 2
	before, err := r.fillers(ctx)
	if err != nil {
		return err
	}
	if err := r.objects(ctx, n, age); err != nil {
		return err
	}
	at, err := testenv.Leader(ctx, waitTimeout, r.archivers)
	if err != nil {
		return err
	}
	r.archivers[at].Kill()
	if err := errors.Join(r.archivers[at].Start(), r.led(ctx)); err != nil {
		return err
	}
	begin := time.Now()
	if err := r.fewer(ctx, age, 1); err != nil {
		return err
	}
	fmt.Printf("    %d objects were combined in %.0f s.\n", n, time.Since(begin).Seconds())
	if now, err := r.fillers(ctx); err != nil || now != before+n {
		return fmt.Errorf("%d records before, %d after: %w", before+n, now, err)
	}
	return nil
}

// withoutPause has episodes end for a minute, and counts the objects that they become.
func withoutPause(ctx context.Context, r *rig) error {
	const atOnce = 20
	begin, episodes := time.Now(), 0
	for ; time.Since(begin) < time.Minute; episodes += atOnce {
		if err := r.episodes(ctx, tenant, atOnce); err != nil {
			return err
		}
		testenv.Pause(ctx, time.Second/2)
	}
	if err := r.judge(ctx); err != nil {
		return err
	}
	rounds := int(time.Since(begin)/roundInterval) + 1
	objects, err := r.writtenSince(ctx, begin)
	fmt.Printf("    %d episodes became %d objects, in at most %d rounds.\n", episodes, objects, rounds)
	if err == nil && objects > rounds+2 { // a round may have a second batch, or objects of two days
		err = fmt.Errorf("%d objects in %d rounds", objects, rounds)
	}
	return err
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
func (r *rig) fillers(ctx context.Context) (n int, err error) {
	err = testenv.Await(ctx, waitTimeout, func(ctx context.Context) error {
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
	return n, err
}

func lifecycle(ctx context.Context, r *rig) error {
	return errors.Join(r.episodes(ctx, tenant, 150), r.episodes(ctx, another, 150), r.judge(ctx))
}

// deletedAll waits until no Incident is left.
func deletedAll(ctx context.Context, r *rig) error {
	return testenv.Await(ctx, deletionTimeout, func(ctx context.Context) error {
		var left v1alpha1.IncidentList
		if err := r.cluster.Client.List(ctx, &left); err != nil {
			return err
		}
		if n := len(left.Items); n > 0 {
			return fmt.Errorf("%d archived Incidents are not deleted", n)
		}
		return nil
	})
}

// newerVersion counts alerts of an episode that has ended, just before and after it is archived.
func newerVersion(ctx context.Context, r *rig) error {
	const key = "repeats"
	if err := r.create(ctx, tenant, time.Time{}, r.episode(tenant, key)); err != nil {
		return err
	}
	for range 3 {
		if !testenv.Pause(ctx, 2*time.Second) {
			return ctx.Err()
		}
		// By then it may be archived and deleted: a resolve that matches no Incident has no record.
		if err := r.create(ctx, tenant, time.Time{}, r.episode(tenant, key)); err != nil {
			return err
		}
	}
	return nil
}

// hostile posts what a tenant could try to get out of his namespace in the archive with, or to make it unreadable.
func hostile(ctx context.Context, r *rig) error {
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
			if err := r.post(ctx, tenant, alert); err != nil {
				return err
			}
		}
	}
	return nil
}

// post sends an alert to any manager that accepts it, and expects it in the record of its Incident.
func (r *rig) post(ctx context.Context, namespace string, alert map[string]any) error {
	body, err := json.Marshal(alert)
	if err != nil {
		return err
	}
	return testenv.Await(ctx, waitTimeout, func(ctx context.Context) (err error) {
		for _, m := range r.managers {
			var incident string
			if incident, err = send(ctx, m.WebhookURL+r.tokens[namespace], body); err == nil {
				r.expected[incident]++
				return nil
			}
		}
		return err
	})
}

// send posts an alert and returns the namespace and name of its Incident.
func send(ctx context.Context, url string, body []byte) (incident string, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout/2) // an alert that is stored after that would count twice
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct{ Alerts []struct{ Incident string } }
	err = json.NewDecoder(response.Body).Decode(&answer)
	if response.StatusCode != http.StatusAccepted || err != nil || len(answer.Alerts) != 1 {
		return "", fmt.Errorf("posting an alert: %s, %d alerts: %w", response.Status, len(answer.Alerts), err)
	}
	return answer.Alerts[0].Incident, nil
}

// plugin compares what the plugin prints with what has to be in the archive.
func plugin(ctx context.Context, r *rig) error {
	if err := r.judge(ctx); err != nil {
		return err
	}
	found, err := r.archived(ctx)
	if err != nil {
		return err
	}
	episodes := int64(len(found))
	listed := int64(0)
	output, err := r.runPlugin(ctx, "history", "-o", "json")
	if err != nil {
		return err
	}
	for line := range bytes.SplitSeq(bytes.TrimSpace(output), []byte("\n")) {
		var record records.Record
		if err := json.Unmarshal(line, &record); err != nil {
			return fmt.Errorf("history -o json: %w", err)
		}
		if record.Namespace != filler {
			listed++
		}
	}
	var statistics struct {
		Episodes     int64
		Integrations []struct {
			Namespace string
			Episodes  int64
		}
	}
	if output, err = r.runPlugin(ctx, "report", "-o", "json"); err != nil {
		return err
	}
	if err := json.Unmarshal(output, &statistics); err != nil {
		return fmt.Errorf("report -o json: %w", err)
	}
	reported := int64(0)
	for _, integration := range statistics.Integrations {
		if integration.Namespace != filler {
			reported += integration.Episodes
		}
	}
	if listed != episodes || reported != episodes {
		return fmt.Errorf("of %d episodes, history lists %d and report counts %d", episodes, listed, reported)
	}
	return r.harmless(ctx)
}

// harmless makes sure that the plugin prints no control characters of senders.
func (r *rig) harmless(ctx context.Context) error {
	for _, format := range []string{"", "wide", "csv"} {
		output, err := r.runPlugin(ctx, "history", "-o", format)
		if err != nil {
			return err
		}
		if bytes.ContainsAny(output, "\x1b\x00\u202e") {
			return fmt.Errorf("history -o %q prints control characters of a sender", format)
		}
	}
	return nil
}

// runPlugin runs a command that reads only the archive.
func (r *rig) runPlugin(ctx context.Context, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, r.options.plugin, append(args, "-A", "--archive-only", "--since", "20000d")...)
	command.Env = append(os.Environ(), "TOCSIN_ARCHIVE="+r.url)
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil || problems.Len() > 0 {
		return nil, fmt.Errorf("kubectl tocsin %v: %w: %s", args, err, problems.String())
	}
	return output, nil
}
