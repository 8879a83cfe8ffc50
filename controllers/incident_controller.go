package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=incidents,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=tocsin.dev,resources=incidents/status,verbs=update
// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=list;watch

// errStale says that what a fold has read is not what the API server has now. Time will tell: the fold
// starts over, and nobody needs to hear of it.
var errStale = errors.New("read something that has changed meanwhile")

// errUnseen says that AlertEvents are stored which the cache does not show yet, and that it matters.
var errUnseen = errors.New("the cache lacks an AlertEvent")

// incidentReconciler folds AlertEvents into Incidents. A request names an Incident, whether there is one
// or not.
type incidentReconciler struct {
	cache     client.Reader // with the indexes of setup.go
	live      client.Client // reads from the quorum
	lists     *quorumList
	releases  *releaser
	writes    *writeMemory
	recorder  events.EventRecorder
	bisection *bisection
	blocked   *blockBook
	counts    *incidentCounts
	notices   flowcontrol.RateLimiter // of Kubernetes Events
	gate      *writeGate
	clock     Clock
	tracing   *foldTracing

	listening silence
	// presetWindow is the window for late firings that a preset asks for, if any.
	presetWindow func(preset string) (time.Duration, bool)
}

// silence is implemented by Listening.
type silence interface {
	silentFrom(integration types.NamespacedName, now time.Time) (from time.Time, ok bool)
}

// facts are what a fold goes by.
type facts struct {
	key         types.NamespacedName
	incident    *v1alpha1.Incident // from the cache and never modified; nil when there is none
	policy      fold.Policy
	pending     []*v1alpha1.AlertEvent // in the cache, with an alert of this Incident
	events      []*v1alpha1.AlertEvent // those of pending that are not known to be settled
	settled     []*v1alpha1.AlertEvent // those of pending that are
	more        bool                   // some of pending have to wait for the next fold
	held        bool                   // some of pending can neither be folded nor moved into quarantine
	exists      func(uid string) bool
	copies      map[string]*v1alpha1.AlertEvent // quarantined ones among pending, by name
	tries       []*v1alpha1.AlertEvent          // those of copies that are not known to be settled
	trial       bool                            // events are some of tries, since there is nothing else to fold
	unconfirmed []leftCopy
	listed      *eventList // nil before the quorum list
	began       time.Time
	now         time.Time
}

func (f *facts) fold() fold.Plan {
	return fold.Decide(fold.Input{
		Name:        f.key.Name,
		Incident:    f.incident,
		Events:      f.events,
		Settled:     f.settled,
		Exists:      f.exists,
		Copied:      f.copied,
		Unconfirmed: f.void,
		Policy:      f.policy,
		Now:         f.now,
	})
}

