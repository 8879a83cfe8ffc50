package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// SilenceTimeout bounds the wait for a silence. The forwarder reads and writes silences every 10 seconds, and sees its own
// writes in the next round.
const SilenceTimeout = 30 * time.Second

// Poll is how often the effect of an action is looked for.
const Poll = 100 * time.Millisecond

// notForwarding are the reasons of the condition Forwarded for which no Incident of the integration reaches an Alertmanager, so
// that a silence there has nothing to silence.
var notForwarding = map[string]bool{
	v1alpha1.ReasonForwardNever: true, v1alpha1.ReasonFromAlertmanager: true, v1alpha1.ReasonNotSelected: true,
	v1alpha1.ReasonForwardingDisabled: true,
}

// notPosted are the reasons for which an Incident reaches no Alertmanager, whatever happens.
var notPosted = map[v1alpha1.ForwardingReason]bool{
	v1alpha1.ForwardingOff: true, v1alpha1.ForwardingFiltered: true, v1alpha1.ForwardingFromAlertmanager: true,
}

// isWithheld has the reasons for which an Incident reaches Alertmanager later.
var isWithheld = map[v1alpha1.ForwardingReason]bool{v1alpha1.ForwardingMuted: true, v1alpha1.ForwardingHeld: true}

// Forwarding has why the Incidents of an integration are not forwarded; empty if they are. It reads each integration once.
type Forwarding map[client.ObjectKey]string

// Check returns an error if an Incident cannot be silenced, because it is not forwarded. Where its status does not tell that, the
// integration does. If that cannot be read, the condition of the Incident tells it afterwards.
func (f Forwarding) Check(ctx context.Context, c client.Reader, incident *v1alpha1.Incident) error {
	if told := incident.Status.Forwarding; told != nil {
		if notPosted[told.Reason] {
			return fmt.Errorf("%s cannot be silenced: no Alertmanager gets it: %s", incident.Name, plaintext.SanitizeLine(told.Message))
		}
		return nil
	}
	key := client.ObjectKey{Namespace: incident.Namespace, Name: incident.Spec.IntegrationName}
	reason, known := f[key]
	if !known {
		integration := &v1alpha1.WebhookIntegration{}
		if c.Get(ctx, key, integration) == nil {
			reason = notForwarded(key.Name, integration.Status.Conditions)
		}
		f[key] = reason
	}
	if reason != "" {
		return fmt.Errorf("%s cannot be silenced: %s", incident.Name, reason)
	}
	return nil
}

func notForwarded(name string, conditions []metav1.Condition) string {
	forwarded := meta.FindStatusCondition(conditions, v1alpha1.ConditionForwarded)
	switch {
	case forwarded == nil:
		return fmt.Sprintf("Tocsin does not forward incidents of integration %q to an Alertmanager: "+
			"the manager runs without --alertmanager-config", name)
	case forwarded.Status != metav1.ConditionTrue && notForwarding[forwarded.Reason]:
		return fmt.Sprintf("incidents of integration %q are not forwarded to an Alertmanager: %s",
			name, plaintext.SanitizeLine(forwarded.Message))
	}
	return ""
}

// AwaitSilence waits until Alertmanager has the silence that was requested, or until the one that the request ended is gone.
// That of an Incident that is muted or held back is not found in Alertmanager, where no alert shows it: that it was requested is
// enough. It calls get for the Incident as it is now. It returns the condition Silenced, or an error that says what is so when
// ctx ends.
func (a Action) AwaitSilence(
	ctx context.Context, before *v1alpha1.Incident, get func(context.Context) (*v1alpha1.Incident, error),
) (*metav1.Condition, error) {
	awaited := AwaitedSilence{Action: a, Before: before}
	err := wait.PollUntilContextCancel(ctx, Poll, true, func(ctx context.Context) (bool, error) {
		now, err := get(ctx)
		return err == nil && awaited.IsSettled(now), err
	})
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, awaited.Overdue()
	case err != nil:
		return nil, err
	}
	return awaited.Result()
}

// AwaitedSilence is the silence of an Incident as AwaitSilence awaits it, for a caller that awaits many.
type AwaitedSilence struct {
	Action
	Before *v1alpha1.Incident // as it was before the request

	condition *metav1.Condition // Silenced, as it was seen last
}

// IsSettled reports whether there is nothing to wait for any more, now that the Incident is so.
func (s *AwaitedSilence) IsSettled(now *v1alpha1.Incident) bool {
	s.condition = meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionSilenced)
	return s.silenceSettled(s.condition, &now.Status, s.Before.Status.Silence)
}

// Result returns the condition Silenced of a silence that is settled, or an error if nothing is silenced.
func (s *AwaitedSilence) Result() (*metav1.Condition, error) {
	if s.condition != nil && s.condition.Reason == v1alpha1.ReasonForwardingDisabled {
		return nil, errors.New(plaintext.SanitizeLine(s.condition.Message))
	}
	return s.condition, nil
}

// Overdue returns an error that says what is so of a silence that is not settled in time.
func (s *AwaitedSilence) Overdue() error {
	message := "the condition Silenced is absent"
	if s.condition != nil {
		message = plaintext.SanitizeLine(s.condition.Message)
	}
	if s.Length == 0 {
		return fmt.Errorf("the end of the silence is stored, but Alertmanager still has it: %s", message)
	}
	return fmt.Errorf("the silence is requested, but not in effect yet: %s", message)
}

// silenceSettled reports whether the condition Silenced tells of what the action requested: of a silence that ends when the
// requested one does, or later; or after unsilence, of none or another one than was requested before.
func (a Action) silenceSettled(condition *metav1.Condition, now *v1alpha1.IncidentStatus, before *v1alpha1.Silence) bool {
	switch {
	case a.Length == 0:
		return now.SilencedBy == nil || !isRequested(now.SilencedBy, before)
	case condition != nil && condition.Reason == v1alpha1.ReasonForwardingDisabled:
		return true
	case now.Silence != nil && now.Forwarding != nil && isWithheld[now.Forwarding.Reason]:
		return true
	}
	return now.SilencedBy != nil && now.Silence != nil &&
		!now.SilencedBy.EndTime.Before(now.Silence.EndTime.Truncate(time.Second))
}

// isRequested reports whether a silence in Alertmanager is the one that was requested by an AlertEvent.
func isRequested(silence, request *v1alpha1.Silence) bool {
	return request != nil && silence.EndTime.Sub(request.EndTime.Time).Abs() <= time.Second &&
		silence.By == cmp.Or(plaintext.ShortName(request.By), "tocsin")
}
