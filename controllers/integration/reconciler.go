// Package integration writes the status of WebhookIntegrations: their conditions, and when alerts were last received.
package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// concurrency is how many statuses the leader writes at a time: an API server that is slow to write one delays no others.
const concurrency = 10

// Writes for nothing but conditions that others decide are at most outsideRate a second, after the first outsideBurst. Otherwise
// an Alertmanager that comes and goes could have the leader write the statuses of all integrations as fast as the API server can.
// With 1,000 integrations, the last one shows the change within a minute.
const outsideRate, outsideBurst = 20, 100

// Options are where the conditions come from.
type Options struct {
	Mappings Mappings

	// Capacity tells the namespaces in which posts get 503, and the integrations with AlertEvents that are stuck.
	Capacity *capacity.Counts

	// Folded is the source of AlertsFolded, as far as Incidents cannot be written.
	Folded ConditionSource

	// Conditions are further ones that others decide, in the order in which they are added.
	Conditions []Condition

	Clock  replica.Clock
	Health replica.Health // by whose time conditions change
}

// Mappings compiles the mappings of integrations.
type Mappings interface {
	// Check returns the error of an integration's mapping, with a line for each mistake, in words that do not change.
	Check(integration *v1alpha1.WebhookIntegration) error
}

// Condition is a condition of a type that a source decides.
type Condition struct {
	Type   string
	Source ConditionSource // nil: the integrations do not have it
}

// ConditionSource decides a condition of integrations.
type ConditionSource interface {
	// Condition returns status, reason and message of the condition of an integration, which does not have it if there is no
	// status. It is not ok while the condition cannot be decided and stays as it is.
	Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool)
}

// reconciler writes the status of WebhookIntegrations, all but lastRejection and lastMappingFailure, which every replica writes
// for itself.
type reconciler struct {
	options  Options
	cache    client.Reader
	live     client.StatusClient
	received *receivedTimes
	full     *expirecache.LRUExpireCache // the namespaces that are full, or were lately: the reason
	outside  flowcontrol.RateLimiter     // of writes for nothing but conditions that others decide
	recorder events.EventRecorder
}

func newReconciler(cache client.Reader, live client.StatusClient, recorder events.EventRecorder, options Options) *reconciler {
	received := &receivedTimes{entries: map[types.NamespacedName]*receivedEntry{}}
	full := expirecache.NewLRUExpireCacheWithClock(maxFull, options.Clock)
	outside := flowcontrol.NewTokenBucketRateLimiter(outsideRate, outsideBurst)
	return &reconciler{options, cache, live, received, full, outside, recorder}
}

// Add adds the controller to the manager of a leader's term.
func Add(mgr ctrl.Manager, live client.StatusClient, options Options) error {
	r := newReconciler(mgr.GetCache(), live, mgr.GetEventRecorder("tocsin"), options)
	return requests.Complete("the status of WebhookIntegrations", ctrl.NewControllerManagedBy(mgr).
		Named("webhookintegration").
		Watches(&v1alpha1.WebhookIntegration{}, requests.OfObject[*v1alpha1.WebhookIntegration]()).
		Watches(&v1alpha1.AlertEvent{}, r.watchReceived()).
		WatchesRawSource(requests.Source("conditions", r.watchConditions)).
		WithOptions(requests.Options(mgr, "integration", "integration", concurrency, requests.NameOf)), r)
}

// Reconcile brings the status of one integration up to date.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var integration v1alpha1.WebhookIntegration
	if err := r.cache.Get(ctx, req.NamespacedName, &integration); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.received.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading the WebhookIntegration: %w", err)
	}
	own, now := r.options.Clock.Now(), r.options.Health.APITime()
	ready, next := readiness(&integration, now)
	received, wait, keyless := r.received.due(req.NamespacedName, integration.Status.LastReceivedTime, own)

	updated := integration.DeepCopy()
	setKeyless(updated, v1alpha1.NewTimestamp(keyless))
	if received != nil {
		updated.Status.LastReceivedTime = received
	}
	mapping, mappingUntil := mappingValidity(updated, r.options.Mappings.Check(&integration), now)
	isNews := received != nil || integration.Status.ObservedGeneration != integration.Generation
	if status, outdated := r.withOutside(updated); outdated && (isNews || r.outside.TryAccept()) {
		updated.Status = *status // or else at a later check
	}
	ready.LastTransitionTime, mapping.LastTransitionTime = r.transitionTime(), r.transitionTime()
	meta.SetStatusCondition(&updated.Status.Conditions, ready)
	changed := integrations.IsWhole(&integration) && meta.SetStatusCondition(&updated.Status.Conditions, mapping)
	updated.Status.ObservedGeneration = integration.Generation
	if err := requests.PatchStatus(ctx, r.live, &integration, updated); err != nil {
		return ctrl.Result{}, err
	}
	if received != nil {
		r.received.wrote(req.NamespacedName, own)
	}
	if changed && mapping.Status == metav1.ConditionFalse {
		r.recorder.Eventf(&integration, nil, corev1.EventTypeWarning, mapping.Reason, "Check", "%s", mapping.Message)
	}
	return ctrl.Result{RequeueAfter: soonest(wait, now, next, mappingUntil)}, nil
}

