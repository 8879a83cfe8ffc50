package incident

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/admission"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// createOrRead returns the facts with the Incident that the cache lacks, if there is one: a new one if it is to be
// opened, or the one that exists. That one is found also where none can be created.
func (r *reconciler) createOrRead(
	ctx context.Context, seen *facts, provisional *fold.Plan,
) (_ *facts, created bool, err error) {
	f := *seen
	if provisional.Create != nil {
		if f.incident, err = r.create(ctx, seen, provisional); f.incident != nil {
			return &f, true, nil
		}
		if blocked := (*blockedError)(nil); err != nil && !errors.As(err, &blocked) {
			return seen, false, err
		}
	}
	if failed := r.readUncached(ctx, &f); failed != nil {
		return seen, false, failed
	}
	if f.incident == nil && err != nil {
		return seen, false, err
	}
	return &f, false, nil
}

// create creates the Incident, its status still empty. It returns nil if there is one already: a Resolved one, or one that the
// cache does not show yet.
func (r *reconciler) create(ctx context.Context, f *facts, plan *fold.Plan) (*v1alpha1.Incident, error) {
	leave, err := r.gate.enter(ctx, f.key.Namespace, true)
	if err != nil {
		return nil, err
	}
	defer leave()
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name, Labels: plan.ObjectLabels},
		Spec:       *plan.Create,
	}
	err = errIncidentLimit
	if r.counts.MayOpen(f.key.Namespace) && !r.sweeper.IsFull(f.key.Namespace) {
		err = r.createLabelled(ctx, incident)
	}
	switch blocked := asBlocked(err); {
	case blocked != nil && blocked.isOfNamespace():
		return nil, blocked
	case blocked != nil:
		r.wakeAll(f.key.Namespace, r.blocked.passOn(f.key))
		return nil, blocked
	case apierrors.IsAlreadyExists(err):
		r.wakeAll(f.key.Namespace, r.blocked.passOn(f.key))
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("creating the Incident: %w", err)
	}
	r.wakeAll(f.key.Namespace, r.blocked.unblock(f.key))
	r.writes.wrote(incident, f.now)
	return incident, nil
}

// wakeAll has Incidents of a namespace folded that can be created again.
func (r *reconciler) wakeAll(namespace string, names []string) {
	for _, name := range names {
		r.wake(types.NamespacedName{Namespace: namespace, Name: name})
	}
}

// createLabelled creates an Incident, without its labels if the API server rejects it with them.
func (r *reconciler) createLabelled(ctx context.Context, incident *v1alpha1.Incident) error {
	err := r.live.Create(ctx, incident)
	blocked := asBlocked(err)
	if blocked == nil || blocked.reason != v1alpha1.ReasonIncidentRejected || len(incident.Labels) == 0 || !isRejected(err) {
		return err
	}
	log.FromContext(ctx).Info("The Incident was rejected, creating it without labels", "rejection", err.Error())
	incident.Labels = nil
	return r.live.Create(ctx, incident)
}

// carryOut carries a plan out, and returns the Incident as it is then. After errStale the next fold sees everything that
// was done.
func (r *reconciler) carryOut(ctx context.Context, c *confirmed, plan fold.Plan) (*v1alpha1.Incident, error) {
	// An automatic resolve is not urgent: thousands of them may come at once.
	leave, err := r.gate.enter(ctx, r.Memory.Turn(c.key).Namespace, plan.Urgent && len(plan.Results) > 0)
	if err != nil {
		return nil, err
	}
	defer leave()
	if plan.Unmatched {
		if err := r.confirmAbsence(ctx, c); err != nil {
			return nil, err
		}
	}
	if plan.ByTime { // a stored alert may end the quiet, or repeat the acknowledgement
		if err := r.requireShown(ctx, c, nil); err != nil {
			return nil, err
		}
	}
	incident := c.incident
	if plan.Write {
		if incident, err = r.writePlan(ctx, r.label(ctx, incident, plan.ObjectLabels), &c.policy, &plan); err != nil {
			return nil, err
		}
		r.announce(ctx, incident, plan)
	}
	if !r.Memory.IsCanary(c.key) {
		r.reportUnknown(ctx, c, &plan)
		foldDuration.Observe(r.Clock.Now().Sub(c.began).Seconds())
		observeFold(plan.Results, r.Health.APITime())
	}
	return incident, nil
}

// noSpace is why the content of alerts is not kept.
const noSpace = "The namespace has more than its share of content in Incidents that are not Resolved"

