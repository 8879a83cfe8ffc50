package forward

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Messages of the condition Forwarded. They do not change while the reason applies.
const (
	messageInvalidConfig  = "The operator's Alertmanager configuration is invalid: "
	messageLastValidInUse = " Its last valid content is in use."
	messageForwarding     = "Incidents are posted to "
	messageSomeFailing    = "These do not accept them: "
	messageAllFailing     = "No Alertmanager accepts the Incidents: "
	messageLeftOut        = "These do not accept some of them: "
	messageMaintenance    = "These maintenance windows are open, and new Incidents that match them are not posted: "
	messageWrongClock     = "The clocks of these differ from the API server's: "

	// maxWindowNames is how many open windows a message names. A namespace may have hundreds.
	maxWindowNames = 10
)

// notForwarded has the messages for the reasons of target.selects.
var notForwarded = map[string]string{
	v1alpha1.ReasonForwardNever: "spec.forward is Never.",
	v1alpha1.ReasonFromAlertmanager: "The alerts come from Alertmanager or vmalert. " +
		"Set spec.forward to Always to forward the Incidents.",
	v1alpha1.ReasonNotSelected: "The operator's configuration selects this integration for no Alertmanager.",
}

// Condition returns the condition Forwarded of an integration. It is not ok while it cannot be decided: the condition then
// stays as it is.
func (f *Forwarder) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	condition.Status = metav1.ConditionFalse
	t, file := f.term.Load(), f.file.Load()
	switch {
	case t == nil || !file.config.isValid() && file.err == nil:
		return condition, false
	case !file.config.isValid():
		condition.Reason, condition.Message = v1alpha1.ReasonInvalidConfig, messageInvalidConfig+oneLine(file.err)+"."
		return condition, true
	}
	var selected []*endpoint
	for _, e := range t.endpoints.all() {
		if reason := e.target.Load().selects(integration); reason != "" {
			condition.Reason, condition.Message = reason, notForwarded[reason]
		} else {
			selected = append(selected, e)
		}
	}
	if len(selected) == 0 {
		return condition, condition.Reason != ""
	}
	ok = describeHealth(&condition, selected, incidentKey{integration.Namespace, integration.Name}, time.Now())
	t.describeMaintenance(&condition, integration)
	if file.err != nil {
		condition.Message += " " + messageInvalidConfig + oneLine(file.err) + "." + messageLastValidInUse
	}
	return condition, ok
}

// describeMaintenance adds the open maintenance windows to the condition of an integration.
func (t *term) describeMaintenance(condition *metav1.Condition, integration *v1alpha1.WebhookIntegration) {
	now, ok := t.forwarder.clock()
	open := t.forwarder.Windows.Of(integration).Open(now)
	if !ok || len(open) == 0 {
		return
	}
	var names []string
	for _, opening := range open {
		names = append(names, opening.Window)
	}
	if condition.Reason == v1alpha1.ReasonForwarding {
		condition.Reason = v1alpha1.ReasonMaintenance
	}
	condition.Message += " " + messageMaintenance + plaintext.Few(names, maxWindowNames) + "."
}

// listed returns causes as a list in their order.
func listed(causes sets.Set[string]) string { return strings.Join(sets.List(causes), ", ") }

// describeFailing says which of an endpoint's addresses fail, and why.
func describeFailing(name string, healthy, total int, causes string) string {
	if healthy == 0 {
		return fmt.Sprintf("%s (%s)", name, causes)
	}
	return fmt.Sprintf("%s (%d of %d addresses: %s)", name, total-healthy, total, causes)
}

// describeHealth fills in the condition of an integration for the endpoints to which its Incidents are posted. It reports false
// while the health of one is unknown.
func describeHealth(condition *metav1.Condition, endpoints []*endpoint, integration incidentKey, now time.Time) bool {
	var working, failing, refusing, wrong []string
	for _, e := range endpoints {
		senders, healthy := e.senders.all(), 0
		failures, rejections := sets.New[string](), sets.New[string]()
		if len(senders) == 0 {
			return false
		}
		for _, s := range senders {
			ok, known := s.health(now)
			if !known {
				return false
			}
			failure, rejection := s.causes()
			if ok {
				healthy++
			} else {
				failures.Insert(failure)
			}
			if s.leavesOutOf(integration, now) {
				rejections.Insert(rejection)
			}
			if isWrong(s.clockAhead()) {
				wrong = append(wrong, e.name)
			}
		}
		if healthy > 0 {
			working = append(working, e.name)
		}
		if len(rejections) > 0 {
			refusing = append(refusing, fmt.Sprintf("%s (%s)", e.name, listed(rejections)))
		}
		if healthy < len(senders) {
			failing = append(failing, describeFailing(e.name, healthy, len(senders), listed(failures)))
		}
	}
	failure := messageSomeFailing
	condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonForwarding
	switch {
	case len(working) == 0:
		failure = messageAllFailing
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonAllFailing
	case len(failing)+len(refusing) > 0:
		condition.Reason = v1alpha1.ReasonSomeFailing
	}
	var sentences []string
	for _, part := range []struct {
		sentence string
		names    []string
	}{{messageForwarding, working}, {failure, failing}, {messageLeftOut, refusing}, {messageWrongClock, wrong}} {
		if len(part.names) > 0 {
			sentences = append(sentences, part.sentence+strings.Join(slices.Compact(part.names), ", ")+".")
		}
	}
	condition.Message = strings.Join(sentences, " ")
	return true
}
