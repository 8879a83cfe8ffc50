package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

// Opener opens the bucket of the archive.
type Opener func(context.Context) (*blob.Bucket, error)

// store is the bucket, and what this process knows of it.
type store struct {
	open   Opener
	bucket atomic.Pointer[blob.Bucket] // nil until it has answered

	// Of rounds alone.
	failing  bool // it did not answer the last time
	answered bool // it has, since the last round that succeeded

	mu       sync.Mutex
	written  map[string]bool // days of objects that were written and not combined since
	combined time.Time       // when days were last combined
}

// reach opens the bucket unless it is open. It makes sure that the store answers, also after a failure: what was to be written
// then may have been deleted by a user since.
func (s *store) reach(ctx context.Context) (*blob.Bucket, error) {
	bucket := s.bucket.Load()
	if bucket != nil && !s.failing {
		return bucket, nil
	}
	opened := bucket
	if opened == nil {
		var err error
		if opened, err = s.open(ctx); err != nil { // some drivers keep the context, to renew their credentials
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
	s.bucket.Store(opened)
	s.answered = true
	return opened, nil
}

// note notes that small objects of a day are to be combined.
func (s *store) note(day string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[day] = true
}

// combine combines the small objects of the last days, and of those that were written to, once in a while. It fails without
// consequences: readers understand small objects as well.
func (a *archiver) combine(ctx context.Context) {
	failures := 0
	for _, day := range a.store.daysToCombine(a.now()) {
		if failures < combineFailures {
			// No episode of a day ends any more after it is over.
			isOver := day < records.Day(a.now().Add(-combineDelay))
			err := records.Combine(ctx, a.store.bucket.Load(), day, isOver)
			if ctx.Err() != nil {
				return
			}
			if err == nil && isOver {
				continue
			}
			if err != nil {
				failures++
				failuresTotal.WithLabelValues(operationCombine).Inc()
				a.log.Error(err, "Objects of the archive cannot be combined", "day", day)
			}
		}
		a.store.note(day) // for the next time
	}
}

// daysToCombine returns the days to look through, and forgets them; none if that was done lately.
func (s *store) daysToCombine(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bucket.Load() == nil || time.Since(s.combined) < combineInterval {
		return nil
	}
	s.combined = time.Now()
	for i := range combineDays + 1 {
		s.written[records.Day(now.AddDate(0, 0, -i))] = true
	}
	days := slices.Collect(maps.Keys(s.written))
	clear(s.written)
	return days
}