// setKeyless brings lastKeylessTime up to date. What came before the spec changed says nothing about the new one.
func setKeyless(integration *v1alpha1.WebhookIntegration, keyless v1alpha1.Timestamp) {
	status := &integration.Status
	switch {
	case status.ObservedGeneration != integration.Generation:
		status.LastKeylessTime = nil
	case keyless.IsZero():
	case status.LastKeylessTime == nil, keyless.Sub(status.LastKeylessTime.Time) >= keylessInterval:
		status.LastKeylessTime = &keyless
	}
}

// withOutside returns the status of an integration with what others decide and without times of the future, and whether it was
// outdated.
func (r *reconciler) withOutside(
	integration *v1alpha1.WebhookIntegration,
) (status *v1alpha1.WebhookIntegrationStatus, outdated bool) {
	status = integration.Status.DeepCopy()
	outdated = r.setOutside(integration, &status.Conditions)
	return status, r.redate(status, client.ObjectKeyFromObject(integration)) || outdated
}

// setOutside sets those conditions of an integration that others decide, and reports whether one was outdated.
func (r *reconciler) setOutside(integration *v1alpha1.WebhookIntegration, conditions *[]metav1.Condition) (outdated bool) {
	for _, outside := range append([]Condition{{v1alpha1.ConditionAlertsFolded, alertsFolded{r}}}, r.options.Conditions...) {
		condition, known := metav1.Condition{}, true
		if outside.Source != nil {
			condition, known = outside.Source.Condition(integration)
		}
		switch {
		case !known:
		case condition.Status == "":
			outdated = meta.RemoveStatusCondition(conditions, outside.Type) || outdated
		default:
			condition.Type, condition.ObservedGeneration = outside.Type, integration.Generation
			condition.LastTransitionTime = r.transitionTime()
			outdated = meta.SetStatusCondition(conditions, condition) || outdated
		}
	}
	return outdated
}

// transitionTime is that of the conditions that change now. That a sender is quiet is measured from some of them, also by later
// leaders, so it is not by the own clock, which may be wrong.
func (r *reconciler) transitionTime() metav1.Time { return metav1.NewTime(r.options.Health.APITime()) }

// redate gives times of the future the time of now, and reports whether there was one: the API server's clock was set back.
// Otherwise nothing of the integration would count as quiet until the clock shows these times again.
func (r *reconciler) redate(status *v1alpha1.WebhookIntegrationStatus, integration types.NamespacedName) (redated bool) {
	now := r.options.Health.APITime()
	if _, known := r.options.Health.QuietFrom(integration, time.Time{}); !known {
		return false
	}
	for i := range status.Conditions {
		if since := &status.Conditions[i].LastTransitionTime; fold.IsFuture(since.Time, now) {
			*since, redated = metav1.NewTime(now), true
		}
	}
	if last := status.LastUnavailableTime; last != nil && fold.IsFuture(last.Time, now) {
		*last, redated = v1alpha1.NewTimestamp(now), true
	}
	return redated
}

// soonest is how long it is until the first of the times that are set, or a wait that is shorter, unless it is zero.
func soonest(wait time.Duration, now time.Time, times ...time.Time) time.Duration {
	for _, t := range times {
		if until := t.Sub(now); !t.IsZero() && (wait == 0 || until < wait) {
			wait = until
		}
	}
	return wait
}

// messageTooLarge says what to do about an integration of which the cache has only a stub.
const messageTooLarge = "The integrations of the namespace are too large together for the operator's memory: posts get 503. " +
	"Make them smaller or delete some; this one is then read again."

