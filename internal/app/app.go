// Package app is the operator's program: its command line, and what runs in one process.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/archive"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/memlimit"
	"github.com/tocsin-dev/tocsin/webhookserver"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailure  = 1
	exitBadFlags = 2
)

// Execute runs the command line and returns the exit code.
func Execute(args []string, stdout, stderr io.Writer) int {
	o, err := ParseFlags(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		printUsage(stdout)
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "manager: %v\nmanager: --help lists the flags\n", err)
		return exitBadFlags
	case o.showVersion:
		_, _ = fmt.Fprintln(stdout, buildinfo.Line("tocsin"))
		return exitOK
	}
	logger := zap.New(zap.UseFlagOptions(&o.zap), zap.WriteTo(stderr))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	limitMemory(logger)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal starts the shutdown and restores the default handlers, so that a second one ends a shutdown
	// that hangs.
	context.AfterFunc(ctx, stop)

	config, err := ctrl.GetConfig()
	if err != nil {
		logger.Error(err, "Cannot load the kubeconfig")
		return exitFailure
	}
	registerMetrics(metrics.Registry)
	if err := Run(ctx, o, Environment{Config: config, Log: logger, Metrics: metrics.Registry}); err != nil {
		logger.Error(err, "Manager exited")
		return exitFailure
	}
	logger.Info("Manager stopped")
	return exitOK
}

// limitMemory sets Go's soft memory limit below the container's, unless GOMEMLIMIT sets one. A fixed value would be wrong as
// soon as somebody raises the container's limit.
func limitMemory(log logr.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := memlimit.OfCgroup(os.DirFS("/")); ok {
		debug.SetMemoryLimit(memlimit.SoftLimit(limit))
		log.Info("Set Go's memory limit", "bytes", memlimit.SoftLimit(limit), "containerBytes", limit)
	}
}

// registerMetrics registers the metrics that all replicas of a process share, which is one outside of tests.
func registerMetrics(registry prometheus.Registerer) {
	webhookserver.RegisterMetrics(registry)
	controllers.RegisterMetrics(registry)
	forward.RegisterMetrics(registry)
	archive.RegisterMetrics(registry)
}
