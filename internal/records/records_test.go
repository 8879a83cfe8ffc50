package records_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/records"
)

var noon = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

func record(uid string, episode, alerts int64, version string, resolved time.Time) records.Record {
	return records.Record{
		SchemaVersion: records.SchemaVersion, Namespace: "payments", Integration: "prometheus", Incident: "prometheus-x",
		UID: uid, DedupKey: "disk", ResourceVersion: version,
		EndedEpisode: fold.EndedEpisode{
			Number: episode, AlertCount: alerts, Severity: v1alpha1.SeverityError,
			ResolvedTime: v1alpha1.NewTimestamp(resolved), OpenedTime: v1alpha1.NewTimestamp(resolved.Add(-time.Hour)),
			Alert:    v1alpha1.AlertContent{Title: "Disk full", Labels: map[string]string{"host": "db-1"}},
			Timeline: []v1alpha1.Transition{{Type: v1alpha1.TransitionOpened, Time: v1alpha1.NewTimestamp(resolved)}},
		},
	}
}

func write(t *testing.T, bucket *blob.Bucket, stored ...records.Record) string {
	t.Helper()
	key, _, err := records.Write(t.Context(), bucket, stored[0].Day(), stored)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return key
}

func collect(t *testing.T, all iter.Seq2[records.Record, error]) []records.Record {
	t.Helper()
	var found []records.Record
	for record, err := range all {
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		found = append(found, record)
	}
	return found
}

func openMemory(t *testing.T) *blob.Bucket {
	t.Helper()
	bucket := memblob.OpenBucket(nil)
	t.Cleanup(func() { _ = bucket.Close() })
	return bucket
}

func TestAllReturnsWhatWasWritten(t *testing.T) {
	g, bucket := NewWithT(t), openMemory(t)
	stored := record("a", 1, 3, "10", noon)
	key := write(t, bucket, stored)
	g.Expect(key).To(MatchRegexp(`^v1/day=2026-11-22/[0-9a-f]{32}\.ndjson\.gz$`))
	g.Expect(write(t, bucket, stored)).To(Equal(key), "a repeated write overwrites the object with itself")
	g.Expect(collect(t, records.All(t.Context(), bucket, records.Query{}))).To(Equal([]records.Record{stored}))
}

func TestAllReturnsTheNewestVersionOfARecordOnce(t *testing.T) {
	g, bucket := NewWithT(t), openMemory(t)
	newest := record("a", 1, 4, "100", noon)
	write(t, bucket, record("a", 1, 3, "99", noon), record("b", 1, 1, "5", noon))
	write(t, bucket, newest)
	write(t, bucket, newest, record("c", 1, 1, "7", noon)) // a repeat
	write(t, bucket, record("a", 1, 2, "98", noon))        // by a leader with an outdated view
	write(t, bucket, record("a", 2, 1, "120", noon.AddDate(0, 0, 1)))
	var found []string
	for _, r := range collect(t, records.All(t.Context(), bucket, records.Query{})) {
		found = append(found, fmt.Sprint(r.UID, r.Number, " ", r.AlertCount))
	}
	g.Expect(found).To(ConsistOf("a1 4", "a2 1", "b1 1", "c1 1"))
}

func TestAllReadsOnlyTheDaysOfTheQuery(t *testing.T) {
	g, bucket := NewWithT(t), openMemory(t)
	for day := range 5 {
		write(t, bucket, record(fmt.Sprint(day), 1, 1, "1", noon.AddDate(0, 0, day)))
	}
	var progress []records.Progress
	query := records.Query{
		From: noon.AddDate(0, 0, 1), To: noon.AddDate(0, 0, 3), WithoutContent: true,
		Progress: func(p records.Progress) { progress = append(progress, p) },
	}
	found := collect(t, records.All(t.Context(), bucket, query))
	g.Expect(slices.Collect(func(yield func(string) bool) {
		for _, r := range found {
			g.Expect(r.Alert.Title).NotTo(BeEmpty())
			g.Expect(r.Alert.Labels).To(BeEmpty())
			g.Expect(r.Timeline).To(BeEmpty())
			g.Expect(r.Severity).To(Equal(v1alpha1.SeverityError))
			yield(r.UID)
		}
	})).To(Equal([]string{"2", "1"}), "the one of day 3 is resolved at the end of the period, which is exclusive")
	last := progress[len(progress)-1]
	g.Expect(last.Objects).To(Equal(3))
	g.Expect(last.Part).To(BeNumerically("~", 1))
}

func TestACorruptObjectIsReportedAndDoesNotHideOthers(t *testing.T) {
	g, bucket := NewWithT(t), openMemory(t)
	write(t, bucket, record("a", 1, 1, "1", noon))
	g.Expect(bucket.WriteAll(t.Context(), "v1/day=2026-11-22/0.ndjson.gz", []byte("junk"), nil)).To(Succeed())
	g.Expect(bucket.WriteAll(t.Context(), "v1/day=2026-11-22/README", []byte("not of the archive"), nil)).To(Succeed())
	var found, failed int
	for _, err := range records.All(t.Context(), bucket, records.Query{}) {
		if err != nil {
			failed++
		} else {
			found++
		}
	}
	g.Expect([]int{found, failed}).To(Equal([]int{1, 1}))
}

func TestAllStopsWithItsConsumer(t *testing.T) {
	bucket, found := openMemory(t), 0
	write(t, bucket, record("a", 1, 1, "1", noon), record("b", 1, 1, "1", noon))
	write(t, bucket, record("c", 1, 1, "1", noon))
	for _, err := range records.All(t.Context(), bucket, records.Query{}) {
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		found++
		break
	}
	NewWithT(t).Expect(found).To(Equal(1))
}

// Objects that are not held in memory are read twice, and may vanish in between.
func TestAnObjectThatVanishesBetweenTwoReadsIsReported(t *testing.T) {
	g, bucket := NewWithT(t), openMemory(t)
	put := func(key string, level int, stored ...records.Record) {
		var object bytes.Buffer
		compressed, _ := gzip.NewWriterLevel(&object, level)
		for i := range stored {
			g.Expect(json.NewEncoder(compressed).Encode(&stored[i])).To(Succeed())
		}
		g.Expect(compressed.Close()).To(Succeed())
		g.Expect(bucket.WriteAll(t.Context(), key, object.Bytes(), nil)).To(Succeed())
	}
	large := record("large", 1, 1, "1", noon)
	large.Alert.Description = strings.Repeat("x", 2<<20)
	const key = "v1/day=2026-11-22/1.ndjson.gz"
	put("v1/day=2026-11-22/0.ndjson.gz", gzip.BestSpeed, record("small", 1, 1, "1", noon))
	put(key, gzip.NoCompression, slices.Repeat([]records.Record{large}, 17)...)
	read := 0
	query := records.Query{Progress: func(records.Progress) {
		if read++; read == 2 {
			g.Expect(bucket.Delete(t.Context(), key)).To(Succeed())
		}
	}}
	var errs []error
	for _, err := range records.All(t.Context(), bucket, query) {
		errs = append(errs, err)
	}
	g.Expect(errs).To(ConsistOf(BeNil(), MatchError(ContainSubstring(key))))
}
