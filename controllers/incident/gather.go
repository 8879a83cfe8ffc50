package incident

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// errUnfoldable says that the fold itself failed on its input.
var errUnfoldable = errors.New("the fold failed")

// facts are all that a reconciliation decides by: the Incident and its AlertEvents as gather read them, the policy and the time.
// No decision modifies them.
type facts struct {
	alertEvents
	key       types.NamespacedName
	incident  *v1alpha1.Incident // nil when there is none
	list      *eventList         // the AlertEvents in the cache, or in the quorum list
	policy    fold.Policy
	rules     []fold.Rule
	forwarded fold.KnownForwarding
	began     time.Time     // when the reconciliation began
	lag       time.Duration // how long to wait before an Incident for which the cache is behind is read from the quorum
	now       time.Time     // by the own clock, for pauses
	apiTime   time.Time     // by the API server's, for everything else
}

// confirmed are facts whose AlertEvents are listed by a quorum list that began after the Incident was read.
type confirmed struct{ facts }

// alertEvents are the cached AlertEvents that are listed for one Incident, by their treatment.
type alertEvents struct {
	toFold     []*v1alpha1.AlertEvent
	settled    []*v1alpha1.AlertEvent // known to be folded, or to match nothing
	nextFold   time.Time              // when others, later ones than toFold, are to be folded; zero if there are none
	memoryLags bool                   // some are not yet known to this replica's memory
}

// isEmpty reports whether no AlertEvent is listed for the Incident.
func (a *alertEvents) isEmpty() bool {
	return len(a.toFold)+len(a.settled) == 0 && a.nextFold.IsZero()
}

// gather reads the Incident and then its AlertEvents from the cache, which has no Resolved Incidents. In three cases it reads the
// Incident from the API server:
//   - The cache lacks it, and there is nothing to fold: its retention may have ended.
//   - The cache lacks it, and none can be created in the namespace: the alerts of one that exists do not wait behind the limit.
//   - The cache is behind the last write, so a fold would fail, and the watch has not shown that write within writeInterval.
func (r *reconciler) gather(ctx context.Context, key types.NamespacedName) (*facts, error) {
	if r.Memory.IsCanary(key) { // the cache may have no Incidents of its namespace
		return r.gatherWith(ctx, key, nil)
	}
	incident, err := readIncident(ctx, r.cache, key, client.UnsafeDisableDeepCopy)
	if err == nil && r.writes.cacheIsBehind(key, incident) {
		if lag := r.writes.readDelay(key, r.Clock.Now()); lag > 0 {
			return &facts{key: key, incident: incident, lag: lag}, nil
		}
		incident, err = readIncident(ctx, r.live, key)
		r.tellForwarder(incident)
	}
	if err != nil {
		return nil, err
	}
	return r.gatherWith(ctx, key, incident)
}

// gatherWith is gather with an Incident that was read; nil stands for one that the cache lacks.
func (r *reconciler) gatherWith(
	ctx context.Context, key types.NamespacedName, incident *v1alpha1.Incident,
) (*facts, error) {
	now := r.Clock.Now()
	f := &facts{key: key, incident: incident, began: now, now: now, apiTime: r.Health.APITime()}
	events, err := replica.EventsOf(ctx, r.cache, key)
	if err != nil {
		return nil, err
	}
	events = slices.DeleteFunc(events, func(event *v1alpha1.AlertEvent) bool {
		_, has := r.vanished.Get(vanished{event.UID, key.Name})
		return has
	})
	f.list = newEventList(len(events))
	for _, event := range events {
		f.list.add(event)
	}
	f.alertEvents = r.classify(f, events)
	for _, source := range r.Rules {
		f.rules = append(f.rules, source.RuleFor(key))
	}
	if f.forwarded.Disabled = r.Forwarder == nil; !f.forwarded.Disabled {
		f.forwarded = r.Forwarder.Forwarding(key)
	}
	if f.incident == nil && (len(f.toFold) == 0 || r.blocked.mayExist(key)) {
		return f, r.readUncached(ctx, f)
	}
	f.policy, err = r.readPolicy(ctx, r.cache, f)
	return f, err
}

// IsDue reports whether a Resolved Incident that a sweep has read is to be folded before the next sweep: there is something to
// write, or its retention ends.
func (r *reconciler) IsDue(ctx context.Context, incident *v1alpha1.Incident) bool {
	f, err := r.gatherWith(ctx, client.ObjectKeyFromObject(incident), incident)
	if err != nil {
		return true
	}
	plan, err := r.decide(f)
	at, ok := fold.Deadline(incident, f.policy)
	if due := fold.Due(incident, &f.policy); !due.IsZero() && (!ok || due.Before(at)) {
		at, ok = due, true
	}
	return err != nil || !plan.IsIdle() || ok && at.Sub(f.apiTime) <= 2*sweep.Interval
}

// readUncached reads the Incident of the facts from the quorum, and what depends on it.
func (r *reconciler) readUncached(ctx context.Context, f *facts) (err error) {
	if f.incident, err = readIncident(ctx, r.live, f.key); err != nil {
		return err
	}
	r.tellForwarder(f.incident)
	f.policy, err = r.readPolicy(ctx, r.cache, f)
	return err
}

