package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/leader"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

const (
	// leaseName is the name of the leader's lease.
	leaseName = "manager.tocsin.dev"

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
)

// worker is a leader.Worker that folds, and forwards if there are Alertmanagers.
type worker struct {
	mgr     ctrl.Manager
	objects cache.Cache   // of the manager
	clock   forward.Clock // of the API server
	schemas replica.Schemas
	canary  *replica.Canary

	// The rest is of newCampaign.
	windows     *maintenance.Windows
	controllers *controllers.Replica
	forwarder   *forward.Forwarder // nil without Alertmanagers
	campaign    *leader.Campaign
}

// newCampaign returns the campaign in which the worker works on one replica at a time.
func newCampaign(o Options, environment Environment, folding controllers.Options, w *worker) (*leader.Campaign, error) {
	lock, err := newLock(w.mgr, o)
	if err != nil {
		return nil, fmt.Errorf("preparing the leader election: %w", err)
	}
	w.windows = folding.Folds.Windows
	if o.alertmanagers != "" {
		w.forwarder = forward.New(o.alertmanagers, w.clock, identify(w.mgr, o, lock), w.mgr.GetLogger().WithName("forward"))
		w.forwarder.PageURL, w.forwarder.Windows = o.pageURL, w.windows
		if environment.Dialer != nil {
			w.forwarder.Dialer = environment.Dialer
		}
		if err := w.mgr.Add(w.forwarder); err != nil {
			return nil, fmt.Errorf("adding the configuration of Alertmanagers: %w", err)
		}
		folding.Forwarder = w.forwarder
	}
	if w.controllers, err = controllers.NewReplica(w.mgr, folding); err != nil {
		return nil, fmt.Errorf("setting up the controllers: %w", err)
	}
	w.campaign = &leader.Campaign{
		Lock:          lock,
		Name:          leaseName,
		LeaseDuration: leaseDuration,
		RenewDeadline: renewDeadline,
		RetryPeriod:   retryPeriod,
		Worker:        w,
		Backoff:       failedTermBackoff,
		Log:           w.mgr.GetLogger().WithName("leader"),
	}
	return w.campaign, nil
}

// Prepare implements leader.Worker. It waits for the windows, or what is muted would be taken for what is not, and until the
// CustomResourceDefinitions have all fields, or the API server would drop fields of what a leader writes.
func (w *worker) Prepare(ctx context.Context) bool {
	return w.objects.WaitForCacheSync(ctx) && awaitTrue(ctx, w.windows.Synced) &&
		awaitTrue(ctx, func() bool { return w.schemas.Verdict() == nil }) && w.awaitTime(ctx)
}

// Work implements leader.Worker.
func (w *worker) Work(ctx context.Context) error {
	term := leader.NewTerm(w.mgr, w.objects)
	canary, schemas := manager.RunnableFunc(w.canary.Lead), manager.RunnableFunc(w.keepChecked)
	if err := errors.Join(term.Add(canary), term.Add(schemas)); err != nil {
		return fmt.Errorf("adding what may end the term: %w", err)
	}
	if err := w.controllers.Lead(term); err != nil {
		return fmt.Errorf("setting up the controllers: %w", err)
	}
	if w.forwarder != nil {
		if err := w.forwarder.Lead(term, w.campaign); err != nil {
			return fmt.Errorf("setting up the forwarding of Incidents: %w", err)
		}
	}
	return term.Run(ctx)
}

// awaitTrue waits until a condition is true. It returns false when ctx has ended.
func awaitTrue(ctx context.Context, condition func() bool) bool {
	return wait.PollUntilContextCancel(ctx, readyPoll, true, func(context.Context) (bool, error) { return condition(), nil }) == nil
}

// keepChecked is a runnable of the leader's term that fails when the check of the CustomResourceDefinitions does.
func (w *worker) keepChecked(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, readyPoll, true, func(context.Context) (bool, error) {
		return false, w.schemas.Verdict()
	})
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// awaitTime waits until the API server has told its time, by which windows open and conditions are dated, but not for ever:
// alerts are to be folded without it too. It returns false when ctx has ended.
func (w *worker) awaitTime(ctx context.Context) bool {
	_ = wait.PollUntilContextTimeout(ctx, readyPoll, timePatience, true, func(context.Context) (bool, error) {
		_, ok := w.clock.Now()
		return ok, nil
	})
	return ctx.Err() == nil
}

// newLock returns the lock of the leader election; nil without one.
func newLock(mgr ctrl.Manager, o Options) (resourcelock.Interface, error) {
	if !o.process.LeaderElect {
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
		LeaderElectionNamespace: o.process.LeaseNamespace,
		RenewDeadline:           renewDeadline,
	})
}

// identify returns what tells this Tocsin from others that share an Alertmanager: its Lease, or without leader election the
// address of the API server and the watched namespaces.
func identify(mgr ctrl.Manager, o Options, lock resourcelock.Interface) forward.Installation {
	if lock == nil {
		id := uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "%s %q", mgr.GetConfig().Host, o.process.WatchNamespaces)).String()
		return fixedInstallation(id)
	}
	namespace, name, _ := strings.Cut(lock.Describe(), "/")
	return &leaseInstallation{mgr.GetConfig(), namespace, name}
}

// fixedInstallation is an installation with this ID.
type fixedInstallation string

// ID implements forward.Installation.
func (i fixedInstallation) ID(context.Context) (string, error) { return string(i), nil }

// leaseInstallation is an installation whose ID is the UID of its Lease, which needs no permission that a leader lacks.
type leaseInstallation struct {
	config          *rest.Config
	namespace, name string
}

// ID implements forward.Installation.
func (i *leaseInstallation) ID(ctx context.Context) (string, error) {
	leases, err := coordinationv1.NewForConfig(i.config)
	if err != nil {
		return "", fmt.Errorf("making the client of leases: %w", err)
	}
	lease, err := leases.Leases(i.namespace).Get(ctx, i.name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the lease: %w", err)
	}
	return string(lease.UID), nil
}
