// Package incident folds the alerts of each Incident into its status. Package controllers tells how and why.
package incident

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/release"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

const (
	// foldConcurrency is how many Incidents are folded at a time, more only if some take long. Nearly all of that time is spent
	// waiting for a quorum list, which takes up to 100 ms on a busy API server whatever its size; this many folds share one.
	foldConcurrency = 160

	// clockRetry is when to look again at an Incident with a deadline while no time-based resolve is safe, see
	// replica.IngestHealth.QuietFrom.
	clockRetry = 30 * time.Second

	// staleRetry is the delay before another fold when this one read something that was out of date.
	staleRetry = 50 * time.Millisecond

	// pausedRetry is when to look again at an Incident whose ledger is full; the deletion of an AlertEvent brings it back sooner.
	pausedRetry = 5 * time.Second

	// retentionMemory is how long the retention of a deleted integration is remembered, and maxRetentions of how many: a sweep comes
	// to their Incidents within an hour.
	retentionMemory = 2 * time.Hour
	maxRetentions   = 4096

	// deletionRetry bounds when to look again at an expired Incident that cannot be deleted yet.
	deletionRetry = time.Minute

	// vanishedMemory is how long AlertEvents that turned out to be gone are left out, though the cache shows them, and maxVanished
	// how many.
	vanishedMemory = time.Minute
	maxVanished    = 10_000
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=incidents,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=tocsin.dev,resources=incidents/status,verbs=update
// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=get;list;watch

// errStale says that a fold has read something older than the API server has now: it starts over.
var errStale = errors.New("read something that has changed meanwhile")

// errNotCached says that AlertEvents are stored which the cache does not show yet. Thousands of folds may find that at once.
var errNotCached = fmt.Errorf("%w: the cache lacks an AlertEvent", errStale)

// vanished names the alerts of an AlertEvent for one Incident.
type vanished struct {
	event    types.UID
	incident string
}

// reconciler folds AlertEvents into Incidents. A request names an Incident, whether there is one or not.
type reconciler struct {
	Options
	cache    client.Reader // with the index of package replica
	live     client.Client // reads from the quorum
	lists    *quorumLists
	loading  *fair.Places // of the folds that read AlertEvents again
	loaded   *lru.Cache   // the latest of these, by UID
	releases *release.Releaser
	writes   *writeMemory
	recorder events.EventRecorder
	blocked  *Blocked
	counts   openCounts
	sweeper  resolvedIncidents
	notices  flowcontrol.RateLimiter // of Kubernetes Events
	gate     *writeGate

	retentions *expirecache.LRUExpireCache // of integrations that were deleted lately: time.Duration by types.NamespacedName
	vanished   *expirecache.LRUExpireCache // AlertEvents that the cache shows, and a quorum list has not: by vanished

	decideFold func(fold.Input) fold.Plan          // fold.Decide outside of tests
	wake       func(incident types.NamespacedName) // has one folded that can be created again
}

// openCounts counts the Incidents that are not Resolved. It is a *capacity.Counts outside of tests.
type openCounts interface {
	MayOpen(namespace string) bool
	Fits(read *v1alpha1.Incident, status *v1alpha1.IncidentStatus) bool
	OfIntegration(namespace, integration string) []string
	Hides(namespace string) bool
}

// resolvedIncidents takes care of the Incidents that the cache lacks. It is a *sweep.Sweeper outside of tests.
type resolvedIncidents interface {
	NoteWritten(before, after *v1alpha1.Incident)
	IsFull(namespace string) bool
	Revisit(namespace string)
}

// RuleSource makes rules that folds go by beside their own. Whatever changes what they go by has the Incident folded.
type RuleSource interface {
	// RuleFor returns the rule for an Incident as it is to be folded now.
	RuleFor(incident types.NamespacedName) fold.Rule
}

// Forwarder posts Incidents to Alertmanager, and tells which are posted.
type Forwarder interface {
	// Forwarding returns what is known about the forwarding of an Incident.
	Forwarding(incident types.NamespacedName) fold.KnownForwarding

	// Observe takes in an Incident that was written, or read from the API server. The watch may show this version late, or never.
	Observe(incident *v1alpha1.Incident)

	// RequestFolds calls request for each Incident about whose forwarding or silences something else is known, until ctx ends.
	RequestFolds(ctx context.Context, request func(incident types.NamespacedName))
}

// Reconcile folds the alerts of one Incident. What it decides by the cache is provisional: that there is nothing to fold, or
// not yet. Whatever is written is decided again, after a quorum list (foldConfirmed).
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if wait := r.delayFold(f); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	plan, err := r.decide(f)
	if err == nil && !plan.IsIdle() {
		if wait := r.delayWrite(f, plan); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		f, plan, err = r.foldConfirmed(ctx, f, &plan)
	}
	if err != nil {
		return r.handleFailure(ctx, f, err)
	}
	r.settle(f, plan) // without a confirmed fold, only what the ledger already has is settled
	return r.finish(ctx, f, plan)
}

