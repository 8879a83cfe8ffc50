// Package archiver is the archiver as a process: its manager, its lease and its servers. It does not know which provider the
// bucket is of, so that a simulation runs it without the libraries of all of them.
package archiver

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/process"
)

// leaseName is the name of the lease of the process that archives.
const leaseName = "archiver.tocsin.dev"

// gracefulStop is how long the process waits for a call to the store when it stops. A mounted folder may hang for ever.
const gracefulStop = 10 * time.Second

// Run archives to a bucket until ctx ends.
func Run(ctx context.Context, config *rest.Config, log logr.Logger, o *process.Options, open archive.OpenBucket) error {
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
	if err := archive.Add(mgr, open); err != nil {
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