// writePlan writes the status of a plan or, if the API server rejects that or the namespace has no space for it, one without
// content, which becomes the plan's.
func (r *reconciler) writePlan(
	ctx context.Context, read *v1alpha1.Incident, policy *fold.Policy, plan *fold.Plan,
) (*v1alpha1.Incident, error) {
	if !r.counts.Fits(read, &plan.Status) {
		*plan = plan.WithoutContent(&read.Status, policy, noSpace, r.Health.APITime())
	}
	written, err := r.write(ctx, read, plan.Status)
	if isRejected(err) && !isMissingPermission(err) {
		log.FromContext(ctx).Info("The status was rejected, writing it without content", "rejection", err.Error())
		*plan = plan.WithoutContent(
			&read.Status, policy, "The API server rejected the content: "+rejectionOf(err), r.Health.APITime())
		written, err = r.write(ctx, read, plan.Status)
	}
	switch webhook := failedWebhook(err); {
	case webhook != "":
		return nil, &blockedError{reason: v1alpha1.ReasonIncidentRejected, detail: webhook, cause: err}
	case isRejected(err):
		return nil, &blockedError{reason: v1alpha1.ReasonIncidentRejected, detail: rejectionOf(err), cause: err}
	}
	return written, err
}

// write writes the status over exactly the Incident that was read: its UID and resourceVersion go along.
// Together with the ledger in the status, that makes the fold exactly-once.
func (r *reconciler) write(
	ctx context.Context, read *v1alpha1.Incident, status v1alpha1.IncidentStatus,
) (*v1alpha1.Incident, error) {
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       read.Namespace,
			Name:            read.Name,
			UID:             read.UID,
			ResourceVersion: read.ResourceVersion,
		},
		Spec:   read.Spec,
		Status: status,
	}
	err := r.live.Status().Update(ctx, incident) // which decodes the answer into it
	if admission.IsOutdated(err) {
		r.writes.conflicted(read, r.Clock.Now())
		return nil, fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the Incident's status: %w", err)
	}
	r.writes.wrote(incident, r.Clock.Now())
	r.sweeper.NoteWritten(read, incident)
	r.tellForwarder(incident)
	return incident, nil
}

// tellForwarder tells the forwarding of an Incident as it was written or read from the API server, unless it is nil.
func (r *reconciler) tellForwarder(incident *v1alpha1.Incident) {
	if r.Forwarder != nil && incident != nil {
		r.Forwarder.Observe(incident)
	}
}

// confirmAbsence makes sure that an alert which matches no Incident really has none: the quorum knows no
// other Incident than the cache, and the cache lacks no older AlertEvent that may be the one to create it.
func (r *reconciler) confirmAbsence(ctx context.Context, c *confirmed) error {
	incident, err := readIncident(ctx, r.live, c.key)
	switch {
	case err != nil:
		return err
	case incident == nil && c.incident != nil:
		return fmt.Errorf("%w: the Incident is gone", errStale)
	case incident != nil && (c.incident == nil || c.incident.ResourceVersion != incident.ResourceVersion):
		return fmt.Errorf("%w: there is a newer Incident", errStale)
	}
	// A cache that lists anew can show a newer object before an older one.
	return r.requireShown(ctx, c, slices.MaxFunc(c.toFold, r.inCommitOrder))
}

// requireShown fails with errNotCached if the fold may have lacked an AlertEvent. The quorum list has one in the namespace that
// is not settled for the Incident, and that the watch has not shown, or only as a stub; if newest is not nil, it must be older
// than that. Or the cache shows one to fold that it did not show when the fold was decided. For a canary, all namespaces count:
// so it is not settled while a watch stalls, or has lost an AlertEvent.
func (r *reconciler) requireShown(ctx context.Context, c *confirmed, newest *v1alpha1.AlertEvent) error {
	namespaces := c.key.Namespace
	if r.Memory.IsCanary(c.key) {
		namespaces = metav1.NamespaceAll
	}
	hasShown := func(event queue.Ref) bool { return r.Memory.HasShown(event, c.began) }
	for _, event := range c.list.notShown(namespaces, hasShown) {
		if r.Memory.IsCanary(c.key) && (r.Memory.HasStub(event.ref.UID) || r.counts.Hides(event.ref.Namespace)) {
			continue // the watch works, and no such AlertEvent has an alert that the canary must follow
		}
		if !event.marked.Has(c.key.Name) && (newest == nil || r.isOlder(&event, newest)) {
			return errNotCached
		}
	}
	events, err := replica.EventsOf(ctx, r.cache, c.key)
	if err != nil {
		return err
	}
	decided := sets.New[types.UID]()
	for _, event := range c.toFold {
		decided.Insert(event.UID)
	}
	for _, event := range r.classify(&c.facts, events).toFold {
		if !decided.Has(event.UID) {
			return errNotCached
		}
	}
	return nil
}