// foldConfirmed folds after a quorum list and carries the plan out. It returns its facts, with the Incident as it is written.
//
// An Incident that the cache lacks is Resolved, or too new for the cache, or there is none. If the provisional plan opens one, it
// is created before the list. Otherwise a suspended leader could create again, from an old list, an Incident that was folded and
// deleted meanwhile. If the create finds one there, or if the alerts open none, it is read.
func (r *reconciler) foldConfirmed(
	ctx context.Context, seen *facts, provisional *fold.Plan,
) (_ *facts, plan fold.Plan, err error) {
	created := false
	if seen.incident == nil {
		if seen, created, err = r.createOrRead(ctx, seen, provisional); err != nil {
			return seen, plan, err
		}
	}
	c, err := r.confirm(ctx, seen)
	if err != nil {
		return seen, plan, err
	}
	ctx, end := beginSpan(ctx, r.TracerProvider, &c.facts)
	defer func() { end(plan, err) }()
	unload, err := r.loadContent(ctx, c)
	if err != nil {
		return &c.facts, plan, err
	}
	plan, err = r.decide(&c.facts)
	if unload(); err != nil {
		return &c.facts, plan, err
	}
	switch {
	case plan.Create != nil:
		return &c.facts, plan, fmt.Errorf("%w: a firing alert has come", errStale)
	case created && plan.IsIdle():
		again := r.leaveOutVanished(c, seen.toFold)
		c.incident, err = r.dropEmpty(ctx, c)
		c.nextFold = cmp.Or(c.nextFold, again)
		return &c.facts, plan, err
	}
	c.incident, err = r.carryOut(ctx, c, plan)
	return &c.facts, plan, err
}

// handleFailure says when to fold again after an error.
func (r *reconciler) handleFailure(ctx context.Context, f *facts, err error) (ctrl.Result, error) {
	var blocked *blockedError
	switch {
	case errors.As(err, &blocked):
		return r.waitBlocked(ctx, f, blocked), nil
	case errors.Is(err, errTerminating):
		return r.awaitDeletion(ctx, f)
	case !errors.Is(err, errStale):
		return ctrl.Result{}, err
	}
	log.FromContext(ctx).V(1).Info("Starting over", "reason", err.Error())
	if errors.Is(err, errNotCached) {
		return ctrl.Result{RequeueAfter: writeInterval}, nil
	}
	return ctrl.Result{RequeueAfter: staleRetry}, nil
}

// delayFold returns how long to wait before anything is decided: until an Incident is read for which the cache is behind, until
// one that could not be written is tried again, until the memory shows what the cache shows, and until a busy Incident may be
// written again if its alerts change no state. delayWrite checks that again after the decision; to check it here saves the fold,
// and the read of an Incident that is Resolved.
func (r *reconciler) delayFold(f *facts) time.Duration {
	if f.lag > 0 {
		return f.lag // the watch brings it back sooner
	}
	switch wait := r.blocked.delay(f.key, f.key.Name, f.now); {
	case wait > 0 && len(f.toFold) > 0:
		return wait
	case f.memoryLags:
		return staleRetry
	case (f.hasOnlyFirings() || r.staysResolved(f)) && !f.ledgerNearlyFull():
		return r.writes.writeDelay(f.key, f.now)
	default:
		return 0
	}
}

// staysResolved reports whether the cache lacks the Incident, since this process wrote it last and as Resolved, and none of its
// alerts is firing: no state changes.
func (r *reconciler) staysResolved(f *facts) bool {
	last, _ := r.writes.last(f.key)
	return f.incident == nil && last.resolved && len(f.toFold) > 0 &&
		!f.hasAlert(func(status v1alpha1.AlertStatus) bool { return status == v1alpha1.AlertFiring })
}

