package incident

import (
	"errors"
	"fmt"
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

// failedWebhook names the admission webhook that is away or hangs, if that is why a write failed. It may be so for good.
func failedWebhook(err error) string {
	_, words, ok := strings.Cut(fmt.Sprint(err), "failed calling webhook ")
	if !ok || !apierrors.IsInternalError(err) {
		return ""
	}
	name, _, _ := strings.Cut(words, ": ")
	return plaintext.ShortMessage("failed calling webhook " + name)
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

// Blocked records the Incidents that cannot be written, and the namespaces in which none can be created. Each Incident waits by
// itself, with increasing delays, and none else does. Of those that wait for their namespace, one tries at a time: thousands of
// alerts with new keys cost the API server no more than one, and delay no other fold. After the first success all of them try.
type Blocked struct {
	clock   replica.Clock
	started time.Time // when this process became the leader

	mu    sync.Mutex
	waits map[types.NamespacedName]map[string]*blockedWait // see waitsOf; by name, ofNamespace: of those to be created
	tried sets.Set[string]                                 // namespaces in which this leader has tried to create an Incident
}

// ofNamespace is the name of the wait of those to be created.
const ofNamespace = ""

// blockedWait is why Incidents wait, and until when.
type blockedWait struct {
	cause    *blockedError
	failures int
	retryAt  time.Time
	trying   string           // name of the Incident that may try now
	waiting  sets.Set[string] // names of Incidents
}

func newBlocked(clock replica.Clock) *Blocked {
	return &Blocked{
		clock: clock, started: clock.Now(), waits: map[types.NamespacedName]map[string]*blockedWait{}, tried: sets.New[string](),
	}
}

// waitsOf returns the key of the waits that have this one: those of an integration are together, so that its condition does not
// depend on how many others there are.
func waitsOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: v1alpha1.IntegrationOf(name)}
}

// wait returns why an Incident waits, or for ofNamespace those that are to be created; nil if it does not.
func (b *Blocked) wait(namespace, of string) *blockedWait { return b.waits[waitsOf(namespace, of)][of] }

// delay returns how long an Incident waits for a reason of its own, or ofNamespace to be created. At zero it is to be tried, and
// no other of the same wait is until the outcome is known or as much time has passed again.
func (b *Blocked) delay(key types.NamespacedName, of string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.wait(key.Namespace, of)
	if wait == nil {
		return 0
	}
	wait.waiting.Insert(key.Name)
	if wait.trying != key.Name {
		if left := wait.retryAt.Sub(now); left > 0 {
			return left
		}
		wait.trying, wait.retryAt = key.Name, now.Add(wait.pause())
	}
	return 0
}

// pause is how long to wait after the failures so far.
func (w *blockedWait) pause() time.Duration {
	return min(minBlockedRetry<<min(w.failures-1, 10), maxBlockedRetry)
}

// block notes that an Incident could not be written, and returns how long to wait. first says that it, or its namespace, was
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
	wait, in := b.wait(key.Namespace, of), waitsOf(key.Namespace, of)
	if wait == nil {
		wait = &blockedWait{trying: key.Name, waiting: sets.New[string]()}
		if b.waits[in] == nil {
			b.waits[in] = map[string]*blockedWait{}
		}
		b.waits[in][of] = wait
	}
	first = wait.cause == nil || wait.cause.reason != cause.reason
	wait.cause = cause
	wait.waiting.Insert(key.Name)
	if of == key.Name || wait.trying == key.Name { // others of a namespace were under way when the first one failed
		wait.trying = ""
		wait.failures++
		wait.retryAt = now.Add(wait.pause())
	}
	return max(staleRetry, wait.retryAt.Sub(now)), first
}

// isWaiting reports whether alerts wait because the Incident cannot be written.
func (b *Blocked) isWaiting(key types.NamespacedName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ofAll := b.wait(key.Namespace, ofNamespace)
	return b.wait(key.Namespace, key.Name) != nil || ofAll != nil && ofAll.waiting.Has(key.Name)
}

// mayExist reports whether no Incident can be created in the namespace, and this one does not wait for that: it may exist.
func (b *Blocked) mayExist(key types.NamespacedName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.wait(key.Namespace, ofNamespace)
	return wait != nil && !wait.waiting.Has(key.Name)
}

// unblock notes that an Incident was created.
func (b *Blocked) unblock(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tried.Insert(namespace)
	in := waitsOf(namespace, ofNamespace)
	if delete(b.waits[in], ofNamespace); len(b.waits[in]) == 0 {
		delete(b.waits, in)
	}
}

// forget notes that an Incident was written, or need not be any more.
func (b *Blocked) forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(key, key.Name)
	b.leave(key, ofNamespace)
}

// leave takes an Incident out of a wait, which ends with the last one.
func (b *Blocked) leave(key types.NamespacedName, of string) {
	in := waitsOf(key.Namespace, of)
	waits := b.waits[in]
	if waits[of] == nil {
		return
	}
	if waits[of].waiting.Delete(key.Name); waits[of].waiting.Len() == 0 {
		delete(waits, of)
	}
	if len(waits) == 0 {
		delete(b.waits, in)
	}
}

// Condition returns the condition AlertsFolded of an integration, as far as Incidents cannot be written. It is not ok as long as
// the findings of this leader's predecessor apply: until this one has tried to create an Incident, or has had the time to.
func (b *Blocked) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cause, names := b.own(client.ObjectKeyFromObject(integration))
	if wait := b.wait(integration.Namespace, ofNamespace); wait != nil {
		cause = wait.cause
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

// own returns why Incidents of an integration wait for reasons of their own, nil if none does: the reason of the first one by
// name, and all for which it is the same, sorted.
func (b *Blocked) own(integration types.NamespacedName) (cause *blockedError, names []string) {
	waits := b.waits[integration]
	names = slices.Sorted(maps.Keys(waits))
	if len(names) == 0 {
		return nil, nil
	}
	cause = waits[names[0]].cause
	return cause, slices.DeleteFunc(names, func(name string) bool {
		other := waits[name].cause
		return other.reason != cause.reason || other.detail != cause.detail
	})
}
