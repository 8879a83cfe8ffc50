package main

import (
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
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// leaseName is the name of the lease that tells which replica folds.
	leaseName = "manager.tocsin.dev"

	// drainAllowance is what the webhook server may take at the end beyond its shutdown delay: requests in
	// flight, and then writes in flight, with some to spare. Together with the default delay it is 30 s,
	// well within the 45 s that the Deployment gives.
	drainAllowance = 25 * time.Second

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

// managerOptions translates the command line for controller-runtime.
func managerOptions(config *rest.Config, o options) ctrl.Options {
	graceful := o.webhook.ShutdownDelay + drainAllowance
	return ctrl.Options{
		Scheme: newScheme(),
		Cache: cache.Options{
			DefaultNamespaces: cacheNamespaces(o.watchNamespaces),
			// Nothing here reads managed fields, and of a small object they are the greater part.
			DefaultTransform: stripUnread,
		},
		Metrics:                metricsOptions(o),
		HealthProbeBindAddress: o.probeAddress,
		PprofBindAddress:       o.pprofAddress,

		LeaderElection:          o.leaderElect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: o.leaseNamespace,
		LeaderElectionConfig:    leaseConfig(config),
		// The process ends as soon as the manager has stopped, so nothing works on without the lease.
		LeaderElectionReleaseOnCancel: true,

		GracefulShutdownTimeout: &graceful,
	}
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

// stripUnread drops what nothing here reads from an object that is to be cached: managed fields, and the text that alerts
// were unpacked from, which only somebody needs who writes the AlertEvent.
func stripUnread(object any) (any, error) {
	if event, ok := object.(*v1alpha1.AlertEvent); ok {
		event.Spec.UnpackedFrom = ""
	}
	return cache.TransformStripManagedFields()(object)
}