// delayWrite returns how long to wait before a plan is carried out: until an Incident may be created in the namespace,
// and until a busy one may be written again.
func (r *reconciler) delayWrite(f *facts, plan fold.Plan) time.Duration {
	switch {
	case plan.Create != nil:
		return r.blocked.delay(f.key, ofNamespace, f.now)
	case plan.Write && !plan.Urgent && !f.ledgerNearlyFull():
		return r.writes.writeDelay(f.key, f.now)
	default:
		return 0
	}
}

// finish ends a reconciliation: it has AlertEvents marked that fill the ledger, deletes the Incident if its time has come,
// and says when to look again.
func (r *reconciler) finish(ctx context.Context, f *facts, plan fold.Plan) (ctrl.Result, error) {
	if f.ledgerUse() > v1alpha1.MaxLedger/2 {
		r.releases.MarkKept(f.incident.Status.Ledger.Events, func(incident string) bool {
			return r.blocked.has(types.NamespacedName{Namespace: f.key.Namespace, Name: incident})
		})
	}
	if !plan.LedgerFull {
		r.blocked.forget(f.key)
	}
	result, err := r.deleteOrWait(ctx, f, plan)
	if !f.nextFold.IsZero() {
		result.RequeueAfter = sooner(result.RequeueAfter, max(f.nextFold.Sub(f.now), time.Millisecond))
	}
	if f.incident != nil {
		if at := fold.Due(f.incident, &f.policy); at.After(f.apiTime) {
			result.RequeueAfter = sooner(result.RequeueAfter, at.Sub(f.apiTime))
		} else if !at.IsZero() { // alerts wait, or the time is not certain
			result.RequeueAfter = sooner(result.RequeueAfter, pausedRetry)
		}
	}
	result.Priority = new(handler.LowPriority) // no alert waits for this: thousands of Incidents may expire at once
	return result, err
}

// sooner returns the shorter of two delays; 0 stands for none.
func sooner(a, b time.Duration) time.Duration { return min(b, cmp.Or(a, b)) }

// deleteOrWait deletes the Incident if its time has come, and says when to look again.
func (r *reconciler) deleteOrWait(ctx context.Context, f *facts, plan fold.Plan) (ctrl.Result, error) {
	if plan.LedgerFull {
		log.FromContext(ctx).V(1).Info("Waiting for AlertEvents to be deleted: the ledger is full")
		return ctrl.Result{RequeueAfter: pausedRetry}, nil
	}
	if f.incident == nil {
		return ctrl.Result{}, nil
	}
	at, ok := fold.Deadline(f.incident, f.policy)
	_, known := r.Health.QuietFrom(f.integration(), time.Time{})
	switch isResolved := f.incident.Status.State == v1alpha1.IncidentResolved; {
	case !ok, isResolved && (!known || at.Sub(f.apiTime) > 2*sweep.Interval): // a sweep finds it in time
		return ctrl.Result{}, nil
	case !known:
		return ctrl.Result{RequeueAfter: clockRetry}, nil
	case at.After(f.apiTime):
		return ctrl.Result{RequeueAfter: at.Sub(f.apiTime)}, nil
	case !plan.IsIdle() || f.incident.Status.State == v1alpha1.IncidentOpen:
		return ctrl.Result{RequeueAfter: writeInterval}, nil
	case r.ArchiveRequired && !fold.IsArchived(&f.incident.Status):
		return ctrl.Result{RequeueAfter: archiveRetry(f.apiTime.Sub(at))}, nil
	default:
		return r.deleteEnded(ctx, f, at)
	}
}

// waitBlocked puts off a fold whose Incident cannot be written. What it waits for is on the integrations.
func (r *reconciler) waitBlocked(ctx context.Context, f *facts, cause *blockedError) ctrl.Result {
	wait, first := r.blocked.block(f.key, cause, f.now)
	if first {
		log.FromContext(ctx).Info("Alerts wait for their Incident", "reason", cause.reason, "cause", cause.cause.Error())
	}
	return ctrl.Result{RequeueAfter: wait}
}

// settle passes the AlertEvents that the plan has settled to the release.
func (r *reconciler) settle(f *facts, plan fold.Plan) {
	settled := sets.New(plan.ToSettle...)
	for _, event := range f.toFold {
		if settled.Has(event.UID) {
			r.releases.Settle(event, f.key.Name)
		}
	}
}