// readiness is the Ready condition, and when it may change by itself: at the next expiry of a token, zero
// for never. The rules are in the order in which they count.
func readiness(integration *v1alpha1.WebhookIntegration, now time.Time) (ready metav1.Condition, next time.Time) {
	var valid []string
	for _, token := range integration.Spec.Tokens {
		if expires := token.ExpirationTime; expires != nil && !expires.IsZero() {
			if !now.Before(expires.Time) {
				continue
			}
			if next.IsZero() || expires.Before(next) {
				next = expires.Time
			}
		}
		valid = append(valid, token.Name)
	}
	slices.Sort(valid)

	ready.Type, ready.ObservedGeneration = v1alpha1.ConditionReady, integration.Generation
	ready.Status = metav1.ConditionFalse
	switch {
	case !integration.DeletionTimestamp.IsZero():
		ready.Reason, ready.Message = v1alpha1.ReasonTerminating, "The integration is being deleted: its tokens are not valid."
	case integration.Spec.Suspend:
		ready.Reason, ready.Message = v1alpha1.ReasonSuspended, "spec.suspend is true: every post is answered with 403."
	case !integrations.IsWhole(integration):
		ready.Reason, ready.Message = v1alpha1.ReasonIntegrationsTooLarge, messageTooLarge
	case len(valid) == 0:
		ready.Reason, ready.Message = v1alpha1.ReasonNoValidToken, "No token is listed, or all have expired."
	case invalidKey(integration) != "":
		ready.Reason, ready.Message = v1alpha1.ReasonInvalidPublicKey, invalidKey(integration)
	default:
		ready.Status = metav1.ConditionTrue
		ready.Reason, ready.Message = v1alpha1.ReasonAccepting, "Alerts are accepted with: "+strings.Join(valid, ", ")+"."
	}
	return ready, next
}

// isPending reports whether the tool of the integration still waits for a person: it has sent nothing since it asked, or little
// after it, and what it asked for has not expired.
func isPending(integration *v1alpha1.WebhookIntegration, now time.Time) bool {
	asked, received := integration.Status.LastHandshake, integration.Status.LastReceivedTime
	return asked != nil && now.Before(asked.Time.Add(handshakeMemory)) &&
		(received == nil || received.Before(asked.Time.Add(handshakeSlack)))
}

// mappingValidity is the MappingValid condition, and when it may change by itself, zero for never. invalid is why
// the mapping does not compile, nil if it does.
func mappingValidity(
	integration *v1alpha1.WebhookIntegration, invalid error, now time.Time,
) (valid metav1.Condition, next time.Time) {
	valid.Type, valid.ObservedGeneration = v1alpha1.ConditionMappingValid, integration.Generation
	valid.Status = metav1.ConditionFalse
	failure, keyless := integrations.CurrentMappingFailure(integration, now), integration.Status.LastKeylessTime
	switch {
	case invalid != nil:
		valid.Reason = v1alpha1.ReasonInvalidMapping
		valid.Message = "Alerts are read by the payload rules alone: " + invalid.Error()
	case failure != nil:
		valid.Reason = v1alpha1.ReasonEvaluationFailed
		valid.Message = fmt.Sprintf("The expression of %s failed on an alert, which was read without it: %s",
			failure.Field, failure.Expression)
		next = failure.Time.Add(integrations.MappingFailureMemory)
	case isPending(integration, now):
		valid.Status, valid.Reason = metav1.ConditionTrue, v1alpha1.ReasonHandshake
		valid.Message = integration.Status.LastHandshake.Message // it may end with an address: no period
		next = integration.Status.LastHandshake.Time.Add(handshakeMemory)
	case keyless != nil && now.Before(keyless.Add(keylessMemory)):
		valid.Status, valid.Reason = metav1.ConditionTrue, v1alpha1.ReasonKeylessAlerts
		valid.Message = "Alerts come without a dedup key: what fires opens an Incident that no recovery resolves, and what ends " +
			"resolves nothing. Send dedup_key, or set spec.mapping.fields.dedupKey."
		next = keyless.Add(keylessMemory)
	default:
		valid.Status, valid.Reason = metav1.ConditionTrue, v1alpha1.ReasonMappingValid
		valid.Message = "The mapping compiles, and its expressions do not fail."
		if integration.Spec.Preset == "" && integration.Spec.Mapping == nil {
			valid.Message = "There is no mapping; alerts are read by the preset that recognizes them, or else by the payload rules."
		}
	}
	return valid, next
}
