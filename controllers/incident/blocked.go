package incident

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// minBlockedRetry and maxBlockedRetry bound the time until an Incident that cannot be written is tried again, and the
	// creation of one in a namespace where none can be created; there, one Incident tries for all of the namespace.
	minBlockedRetry = time.Second
	maxBlockedRetry = 30 * time.Second

	// namedIncidents is how many of the Incidents that cannot be written a condition names.
	namedIncidents = 3

	// blockedGrace is how long a new leader keeps the conditions of integrations in namespaces in which no Incident could
	// be created, until it has tried itself.
	blockedGrace = time.Minute
)

// blockedError says that an Incident cannot be created or written, for a reason that may pass.
type blockedError struct {
	reason string // of the condition AlertsFolded
	detail string // the ResourceQuota, or who rejects the Incident
	cause  error
}

func (e *blockedError) Error() string { return e.reason + ": " + e.cause.Error() }

func (e *blockedError) Unwrap() error { return e.cause }

// isOfNamespace reports whether the reason concerns all new Incidents of the namespace.
func (e *blockedError) isOfNamespace() bool {
	switch e.reason {
	case v1alpha1.ReasonIncidentRejected, v1alpha1.ReasonIncidentTerminating, v1alpha1.ReasonFoldFailed:
		return false
	}
	return true
}

var (
	errIncidentLimit = errors.New("the namespace has as many Incidents as it may have")
	errTerminating   = errors.New("the Incident is being deleted")
)

// asBlocked returns the blockedError that the failure of a create stands for, nil when it may succeed at once.
func asBlocked(err error) *blockedError {
	switch {
	case errors.Is(err, errIncidentLimit):
		return &blockedError{reason: v1alpha1.ReasonIncidentLimit, cause: err}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &blockedError{reason: v1alpha1.ReasonNamespaceTerminating, cause: err}
	case !isRejected(err):
		return nil
	case isMissingPermission(err):
		return &blockedError{reason: v1alpha1.ReasonForbidden, cause: err}
	}
	// The API server gives it no reason of its own.
	if _, words, ok := strings.Cut(err.Error(), "exceeded quota: "); ok && apierrors.IsForbidden(err) {
		quota, _, _ := strings.Cut(words, ",")
		return &blockedError{reason: v1alpha1.ReasonQuotaExceeded, detail: quota, cause: err}
	}
	return &blockedError{reason: v1alpha1.ReasonIncidentRejected, detail: rejectionOf(err), cause: err}
}

// isRejected reports whether the API server, a policy or a webhook has rejected what was written.
func isRejected(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsForbidden(err)
}

// isMissingPermission reports whether the operator lacks a permission. The API server gives it no reason of its own.
func isMissingPermission(err error) bool {
	return apierrors.IsForbidden(err) &&
		(strings.Contains(err.Error(), "cannot create resource") || strings.Contains(err.Error(), "cannot update resource"))
}

// rejectionOf names the policy or webhook that rejected a write, or else the kind of the error. It has nothing of the alerts
// and does not change, other than the error's message.
func rejectionOf(err error) string {
	if words, _, ok := strings.Cut(err.Error(), " denied "); ok {
		for _, rejecter := range []string{"ValidatingAdmissionPolicy ", "admission webhook "} {
			if at := strings.LastIndex(words, rejecter); at >= 0 {
				return plaintext.ShortMessage(words[at:])
			}
		}
	}
	return string(apierrors.ReasonForError(err))
}

// message explains the reason, in words that do not change while it applies. The names are those of the Incidents that it
// concerns, sorted, for a reason that is not of the namespace.
func (e *blockedError) message(names []string) string {
	const wait = " Alerts that need one wait, and posts of such alerts get 503."
	const others = "; their alerts wait, and those of other Incidents do not."
	incidents := strings.Join(names[:min(len(names), namedIncidents)], ", ")
	if len(names) > namedIncidents {
		incidents += " and others"
	}
	switch e.reason {
	case v1alpha1.ReasonQuotaExceeded:
		return fmt.Sprintf("The ResourceQuota %s rejects new Incidents.", e.detail) + wait
	case v1alpha1.ReasonForbidden:
		return "The operator may not create Incidents in this namespace." + wait
	case v1alpha1.ReasonNamespaceTerminating:
		return "The namespace is being deleted and takes no new Incidents."
	case v1alpha1.ReasonIncidentRejected:
		return fmt.Sprintf("Incidents are rejected (%s): %s", e.detail, incidents) + others
	case v1alpha1.ReasonFoldFailed:
		return "The fold fails on the alerts of Incidents: " + incidents + others
	case v1alpha1.ReasonIncidentTerminating:
		return "Incidents are being deleted, and finalizers keep them: " + incidents + others
	default:
		return "The namespace has as many Incidents as it may have." + wait
	}
}

