package archive

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

// Location is where the archive is. It is a bucket.URL outside of tests.
type Location interface {
	// Open opens the bucket of the archive.
	Open(ctx context.Context) (*blob.Bucket, error)
}

// store is the bucket, and what this process knows of it.
type store struct {
	at     Location
	bucket atomic.Pointer[blob.Bucket] // nil until it has answered

	failing  bool // it did not answer the last time
	answered bool // it has, since the last round that succeeded
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
		if opened, err = s.at.Open(ctx); err != nil { // some drivers keep the context, to renew their credentials
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

// combine combines the small objects of each day, once in a while. It fails without consequences: readers understand small
// objects as well, and the next time finds them again.
func (a *archiver) combine(ctx context.Context) {
	bucket := a.store.bucket.Load()
	if bucket == nil || time.Since(a.combined) < combineInterval {
		return
	}
	a.combined = time.Now()
	failures := 0
	fail := func(err error, day string) {
		failures++
		failuresTotal.WithLabelValues(operationCombine).Inc()
		a.log.Error(err, "Objects of the archive cannot be combined", "day", day)
	}
	days, err := records.DaysToCombine(ctx, bucket)
	if err != nil && ctx.Err() == nil {
		fail(err, "all")
	}
	for _, day := range days {
		if failures == combineFailures {
			return
		}
		isOver := day < records.Day(a.now().Add(-combineDelay)) // no episode of the day can end any more
		err := records.Combine(ctx, bucket, day, isOver)
		if err != nil && ctx.Err() == nil {
			fail(err, day)
		}
	}
}
