package forward

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	messageRejecting      = "These do not accept some of them: "
	messageWrongClock     = "The clocks of these differ from the API server's: "
)

// Condition returns the condition Forwarded of an integration. It is not ok while it cannot be decided: the condition then
// stays as it is.
func (f *Forwarder) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	condition.Status = metav1.ConditionFalse
	t, file := f.term.Load(), f.file.Load()
	switch {
	case t == nil || file.config.IsEmpty() && file.err == nil:
		return condition, false
	case file.config.IsEmpty():
		condition.Reason, condition.Message = v1alpha1.ReasonInvalidConfig, messageInvalidConfig+oneLine(file.err)+"."
		return condition, true
	}
	var selected []*endpoint
	for _, e := range t.endpoints.all() {
		if exclusion := e.target.Load().ExcludesIntegration(integration); exclusion != nil {
			condition.Reason, condition.Message = exclusion.Condition, exclusion.Message
		} else {
			selected = append(selected, e)
		}
	}
	if len(selected) == 0 {
		return condition, condition.Reason != ""
	}
	ok = t.describeHealth(&condition, selected, client.ObjectKeyFromObject(integration), time.Now())
	if now, isKnown := t.forwarder.clock.Now(); isKnown && t.forwarder.Mutings != nil {
		t.forwarder.Mutings.Describe(&condition, integration, now)
	}
	if file.err != nil {
		condition.Message += " " + messageInvalidConfig + oneLine(file.err) + "." + messageLastValidInUse
	}
	return condition, ok
}

// oneLine returns the errors of the configuration file in one line.
func oneLine(err error) string {
	const maxChars, maxBytes = 1024, 4096
	return plaintext.OneLine(strings.ReplaceAll(err.Error(), "\n", "; "), maxChars, maxBytes)
}

// listed returns causes as a list in their order.
func listed(causes sets.Set[string]) string { return strings.Join(sets.List(causes), ", ") }

// endpointHealth is how the addresses of an endpoint do.
type endpointHealth struct {
	healthy, total int
	failures       sets.Set[string] // why the others fail
	rejections     sets.Set[string] // why some Incidents of the integration are not accepted
	isClockWrong   bool
}

// health returns the health of an endpoint, and reports whether that of all its addresses is known. isOwn selects the Incidents
// of an integration.
func (e *endpoint) health(isOwn func(types.NamespacedName) bool, now time.Time) (h endpointHealth, known bool) {
	posters := e.posters.all()
	h = endpointHealth{total: len(posters), failures: sets.New[string](), rejections: sets.New[string]()}
	for _, p := range posters {
		healthy, known := p.record.health(now)
		if !known {
			return h, false
		}
		failure, rejection := p.record.causes()
		if healthy {
			h.healthy++
		} else {
			h.failures.Insert(failure)
		}
		if p.record.rejects(isOwn, now) {
			h.rejections.Insert(rejection)
		}
		h.isClockWrong = h.isClockWrong || p.skew.wrong.Load()
	}
	return h, h.total > 0
}

// describeFailures says which of an endpoint's addresses fail, and why.
func (h *endpointHealth) describeFailures(name string) string {
	if h.healthy == 0 {
		return fmt.Sprintf("%s (%s)", name, listed(h.failures))
	}
	return fmt.Sprintf("%s (%d of %d addresses: %s)", name, h.total-h.healthy, h.total, listed(h.failures))
}

// describeHealth fills in the condition of an integration for the endpoints to which its Incidents are posted. It reports false
// while the health of one is unknown.
func (t *term) describeHealth(
	condition *metav1.Condition, endpoints []*endpoint, integration types.NamespacedName, now time.Time,
) bool {
	isOwn := func(incident types.NamespacedName) bool {
		known, _, _ := t.incidents.get(incident)
		return incident.Namespace == integration.Namespace && known.integration == integration.Name
	}
	var working, failing, rejecting, wrong []string
	for _, e := range endpoints {
		h, known := e.health(isOwn, now)
		if !known {
			return false
		}
		if h.healthy > 0 {
			working = append(working, e.name)
		}
		if h.healthy < h.total {
			failing = append(failing, h.describeFailures(e.name))
		}
		if len(h.rejections) > 0 {
			rejecting = append(rejecting, fmt.Sprintf("%s (%s)", e.name, listed(h.rejections)))
		}
		if h.isClockWrong {
			wrong = append(wrong, e.name)
		}
	}
	failure := messageSomeFailing
	condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonForwarding
	switch {
	case len(working) == 0:
		failure = messageAllFailing
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonAllFailing
	case len(failing)+len(rejecting) > 0:
		condition.Reason = v1alpha1.ReasonSomeFailing
	}
	var sentences []string
	for _, part := range []struct {
		sentence string
		names    []string
	}{{messageForwarding, working}, {failure, failing}, {messageRejecting, rejecting}, {messageWrongClock, wrong}} {
		if len(part.names) > 0 {
			sentences = append(sentences, part.sentence+strings.Join(part.names, ", ")+".")
		}
	}
	condition.Message = strings.Join(sentences, " ")
	return true
}
