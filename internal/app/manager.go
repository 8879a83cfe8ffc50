package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"gocloud.dev/blob"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/archive"
	"github.com/tocsin-dev/tocsin/controllers/archive/bucket"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/leader"
)

const (
	// leaseName is the name of the leader's lease.
	leaseName = "manager.tocsin.dev"

	// gracefulStop bounds how long the manager takes to stop after the webhook server has drained and the last term has
	// ended. Together with the server's timeouts it is well below the Deployment's termination grace period of 45 s.
	gracefulStop = 5 * time.Second

	// Leader election: another replica takes over leaseDuration after the last renewal; a leader that could not renew
	// for renewDeadline gives up; both try every retryPeriod.
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second

	// failedTermBackoff is how long a replica that could not fold leaves the lease to others, which notice within two
	// retryPeriods that it is free.
	failedTermBackoff = 10 * time.Second

	// keptAlertBytes bounds the alerts that the cache keeps to share them between the creation and the deletion of an
	// AlertEvent. In a storm that is three seconds of AlertEvents.
	keptAlertBytes = 8 << 20

	// The lease's connection to the API server.
	leaseDialTimeout = 5 * time.Second
	leaseKeepAlive   = 30 * time.Second
)

// newScheme returns a scheme with the standard resources and Tocsin's.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// newManager returns the manager that every replica runs from start to stop, with its clients, metrics and cache, and
// the cache. It calls no API server. The controllers that fold run in leader terms (see newCampaign).
func newManager(
	config *rest.Config, o Options, log logr.Logger, informers *clustercache.Informers,
) (ctrl.Manager, cache.Cache, error) {
	var objects cache.Cache
	v1alpha1.KeepUnpackedAlerts(keptAlertBytes)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:         newScheme(),
		Logger:         log,
		MapperProvider: clustercache.RESTMapper,
		Cache: cache.Options{
			DefaultNamespaces: cacheNamespaces(o.watchNamespaces),
			// The manager reads no managed fields, and they are the larger part of a small object.
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.AlertEvent{}:         {Transform: controllers.Condense},
				&v1alpha1.Incident{}:           {Transform: controllers.Condense, Field: clustercache.Selector()},
				&v1alpha1.WebhookIntegration{}: {Transform: controllers.Condense},
			},
		},
		NewCache: func(config *rest.Config, options cache.Options) (c cache.Cache, err error) {
			objects, err = informers.NewCache(config, options)
			return clustercache.Unawaited{Cache: objects}, err
		},
		Metrics:                 metricsOptions(o),
		HealthProbeBindAddress:  off, // see internal/probes
		PprofBindAddress:        o.pprofAddress,
		GracefulShutdownTimeout: new(gracefulStop),
	})
	return mgr, objects, err
}

// newCampaign returns the campaign that runs the folding controllers, and the forwarding and the archiving, if any, on one
// replica at a time.
func newCampaign(
	mgr ctrl.Manager, objects cache.Cache, o Options, folding controllers.Options,
) (*leader.Campaign, error) {
	lock, err := newLock(mgr, o)
	if err != nil {
		return nil, fmt.Errorf("preparing the leader election: %w", err)
	}
	lead, err := addForwarding(mgr, o, lock, &folding)
	if err != nil {
		return nil, err
	}
	leadArchive := addArchive(mgr, o, &folding)
	replica, err := controllers.NewReplica(mgr, folding)
	if err != nil {
		return nil, fmt.Errorf("setting up the controllers: %w", err)
	}
	return &leader.Campaign{
		Lock:          lock,
		Name:          leaseName,
		LeaseDuration: leaseDuration,
		RenewDeadline: renewDeadline,
		RetryPeriod:   retryPeriod,
		Prepare:       objects.WaitForCacheSync,
		Backoff:       failedTermBackoff,
		Log:           mgr.GetLogger().WithName("leader"),
		Work: func(ctx context.Context) error {
			term := leader.NewTerm(mgr, objects)
			if err := replica.Lead(term); err != nil {
				return fmt.Errorf("setting up the controllers: %w", err)
			}
			if err := lead(term); err != nil {
				return fmt.Errorf("setting up the forwarding of Incidents: %w", err)
			}
			if err := leadArchive(term); err != nil {
				return fmt.Errorf("setting up the archive: %w", err)
			}
			return term.Run(ctx)
		},
	}, nil
}

