package testenv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// awaitPoll is how often Await tries.
const awaitPoll = 50 * time.Millisecond

// Await tries until there is no error; after so long it returns the last one.
func Await(ctx context.Context, timeout time.Duration, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // what fails because the time is up says nothing
			last = err
		}
		if !Pause(ctx, awaitPoll) {
			return fmt.Errorf("%w; then: %w", last, ctx.Err())
		}
	}
}

// AwaitThat tries until done is true; after so long it fails with the message.
func AwaitThat(ctx context.Context, timeout time.Duration, message string, done func(context.Context) bool) error {
	return Await(ctx, timeout, func(ctx context.Context) error {
		if !done(ctx) {
			return errors.New(message)
		}
		return nil
	})
}

// Pause waits for so long; it returns false when ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// SideBySide does n things, so many at a time. It begins none after one has failed, and returns the first error.
func SideBySide(workers, n int, do func(int) error) error {
	group, failed := errgroup.WithContext(context.Background())
	group.SetLimit(workers)
	for i := 0; i < n && failed.Err() == nil; i++ {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}
