package controllers

import (
	"context"
	"fmt"
	"runtime"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// observed is the state of an Incident and its AlertEvents as a reconciliation found it. It is never modified.
type observed struct {
	alertEvents
	key      types.NamespacedName
	incident *v1alpha1.Incident // nil when there is none
	exists   *eventList         // the AlertEvents that exist: those in the cache, or in the quorum list
	policy   fold.Policy
	silenced fold.Silencing
	archived fold.IsArchived
	began    time.Time // when the reconciliation began
	now      time.Time
}

// confirmed is an observation in which the existing AlertEvents are those of a quorum list that began after the Incident
// was read, and in which the Incident is whole.
type confirmed struct{ observed }

// alertEvents are the cached AlertEvents with alerts of one Incident, by their treatment.
type alertEvents struct {
	all         []*v1alpha1.AlertEvent
	toFold      []*v1alpha1.AlertEvent
	more        bool                   // others wait until those of toFold are folded
	retrying    bool                   // those of toFold are quarantined and retried
	settled     []*v1alpha1.AlertEvent // known to be folded
	quarantined []*v1alpha1.AlertEvent // copies that are not known to be folded
	delayed     bool                   // some can neither be folded nor quarantined for now

	moved       []*v1alpha1.AlertEvent // their alerts are in quarantine: nothing of them is left to fold
	unconfirmed []unconfirmedCopy      // as moved, but the copy has to be confirmed first
	restored    []*v1alpha1.AlertEvent // from a backup: not to be folded
	replayed    []*v1alpha1.AlertEvent // second copies of released ones: not to be folded
}

// unconfirmedCopy is an AlertEvent and its quarantined copy, which is not confirmed.
type unconfirmedCopy struct{ event, moved *v1alpha1.AlertEvent }

// observe reads the Incident and then its AlertEvents from the cache. A Resolved Incident is condensed there: what is decided
// by it is preliminary.
func (r *incidentReconciler) observe(ctx context.Context, key types.NamespacedName) (*observed, error) {
	now := r.clock.Now()
	o := &observed{key: key, began: now, now: now}
	var incident v1alpha1.Incident
	switch err := r.cache.Get(ctx, key, &incident, client.UnsafeDisableDeepCopy); {
	case err == nil:
		o.incident = &incident
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading the Incident: %w", err)
	}
	events, err := listAlertEvents(ctx, r.cache, key)
	if err != nil {
		return nil, err
	}
	o.exists = newEventList(len(events))
	for _, event := range events {
		o.exists.add(event, false) // the cache cannot know which copies are unconfirmed
	}
	o.alertEvents = r.classify(o, events)
	o.silenced = r.silencing(key)
	o.archived = r.archived(o)
	o.policy, err = r.readPolicy(ctx, o)
	return o, err
}

// confirm reads the Incident again if the cache has a part of it only. Then it lists the AlertEvents that exist, and returns
// the observation by that list.
func (r *incidentReconciler) confirm(ctx context.Context, seen *observed) (*confirmed, error) {
	c := &confirmed{*seen}
	var err error
	if c.incident, err = readWhole(ctx, r.live, seen.incident); err != nil {
		return nil, err
	}
	listed, err := r.lists.join(ctx)
	if err != nil {
		return nil, err
	}
	c.exists, c.now = listed, r.clock.Now()
	c.policy = r.withSilence(c.policy, &c.observed) // the list may have taken long, or the process have stood still
	events, err := listAlertEvents(ctx, r.cache, c.key)
	if err != nil {
		return nil, err
	}
	c.alertEvents = r.classify(&c.observed, events)
	return c, nil
}

// readWhole returns the Incident, from the quorum if the cached one is condensed. An Incident of the same name that was created
// later does not count.
func readWhole(ctx context.Context, live client.Reader, cached *v1alpha1.Incident) (*v1alpha1.Incident, error) {
	if cached == nil || !cached.Status.Condensed {
		return cached, nil
	}
	whole := &v1alpha1.Incident{}
	err := live.Get(ctx, client.ObjectKeyFromObject(cached), whole)
	if apierrors.IsNotFound(err) || err == nil && whole.UID != cached.UID {
		return nil, fmt.Errorf("%w: the Incident is gone", errStale)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the whole Incident: %w", err)
	}
	return whole, nil
}

// listAlertEvents lists the AlertEvents that have alerts of an Incident. They must not be modified.
func listAlertEvents(ctx context.Context, cache client.Reader, incident types.NamespacedName) ([]*v1alpha1.AlertEvent, error) {
	var list v1alpha1.AlertEventList
	err := cache.List(ctx, &list, client.InNamespace(incident.Namespace),
		client.MatchingFields{incidentNameIndex: incident.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("reading the AlertEvents: %w", err)
	}
	events := make([]*v1alpha1.AlertEvent, len(list.Items))
	for i := range list.Items {
		events[i] = &list.Items[i]
	}
	return events, nil
}

// classify sorts the Incident's AlertEvents by their treatment.
func (r *incidentReconciler) classify(o *observed, events []*v1alpha1.AlertEvent) alertEvents {
	copies := map[string]*v1alpha1.AlertEvent{} // by name
	for _, event := range events {
		if _, ok := fold.OriginOf(event); ok {
			copies[event.Name] = event
		}
	}
	a := alertEvents{all: events}
	for _, event := range events {
		r.place(o, event, copies, &a)
	}
	waiting := len(a.toFold)
	a.toFold = r.bisection.pick(o.key, a.toFold)
	a.more = len(a.toFold) < waiting
	if len(a.toFold) == 0 {
		a.toFold = r.bisection.dueRetries(o.key, a.quarantined, o.now)
		a.retrying = len(a.toFold) > 0
	}
	return a
}

// place enters one AlertEvent.
func (r *incidentReconciler) place(
	o *observed, event *v1alpha1.AlertEvent, copies map[string]*v1alpha1.AlertEvent, into *alertEvents,
) {
	uid := string(event.UID)
	isSettled := r.releases.isSettled(event, o.key.Name)
	switch {
	case o.exists.copied(uid, o.key):
		moved := copies[v1alpha1.QuarantineName(uid, o.key.Name)]
		switch {
		case moved == nil || isSettled:
		case fold.IsUnconfirmed(moved.Labels):
			into.unconfirmed = append(into.unconfirmed, unconfirmedCopy{event, moved})
		default:
			into.moved = append(into.moved, event)
		}
	case isCopyOfMoved(event, copies):
		into.moved = append(into.moved, event)
	case isSettled:
		into.settled = append(into.settled, event)
	case !o.exists.has(uid):
	case copies[event.Name] == event:
		into.quarantined = append(into.quarantined, event)
	case event.IsRestored():
		into.restored = append(into.restored, event)
	case r.releases.isReplay(event):
		into.replayed = append(into.replayed, event)
	case r.bisection.isDelayed(o.key, event.UID, o.now):
		into.delayed = true
	default:
		into.toFold = append(into.toFold, event)
	}
}

// isCopyOfMoved reports whether the AlertEvent is a second copy of one whose alerts of the Incident are in quarantine, as a
// late retry makes it: the same name, made by the server, with another UID. It counts nothing.
func isCopyOfMoved(event *v1alpha1.AlertEvent, copies map[string]*v1alpha1.AlertEvent) bool {
	if !v1alpha1.IsGeneratedEventName(event.Name) {
		return false
	}
	for _, moved := range copies {
		if from, ok := fold.OriginOf(moved); ok && from.Name == event.Name && from.UID != string(event.UID) {
			return true
		}
	}
	return false
}

// readPolicy returns the policy of the Incident's integration, or of the one whose alerts may create it.
func (r *incidentReconciler) readPolicy(ctx context.Context, o *observed) (fold.Policy, error) {
	policy := fold.PolicyOf(nil, r.presetWindow)
	if key := o.integration(); key.Name != "" {
		var integration v1alpha1.WebhookIntegration
		err := r.cache.Get(ctx, key, &integration, client.UnsafeDisableDeepCopy)
		switch {
		case err == nil:
			policy = fold.PolicyOf(&integration, r.presetWindow)
		case !apierrors.IsNotFound(err):
			return policy, fmt.Errorf("reading the WebhookIntegration: %w", err)
		}
	}
	if policy.AutoResolveAfter == 0 && o.incident != nil && v1alpha1.IsGeneratedKey(o.incident.Spec.DedupKey) {
		policy.AutoResolveAfter = fold.GeneratedAutoResolve // hardly any sender sends a resolve for it
	}
	return r.withSilence(policy, o), nil
}

// withSilence returns the policy with the current start of the integration's silence.
func (r *incidentReconciler) withSilence(policy fold.Policy, o *observed) fold.Policy {
	from, ok := r.listening.silentFrom(o.integration(), o.now)
	policy.SilentFrom, policy.Untrusted = from, !ok
	policy.AcceptingFrom = policy.ReadySince.Add(autoResolveGrace)
	if policy.Refusing {
		policy.AcceptingFrom = o.now
	}
	return policy
}

// silencing returns what is known about the silences in Alertmanager that cover the Incident.
func (r *incidentReconciler) silencing(incident types.NamespacedName) fold.Silencing {
	if r.silences == nil {
		return fold.Silencing{Disabled: true}
	}
	covering, known := r.silences.Silence(incident)
	return fold.Silencing{Known: known, Covering: covering}
}

// integration returns the integration that the Incident belongs to, without a name when nothing tells.
func (o *observed) integration() types.NamespacedName {
	key := types.NamespacedName{Namespace: o.key.Namespace}
	if o.incident != nil {
		key.Name = o.incident.Spec.IntegrationName
		return key
	}
	for _, event := range o.toFold {
		if event.Spec.IntegrationName != "" {
			key.Name = event.Spec.IntegrationName
			break
		}
	}
	return key
}

// decide folds the AlertEvents. A panic becomes an error, since the AlertEvents cause it.
func (o *observed) decide() (plan fold.Plan, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errUnfoldable // another value could quote the alert
			if cause, ok := v.(runtime.Error); ok {
				err = fmt.Errorf("%w: %w", errUnfoldable, cause)
			}
		}
	}()
	return fold.Decide(fold.Input{
		Name:        o.key.Name,
		Incident:    o.incident,
		Events:      o.toFold,
		Settled:     o.settled,
		Exists:      o.exists.has,
		Copied:      func(uid string) bool { return o.exists.copied(uid, o.key) },
		Unconfirmed: o.exists.unconfirmed,
		Archived:    o.archived,
		Policy:      o.policy,
		Silencing:   o.silenced,
		Now:         o.now,
	}), nil
}

// onlyRepeats reports whether the Incident is open and all alerts for it say so once more: no state changes.
func (o *observed) onlyRepeats() bool {
	if o.incident == nil || o.incident.Status.State != v1alpha1.IncidentOpen || len(o.toFold) == 0 {
		return false
	}
	for _, event := range o.toFold {
		for i := range event.Spec.Alerts {
			alert := &event.Spec.Alerts[i]
			if alert.Status != v1alpha1.AlertFiring && event.IncidentNameFor(alert) == o.key.Name {
				return false
			}
		}
	}
	return true
}

// ledgerNearlyFull reports whether more AlertEvents wait than the ledger has space for, and the space is worth a write:
// waiting would not make it more.
func (o *observed) ledgerNearlyFull() bool {
	space := v1alpha1.MaxLedger - o.ledgerUse()
	return len(o.toFold) >= space && space >= v1alpha1.MaxLedger/4
}

// ledgerUse returns how many AlertEvents in the ledger exist.
func (o *observed) ledgerUse() int {
	use := 0
	if o.incident != nil {
		for _, entry := range o.incident.Status.Ledger.Events {
			if o.exists.has(entry.UID) {
				use++
			}
		}
	}
	return use
}