// Reconcile folds the alerts of one Incident. What the cache has is enough to see that there is nothing
// to do, or not yet; what is done is decided anew after a quorum list.
func (r *incidentReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, err := r.gather(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.confirmLeft(ctx, f)
	if wait := r.writes.wait(f.key, f.now); wait > 0 && f.onlyRepeats() && !f.isPressed() {
		return ctrl.Result{RequeueAfter: wait}, nil // as hold would find, at the price of a fold
	}
	glance, err := f.tryFold()
	if err != nil {
		return r.deal(ctx, f, err)
	}
	if wait := r.hold(f, glance); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if isIdle(glance) {
		r.settle(f, glance)
		return r.rest(ctx, f, glance)
	}
	if err := r.confirm(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	p, err := r.foldAndWrite(ctx, f)
	if err != nil {
		return r.retry(ctx, f, err)
	}
	return r.rest(ctx, f, p)
}

// retry says when to fold again after an error.
func (r *incidentReconciler) retry(ctx context.Context, f *facts, err error) (ctrl.Result, error) {
	var blocked *blockedError
	switch {
	case errors.As(err, &blocked):
		return r.waitForCapacity(ctx, f, blocked), nil
	case errors.Is(err, errStale):
		log.FromContext(ctx).V(1).Info("starting over", "reason", err.Error())
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case errors.Is(err, errUnseen):
		log.FromContext(ctx).V(1).Info("starting over", "reason", err.Error())
		return ctrl.Result{RequeueAfter: writeInterval}, nil
	case isTerminating(err):
		return ctrl.Result{RequeueAfter: terminatingRetry}, nil
	case isRefused(err):
		return r.deal(ctx, f, err)
	default:
		return ctrl.Result{}, err
	}
}

// foldAndWrite decides anew, after a quorum list, and does it.
func (r *incidentReconciler) foldAndWrite(ctx context.Context, f *facts) (fold.Plan, error) {
	ctx, end := r.tracing.begin(ctx, f)
	var p fold.Plan
	err := r.restore(ctx, f)
	if err == nil {
		p, err = f.tryFold()
	}
	if err == nil {
		err = r.carryOut(ctx, f, p)
	}
	end(p, err)
	return p, err
}

// gather reads the Incident, and then what the cache has for it.
func (r *incidentReconciler) gather(ctx context.Context, key types.NamespacedName) (*facts, error) {
	now := r.clock.Now()
	f := &facts{key: key, began: now, now: now}
	var incident v1alpha1.Incident
	switch err := r.cache.Get(ctx, key, &incident, client.UnsafeDisableDeepCopy); {
	case err == nil:
		f.incident = &incident
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading the Incident: %w", err)
	}
	if err := r.collect(ctx, f); err != nil {
		return nil, err
	}
	cached := make(map[string]struct{}, len(f.pending))
	for _, event := range f.pending {
		cached[string(event.UID)] = struct{}{}
	}
	f.exists = func(uid string) bool { _, ok := cached[uid]; return ok }
	return f, r.readPolicy(ctx, f)
}

// onlyRepeats says that the Incident is open and that there are alerts for it which say so once more, and no
// others: whatever else is in them, no state changes.
func (f *facts) onlyRepeats() bool {
	if f.incident == nil || f.incident.Status.State != v1alpha1.IncidentOpen || len(f.events) == 0 {
		return false
	}
	for _, event := range f.events {
		for i := range event.Spec.Alerts {
			alert := &event.Spec.Alerts[i]
			if alert.Status != v1alpha1.AlertFiring && event.IncidentNameFor(alert) == f.key.Name {
				return false
			}
		}
	}
	return true
}

// isPressed says that more AlertEvents wait than the ledger has room for, and that the room is worth a write:
// waiting would not make it more.
func (f *facts) isPressed() bool {
	room := v1alpha1.MaxLedger
	if f.incident != nil {
		for _, entry := range f.incident.Status.Ledger.Events {
			if f.exists(entry.UID) {
				room--
			}
		}
	}
	return len(f.events) >= room && room >= v1alpha1.MaxLedger/4
}

// confirm learns which AlertEvents exist, after the Incident was read, and keeps to those.
func (r *incidentReconciler) confirm(ctx context.Context, f *facts) error {
	listed, err := r.lists.join(ctx)
	if err != nil {
		return err
	}
	f.listed, f.exists, f.now = listed, listed.has, r.clock.Now()
	r.listen(f) // the list may have taken long, or the process have stood still
	return r.collect(ctx, f)
}

// readPolicy takes the policy from the Incident's integration, or from the one whose alerts may create it.
func (r *incidentReconciler) readPolicy(ctx context.Context, f *facts) error {
	key := types.NamespacedName{Namespace: f.key.Namespace, Name: f.integration()}
	f.policy = fold.PolicyOf(nil, r.presetWindow)
	if key.Name != "" {
		var integration v1alpha1.WebhookIntegration
		err := r.cache.Get(ctx, key, &integration, client.UnsafeDisableDeepCopy)
		switch {
		case err == nil:
			f.policy = fold.PolicyOf(&integration, r.presetWindow)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("reading the WebhookIntegration: %w", err)
		}
	}
	f.endGeneratedKey()
	r.listen(f)
	return nil
}

// listen takes over what is known of silence at the facts' time.
func (r *incidentReconciler) listen(f *facts) {
	from, ok := r.listening.silentFrom(types.NamespacedName{Namespace: f.key.Namespace, Name: f.integration()}, f.now)
	f.policy.SilentFrom, f.policy.Untrusted = from, !ok
}

// endGeneratedKey has an Incident with a generated key resolve by itself, unless its integration says when:
// hardly any sender sends a resolve for it.
func (f *facts) endGeneratedKey() {
	if f.policy.AutoResolveAfter == 0 && f.incident != nil && v1alpha1.IsGeneratedKey(f.incident.Spec.DedupKey) {
		f.policy.AutoResolveAfter = fold.GeneratedAutoResolve
	}
}

// integration is the name of the integration that the Incident belongs to, empty when nothing tells.
func (f *facts) integration() string {
	if f.incident != nil {
		return f.incident.Spec.IntegrationName
	}
	for _, event := range f.events {
		if event.Spec.IntegrationName != "" {
			return event.Spec.IntegrationName
		}
	}
	return ""
}

// hold is how long to wait before anything is done: until the cache shows what was written last, until an
// Incident may be created in the namespace, and until a busy one may be written again.
func (r *incidentReconciler) hold(f *facts, p fold.Plan) time.Duration {
	switch {
	case r.writes.behind(f.key, f.incident, f.now):
		return staleRetry // the watch brings it back sooner
	case p.Create != nil:
		return r.blocked.wait(f.key, f.now)
	case p.Write && !p.Urgent && !f.isPressed():
		return r.writes.wait(f.key, f.now)
	default:
		return 0
	}
}

// isIdle says that a plan has nothing to do but to settle what the ledger has.
func isIdle(p fold.Plan) bool {
	return p.Create == nil && !p.Write && len(p.Results) == 0
}

// rest ends a reconciliation: it lets go what presses on the ledger, deletes the Incident if its time has
// come, and says when to look again.
func (r *incidentReconciler) rest(ctx context.Context, f *facts, p fold.Plan) (ctrl.Result, error) {
	r.relieve(f)
	if f.more {
		r.bisection.folded(f.key)
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	r.blocked.forget(f.key)
	r.bisection.clear(f.key, len(f.tries))
	if f.trial {
		r.bisection.succeeded(f.key, len(f.events))
	}
	result, err := r.restUntil(ctx, f, p)
	wait, waits := r.bisection.wait(f.tries, r.clock.Now())
	if f.held && (!waits || wait > quarantineRetry) {
		wait, waits = quarantineRetry, true
	}
	if !waits || p.LedgerFull || err != nil {
		return result, err
	}
	result.RequeueAfter = min(max(wait, staleRetry), cmp.Or(result.RequeueAfter, quarantineRetry))
	return result, nil
}

// restUntil deletes the Incident if its time has come, and says when to look again, quarantined AlertEvents left out.
func (r *incidentReconciler) restUntil(ctx context.Context, f *facts, p fold.Plan) (ctrl.Result, error) {
	if p.LedgerFull {
		log.FromContext(ctx).V(1).Info("waiting for AlertEvents to be deleted: the ledger is full")
		return ctrl.Result{RequeueAfter: pausedRetry}, nil
	}
	if f.incident == nil {
		return ctrl.Result{}, nil
	}
	at, ok := fold.Deadline(f.incident, f.policy)
	switch {
	case !ok:
		return ctrl.Result{}, nil
	case f.policy.Untrusted: // nor may the clock be believed for how long to wait
		return ctrl.Result{RequeueAfter: untrustedRetry}, nil
	case at.After(f.now):
		return ctrl.Result{RequeueAfter: at.Sub(f.now)}, nil
	case isIdle(p) && f.incident.Status.State != v1alpha1.IncidentOpen:
		return r.expire(ctx, f)
	default:
		return ctrl.Result{RequeueAfter: writeInterval}, nil
	}
}

// relieve has events released that stay for their idempotency keys only, oldest first, while they fill
// more than half of the ledger.
func (r *incidentReconciler) relieve(f *facts) {
	if f.incident == nil {
		return
	}
	ledger := f.incident.Status.Ledger.Events
	excess := -v1alpha1.MaxLedger / 2
	for _, entry := range ledger {
		if f.exists(entry.UID) {
			excess++
		}
	}
	r.releases.hurry(ledger, excess)
}
