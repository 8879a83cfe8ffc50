// Command tocsin-archiver writes a record of every episode that ends to object storage, and notes in the Incident that it did.
//
// It is a process of its own because it holds the credentials of the bucket and the libraries of the cloud providers, and the
// manager parses what strangers send.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive"
	"github.com/tocsin-dev/tocsin/controllers/archive/bucket"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/process"
)

// leaseName is the name of the lease of the process that archives.
const leaseName = "archiver.tocsin.dev"

// gracefulStop is how long the process waits for a call to the store when it stops. A mounted folder may hang for ever.
const gracefulStop = 10 * time.Second

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	var c command
	flags := process.NewFlags("archiver")
	c.options.Bind(flags, "Archive")
	flags.StringVar(&c.url, "archive", "",
		"URL of the bucket to write records to: s3://, gs://, azblob:// or file:///. Required. Credentials come from the environment.")
	program := process.Program{
		Name:    "archiver",
		Title:   "tocsin-archiver",
		Usage:   "Tocsin's archiver writes a record of every episode that ends to object storage.",
		Flags:   flags,
		Command: &c,
	}
	return program.Execute(args, stdout, stderr)
}

// command implements process.Command.
type command struct {
	options process.Options
	url     string // of the bucket
}

// Validate returns all errors of the flags.
func (c *command) Validate() error {
	if err := bucket.Check(c.url); err != nil {
		return errors.Join(fmt.Errorf("--archive: %w", err), c.options.Validate())
	}
	return c.options.Validate()
}

// Check does nothing: no flag asks for anything but to run.
func (*command) Check() (report string, err error) { return "", nil }

// Run archives until ctx ends.
func (c *command) Run(ctx context.Context, config *rest.Config, log logr.Logger) error {
	archive.RegisterMetrics(metrics.Registry)
	return c.run(ctx, config, log)
}

func (c *command) run(ctx context.Context, config *rest.Config, log logr.Logger) error {
	o := &c.options
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	namespaces := process.CacheNamespaces(o.WatchNamespaces)
	mgr, err := ctrl.NewManager(process.ClientConfig(config, "tocsin-archiver"), ctrl.Options{
		Scheme:                        scheme,
		Logger:                        log,
		MapperProvider:                clustercache.RESTMapper,
		Cache:                         cache.Options{DefaultNamespaces: namespaces, ByObject: archive.Cached()},
		NewCache:                      (&clustercache.Informers{Log: log.WithName("cache")}).NewCache,
		Metrics:                       metricsserver.Options{BindAddress: process.Off}, // see process.Options.AddServers
		HealthProbeBindAddress:        process.Off,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.LeaseNamespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(gracefulStop),
	})
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	if err := archive.Add(mgr, bucket.URL(c.url)); err != nil {
		return err
	}
	// A process without a lease is ready: it takes over when the other one ends.
	if err := o.AddServers(ctx, mgr, nil); err != nil {
		return err
	}
	log.Info("Starting archiver", "version", buildinfo.Line("tocsin-archiver"))
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}
