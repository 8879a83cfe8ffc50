package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/leader"
)

const (
	// leaseName is the name of the lease that tells which replica folds.
	leaseName = "manager.tocsin.dev"

	// stopAllowance is what the manager may take to end after the webhook server has drained and the last term has
	// ended. Together with the server's times it is well within the 45 s that the Deployment gives.
	stopAllowance = 5 * time.Second

	// leaseDuration, renewDeadline and retryPeriod are the times of the leader election: a replica takes over this long
	// after the leader fell silent, a leader gives up after so long without a renewal, and both try every so often.
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second

	// termRest is how long a replica that could not fold leaves the lease to others. They notice within two
	// retryPeriods that it is free.
	termRest = 10 * time.Second

	// Of the lease's connection to the API server.
	leaseDialTimeout = 5 * time.Second
	leaseKeepAlive   = 30 * time.Second
)

// newScheme knows the standard resources and Tocsin's.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// newManager makes the manager that every replica runs all the time, with its caches, clients, metrics and probes, and
// returns its cache besides. It calls no API server. What folds runs in terms of its own (see newCampaign).
func newManager(config *rest.Config, o options) (ctrl.Manager, cache.Cache, error) {
	var objects cache.Cache
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:         newScheme(),
		MapperProvider: clustercache.RESTMapper,
		Cache: cache.Options{
			DefaultNamespaces: cacheNamespaces(o.watchNamespaces),
			// Nothing here reads managed fields, and of a small object they are the greater part.
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.AlertEvent{}: {Transform: controllers.TransformAlertEvent},
			},
			NewInformer: clustercache.NewInformer(ctrl.Log.WithName("cache")),
		},
		NewCache: func(config *rest.Config, options cache.Options) (c cache.Cache, err error) {
			objects, err = cache.New(config, options)
			return clustercache.Unawaited{Cache: objects}, err
		},
		Metrics:                 metricsOptions(o),
		HealthProbeBindAddress:  off, // see internal/probes
		PprofBindAddress:        o.pprofAddress,
		GracefulShutdownTimeout: new(stopAllowance),
	})
	return mgr, objects, err
}

// newCampaign makes what runs the controllers on one replica at a time.
func newCampaign(
	mgr ctrl.Manager, objects cache.Cache, o options, folding controllers.Options,
) (*leader.Campaign, error) {
	campaign := &leader.Campaign{
		Name:          leaseName,
		LeaseDuration: leaseDuration,
		RenewDeadline: renewDeadline,
		RetryPeriod:   retryPeriod,
		Prepare:       objects.WaitForCacheSync,
		Rest:          termRest,
		Log:           mgr.GetLogger().WithName("leader"),
		Work: func(ctx context.Context) error {
			term := leader.NewTerm(mgr, objects)
			if err := controllers.SetupLeader(term, folding); err != nil {
				return fmt.Errorf("setting up the controllers: %w", err)
			}
			return term.Run(ctx)
		},
	}
	if !o.leaderElect {
		return campaign, nil
	}
	lock, err := leaderelection.NewResourceLock(leaseConfig(mgr.GetConfig()), mgr, leaderelection.Options{
		LeaderElection:          true,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: o.leaseNamespace,
		RenewDeadline:           renewDeadline,
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the leader election: %w", err)
	}
	campaign.Lock = lock
	return campaign, nil
}

// cacheNamespaces is nil, which means all, when there are no names.
func cacheNamespaces(names []string) map[string]cache.Config {
	if len(names) == 0 {
		return nil
	}
	namespaces := make(map[string]cache.Config, len(names))
	for _, name := range names {
		namespaces[name] = cache.Config{}
	}
	return namespaces
}

// metricsOptions has the endpoint speak TLS when it is secure or has got a certificate.
func metricsOptions(o options) metricsserver.Options {
	m := metricsserver.Options{BindAddress: o.metricsAddress, CertDir: o.metricsCertPath}
	m.SecureServing = o.metricsSecure || o.metricsCertPath != ""
	if o.metricsSecure {
		m.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if !o.webhook.EnableHTTP2 {
		m.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	}
	return m
}

// checkMetricsCertificate makes sure that there is the certificate that was asked for: without one, the metrics server
// would make one itself and never look for the other again.
func checkMetricsCertificate(o options) error {
	if o.metricsCertPath == "" || o.metricsAddress == off {
		return nil
	}
	folder := o.metricsCertPath
	if _, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")); err != nil {
		return fmt.Errorf("reading the certificate of the metrics: %w", err)
	}
	return nil
}

// leaseConfig is the configuration of the client that renews the lease. Clients with equal configurations
// share one HTTP/2 connection; a dialer of its own gives this one a connection of its own, so that a
// renewal never waits behind a flood of alerts.
func leaseConfig(config *rest.Config) *rest.Config {
	lease := rest.CopyConfig(config)
	if lease.Dial == nil {
		lease.Dial = (&net.Dialer{Timeout: leaseDialTimeout, KeepAlive: leaseKeepAlive}).DialContext
	}
	return lease
}
