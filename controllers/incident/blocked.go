package incident

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/admission"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// minBlockedRetry and maxBlockedRetry bound the time until an Incident that cannot be written is tried again, and the
	// creation of one in a namespace where none can be created; there, one Incident tries for all of the namespace.
	minBlockedRetry = time.Second
	maxBlockedRetry = 30 * time.Second

	// wokenByOne is how many of those that wait for a namespace try at once after each success: few fail in vain if there is
	// room for few, and all have tried soon if there is room for all.
	wokenByOne = 2

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

// These messages explain the reasons, in words that do not change while they apply. %s is the detail.
const newOnesWait = " Alerts that need one wait, and posts of such alerts get 503."

var (
	namespaceMessages = map[string]string{
		v1alpha1.ReasonQuotaExceeded:        "The ResourceQuota %s rejects new Incidents." + newOnesWait,
		v1alpha1.ReasonForbidden:            "The operator may not create Incidents in this namespace." + newOnesWait,
		v1alpha1.ReasonNamespaceTerminating: "The namespace is being deleted and takes no new Incidents.",
		v1alpha1.ReasonIncidentLimit:        "The namespace has as many Incidents as it may have." + newOnesWait,
	}
	incidentMessages = map[string]string{
		v1alpha1.ReasonIncidentRejected:    "Incidents are rejected (%s): ",
		v1alpha1.ReasonFoldFailed:          "The fold fails on the alerts of Incidents: ",
		v1alpha1.ReasonIncidentTerminating: "Incidents are being deleted, and finalizers keep them: ",
	}
)

// isOfNamespace reports whether the reason concerns all new Incidents of the namespace.
func (e *blockedError) isOfNamespace() bool { return namespaceMessages[e.reason] != "" }

// message explains the reason. The names are those of the Incidents that it concerns, sorted, if it is not of the namespace.
func (e *blockedError) message(names []string) string {
	message := strings.Replace(namespaceMessages[e.reason]+incidentMessages[e.reason], "%s", e.detail, 1)
	if e.isOfNamespace() {
		return message
	}
	message += strings.Join(names[:min(len(names), namedIncidents)], ", ")
	if len(names) > namedIncidents {
		message += " and others"
	}
	return message + "; their alerts wait, and those of other Incidents do not."
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
	case failedWebhook(err) != "":
		return &blockedError{reason: v1alpha1.ReasonIncidentRejected, detail: failedWebhook(err), cause: err}
	case !isRejected(err):
		return nil
	case isMissingPermission(err):
		return &blockedError{reason: v1alpha1.ReasonForbidden, cause: err}
	}
	if quota, ok := admission.Quota(err); ok {
		return &blockedError{reason: v1alpha1.ReasonQuotaExceeded, detail: quota, cause: err}
	}
	return &blockedError{reason: v1alpha1.ReasonIncidentRejected, detail: rejectionOf(err), cause: err}
}

