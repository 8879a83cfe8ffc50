package bucket_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive/bucket"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// s3 is a server with the part of the protocol that the archive needs. It answers requests with status while that is set.
type s3 struct {
	mu      sync.Mutex
	objects map[string][]byte
	status  int
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
		s.list(w, r.URL.Query().Get("prefix"))
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

func (s *s3) list(w io.Writer, prefix string) {
	type object struct {
		Key          string
		Size         int
		LastModified time.Time
	}
	var found struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []object
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, prefix) {
			found.Contents = append(found.Contents, object{key, len(s.objects[key]), time.Now()})
		}
	}
	_ = xml.NewEncoder(w).Encode(found)
}

func (s *s3) answer(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

func TestAnArchiveInS3(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	store := &s3{objects: map[string][]byte{}}
	server := httptest.NewServer(store)
	defer server.Close()
	opened, err := bucket.Open(t.Context(), "s3://incidents?region=us-east-1&use_path_style=true&"+
		"request_checksum_calculation=when_required&prefix=prod-1/&endpoint="+server.URL)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = opened.Close() }()

	resolved := time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)
	write := func(uid string) error {
		_, _, err := records.Write(t.Context(), opened, records.Day(resolved), []records.Record{{
			UID: uid, ResourceVersion: "1",
			EndedEpisode: fold.EndedEpisode{Number: 1, ResolvedTime: v1alpha1.NewTimestamp(resolved)},
		}})
		return err
	}
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
	server.Close()
	g.Expect(write("d")).NotTo(Succeed(), "the store is down")
}
