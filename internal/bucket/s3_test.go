package bucket_test

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/bucket"
	"github.com/tocsin-dev/tocsin/internal/records"
)

// s3 is a server with the part of the protocol that the archive needs. It answers requests with status while that is set.
type s3 struct {
	mu      sync.Mutex
	objects map[string][]byte
	status  int
	listed  int // objects and common prefixes that lists have returned
}

func (s *s3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/incidents/")
	content, found := s.objects[key]
	switch {
	case s.status != 0:
		w.WriteHeader(s.status)
	case r.Header.Get("Authorization") == "":
		w.WriteHeader(http.StatusForbidden)
	case r.Method == http.MethodGet && r.URL.Query().Has("list-type"):
		s.list(w, r.URL.Query())
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away: nothing is stored
		}
		s.objects[key] = body
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !found:
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, "<Error><Code>NoSuchKey</Code></Error>")
	default:
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write(content)
	}
}

func (s *s3) list(w io.Writer, query url.Values) {
	type object struct {
		Key          string
		Size         int
		LastModified time.Time
	}
	type folder struct{ Prefix string }
	var found struct {
		XMLName        xml.Name `xml:"ListBucketResult"`
		Contents       []object
		CommonPrefixes []folder
	}
	prefix, delimiter := query.Get("prefix"), query.Get("delimiter")
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		rest, ok := strings.CutPrefix(key, prefix)
		name, _, inFolder := strings.Cut(rest, delimiter)
		common := folder{prefix + name + delimiter}
		switch {
		case !ok:
		case delimiter == "" || !inFolder:
			found.Contents = append(found.Contents, object{key, len(s.objects[key]), time.Now()})
		case !slices.Contains(found.CommonPrefixes, common):
			found.CommonPrefixes = append(found.CommonPrefixes, common)
		}
	}
	s.listed += len(found.Contents) + len(found.CommonPrefixes)
	_ = xml.NewEncoder(w).Encode(found)
}

func (s *s3) answer(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// open opens a bucket of the store.
func (s *s3) open(t *testing.T) (opened *blob.Bucket, stop func()) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	opened, err := bucket.Open(t.Context(), "s3://incidents?region=us-east-1&use_path_style=true&"+
		"request_checksum_calculation=when_required&prefix=prod-1/&endpoint="+server.URL)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = opened.Close() })
	return opened, server.Close
}

func writeRecord(ctx context.Context, opened *blob.Bucket, uid string, resolved time.Time) error {
	_, _, err := records.Write(ctx, opened, records.Day(resolved), []records.Record{{
		UID: uid, ResourceVersion: "1",
		EndedEpisode: fold.EndedEpisode{Number: 1, ResolvedTime: v1alpha1.NewTimestamp(resolved)},
	}})
	return err
}

func TestAnArchiveInS3(t *testing.T) {
	g := NewWithT(t)
	store := &s3{objects: map[string][]byte{}}
	opened, stop := store.open(t)
	resolved := time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)
	write := func(uid string) error { return writeRecord(t.Context(), opened, uid, resolved) }
	read := func() (found int, err error) {
		for _, err := range records.All(t.Context(), opened, records.Query{}) {
			if err != nil {
				return 0, err
			}
			found++
		}
		return found, nil
	}
	g.Expect(write("a")).To(Succeed())
	g.Expect(write("b")).To(Succeed())
	for _, status := range []int{http.StatusForbidden, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		store.answer(status)
		g.Expect(write("c")).NotTo(Succeed(), "an answer of %d", status)
		if status != http.StatusForbidden { // the client tries the others again, which takes time
			continue
		}
		_, err := read()
		g.Expect(err).To(HaveOccurred(), "an answer of %d", status)
		g.Expect(records.Combine(t.Context(), opened, records.Day(resolved), true)).NotTo(Succeed())
	}
	store.answer(0)
	g.Expect(read()).To(Equal(2))
	g.Expect(records.Combine(t.Context(), opened, records.Day(resolved), true)).To(Succeed())
	g.Expect(read()).To(Equal(2))
	g.Expect(slices.Collect(maps.Keys(store.objects))).To(ConsistOf(HavePrefix("prod-1/v1/day=2026-11-22/")))
	stop()
	g.Expect(write("d")).NotTo(Succeed(), "the store is down")
}

func TestAReaderListsOnlyTheDaysThatItNeeds(t *testing.T) {
	store := &s3{objects: map[string][]byte{}}
	opened, _ := store.open(t)
	noon := time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)
	const days, perDay = 20, 5
	for i := range days * perDay {
		NewWithT(t).Expect(writeRecord(t.Context(), opened, fmt.Sprint(i), noon.AddDate(0, 0, -i/perDay))).To(Succeed())
	}
	zone := time.FixedZone("east", 14*60*60)
	for sentence, test := range map[string]struct {
		query        records.Query
		want, listed int
	}{
		"a day": {records.Query{From: noon.AddDate(0, 0, -1), To: noon}, perDay, 2 * perDay},
		"a day of another time zone": {
			records.Query{From: noon.AddDate(0, 0, -1).In(zone), To: noon.In(zone)}, perDay, 2 * perDay},
		"a day that ends at midnight": {
			records.Query{From: noon.Add(-36 * time.Hour), To: noon.Add(-12 * time.Hour)}, perDay, perDay},
		"no time at all":        {records.Query{From: noon, To: noon}, 0, perDay},
		"a period without end":  {records.Query{From: noon.AddDate(0, 0, -1)}, 2 * perDay, days + 2*perDay},
		"one without beginning": {records.Query{To: noon.AddDate(0, 0, 2-days)}, perDay, days + 2*perDay},
		"a long one":            {records.Query{From: noon.AddDate(-9, 0, 0), To: noon.AddDate(0, 0, 2-days)}, perDay, days + 2*perDay},
		"all":                   {records.Query{}, days * perDay, days + days*perDay},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			store.listed = 0
			found, last := 0, "9"
			for record, err := range records.All(t.Context(), opened, test.query) {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(record.Day() <= last).To(BeTrue(), "the newest day first")
				last = record.Day()
				found++
			}
			g.Expect([]int{found, store.listed}).To(Equal([]int{test.want, test.listed}))
		})
	}
}