// isRejected reports whether the API server, a policy or a webhook has rejected what was written.
func isRejected(err error) bool {
	return admission.IsDenied(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsForbidden(err)
}

// failedWebhook names the admission webhook that is away or hangs, if that is why a write failed. It may be so for good.
func failedWebhook(err error) string {
	name := admission.UnreachableWebhook(err)
	if name == "" || !apierrors.IsInternalError(err) {
		return ""
	}
	return plaintext.ShortMessage("failed calling webhook " + name)
}

// isMissingPermission reports whether the operator lacks a permission. The API server gives it no reason of its own.
func isMissingPermission(err error) bool {
	return apierrors.IsForbidden(err) && !admission.IsDenied(err) &&
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

// Blocked records the Incidents that cannot be written, and the namespaces in which none can be created. Each Incident is
// tried again by itself, with increasing delays, and delays no other one. Of those that cannot be created, one tries at a time
// for all of the namespace: thousands of alerts with new keys cost the API server no more than one. After its success some of
// them are woken, and others after each success of these, or after an attempt that tells nothing; all that come may try, until
// one fails again.
type Blocked struct {
	clock   replica.Clock
	started time.Time // when this process became the leader

	mu        sync.Mutex
	obstacles map[types.NamespacedName]map[string]*obstacle // see obstaclesKey; by name, ofNamespace: of those to be created
	tried     sets.Set[string]                              // namespaces in which this leader has tried to create an Incident
}

// ofNamespace is the name of the obstacle to those that are to be created.
const ofNamespace = ""

// obstacle is why Incidents cannot be written, and until when they are not tried again.
type obstacle struct {
	cause    *blockedError
	failures int
	retryAt  time.Time
	trying   string           // name of the Incident that may try now
	blocked  sets.Set[string] // names of Incidents
	isLifted bool             // one was created since the last failure; blocked are those that have not been woken
}

func newBlocked(clock replica.Clock) *Blocked {
	return &Blocked{
		clock: clock, started: clock.Now(), obstacles: map[types.NamespacedName]map[string]*obstacle{}, tried: sets.New[string](),
	}
}

// obstaclesKey returns the key of the obstacles that have this one: those of an integration are together, so that its condition
// does not depend on how many others there are.
func obstaclesKey(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: v1alpha1.IntegrationOf(name)}
}

// obstacle returns that of an Incident, or for ofNamespace of those that are to be created; nil if there is none.
func (b *Blocked) obstacle(namespace, of string) *obstacle {
	if found := b.obstacles[obstaclesKey(namespace, of)][of]; found != nil && !found.isLifted {
		return found
	}
	return nil
}

// delay returns how long not to try an Incident for a reason of its own, or ofNamespace its creation. At zero it is to be tried,
// and no other with the same obstacle is until the outcome is known or as much time has passed again.
func (b *Blocked) delay(key types.NamespacedName, of string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.obstacle(key.Namespace, of)
	if found == nil {
		return 0
	}
	found.blocked.Insert(key.Name)
	if found.trying != key.Name {
		if left := found.retryAt.Sub(now); left > 0 {
			return left
		}
		found.trying, found.retryAt = key.Name, now.Add(found.pause())
	}
	return 0
}

// pause is how long nothing is tried after the failures so far.
func (o *obstacle) pause() time.Duration {
	return min(minBlockedRetry<<min(o.failures-1, 10), maxBlockedRetry)
}

// block notes that an Incident could not be written, and returns when to try again. first says that it, or its namespace, was
// not blocked, or for another reason.
func (b *Blocked) block(key types.NamespacedName, cause *blockedError, now time.Time) (left time.Duration, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of, other := key.Name, ofNamespace
	if cause.isOfNamespace() {
		of, other = ofNamespace, key.Name
		b.tried.Insert(key.Namespace)
	}
	b.leave(key, other)
	in := obstaclesKey(key.Namespace, of)
	found := b.obstacles[in][of]
	if found == nil {
		found = &obstacle{isLifted: true, blocked: sets.New[string]()}
		if b.obstacles[in] == nil {
			b.obstacles[in] = map[string]*obstacle{}
		}
		b.obstacles[in][of] = found
	}
	if first = found.isLifted || found.cause.reason != cause.reason; found.isLifted {
		found.isLifted, found.trying, found.failures = false, key.Name, 0
	}
	found.cause = cause
	found.blocked.Insert(key.Name)
	if of == key.Name || found.trying == key.Name { // others of a namespace were under way when the first one failed
		found.trying = ""
		found.failures++
		found.retryAt = now.Add(found.pause())
	}
	return max(staleRetry, found.retryAt.Sub(now)), first
}

// has reports whether the Incident cannot be written.
func (b *Blocked) has(key types.NamespacedName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ofAll := b.obstacle(key.Namespace, ofNamespace)
	return b.obstacle(key.Namespace, key.Name) != nil || ofAll != nil && ofAll.blocked.Has(key.Name)
}

// mayExist reports whether no Incident can be created in the namespace, but this one is not known to be missing: it may exist.
func (b *Blocked) mayExist(key types.NamespacedName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.obstacle(key.Namespace, ofNamespace)
	return found != nil && !found.blocked.Has(key.Name)
}

// unblock notes that an Incident was created, and returns the names of those that are to try next.
func (b *Blocked) unblock(key types.NamespacedName) (woken []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tried.Insert(key.Namespace)
	found := b.obstacles[obstaclesKey(key.Namespace, ofNamespace)][ofNamespace]
	if found == nil {
		return nil
	}
	found.isLifted = true
	return b.takeOut(key, found, wokenByOne)
}

// passOn notes that an attempt to create an Incident tells nothing of the others, as it exists or is rejected for a reason of its
// own. It returns the name of the one that is to try instead, or none if none waits, or after a failure since the last success.
func (b *Blocked) passOn(key types.NamespacedName) (woken []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.obstacles[obstaclesKey(key.Namespace, ofNamespace)][ofNamespace]
	if found == nil || !found.isLifted {
		return nil
	}
	return b.takeOut(key, found, 1)
}

// takeOut takes an Incident out of those that wait for the namespace, and so many others, whose names it returns.
func (b *Blocked) takeOut(key types.NamespacedName, found *obstacle, others int) (taken []string) {
	for name := range found.blocked {
		if name != key.Name && len(taken) < others {
			taken = append(taken, name)
		}
	}
	for _, name := range append(taken, key.Name) {
		b.leave(types.NamespacedName{Namespace: key.Namespace, Name: name}, ofNamespace)
	}
	return taken
}

// forget notes that an Incident was written, or need not be any more.
func (b *Blocked) forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(key, key.Name)
	b.leave(key, ofNamespace)
}

// leave takes an Incident from an obstacle, which is gone with the last one.
func (b *Blocked) leave(key types.NamespacedName, of string) {
	in := obstaclesKey(key.Namespace, of)
	obstacles := b.obstacles[in]
	if obstacles[of] == nil {
		return
	}
	if obstacles[of].blocked.Delete(key.Name); obstacles[of].blocked.Len() == 0 {
		delete(obstacles, of)
	}
	if len(obstacles) == 0 {
		delete(b.obstacles, in)
	}
}

// Condition returns the condition AlertsFolded of an integration, as far as Incidents cannot be written. It is not ok as long as
// the findings of this leader's predecessor apply: until this one has tried to create an Incident, or has had the time to.
func (b *Blocked) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cause, names := b.own(client.ObjectKeyFromObject(integration))
	if found := b.obstacle(integration.Namespace, ofNamespace); found != nil {
		cause = found.cause
	} else if integrations.Blocked(integration) != "" && !b.tried.Has(integration.Namespace) &&
		b.clock.Now().Sub(b.started) < blockedGrace {
		return condition, false
	}
	condition = metav1.Condition{
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFolding, Message: "Stored alerts become part of their Incidents.",
	}
	if cause != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, cause.reason, cause.message(names)
	}
	return condition, true
}

// own returns why Incidents of an integration cannot be written for reasons of their own, nil if all can: the reason of the first
// one by name, and all for which it is the same, sorted.
func (b *Blocked) own(integration types.NamespacedName) (cause *blockedError, names []string) {
	obstacles := b.obstacles[integration]
	names = slices.Sorted(maps.Keys(obstacles))
	if len(names) == 0 {
		return nil, nil
	}
	cause = obstacles[names[0]].cause
	return cause, slices.DeleteFunc(names, func(name string) bool {
		other := obstacles[name].cause
		return other.reason != cause.reason || other.detail != cause.detail
	})
}
