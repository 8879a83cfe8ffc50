// Command manager is Tocsin's operator: it accepts alerts over HTTP, stores them as AlertEvents and folds them into
// Incidents.
//
// Every replica serves webhooks; the leader, which holds the lease, folds.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/archive"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/depthlimit"
	"github.com/tocsin-dev/tocsin/internal/leader"
	"github.com/tocsin-dev/tocsin/internal/memlimit"
	"github.com/tocsin-dev/tocsin/internal/probes"
	"github.com/tocsin-dev/tocsin/internal/schemacheck"
	"github.com/tocsin-dev/tocsin/internal/tasks"
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

// execute runs the command line and returns the exit code.
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
	limitMemory(logger)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal starts the shutdown and restores the default handlers, so that a second one ends a shutdown
	// that hangs.
	context.AfterFunc(ctx, stop)

	if err := run(ctx, o); err != nil {
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

// registerMetrics registers all metrics with the registry that the metrics endpoint serves. The registry belongs to the
// process, so a second run must not register again.
var registerMetrics = sync.OnceFunc(func() {
	webhookserver.RegisterMetrics(metrics.Registry)
	controllers.RegisterMetrics(metrics.Registry)
	forward.RegisterMetrics(metrics.Registry)
	archive.RegisterMetrics(metrics.Registry)
})

// run runs the manager until ctx ends, and returns when everything has shut down.
func run(ctx context.Context, o options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("loading the kubeconfig: %w", err)
	}
	config.UserAgent = "tocsin/" + buildinfo.Read().Version
	config.Wrap(depthlimit.Wrap(v1alpha1.GroupVersion.Group))
	config.DisableCompression = true // in a cluster's network it costs both ends more than it saves
	config.QPS = -1                  // the API server's priority and fairness limits requests; a limit of our own would lose alerts

	if err := checkMetricsCertificate(o); err != nil {
		return err
	}
	incidents := &clustercache.Incidents{Log: ctrl.Log.WithName("cache")}
	mgr, objects, err := newManager(config, o, incidents)
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	registerMetrics()
	o.webhook.Mappings = &mapping.Cache{}
	listening, err := controllers.AddListening(mgr, o.watchNamespaces, nil)
	if err != nil {
		return err
	}
	o.webhook.Refused, o.webhook.ClockLead, o.webhook.Metrics = listening.Refused, listening.ClockLead, metrics.Registry
	folding := controllers.Options{
		Namespaces: o.watchNamespaces, CheckMapping: o.webhook.Mappings.Check,
		PresetLateFiringWindow: mapping.LateFiringWindow, Listening: listening,
		MaxIncidents: o.webhook.MaxIncidents, NamespaceShare: o.webhook.NamespaceShare,
		Metrics:      metrics.Registry,
		RestartWatch: func(listAnew bool) { incidents.RestartWatches(&v1alpha1.AlertEvent{}, listAnew) },
	}
	if o.tracing {
		provider, err := startTracing(ctx, mgr.GetLogger())
		if err != nil {
			return fmt.Errorf("setting up tracing: %w", err)
		}
		defer stopTracing(provider, mgr.GetLogger())
		o.webhook.TracerProvider, folding.TracerProvider = provider, provider
	}
	checker, err := addSchemaCheck(mgr, o)
	if err != nil {
		return err
	}
	o.webhook.Check, o.webhook.ReadsIncidents = checker.Verdict, incidents.Begun
	if err := mgr.Add(clustercache.NewStoreGuard(mgr.GetAPIReader(), firstNamespace(o))); err != nil {
		return fmt.Errorf("adding the store guard: %w", err)
	}
	server, err := webhookserver.New(mgr, o.webhook)
	if err != nil {
		return fmt.Errorf("setting up the webhook server: %w", err)
	}
	folding.IngestBacklog, folding.Refusals = server.IngestBacklog, server.Refusal
	campaign, err := newCampaign(mgr, objects, o, folding)
	if err != nil {
		return err
	}
	if o.probeAddress != off {
		if err := probes.Add(ctx, mgr, o.probeAddress, server.ReadyCheck); err != nil {
			return err
		}
	}
	mgr.GetLogger().Info("Starting manager", "version", buildinfo.Line("tocsin"), "webhookAddress", o.webhook.BindAddress)
	return runAll(ctx, mgr, server, campaign)
}

// runAll runs the manager, the webhook server and the campaign until ctx ends or one of them fails. Then the campaign
// releases the lease and the server drains. The manager stops last, because both need its caches, metrics and probes.
func runAll(ctx context.Context, mgr ctrl.Manager, server *webhookserver.Server, campaign *leader.Campaign) error {
	managed, stopManager := context.WithCancel(context.WithoutCancel(ctx))
	defer stopManager()
	return tasks.Run(ctx,
		func(context.Context) error {
			if err := mgr.Start(managed); err != nil {
				return fmt.Errorf("running the manager: %w", err)
			}
			return nil
		},
		func(ctx context.Context) error {
			defer stopManager()
			return tasks.Run(ctx, server.Start, campaign.Start)
		},
	)
}

// addSchemaCheck adds the check that the installed CustomResourceDefinitions have every field that the manager writes.
func addSchemaCheck(mgr ctrl.Manager, o options) (*schemacheck.Checker, error) {
	namespace := cmp.Or(firstNamespace(o), metav1.NamespaceDefault)
	checker, err := schemacheck.New(mgr.GetConfig(), namespace, mgr.GetLogger().WithName("schemacheck"))
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(checker); err != nil {
		return nil, fmt.Errorf("adding the check of the CustomResourceDefinitions: %w", err)
	}
	return checker, nil
}

// firstNamespace returns a namespace in which the manager has its permissions; empty when it watches all namespaces.
func firstNamespace(o options) string {
	if len(o.watchNamespaces) == 0 {
		return ""
	}
	return o.watchNamespaces[0]
}