// Blocked records the Incidents that cannot be written. Each of them waits by itself, with increasing delays, and
// none else does. Where no Incident can be created, one of the namespace tries at a time: thousands of alerts with new keys
// cost the API server no more than one, and delay no other fold. After the first success all of them try.
type Blocked struct {
	clock   replica.Clock
	started time.Time // when this process became the leader

	mu         sync.Mutex
	namespaces map[string]*blockedNamespace
	incidents  map[string]map[string]*blockedIncident // by namespace and name, those that wait for a reason of their own
	tried      map[string]struct{}                    // namespaces in which this leader has tried
	changed    chan struct{}                          // has something when the reasons have changed
}

// blockedIncident is the state of one that waits for a reason of its own.
type blockedIncident struct {
	cause    *blockedError
	failures int
	retryAt  time.Time
}

// blockedNamespace is the state of one of them.
type blockedNamespace struct {
	cause    *blockedError
	failures int
	retryAt  time.Time
	probe    string              // the Incident that tries
	waiting  map[string]struct{} // names of Incidents
}

func newBlocked(clock replica.Clock) *Blocked {
	return &Blocked{
		clock: clock, started: clock.Now(),
		namespaces: map[string]*blockedNamespace{}, incidents: map[string]map[string]*blockedIncident{},
		tried: map[string]struct{}{}, changed: make(chan struct{}, 1),
	}
}

// waitToCreate returns how long the creation of an Incident waits. At zero it is to be tried, and no other of the
// namespace is until the outcome is known or as much time has passed again.
func (b *Blocked) waitToCreate(key types.NamespacedName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.namespaces[key.Namespace]
	if found == nil {
		return 0
	}
	found.waiting[key.Name] = struct{}{}
	if wait := found.retryAt.Sub(now); wait > 0 {
		return wait
	}
	found.probe = key.Name
	found.retryAt = now.Add(blockedPause(found.failures))
	return 0
}

// blockedPause is how long to wait after so many failures.
func blockedPause(failures int) time.Duration {
	return min(minBlockedRetry<<min(failures-1, 10), maxBlockedRetry)
}

// block notes that an Incident could not be written, and returns how long to wait. first says that it, or its namespace, was
// not blocked, or for another reason.
func (b *Blocked) block(key types.NamespacedName, cause *blockedError, now time.Time) (wait time.Duration, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !cause.isOfNamespace() {
		return b.blockOne(key, cause, now)
	}
	b.leave(key)
	b.tried[key.Namespace] = struct{}{}
	found := b.namespaces[key.Namespace]
	first = found == nil || found.cause.reason != cause.reason
	if found == nil {
		found = &blockedNamespace{probe: key.Name, waiting: map[string]struct{}{}}
		b.namespaces[key.Namespace] = found
	}
	if first {
		found.cause = cause
		b.signal()
	}
	found.waiting[key.Name] = struct{}{}
	if found.probe == key.Name { // others were under way when the first one failed
		found.probe = ""
		found.failures++
		found.retryAt = now.Add(blockedPause(found.failures))
	}
	return max(staleRetry, found.retryAt.Sub(now)), first
}

// blockOne is block for a reason that concerns this Incident alone.
func (b *Blocked) blockOne(
	key types.NamespacedName, cause *blockedError, now time.Time,
) (wait time.Duration, first bool) {
	b.leaveNamespace(key)
	names := b.incidents[key.Namespace]
	if names == nil {
		names = map[string]*blockedIncident{}
		b.incidents[key.Namespace] = names
	}
	found := names[key.Name]
	first = found == nil || found.cause.reason != cause.reason
	if found == nil {
		found = &blockedIncident{}
		names[key.Name] = found
	}
	if first {
		b.signal()
	}
	found.cause = cause
	found.failures++
	wait = blockedPause(found.failures)
	found.retryAt = now.Add(wait)
	return wait, first
}

