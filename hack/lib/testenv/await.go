package testenv

import (
	"context"
	"fmt"
	"time"
)

// awaitPoll is how often Await tries.
const awaitPoll = 100 * time.Millisecond

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
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; then: %w", last, ctx.Err())
		case <-time.After(awaitPoll):
		}
	}
}
