package forward

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Messages of the condition Forwarded. They do not change while the reason applies.
const (
	messageForwardNever     = "spec.forward is Never."
	messageFromAlertmanager = "The alerts come from Alertmanager or vmalert. Set spec.forward to Always to forward the Incidents."
	messageNotSelected      = "The operator's configuration selects this integration for no Alertmanager."
	messageInvalidConfig    = "The operator's Alertmanager configuration is invalid. The manager's log has the reason."
	messageLastValidInUse   = " " + messageInvalidConfig + " Its last valid content is in use."
	messageForwarding       = "Incidents are posted to "
	messageSomeFailing      = "These do not accept them: "
	messageAllFailing       = "No Alertmanager accepts the Incidents: "
	messageLeftOut          = "These do not accept some of them: "
	messageWrongClock       = "The clocks of these differ from the API server's: "
)

// Condition returns the condition Forwarded of an integration. It is not ok while it cannot be decided: the condition then
// stays as it is.
func (f *Forwarder) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	condition = metav1.Condition{
		Type: v1alpha1.ConditionForwarded, Status: metav1.ConditionFalse, ObservedGeneration: integration.Generation,
	}
	f.mu.Lock()
	config, loaded, invalid := f.config, f.loaded, f.invalid
	f.mu.Unlock()
	t := f.term.Load()
	switch {
	case !loaded || t == nil:
		return condition, false
	case config == nil:
		condition.Reason, condition.Message = v1alpha1.ReasonInvalidConfig, messageInvalidConfig
		return condition, true
	}
	targets := t.selecting(integration)
	if len(targets.endpoints) == 0 {
		condition.Reason = targets.reason
		condition.Message = map[string]string{
			v1alpha1.ReasonForwardNever:     messageForwardNever,
			v1alpha1.ReasonFromAlertmanager: messageFromAlertmanager,
			v1alpha1.ReasonNotSelected:      messageNotSelected,
		}[targets.reason]
		return condition, condition.Reason != ""
	}
	ok = describeHealth(&condition, targets.endpoints, incidentKey{integration.Namespace, integration.Name}, time.Now())
	if invalid {
		condition.Message += messageLastValidInUse
	}
	return condition, ok
}

// selection is which endpoints an integration is forwarded to. reason is why there are none.
type selection struct {
	endpoints []*endpoint
	reason    string
}

func (t *term) selecting(integration *v1alpha1.WebhookIntegration) selection {
	t.mu.Lock()
	defer t.mu.Unlock()
	var s selection
	for _, e := range t.endpoints {
		target, _ := e.current()
		if reason := target.selects(integration); reason != "" {
			s.reason = reason
			continue
		}
		s.endpoints = append(s.endpoints, e)
	}
	slices.SortFunc(s.endpoints, func(a, b *endpoint) int { return strings.Compare(a.name, b.name) })
	return s
}

// describeHealth fills in the condition of an integration for the endpoints to which its Incidents are posted. It reports false
// while the health of one is unknown.
func describeHealth(condition *metav1.Condition, endpoints []*endpoint, integration incidentKey, now time.Time) bool {
	var working, failing, refusing, wrong []string
	for _, e := range endpoints {
		_, senders := e.current()
		healthy := 0
		for _, s := range senders {
			ok, known := s.health(now)
			if !known {
				return false
			}
			if ok {
				healthy++
			}
			if s.leavesOut(integration, now) {
				refusing = append(refusing, e.name)
			}
			if isWrong(s.lead()) {
				wrong = append(wrong, e.name)
			}
		}
		switch total := len(senders); {
		case total == 0:
			return false
		case healthy == total:
			working = append(working, e.name)
		case healthy > 0:
			working = append(working, e.name)
			failing = append(failing, fmt.Sprintf("%s (%d of %d addresses)", e.name, total-healthy, total))
		default:
			failing = append(failing, e.name)
		}
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonForwarding
	switch {
	case len(working) == 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonAllFailing
	case len(failing)+len(refusing) > 0:
		condition.Reason = v1alpha1.ReasonSomeFailing
	}
	var sentences []string
	say := func(sentence string, names []string) {
		if len(names) > 0 {
			sentences = append(sentences, sentence+strings.Join(slices.Compact(names), ", ")+".")
		}
	}
	say(messageForwarding, working)
	if len(working) == 0 {
		say(messageAllFailing, failing)
	} else {
		say(messageSomeFailing, failing)
	}
	say(messageLeftOut, refusing)
	say(messageWrongClock, wrong)
	condition.Message = strings.Join(sentences, " ")
	return true
}