// remaining returns how long an Incident waits that could not be written for a reason of its own.
func (b *Blocked) remaining(key types.NamespacedName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found := b.incidents[key.Namespace][key.Name]; found != nil {
		return max(0, found.retryAt.Sub(now))
	}
	return 0
}

// isWaiting reports whether alerts wait because the Incident cannot be written.
func (b *Blocked) isWaiting(key types.NamespacedName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.incidents[key.Namespace][key.Name] != nil || b.waitsInNamespace(key)
}

// waitsToBeCreated reports whether alerts wait because no Incident can be created in the namespace.
func (b *Blocked) waitsToBeCreated(key types.NamespacedName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waitsInNamespace(key)
}

func (b *Blocked) waitsInNamespace(key types.NamespacedName) bool {
	found := b.namespaces[key.Namespace]
	if found == nil {
		return false
	}
	_, waiting := found.waiting[key.Name]
	return waiting
}

// unblock notes that an Incident was created.
func (b *Blocked) unblock(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tried[namespace] = struct{}{}
	if b.namespaces[namespace] != nil {
		delete(b.namespaces, namespace)
		b.signal()
	}
}

// forget notes that an Incident was written, or need not be any more.
func (b *Blocked) forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(key)
	b.leaveNamespace(key)
}

// retryNow lets an Incident be written without a wait for a reason of its own.
func (b *Blocked) retryNow(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(key)
}

// leave ends the wait of an Incident for a reason of its own.
func (b *Blocked) leave(key types.NamespacedName) {
	names := b.incidents[key.Namespace]
	if names[key.Name] == nil {
		return
	}
	delete(names, key.Name)
	if len(names) == 0 {
		delete(b.incidents, key.Namespace)
	}
	b.signal()
}

// leaveNamespace ends the wait of an Incident for its namespace.
func (b *Blocked) leaveNamespace(key types.NamespacedName) {
	found := b.namespaces[key.Namespace]
	if found == nil {
		return
	}
	delete(found.waiting, key.Name)
	if len(found.waiting) == 0 {
		delete(b.namespaces, key.Namespace)
		b.signal()
	}
}

func (b *Blocked) signal() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// cause returns why the namespace is blocked, nil when it is not.
func (b *Blocked) cause(namespace string) *blockedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found := b.namespaces[namespace]; found != nil {
		return found.cause
	}
	return nil
}

// own returns why Incidents of an integration wait for reasons of their own, nil if none does: the first reason by name, and
// the Incidents for which it is the same, sorted.
func (b *Blocked) own(integration types.NamespacedName) (cause *blockedError, names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, found := range b.incidents[integration.Namespace] {
		if !v1alpha1.IsIncidentName(name, integration.Name) {
			continue
		}
		order := -1
		if cause != nil {
			order = cmp.Or(cmp.Compare(found.cause.reason, cause.reason), cmp.Compare(found.cause.detail, cause.detail))
		}
		if order < 0 {
			cause, names = found.cause, nil
		}
		if order <= 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return cause, names
}

// Changed has something when a Condition may have changed.
func (b *Blocked) Changed() <-chan struct{} { return b.changed }

// Condition returns the condition AlertsFolded of an integration, as far as Incidents cannot be written. It is not ok as long as
// the findings of this leader's predecessor apply.
func (b *Blocked) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	cause := b.cause(integration.Namespace)
	if cause == nil && integrations.Blocked(integration) != "" && !b.knows(integration.Namespace) {
		return condition, false
	}
	var names []string
	if cause == nil {
		cause, names = b.own(client.ObjectKeyFromObject(integration))
	}
	condition = metav1.Condition{
		Type: v1alpha1.ConditionAlertsFolded, Status: metav1.ConditionTrue, ObservedGeneration: integration.Generation,
		Reason: v1alpha1.ReasonFolding, Message: "Stored alerts become part of their Incidents.",
	}
	if cause != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, cause.reason, cause.message(names)
	}
	return condition, true
}

// knows reports whether this leader has tried to create an Incident in the namespace, or has had the time to. Before,
// the findings of its predecessor apply.
func (b *Blocked) knows(namespace string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, tried := b.tried[namespace]
	return tried || b.clock.Now().Sub(b.started) >= blockedGrace
}