// isOlder reports whether a stored AlertEvent may come before another one in commit order. An update of its metadata has
// given it a newer resourceVersion, but leaves the time of its creation.
func (r *reconciler) isOlder(stored *storedEvent, than *v1alpha1.AlertEvent) bool {
	return queue.NewerVersion(r.Memory.Version(than), stored.resourceVersion) ||
		stored.created.Time.Before(than.CreationTimestamp.Truncate(time.Second))
}

// announce reports the transitions, now that they are written. In a storm most of them are in the timelines only.
func (r *reconciler) announce(ctx context.Context, incident *v1alpha1.Incident, plan fold.Plan) {
	logger := log.FromContext(ctx).WithValues("integration", incident.Spec.IntegrationName)
	episodesOmitted.Add(float64(plan.Omitted))
	for i := range plan.Transitions {
		transition := &plan.Transitions[i]
		line := logger
		if opens(transition.Type) {
			line = line.WithValues("title", plaintext.OneLine(incident.Status.Alert.Title, maxLoggedTitle, maxLoggedTitle))
		}
		if r.notices.TryAccept() {
			emit(r.recorder, incident, transition)
		} else {
			line = line.V(1)
		}
		line.Info("Incident changed", "transition", transition.Type, "state", incident.Status.State,
			"severity", incident.Status.Alert.Severity, "alerts", incident.Status.AlertCount)
	}
}

// reportUnknown tells of alerts that have nothing but the name of an Incident, which does not exist: a person has mistyped it.
// Senders, whose alerts have keys, resolve again and again what is not open, and need not hear of it.
func (r *reconciler) reportUnknown(ctx context.Context, c *confirmed, plan *fold.Plan) {
	if !plan.Unmatched || c.incident != nil {
		return
	}
	for _, event := range c.toFold {
		named := slices.ContainsFunc(event.Alerts, func(a v1alpha1.Alert) bool {
			return a.IncidentName == c.key.Name && a.DedupKey == ""
		})
		if !named || !r.notices.TryAccept() {
			continue
		}
		log.FromContext(ctx).Info("An AlertEvent is for an Incident that does not exist, and has no effect", "event", event.Name)
		r.recorder.Eventf(event, nil, corev1.EventTypeWarning, reasonNoIncident, "Fold",
			"No Incident is named %s: the alerts for it have no effect.", c.key.Name)
	}
}

// labelTimeout bounds how long a fold waits for the labels of its Incident, which an admission webhook may delay.
const labelTimeout = 5 * time.Second

// label sets the labels of an episode that begins, and returns the Incident as it is then; nil labels change nothing. It comes
// before the status: after a crash in between, the next fold begins the episode again and finds the labels. The patch succeeds
// only on the Incident that was read, so the status may be written over its result. If it fails, the fold goes on without it.
func (r *reconciler) label(
	ctx context.Context, read *v1alpha1.Incident, labels map[string]string,
) *v1alpha1.Incident {
	if labels == nil {
		return read
	}
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	labelled, err := r.patchLabels(ctx, read, labels)
	switch {
	case err == nil:
		return labelled
	case admission.IsOutdated(err): // and so will the write of the status
	default:
		log.FromContext(ctx).Info("The labels of the Incident are not set", "cause", err.Error())
	}
	return read
}

func (r *reconciler) patchLabels(
	ctx context.Context, read *v1alpha1.Incident, labels map[string]string,
) (*v1alpha1.Incident, error) {
	has := read.Labels
	if read.Status.State == v1alpha1.IncidentOpen { // it is from the cache, which has no labels
		stored, err := readIncident(ctx, r.live, client.ObjectKeyFromObject(read))
		if err != nil {
			return nil, err
		}
		if stored == nil || stored.ResourceVersion != read.ResourceVersion {
			return read, nil // the write of the status will conflict
		}
		has = stored.Labels
	}
	wanted := withLabels(has, labels)
	if maps.Equal(has, wanted) {
		return read, nil
	}
	before := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{
		Namespace: read.Namespace, Name: read.Name, ResourceVersion: read.ResourceVersion, Labels: has,
	}}
	answer := before.DeepCopy()
	answer.UID, answer.Labels = read.UID, wanted // with the UID, the patch fails on another object of the name
	if err := r.live.Patch(ctx, answer, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("patching labels: %w", err)
	}
	labelled := *read
	labelled.ResourceVersion = answer.ResourceVersion
	return &labelled, nil
}

// withLabels returns the labels of an Incident with those that begin with AlertLabelPrefix replaced: the others are not ours.
func withLabels(has, wanted map[string]string) map[string]string {
	labels := maps.Clone(wanted)
	for key, value := range has {
		if !strings.HasPrefix(key, v1alpha1.AlertLabelPrefix) {
			labels[key] = value
		}
	}
	return labels
}
