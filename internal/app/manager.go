package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/leader"
	"github.com/tocsin-dev/tocsin/internal/process"
	"github.com/tocsin-dev/tocsin/internal/queue"
	"github.com/tocsin-dev/tocsin/internal/recorder"
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

	// The lease's connection to the API server.
	leaseDialTimeout = 5 * time.Second
	leaseKeepAlive   = 30 * time.Second

	// timePatience is how long a candidate waits for the API server to tell its time.
	timePatience = 30 * time.Second

	// readyPoll is how often a candidate looks whether it knows the time, and a candidate or leader whether its check passes.
	readyPoll = 100 * time.Millisecond

	// namespaceFile has the namespace of the process in a pod, where the lease is by default.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// newManager returns the manager that every replica runs from start to stop, with its clients, metrics and cache, and
// the cache. It calls no API server. The controllers that fold run in leader terms (see newCampaign).
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
			DefaultNamespaces: process.CacheNamespaces(o.WatchNamespaces),
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.AlertEvent{}:         {Transform: memory.Cached.Condense, Namespaces: process.CacheNamespaces(eventNamespaces(&o))},
				&v1alpha1.Incident{}:           {Transform: clustercache.Condense, Field: clustercache.Selector()},
				&v1alpha1.Heartbeat{}:          {Transform: clustercache.Condense},
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
	return cmp.Or(o.LeaseNamespace, strings.TrimSpace(string(file)), cmp.Or(o.WatchNamespaces...), metav1.NamespaceDefault)
}

// eventNamespaces returns the namespaces of which the cache has the AlertEvents: those that are served, and the operator's own;
// nil for all.
func eventNamespaces(o *Options) []string {
	own := ownNamespace(o)
	if len(o.WatchNamespaces) == 0 || slices.Contains(o.WatchNamespaces, own) {
		return o.WatchNamespaces
	}
	return append(slices.Clone(o.WatchNamespaces), own)
}

// newCampaign returns the campaign that runs the folding controllers, and the forwarding, if any, on one replica at a time.
func newCampaign(
	mgr ctrl.Manager, objects cache.Cache, o Options, environment Environment, folding controllers.Options, canary *replica.Canary,
) (*leader.Campaign, error) {
	serverTime := canary.Health.Now
	lock, err := newLock(mgr, o)
	if err != nil {
		return nil, fmt.Errorf("preparing the leader election: %w", err)
	}
	var forwarder *forward.Forwarder // of Incidents to Alertmanager; nil without
	if o.alertmanagers != "" {
		forwarder = forward.New(o.alertmanagers, serverTime, installation(mgr, o, lock), mgr.GetLogger().WithName("forward"))
		forwarder.PageURL, forwarder.Windows = o.pageURL, folding.Windows
		if environment.Dial != nil {
			forwarder.Dial = environment.Dial
		}
		if err := mgr.Add(forwarder); err != nil {
			return nil, fmt.Errorf("adding the configuration of Alertmanagers: %w", err)
		}
		folding.Forwarded, folding.Forwarder, folding.Follower = forwarder.Condition, forwarder, forwarder
	}
	own, err := controllers.NewReplica(mgr, folding)
	if err != nil {
		return nil, fmt.Errorf("setting up the controllers: %w", err)
	}
	campaign := &leader.Campaign{
		Lock:          lock,
		Name:          leaseName,
		LeaseDuration: leaseDuration,
		RenewDeadline: renewDeadline,
		RetryPeriod:   retryPeriod,
		Prepare: func(ctx context.Context) bool {
			return objects.WaitForCacheSync(ctx) && awaitTrue(ctx, folding.Windows.Synced) &&
				awaitTrue(ctx, func() bool { return canary.Check() == nil }) && awaitTime(ctx, serverTime)
		},
		Backoff: failedTermBackoff,
		Log:     mgr.GetLogger().WithName("leader"),
	}
	campaign.Work = func(ctx context.Context) error {
		term := leader.NewTerm(mgr, objects)
		checked := manager.RunnableFunc(func(ctx context.Context) error { return keepChecked(ctx, canary.Check) })
		if err := errors.Join(term.Add(manager.RunnableFunc(canary.Lead)), term.Add(checked)); err != nil {
			return fmt.Errorf("adding what may end the term: %w", err)
		}
		if err := own.Lead(term); err != nil {
			return fmt.Errorf("setting up the controllers: %w", err)
		}
		if forwarder != nil {
			if err := forwarder.Lead(term, campaign.Holds); err != nil {
				return fmt.Errorf("setting up the forwarding of Incidents: %w", err)
			}
		}
		return term.Run(ctx)
	}
	return campaign, nil
}

// awaitTrue waits until a condition is true: the windows are known, or what is muted would be taken for what
// is not; the check of the CustomResourceDefinitions passes, or the API server would drop fields of what a leader writes. It
// returns false when ctx has ended.
func awaitTrue(ctx context.Context, condition func() bool) bool {
	return wait.PollUntilContextCancel(ctx, readyPoll, true, func(context.Context) (bool, error) { return condition(), nil }) == nil
}

// keepChecked is a runnable of the leader's term that fails when the check does.
func keepChecked(ctx context.Context, check func() error) error {
	err := wait.PollUntilContextCancel(ctx, readyPoll, true, func(context.Context) (bool, error) { return false, check() })
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// awaitTime waits until the API server has told its time, by which windows open and conditions are dated, but not for ever:
// alerts are to be folded without it too. It returns false when ctx has ended.
func awaitTime(ctx context.Context, serverTime func() (time.Time, bool)) bool {
	_ = wait.PollUntilContextTimeout(ctx, readyPoll, timePatience, true, func(context.Context) (bool, error) {
		_, ok := serverTime()
		return ok, nil
	})
	return ctx.Err() == nil
}

// newLock returns the lock of the leader election; nil without one.
func newLock(mgr ctrl.Manager, o Options) (resourcelock.Interface, error) {
	if !o.LeaderElect {
		return nil, nil
	}
	config := rest.CopyConfig(mgr.GetConfig())
	if config.Dial == nil {
		// Clients with equal configurations share one HTTP/2 connection. A dialer of its own gives this client another one, so
		// that a renewal never waits behind a flood of alerts.
		config.Dial = (&net.Dialer{Timeout: leaseDialTimeout, KeepAlive: leaseKeepAlive}).DialContext
	}
	return leaderelection.NewResourceLock(config, mgr, leaderelection.Options{
		LeaderElection:          true,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: o.LeaseNamespace,
		RenewDeadline:           renewDeadline,
	})
}

// installation returns a function that returns what tells this Tocsin from others that share an Alertmanager: the UID of its
// Lease, which needs no permission that a leader lacks. Without leader election, it is made of the address of the API server and
// the watched namespaces.
func installation(mgr ctrl.Manager, o Options, lock resourcelock.Interface) func(context.Context) (string, error) {
	if lock == nil {
		id := uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "%s %q", mgr.GetConfig().Host, o.WatchNamespaces)).String()
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