// readIncident reads an Incident, nil if there is none.
func readIncident(
	ctx context.Context, reader client.Reader, key types.NamespacedName, options ...client.GetOption,
) (*v1alpha1.Incident, error) {
	incident := &v1alpha1.Incident{}
	switch err := reader.Get(ctx, key, incident, options...); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Incident: %w", err)
	}
	return incident, nil
}

// confirm returns the facts by a quorum list.
func (r *reconciler) confirm(ctx context.Context, seen *facts) (*confirmed, error) {
	c := &confirmed{*seen}
	listed, err := r.lists.join(ctx, seen.key.Namespace)
	if err != nil {
		return nil, err
	}
	c.list, c.now, c.apiTime = listed, r.Clock.Now(), r.Health.APITime()
	if c.policy, err = r.confirmPolicy(ctx, c); err != nil {
		return nil, err
	}
	events, err := replica.EventsOf(ctx, r.cache, c.key)
	if err != nil {
		return nil, err
	}
	c.alertEvents = r.classify(&c.facts, events)
	if c.memoryLags {
		return nil, fmt.Errorf("%w: the memory of AlertEvents lags behind the cache", errStale)
	}
	return c, nil
}

// classify sorts the Incident's AlertEvents by their treatment. It skips second copies: the replica that detected one deletes it.
func (r *reconciler) classify(f *facts, events []*v1alpha1.AlertEvent) alertEvents {
	var a alertEvents
	var doubtful *v1alpha1.AlertEvent // the oldest one that may be a second copy
	for _, event := range events {
		isCopy, doubtfulUntil, known := r.Memory.CopyState(event.UID)
		switch {
		case queue.IsRestored(event), isCopy, !f.list.has(string(event.UID), f.key.Name):
		case r.releases.IsSettled(event, f.key.Name), isMarkedFor(event, f.key.Name):
			a.settled = append(a.settled, event)
		default:
			a.memoryLags = a.memoryLags || !known
			a.toFold = append(a.toFold, event)
			// Compare with the time before the list, not with that of now. Otherwise after a suspension the doubt would seem to be
			// over, though the list is from before, and another replica may have deleted the AlertEvent since.
			if doubtfulUntil.After(f.began) && !isFolded(f.incident, event) && (doubtful == nil || r.inCommitOrder(event, doubtful) < 0) {
				doubtful, a.nextFold = event, doubtfulUntil
			}
		}
	}
	if doubtful != nil {
		a.toFold = slices.DeleteFunc(a.toFold, func(event *v1alpha1.AlertEvent) bool { return r.inCommitOrder(event, doubtful) >= 0 })
	}
	return a
}

// isFolded reports whether the ledger of an Incident, which may be nil, has an AlertEvent: then it is no second copy.
func isFolded(incident *v1alpha1.Incident, event *v1alpha1.AlertEvent) bool {
	return incident != nil && slices.ContainsFunc(incident.Status.Ledger.Events, func(entry v1alpha1.LedgerEntry) bool {
		return entry.UID == string(event.UID)
	})
}

// isMarkedFor reports whether an AlertEvent has a mark for the Incident. The mark may be newer than the list, and than what the
// release has seen.
func isMarkedFor(event *v1alpha1.AlertEvent, incident string) bool {
	mark, ok := queue.MarkOf(event)
	return ok && mark.Settles(incident)
}

func (r *reconciler) inCommitOrder(a, b *v1alpha1.AlertEvent) int {
	order, _ := resourceversion.CompareResourceVersion(r.Memory.Version(a), r.Memory.Version(b)) // 0 for what is no version
	return order
}

// readPolicy returns the policy of the Incident's integration, or of the one whose alerts may create it.
func (r *reconciler) readPolicy(ctx context.Context, reader client.Reader, f *facts) (fold.Policy, error) {
	policy := fold.PolicyOf(nil, r.Presets)
	if key := f.integration(); key.Name != "" {
		var integration v1alpha1.WebhookIntegration
		err := reader.Get(ctx, key, &integration, client.UnsafeDisableDeepCopy)
		switch {
		case err == nil:
			policy = fold.PolicyOf(&integration, r.Presets)
			for _, feature := range r.Features {
				if err := feature.AddTo(ctx, &policy, &integration); err != nil {
					return policy, err
				}
			}
		case !apierrors.IsNotFound(err):
			return policy, fmt.Errorf("reading the WebhookIntegration: %w", err)
		default:
			if last, ok := r.retentions.Get(key); ok {
				policy.Retention, policy.RetentionKnown = last.(time.Duration), true
			}
		}
	}
	if policy.AutoResolveAfter == 0 && !policy.Absent && f.incident != nil && v1alpha1.IsGeneratedKey(f.incident.Spec.DedupKey) {
		policy.AutoResolveAfter = integrations.GeneratedAutoResolve // hardly any sender sends a resolve for it
	}
	policy.KeptTypes, policy.Rules = r.KeptTypes, append(policy.Rules, f.rules...)
	return r.withQuiet(policy, f), nil
}

