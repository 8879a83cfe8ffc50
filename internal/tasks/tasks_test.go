package tasks_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/internal/tasks"
)

func TestRunReturnsTheFirstErrorAfterAllTasks(t *testing.T) {
	g := NewWithT(t)
	failed, stopped := errors.New("failed"), 0
	err := tasks.Run(t.Context(),
		func(context.Context) error { return failed },
		func(ctx context.Context) error {
			<-ctx.Done()
			stopped++
			return ctx.Err()
		},
	)
	g.Expect(err).To(Equal(failed))
	g.Expect(stopped).To(Equal(1))
}

func TestRunWaitsForEveryTask(t *testing.T) {
	g := NewWithT(t)
	first := make(chan struct{})
	g.Expect(tasks.Run(t.Context(),
		func(context.Context) error { close(first); return nil },
		func(ctx context.Context) error {
			<-first
			return ctx.Err() // a task that ends without an error cancels nothing
		},
	)).To(Succeed())
}
