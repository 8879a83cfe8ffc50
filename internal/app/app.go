// Package app is the operator's program: its command line, and what runs in one process.
package app

import (
	"context"
	"io"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/internal/process"
	"github.com/tocsin-dev/tocsin/webhookserver"
)

// Execute runs the command line and returns the exit code.
func Execute(args []string, stdout, stderr io.Writer) int {
	var o Options
	flags := newFlagSet(&o)
	program := process.Program{
		Name:     "manager",
		Title:    "tocsin",
		Usage:    "Tocsin turns alert webhooks into Incidents.",
		Flags:    flags,
		Options:  &o.Options,
		Validate: func() error { return o.complete(flags) },
		Run: func(ctx context.Context, config *rest.Config, log logr.Logger) error {
			webhookserver.RegisterMetrics(metrics.Registry) // those that all replicas of a process share, which is one outside of tests
			controllers.RegisterMetrics(metrics.Registry)
			forward.RegisterMetrics(metrics.Registry)
			return Run(ctx, o, Environment{Config: config, Log: log, Metrics: metrics.Registry})
		},
	}
	return program.Execute(args, stdout, stderr)
}