// confirmPolicy returns the policy after the quorum list, which may have taken long. If the Incident is about to end for want of
// alerts, the integration is read from the quorum: another replica may have reported that it could not store one.
func (r *reconciler) confirmPolicy(ctx context.Context, c *confirmed) (fold.Policy, error) {
	policy := r.withQuiet(c.policy, &c.facts)
	if c.incident == nil || c.incident.Status.State != v1alpha1.IncidentOpen {
		return policy, nil
	}
	if at, ok := fold.Deadline(c.incident, policy); !ok || at.After(c.apiTime) {
		return policy, nil
	}
	return r.readPolicy(ctx, r.live, &c.facts)
}

// withQuiet returns the policy with the time since when the integration is quiet. That is now while nothing may end for its age.
// It is not before the Incident was created: until then it may have waited for space, and its repeats were rejected. Otherwise it
// would end as soon as it opens, and nobody would be paged.
func (r *reconciler) withQuiet(policy fold.Policy, f *facts) fold.Policy {
	from, certain := r.Health.QuietFrom(f.integration(), policy.Unavailable)
	if f.incident != nil && !fold.IsFuture(f.incident.CreationTimestamp.Time, f.apiTime) {
		from = fold.Latest(from, f.incident.CreationTimestamp.UTC())
	}
	policy.QuietFrom, policy.Uncertain = from, !certain
	if !certain || policy.Stub {
		policy.QuietFrom = f.apiTime
	}
	policy.AcceptingFrom = policy.ReadySince.Add(replica.Grace)
	if policy.NotAccepting {
		policy.AcceptingFrom = f.apiTime
	}
	return policy
}

// integration returns the integration that the Incident belongs to, without a name when nothing tells.
func (f *facts) integration() types.NamespacedName {
	key := types.NamespacedName{Namespace: f.key.Namespace}
	if f.incident != nil {
		key.Name = f.incident.Spec.IntegrationName
		return key
	}
	for _, event := range f.toFold {
		key.Name = cmp.Or(key.Name, event.Spec.IntegrationName)
	}
	return key
}

// decide folds the AlertEvents, unless the Incident is being deleted. A panic becomes an error, since the AlertEvents cause it.
func (r *reconciler) decide(f *facts) (plan fold.Plan, err error) {
	if f.incident != nil && !f.incident.DeletionTimestamp.IsZero() {
		return plan, errTerminating
	}
	defer func() {
		if v := recover(); v != nil {
			err = errUnfoldable // another value could quote the alert
			if cause, ok := v.(runtime.Error); ok {
				err = fmt.Errorf("%w: %w", errUnfoldable, cause)
			}
			err = &blockedError{reason: v1alpha1.ReasonFoldFailed, cause: err}
		}
	}()
	return r.decideFold(fold.Input{
		Name:       f.key.Name,
		Incident:   f.incident,
		Events:     f.toFold,
		Settled:    f.settled,
		HasMore:    !f.nextFold.IsZero(),
		Listing:    knownListing{f, r.Memory},
		Policy:     f.policy,
		Forwarding: f.forwarded,
		Now:        f.apiTime,

		ArchiveRequired: r.ArchiveRequired,
	}), nil
}

// hasOnlyFirings reports whether the Incident is open and every alert for it is firing. The severity may change, but no state.
func (f *facts) hasOnlyFirings() bool {
	return f.incident != nil && f.incident.Status.State == v1alpha1.IncidentOpen && len(f.toFold) > 0 &&
		!f.hasAlert(func(status v1alpha1.AlertStatus) bool { return status != v1alpha1.AlertFiring })
}

// hasAlert reports whether an alert of the Incident that is to be folded has such a status.
func (f *facts) hasAlert(isSuch func(v1alpha1.AlertStatus) bool) bool {
	for _, event := range f.toFold {
		for i := range event.Alerts {
			alert := &event.Alerts[i]
			if isSuch(alert.Status) && event.IncidentNameFor(alert) == f.key.Name {
				return true
			}
		}
	}
	return false
}

// ledgerNearlyFull reports whether the AlertEvents that wait fill the ledger, and enough of it is free to be worth a write:
// waiting would not make the write larger.
func (f *facts) ledgerNearlyFull() bool {
	space := v1alpha1.MaxLedger - f.ledgerUse()
	return len(f.toFold) >= space && space >= v1alpha1.MaxLedger/4
}

// ledgerUse returns how many AlertEvents in the ledger exist.
func (f *facts) ledgerUse() int {
	use := 0
	if f.incident != nil {
		for _, entry := range f.incident.Status.Ledger.Events {
			if f.list.has(entry.UID, f.key.Name) {
				use++
			}
		}
	}
	return use
}

// knownListing is the listing as the facts have it.
type knownListing struct {
	*facts
	memory *queue.Memory
}

// IsListed implements fold.Listing.
func (q knownListing) IsListed(uid string) bool { return q.list.has(uid, q.key.Name) }

// Version implements fold.Listing.
func (q knownListing) Version(event *v1alpha1.AlertEvent) string { return q.memory.Version(event) }
