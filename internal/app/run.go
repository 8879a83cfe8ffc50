// Package app is the operator's program: its command line, and what runs in one process.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/heartbeat"
	"github.com/tocsin-dev/tocsin/controllers/incident"
	"github.com/tocsin-dev/tocsin/controllers/maintenance"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/leader"
	"github.com/tocsin-dev/tocsin/internal/process"
	"github.com/tocsin-dev/tocsin/internal/queue"
	"github.com/tocsin-dev/tocsin/internal/schemacheck"
	"github.com/tocsin-dev/tocsin/webhookserver"
	listener "github.com/tocsin-dev/tocsin/webhookserver/heartbeat"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// Execute runs the command line and returns the exit code.
func Execute(args []string, stdout, stderr io.Writer) int {
	var o Options
	flags := newFlagSet(&o)
	program := process.Program{
		Title:    "tocsin",
		Usage:    "Tocsin turns alert webhooks into Incidents.",
		Flags:    flags,
		Validate: func() error { return o.complete(flags) },
		Check:    o.forwarding.Check,
		Run: func(ctx context.Context, config *rest.Config, log logr.Logger) error {
			webhookserver.RegisterMetrics(metrics.Registry) // those that all replicas of a process share, which is one outside of tests
			controllers.RegisterMetrics(metrics.Registry)
			forward.RegisterMetrics(metrics.Registry)
			heartbeat.RegisterMetrics(metrics.Registry)
			leader.RegisterMetrics(metrics.Registry)
			return Run(ctx, o, Environment{Config: config, Log: log, Metrics: metrics.Registry})
		},
	}
	return program.Execute(args, stdout, stderr)
}

// Environment is what a replica takes from the process that it runs in.
type Environment struct {
	// Config reaches the API server. The replica sets the limits and the user agent of its clients.
	Config *rest.Config

	Log logr.Logger

	// Metrics is where metrics of the replica's objects and of its capacity are registered while it runs. Optional.
	Metrics prometheus.Registerer

	// Listener opens the address of the webhook endpoint. Default: a *net.ListenConfig.
	Listener webhookserver.Listener

	// Dialer connects to Alertmanagers. Default: a *net.Dialer.
	Dialer alertmanager.Dialer

	// Clock tells the time by which alerts are received and folded. Default: the real one.
	Clock replica.Clock
}

// Run runs a replica until ctx ends, and returns when everything has shut down.
func Run(ctx context.Context, o Options, environment Environment) error {
	if environment.Clock == nil {
		environment.Clock = clock.RealClock{}
	}
	memory := queue.NewMemory(environment.Clock)
	memory.Cached = queue.NewCached(o.capacity.Share)
	informers := &clustercache.Informers{
		Log: environment.Log.WithName("cache"), Listed: memory.Listed, Events: memory.Cached,
		Integrations: clustercache.NewIntegrations(o.capacity.Share),
		Hidden:       clustercache.NewHidden(o.capacity.Events, o.capacity.Share),
	}
	mgr, objects, err := newManager(process.ClientConfig(environment.Config, "tocsin"), o, environment.Log, informers, memory)
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	o.webhook.Namespaces = o.process.WatchNamespaces
	o.webhook.Listener, o.webhook.Clock, o.webhook.Mappings = environment.Listener, environment.Clock, mapping.NewCache()
	if o.webhook.Capacity, err = addCapacity(mgr, o, memory, informers.Hidden, environment); err != nil {
		return err
	}
	health := replica.NewIngestHealth(environment.Clock)
	muting, err := maintenance.NewMuting(mgr.GetCache(), health, o.webhook.Capacity)
	beats := listener.New()
	if err := errors.Join(err, beats.Follow(mgr.GetCache())); err != nil {
		return err
	}
	o.webhook.Features = append(o.webhook.Features, beats)
	checker, canary, err := addCanary(mgr, replica.CanaryOptions{
		Namespace: ownNamespace(&o), Memory: memory, Health: health, Watches: informers,
	})
	if err != nil {
		return err
	}
	o.webhook.Health, o.webhook.Schemas = health, checker
	folding := foldingOptions(o, environment, memory, health)
	folding.Features = []controllers.Feature{muting, heartbeat.NewFeature(mgr.GetCache(), health, o.webhook.Capacity)}
	if o.tracing {
		provider, err := startTracing(ctx, mgr.GetLogger())
		if err != nil {
			return fmt.Errorf("setting up tracing: %w", err)
		}
		defer stopTracing(provider, mgr.GetLogger())
		o.webhook.TracerProvider, folding.Folds.TracerProvider = provider, provider
	}
	server, err := webhookserver.New(mgr, o.webhook)
	if err != nil {
		return fmt.Errorf("setting up the webhook server: %w", err)
	}
	folding.Folds.Ingest = server
	o.forwarding.Dialer, o.forwarding.Mutings = environment.Dialer, muting
	campaign, err := newCampaign(o, folding,
		&worker{mgr: mgr, objects: objects, clock: health, schemas: checker, canary: canary})
	if err != nil {
		return err
	}
	if err := o.process.AddServers(ctx, mgr, server.ReadyCheck); err != nil {
		return err
	}
	mgr.GetLogger().Info("Starting manager", "version", buildinfo.Line("tocsin"), "webhookAddress", o.webhook.BindAddress)
	return runAll(ctx, mgr, server, campaign)
}