// newLock returns the lock of the leader election; nil without one.
func newLock(mgr ctrl.Manager, o Options) (resourcelock.Interface, error) {
	if !o.leaderElect {
		return nil, nil
	}
	return leaderelection.NewResourceLock(leaseConfig(mgr.GetConfig()), mgr, leaderelection.Options{
		LeaderElection:          true,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: o.leaseNamespace,
		RenewDeadline:           renewDeadline,
	})
}

// addForwarding adds the forwarding of Incidents to Alertmanager, if it is configured, to the options of the controllers.
// lead adds it to a leader's term.
func addForwarding(
	mgr ctrl.Manager, o Options, lock resourcelock.Interface, folding *controllers.Options,
) (lead func(ctrl.Manager) error, err error) {
	if o.alertmanagers == "" {
		return func(ctrl.Manager) error { return nil }, nil
	}
	forwarder := forward.New(o.alertmanagers, folding.Listening.Now, installation(mgr, o, lock), mgr.GetLogger().WithName("forward"))
	if err := mgr.Add(forwarder); err != nil {
		return nil, fmt.Errorf("adding the configuration of Alertmanagers: %w", err)
	}
	folding.Forwarding, folding.Silences = forwarder, forwarder
	folding.Followers = append(folding.Followers, forwarder)
	return forwarder.Lead, nil
}

// installation returns a function that returns what tells this Tocsin from others that share an Alertmanager: the UID of its
// Lease, which needs no permission that a leader lacks. Without leader election, it is made of the address of the API server and
// the watched namespaces.
func installation(mgr ctrl.Manager, o Options, lock resourcelock.Interface) func(context.Context) (string, error) {
	if lock == nil {
		id := uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "%s %q", mgr.GetConfig().Host, o.watchNamespaces)).String()
		return func(context.Context) (string, error) { return id, nil }
	}
	namespace, name, _ := strings.Cut(lock.Describe(), "/")
	return func(ctx context.Context) (string, error) {
		leases, err := coordinationv1.NewForConfig(mgr.GetConfig())
		if err != nil {
			return "", fmt.Errorf("making the client of leases: %w", err)
		}
		lease, err := leases.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("reading the lease: %w", err)
		}
		return string(lease.UID), nil
	}
}

// addArchive adds the archive of ended episodes, if it is configured, to the options of the controllers. lead adds it to a
// leader's term.
func addArchive(mgr ctrl.Manager, o Options, folding *controllers.Options) (lead func(ctrl.Manager) error) {
	if o.archive == "" {
		return func(ctrl.Manager) error { return nil }
	}
	open := func(ctx context.Context) (*blob.Bucket, error) { return bucket.Open(ctx, o.archive) }
	archiver := archive.New(open, folding.Listening.Now, mgr.GetLogger().WithName("archive"))
	folding.Archive = archiver
	folding.Followers = append(folding.Followers, archiver)
	return archiver.Lead
}

// cacheNamespaces returns the cache's configuration per namespace; nil, which means all namespaces, without names.
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

// metricsOptions returns the options of the metrics endpoint, which uses TLS when it is secure or has a certificate.
func metricsOptions(o Options) metricsserver.Options {
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

// checkMetricsCertificate returns an error if the configured certificate cannot be loaded: the metrics server would
// silently generate a self-signed one and never look for the other again.
func checkMetricsCertificate(o Options) error {
	if o.metricsCertPath == "" || o.metricsAddress == off {
		return nil
	}
	dir := o.metricsCertPath
	if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")); err != nil {
		return fmt.Errorf("loading the metrics certificate: %w", err)
	}
	return nil
}

// leaseConfig returns the configuration of the client that renews the lease. Clients with equal configurations share
// one HTTP/2 connection; a separate dialer gives this client its own, so that a renewal never waits behind a flood of
// alerts.
func leaseConfig(config *rest.Config) *rest.Config {
	lease := rest.CopyConfig(config)
	if lease.Dial == nil {
		lease.Dial = (&net.Dialer{Timeout: leaseDialTimeout, KeepAlive: leaseKeepAlive}).DialContext
	}
	return lease
}
