package app

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/internal/process"
	"github.com/tocsin-dev/tocsin/internal/queue"
	"github.com/tocsin-dev/tocsin/internal/recorder"
)

const (
	// gracefulStop bounds how long the manager takes to stop after the webhook server has drained and the last term has
	// ended. Together with the server's timeouts it is well below the Deployment's termination grace period of 45 s.
	gracefulStop = 5 * time.Second

	// namespaceFile has the namespace of the process in a pod, where the lease is by default.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// newManager returns the manager that every replica runs from start to stop, with its clients, metrics and cache, and
// the cache. It calls no API server. The controllers that fold run in leader terms (see worker).
func newManager(
	config *rest.Config, o Options, log logr.Logger, informers *clustercache.Informers, memory *queue.Memory,
) (ctrl.Manager, cache.Cache, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	var objects cache.Cache
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:         scheme,
		Logger:         log,
		MapperProvider: clustercache.RESTMapper,
		Cache: cache.Options{
			DefaultNamespaces: process.CacheNamespaces(o.process.WatchNamespaces),
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.AlertEvent{}:         {Transform: memory.Cached.Condense, Namespaces: process.CacheNamespaces(eventNamespaces(&o))},
				&v1alpha1.Incident{}:           {Transform: clustercache.Condense, Field: clustercache.Selector()},
				&v1alpha1.IncidentSummary{}:    {Transform: clustercache.Condense},
				&v1alpha1.Heartbeat{}:          {Transform: heartbeats.Condense},
				&v1alpha1.MaintenanceWindow{}:  {Transform: clustercache.Condense},
				&v1alpha1.WebhookIntegration{}: {Transform: informers.Integrations.Condense},
			},
		},
		NewCache: func(config *rest.Config, options cache.Options) (c cache.Cache, err error) {
			objects, err = informers.NewCache(config, options)
			return clustercache.NonBlocking{Cache: objects}, err
		},
		Controller:              ctrlconfig.Controller{SkipNameValidation: new(true)}, // every term has the same controllers
		Metrics:                 metricsserver.Options{BindAddress: process.Off},      // see process.Options.AddServers
		HealthProbeBindAddress:  process.Off,
		GracefulShutdownTimeout: new(gracefulStop),
	})
	if err != nil {
		return nil, nil, err
	}
	return recorder.Limit(mgr), objects, nil
}

// ownNamespace returns the operator's own namespace, where its canaries are: that of the lease. A process outside of a cluster
// that has none uses the first namespace that it serves, else the default one.
func ownNamespace(o *Options) string {
	file, _ := os.ReadFile(namespaceFile)
	served := cmp.Or(o.process.WatchNamespaces...)
	return cmp.Or(o.process.LeaseNamespace, strings.TrimSpace(string(file)), served, metav1.NamespaceDefault)
}

// eventNamespaces returns the namespaces of which the cache has the AlertEvents: those that are served, and the operator's own;
// nil for all.
func eventNamespaces(o *Options) []string {
	own := ownNamespace(o)
	if len(o.process.WatchNamespaces) == 0 || slices.Contains(o.process.WatchNamespaces, own) {
		return o.process.WatchNamespaces
	}
	return append(slices.Clone(o.process.WatchNamespaces), own)
}
