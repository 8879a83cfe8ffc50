package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/internal/records"
)

// OpenBucket opens the bucket of the archive.
type OpenBucket func(ctx context.Context) (*blob.Bucket, error)

// reach opens the bucket unless it is open. It makes sure that the store answers, also after a failure: what was to be written
// then may have been deleted by a user since.
func (a *archiver) reach(ctx context.Context) (*blob.Bucket, error) {
	bucket := a.bucket.Load()
	if bucket != nil && !a.failing {
		return bucket, nil
	}
	opened := bucket
	if opened == nil {
		var err error
		if opened, err = a.open(ctx); err != nil { // some drivers keep the context, to renew their credentials
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
	a.bucket.Store(opened)
	a.answered = true
	return opened, nil
}

// combine combines the small objects of each day, once in a while. It fails without consequences: readers understand small
// objects as well, and the next time finds them again.
func (a *archiver) combine(ctx context.Context) {
	bucket := a.bucket.Load()
	if bucket == nil || time.Since(a.combined) < combineInterval {
		return
	}
	a.combined = time.Now()
	failures := 0
	report := func(err error, day string) {
		if err == nil || ctx.Err() != nil {
			return
		}
		failures++
		failuresTotal.WithLabelValues(operationCombine).Inc()
		a.log.Error(err, "Objects of the archive cannot be combined", "day", day)
	}
	days, err := records.DaysToCombine(ctx, bucket)
	report(err, "all")
	for _, day := range days {
		if failures == combineFailures {
			return
		}
		isOver := day < records.Day(a.now().Add(-combineDelay)) // no episode of the day can end any more
		report(records.Combine(ctx, bucket, day, isOver), day)
	}
}
