// Package tasks runs functions concurrently until all of them have returned.
package tasks

import (
	"context"
	"sync"
)

// Run runs the tasks until all have returned. The first error cancels their context, and is returned.
func Run(ctx context.Context, tasks ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		group sync.WaitGroup
		fail  sync.Once
		first error
	)
	for _, task := range tasks {
		group.Go(func() {
			if err := task(ctx); err != nil {
				fail.Do(func() {
					first = err
					cancel()
				})
			}
		})
	}
	group.Wait()
	return first
}
