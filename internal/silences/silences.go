// Package silences is what is particular to silences among the actions of users: it finds out whether they can have an effect,
// awaits them, and describes them.
package silences

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// timeout bounds the wait for a silence. The forwarder reads and writes silences every 10 seconds, and sees its own writes in
	// the next round.
	timeout = 30 * time.Second

	// poll is how often a silence is looked for.
	poll = 100 * time.Millisecond
)

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

// Batch is the silences that one action requests, or ends. It implements action.Effect.
type Batch struct {
	length       time.Duration               // 0 for the end
	notForwarded map[client.ObjectKey]string // why the Incidents of an integration are not; empty if they are
	waiting      []*awaited
}

// NewBatch returns those of a length, of which none is requested yet.
func NewBatch(length time.Duration) *Batch {
	return &Batch{length: length, notForwarded: map[client.ObjectKey]string{}}
}

// CheckLength checks the length as the API server would.
func (b *Batch) CheckLength() error {
	if b.length > v1alpha1.MaxSilence {
		return fmt.Errorf("a silence has at most %s", model.Duration(v1alpha1.MaxSilence))
	}
	return nil
}

// AddTo adds the length to the report that requests a silence.
func (b *Batch) AddTo(report *v1alpha1.Report) {
	report.SilenceFor = &metav1.Duration{Duration: b.length}
}

// Check returns an error if an Incident cannot be silenced, because it is not forwarded. Where its status does not tell that, the
// integration does, which is read once. If it cannot be read, the condition of the Incident tells it afterwards.
func (b *Batch) Check(ctx context.Context, c client.Reader, incident *v1alpha1.Incident) error {
	if b.length == 0 {
		return nil
	}
	if told := incident.Status.Forwarding; told != nil {
		if notPosted[told.Reason] {
			return fmt.Errorf("%s cannot be silenced: no Alertmanager gets it: %s", incident.Name, plaintext.SanitizeLine(told.Message))
		}
		return nil
	}
	key := client.ObjectKey{Namespace: incident.Namespace, Name: incident.Spec.IntegrationName}
	reason, known := b.notForwarded[key]
	if !known {
		integration := &v1alpha1.WebhookIntegration{}
		if c.Get(ctx, key, integration) == nil {
			reason = notForwarded(key.Name, integration.Status.Conditions)
		}
		b.notForwarded[key] = reason
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

func isSilenced(incident *v1alpha1.Incident) bool {
	return meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionSilenced)
}

// Unneeded describes why no request for a silence of an Incident needs to be ended; empty if one does. It goes by what the last
// fold knew of the time: the clocks of users differ. It does not know why none needs to be requested.
func (b *Batch) Unneeded(incident *v1alpha1.Incident) (why string, known bool) {
	if b.length > 0 {
		return "", false
	}
	condition := meta.FindStatusCondition(incident.Status.Conditions, v1alpha1.ConditionSilenced)
	isOver := condition != nil && condition.Reason == v1alpha1.ReasonNotSilenced
	switch {
	case incident.Status.Silence != nil && !isOver:
		return "", true
	case isSilenced(incident): // by others
		return "has no requested silence, but is silenced: " + plaintext.SanitizeLine(condition.Message), true
	}
	return "not silenced", true
}

// awaited is a silence of an Incident that was requested, or its end.
type awaited struct {
	length time.Duration      // 0 for the end
	before *v1alpha1.Incident // as it was before the request

	folded    bool              // the request was, which changes the status
	condition *metav1.Condition // Silenced, as it was seen last
}

// Add adds an Incident, as it was before the request.
func (b *Batch) Add(before *v1alpha1.Incident) {
	b.waiting = append(b.waiting, &awaited{length: b.length, before: before})
}

// IsEmpty reports whether there is nothing to await.
func (b *Batch) IsEmpty() bool { return len(b.waiting) == 0 }

// Await awaits the silences in a feed, and says of each what is wrong with it, until say returns false. The requests need not be
// folded yet.
func (b *Batch) Await(
	ctx context.Context, feed *live.Feed, say func(before *v1alpha1.Incident, problem error) (listens bool),
) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	listens := true
	tell := func(a *awaited, problem error) { listens = listens && ctx.Err() == nil && say(a.before, problem) }
	_ = wait.PollUntilContextCancel(bounded, poll, true, func(context.Context) (bool, error) {
		b.waiting = slices.DeleteFunc(b.waiting, func(a *awaited) bool {
			settled, problem := a.look(feed)
			if settled {
				tell(a, problem)
			}
			return settled
		})
		return b.IsEmpty() || !listens, nil
	})
	for _, a := range b.waiting {
		tell(a, a.overdue())
	}
}

// look reports whether a silence is settled, and what is wrong with it if it is.
func (a *awaited) look(feed *live.Feed) (settled bool, problem error) {
	synced := feed.Synced() // a new token has a new watch, which may not have listed all
	now := feed.Incident(client.ObjectKeyFromObject(a.before))
	if now == nil && synced {
		return true, errors.New("the incident is not in the list any more")
	}
	a.folded = a.folded || now != nil && !sameRequest(now.Status.Silence, a.before.Status.Silence)
	switch {
	case a.folded && now != nil:
	case a.length > 0:
		now = &v1alpha1.Incident{} // an earlier silence is not the requested one
	default:
		now = a.before
	}
	if !a.isSettled(now) {
		return false, nil
	}
	condition, problem := a.result()
	if problem == nil && a.length == 0 && condition != nil && condition.Status == metav1.ConditionTrue {
		problem = fmt.Errorf("another silence covers it: %s", plaintext.SanitizeLine(condition.Message))
	}
	return true, problem
}