// addCanary adds the check of the CustomResourceDefinitions, and the canary, which stores nothing while that fails.
func addCanary(mgr ctrl.Manager, o replica.CanaryOptions) (*schemacheck.Checker, *replica.Canary, error) {
	checker, err := schemacheck.New(mgr.GetConfig(), mgr.GetLogger().WithName("schemacheck"))
	if err != nil {
		return nil, nil, err
	}
	o.Schemas = checker
	canary, err := replica.NewCanary(mgr.GetConfig(), o)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(mgr.Add(checker), mgr.Add(canary)); err != nil {
		return nil, nil, fmt.Errorf("adding the check of the CustomResourceDefinitions and the canary: %w", err)
	}
	return checker, canary, nil
}

// foldingOptions returns the options of the controllers, all but what the webhook server and the forwarding add.
func foldingOptions(
	o Options, environment Environment, memory *queue.Memory, health *replica.IngestHealth,
) controllers.Options {
	return controllers.Options{
		Folds: incident.Options{
			Namespaces: o.process.WatchNamespaces, EventNamespaces: eventNamespaces(&o), Memory: memory, Health: health,
			Presets: mapping.PresetWindows{}, Clock: environment.Clock,
			ArchiveRequired: o.archiveRequired,
			KeptTypes:       []string{heartbeat.AlertType},
		},
		Mappings: o.webhook.Mappings, Capacity: o.webhook.Capacity,
	}
}

// addCapacity has the counts of the objects in the manager's cache follow it, and registers them as metrics while the manager
// runs.
func addCapacity(
	mgr ctrl.Manager, o Options, memory *queue.Memory, hidden *clustercache.Hidden, environment Environment,
) (*capacity.Counts, error) {
	counts := capacity.New(o.capacity, memory.Cached, environment.Clock)
	counts.Hidden = hidden
	if err := counts.Follow(mgr.GetCache()); err != nil {
		return nil, err
	}
	if environment.Metrics == nil {
		return counts, nil
	}
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return counts.RegisterWhile(ctx, environment.Metrics) }))
	if err != nil {
		return nil, fmt.Errorf("adding the metrics of the capacity: %w", err)
	}
	return counts, nil
}

// runAll runs the manager, the webhook server and the campaign until ctx ends or one of them fails. Then the campaign
// releases the lease and the server drains. The manager stops last, because both need its caches, metrics and probes.
func runAll(ctx context.Context, mgr ctrl.Manager, server *webhookserver.Server, campaign *leader.Campaign) error {
	managed, stopManager := context.WithCancel(context.WithoutCancel(ctx))
	defer stopManager()
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		if err := mgr.Start(managed); err != nil {
			return fmt.Errorf("running the manager: %w", err)
		}
		return nil
	})
	all.Go(func() error {
		defer stopManager()
		serving, ctx := errgroup.WithContext(ctx)
		serving.Go(func() error { return server.Start(ctx) })
		serving.Go(func() error { return campaign.Start(ctx) })
		return serving.Wait()
	})
	return all.Wait()
}
