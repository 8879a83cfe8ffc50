package archive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

// store is the bucket, and what this process knows of it.
type store struct {
	mu       sync.Mutex
	bucket   *blob.Bucket    // nil until it has answered
	failing  bool            // it did not answer the last time
	answered bool            // it has, since takeAnswered
	written  map[string]bool // days of objects that were written and not combined since
	combined time.Time       // when days were last combined
}

func (s *store) opened() (bucket *blob.Bucket, failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bucket, s.failing
}

func (s *store) close() {
	if bucket, _ := s.opened(); bucket != nil {
		_ = bucket.Close()
	}
}

// reach opens the bucket unless it is open. It makes sure that the store answers, also after a failure: what was to be written
// then may have been deleted by a user since.
func (s *store) reach(ctx context.Context, open Opener) (*blob.Bucket, error) {
	bucket, failing := s.opened()
	if bucket != nil && !failing {
		return bucket, nil
	}
	opened := bucket
	if opened == nil {
		var err error
		if opened, err = open(ctx); err != nil { // some drivers keep the context, to renew their credentials
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, _, err := opened.ListPage(ctx, blob.FirstPageToken, 1, nil); err != nil {
		err = fmt.Errorf("listing the archive: %w", err)
		if bucket == nil {
			err = errors.Join(err, opened.Close())
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bucket, s.answered = opened, true
	return opened, nil
}

// wrote notes that an object of a day was stored.
func (s *store) wrote(day string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered, s.written[day] = true, true
}

// takeAnswered reports whether the store has answered since the last call.
func (s *store) takeAnswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	answered := s.answered
	s.answered = false
	return answered
}

// fail notes a failure and reports whether it is the first.
func (s *store) fail() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.failing
	s.failing = true
	return first
}

// recover notes a success and reports whether a failure has ended.
func (s *store) recover() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := s.failing
	s.failing = false
	return failed
}

// combine combines the small objects of the last days, and of those that were written to, once in a while. It fails without
// consequences: readers understand small objects as well.
func (a *archiver) combine(ctx context.Context) {
	bucket, _ := a.store.opened()
	failures := 0
	for _, day := range a.store.daysToCombine(a.now()) {
		if failures < combineFailures {
			err := records.Combine(ctx, bucket, day.name, day.over)
			if err == nil {
				continue
			}
			if ctx.Err() != nil {
				return
			}
			failures++
			failuresTotal.WithLabelValues(operationCombine).Inc()
			a.log.Error(err, "Objects of the archive cannot be combined", "day", day.name)
		}
		a.store.mu.Lock()
		a.store.written[day.name] = true // for the next time
		a.store.mu.Unlock()
	}
}

// archiveDay is a day of the archive. It is over when no episode of it can end any more.
type archiveDay struct {
	name string
	over bool
}

// daysToCombine returns the days to look through; none if that was done lately.
func (s *store) daysToCombine(now time.Time) []archiveDay {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bucket == nil || time.Since(s.combined) < combineInterval {
		return nil
	}
	s.combined = time.Now()
	for i := range combineDays + 1 {
		s.written[records.Day(now.AddDate(0, 0, -i))] = true
	}
	days := make([]archiveDay, 0, len(s.written))
	for name := range s.written {
		day := archiveDay{name, name < records.Day(now.Add(-combineDelay))}
		if days = append(days, day); day.over {
			delete(s.written, name)
		}
	}
	return days
}