func sameRequest(a, b *v1alpha1.Silence) bool {
	return a == b || a != nil && b != nil && a.EndTime.Equal(b.EndTime.Time) && a.By == b.By
}

// result returns the condition Silenced of a silence that is settled, or an error if nothing is silenced.
func (a *awaited) result() (*metav1.Condition, error) {
	if a.condition != nil && a.condition.Reason == v1alpha1.ReasonForwardingDisabled {
		return nil, errors.New(plaintext.SanitizeLine(a.condition.Message))
	}
	return a.condition, nil
}

// overdue returns an error that says what is so of a silence that is not settled in time.
func (a *awaited) overdue() error {
	message := "the condition Silenced is absent"
	if a.condition != nil {
		message = plaintext.SanitizeLine(a.condition.Message)
	}
	if a.length == 0 {
		return fmt.Errorf("the end of the silence is stored, but Alertmanager still has it: %s", message)
	}
	return fmt.Errorf("the silence is requested, but not in effect yet: %s", message)
}

// isSettled reports whether there is nothing to wait for any more, now that the Incident is so: its condition Silenced tells of
// a silence that ends when the requested one does, or later; or after the end, of none or another one than was requested before.
// That of an Incident that is muted or held back is not found in Alertmanager, where no alert shows it: that it was requested is
// enough.
func (a *awaited) isSettled(incident *v1alpha1.Incident) bool {
	now := &incident.Status
	a.condition = meta.FindStatusCondition(now.Conditions, v1alpha1.ConditionSilenced)
	switch {
	case a.length == 0:
		return now.SilencedBy == nil || !isRequested(now.SilencedBy, a.before.Status.Silence)
	case a.condition != nil && a.condition.Reason == v1alpha1.ReasonForwardingDisabled:
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

// Timeout bounds the wait for a silence.
func (b *Batch) Timeout() time.Duration { return timeout }

// AwaitOne waits until Alertmanager has the silence that was requested and folded, or until the one that the request ended is
// gone. It returns what is to be added to the success, or an error that says what is so when ctx ends after a limit.
func (b *Batch) AwaitOne(
	ctx context.Context, c client.Reader, before *v1alpha1.Incident, limit time.Duration,
) (but string, err error) {
	a := awaited{length: b.length, before: before}
	err = wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		now := &v1alpha1.Incident{}
		err := c.Get(ctx, client.ObjectKeyFromObject(before), now)
		return err == nil && a.isSettled(now), err
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "", fmt.Errorf("%s: timed out after %s; %w", before.Name, limit, a.overdue())
	}
	condition, problem := a.result()
	switch err = cmp.Or(err, problem); {
	case err != nil:
		return "", fmt.Errorf("%s: %w", before.Name, err)
	case condition == nil:
		return "", nil
	case b.length == 0 && condition.Status == metav1.ConditionTrue:
		return ", but another silence covers it: " + plaintext.SanitizeLine(condition.Message), nil
	case b.length > 0 && condition.Status != metav1.ConditionTrue:
		return ", and not forwarded meanwhile, because of a maintenance window or forwardAfter", nil
	}
	return "", nil
}

// Done describes what a request has done to an Incident.
func (b *Batch) Done() string {
	if b.length == 0 {
		return "unsilenced"
	}
	return "silenced for " + model.Duration(b.length).String()
}

// Describe describes the silence of an Incident in Alertmanager, and the one that was requested. layout is for times, and aged
// formats one with its age.
func Describe(
	incident *v1alpha1.Incident, now time.Time, layout string, aged func(*v1alpha1.Timestamp) string,
) string {
	condition := meta.FindStatusCondition(incident.Status.Conditions, v1alpha1.ConditionSilenced)
	if condition == nil {
		return ""
	}
	if isSilenced(incident) {
		text := "yes. " + plaintext.SanitizeLine(condition.Message)
		if covering := incident.Status.SilencedBy; covering != nil && !covering.EndTime.After(now) {
			text += " That time has passed; Alertmanager has not confirmed the end."
		}
		return text
	}
	text := "no. " + plaintext.SanitizeLine(condition.Message)
	if request := incident.Status.Silence; request != nil {
		by := cmp.Or(plaintext.SanitizeLine(request.By), "an AlertEvent")
		if request.EndTime.After(now) {
			text += fmt.Sprintf(" Requested until %s by %s.", request.EndTime.Local().Format(layout), by)
		} else {
			text += fmt.Sprintf(" The one that %s requested has expired at %s.", by, aged(&request.EndTime))
		}
	}
	return text
}

// Address returns the address of the silence that covers an Incident, or its ID if the address is not known.
func Address(status *v1alpha1.IncidentStatus) string {
	if status.SilencedBy == nil {
		return ""
	}
	return plaintext.SanitizeLine(cmp.Or(status.SilencedBy.Link, status.SilencedBy.ID))
}
