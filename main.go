// Command manager is Tocsin: it takes alerts in over HTTP, stores them as AlertEvents and folds them into
// Incidents.
//
// Every replica serves webhooks; one, the holder of the lease, folds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/webhookserver"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailure  = 1
	exitBadFlags = 2
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute is main with its surroundings as arguments. It returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args)
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

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal begins the shutdown; from then on signals have their usual effect, so that a second
	// one ends a shutdown that hangs.
	context.AfterFunc(ctx, stop)

	if err := run(ctx, o); err != nil {
		logger.Error(err, "The manager ends because of an error")
		return exitFailure
	}
	logger.Info("The manager has stopped")
	return exitOK
}

// registerMetrics fills the registry that the metrics endpoint serves. Both are the process's, so a
// second run must not register again.
var registerMetrics = sync.OnceFunc(func() {
	webhookserver.RegisterMetrics(metrics.Registry)
	controllers.RegisterMetrics(metrics.Registry)
})

// run runs the manager until ctx ends, and then until everything it began is finished.
func run(ctx context.Context, o options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	config.UserAgent = "tocsin/" + buildinfo.Read().Version
	config.Wrap(newShallow)
	config.QPS = -1 // the API server's priority and fairness limits requests; a limit of our own would lose alerts

	if err := checkMetricsCertificate(o); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, managerOptions(config, o))
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	registerMetrics()
	o.webhook.Mappings = &mapping.Cache{}
	folding := controllers.Options{Namespaces: o.watchNamespaces, CheckMapping: o.webhook.Mappings.Check}
	if o.tracing {
		provider, err := startTracing(ctx, mgr.GetLogger())
		if err != nil {
			return fmt.Errorf("setting up tracing: %w", err)
		}
		defer stopTracing(provider, mgr.GetLogger())
		o.webhook.TracerProvider, folding.TracerProvider = provider, provider
	}
	server, err := webhookserver.SetupWithManager(mgr, o.webhook)
	if err != nil {
		return fmt.Errorf("setting up the webhook server: %w", err)
	}
	folding.IngestCrowd = server.Crowd
	if err := controllers.SetupWithManager(mgr, folding); err != nil {
		return fmt.Errorf("setting up the controllers: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the liveness check: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", server.ReadyCheck); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	mgr.GetLogger().Info("Starting the manager", "version", buildinfo.Line("tocsin"), "webhookAddress", o.webhook.BindAddress)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}
