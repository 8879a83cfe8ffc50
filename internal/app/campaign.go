package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/leader"
)

const (
	// leaseName is the name of the leader's lease, of which package leader has the times.
	leaseName = "manager.tocsin.dev"

	// failedTermBackoff is how long a replica that could not fold leaves the lease to others, which take it at once.
	failedTermBackoff = 10 * time.Second

	// timePatience is how long a candidate waits for the API server to tell its time.
	timePatience = 30 * time.Second

	// readyPoll is how often a candidate looks whether it knows the time, and a candidate or leader whether its check passes.
	readyPoll = 100 * time.Millisecond
)

// worker folds while its replica leads, and forwards if there are Alertmanagers.
type worker struct {
	mgr     ctrl.Manager
	objects cache.Cache // of the manager
	clock   apiClock
	schemas replica.Schemas
	canary  *replica.Canary

	// The rest is of newCampaign.
	features    []controllers.Feature
	controllers *controllers.Replica
	forwarder   *forward.Forwarder // nil without Alertmanagers
	campaign    *leader.Campaign
}

// apiClock tells the time of the API server, once it is known.
type apiClock interface {
	Now() (now time.Time, ok bool)
}

func newCampaign(o Options, folding controllers.Options, w *worker) (*leader.Campaign, error) {
	lease, err := newLease(w.mgr, o)
	if err != nil {
		return nil, fmt.Errorf("preparing the leader election: %w", err)
	}
	w.features = folding.Features
	if w.forwarder, err = o.forwarding.Add(w.mgr, w.clock, lease, o.process.WatchNamespaces); err != nil {
		return nil, err
	}
	if w.forwarder != nil {
		folding.Forwarder = w.forwarder
	}
	folding.Folds.Rules = append(folding.Folds.Rules, w.forwarder) // of silences; one that is nil says that the forwarding is off
	if w.controllers, err = controllers.NewReplica(w.mgr, folding); err != nil {
		return nil, fmt.Errorf("setting up the controllers: %w", err)
	}
	w.campaign = &leader.Campaign{
		Lease: lease, Prepare: w.Prepare, Work: w.Work, Backoff: failedTermBackoff, Log: w.mgr.GetLogger().WithName("leader"),
	}
	return w.campaign, nil
}

// Prepare waits for the features, or what is muted would be taken for what is not, and until the
// CustomResourceDefinitions have all fields, or the API server would drop fields of what a leader writes.
func (w *worker) Prepare(ctx context.Context) bool {
	ready := w.objects.WaitForCacheSync(ctx)
	for _, feature := range w.features {
		ready = ready && awaitTrue(ctx, feature.Synced)
	}
	return ready && awaitTrue(ctx, func() bool { return w.schemas.Verdict() == nil }) && w.awaitTime(ctx)
}

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

// awaitTime waits until the API server has told its time, by which Incidents are muted and conditions dated, but not for ever:
// alerts are to be folded without it too. It returns false when ctx has ended.
func (w *worker) awaitTime(ctx context.Context) bool {
	_ = wait.PollUntilContextTimeout(ctx, readyPoll, timePatience, true, func(context.Context) (bool, error) {
		_, ok := w.clock.Now()
		return ok, nil
	})
	return ctx.Err() == nil
}

func newLease(mgr ctrl.Manager, o Options) (*leader.Lease, error) {
	if !o.process.LeaderElect {
		return nil, nil
	}
	namespace := o.process.LeaseNamespace
	if namespace == "" {
		file, err := os.ReadFile(namespaceFile)
		if err != nil {
			return nil, fmt.Errorf("outside of a cluster, --leader-elect needs --leader-election-namespace: %w", err)
		}
		namespace = strings.TrimSpace(string(file))
	}
	name := types.NamespacedName{Namespace: namespace, Name: leaseName}
	return leader.NewLease(mgr.GetConfig(), name, mgr.GetLogger().WithName("leader"))
}
