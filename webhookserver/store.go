package webhookserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// exists reports whether an Incident exists; false if the API server does not answer. What is not Resolved is known.
func (h *handler) exists(x *exchange, incident string) bool {
	namespace := x.integration.Namespace
	if h.options.Capacity.HasOpenIncident(namespace, incident) {
		return true
	}
	ctx, cancel := context.WithTimeout(x.Context(), commit.Timeout)
	defer cancel()
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Incident"))
	return h.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: incident}, found) == nil
}

// store stores the alerts of a request, or those that do not need an Incident for which there is no capacity. In the
// latter case it returns the problem that says so.
func (h *handler) store(x *exchange, alerts []v1alpha1.Alert) (commit.Receipt, *problem) {
	// Where new Incidents are refused, an alert that needs one would wait as an AlertEvent, without the sender's knowledge.
	blocked := integrations.Blocked(x.integration) != ""
	storable := h.options.Capacity.Reserve(x.integration.Namespace, alerts, blocked)
	receipt, p := h.storeParts(x, alerts, storable)
	if p != nil {
		return commit.Receipt{}, p
	}
	for i := range receipt.Alerts {
		alertsTotal.Of(x.sender(), string(receipt.Alerts[i].Status)).Inc()
	}
	if len(receipt.Alerts) == 0 {
		return commit.Receipt{}, &problemIncidentLimit
	}
	if refused := len(alerts) - len(receipt.Alerts); refused > 0 {
		return commit.Receipt{}, problemIncidentLimit.withDetail(fmt.Sprintf(
			"Of %d alerts, %d need a new incident, and the namespace has reached its limit; they were not stored. "+
				"The others were. Try again later.", len(alerts), refused))
	}
	return receipt, nil
}

// storeParts stores the alerts of a request that can be stored now, and returns all its alerts that are stored by then. When an
// earlier copy of a request with an idempotency key was stored in part, because of the limit of Incidents, the first AlertEvent
// of the key has that part. The rest goes to the next one. So each copy stores what no other has stored. If nothing can be stored
// now, the AlertEvents are read: the answer to an earlier copy may be lost, and its alerts wait to be folded.
func (h *handler) storeParts(x *exchange, requested, storable []v1alpha1.Alert) (all commit.Receipt, p *problem) {
	switch {
	case x.key != "":
	case len(storable) == 0:
		return all, nil
	default:
		return h.submit(x, storable, 0)
	}
	stored := make(map[string]*v1alpha1.Alert, len(requested)) // by id, which is derived from the body; nil: not yet
	for i := range requested {
		stored[requested[i].ID] = nil
	}
	for part, missing := 0, len(stored); missing > 0; part++ {
		receipt, p := h.submitOrFind(x, storable, part)
		if p != nil {
			return all, p
		}
		if receipt.EventName == "" {
			break
		}
		for i := range receipt.Alerts {
			alert := &receipt.Alerts[i]
			before, known := stored[alert.ID]
			if !known {
				return all, &problemConflict
			}
			if before == nil {
				missing--
			}
			stored[alert.ID] = alert
		}
		if len(receipt.Alerts) == 0 {
			return all, &problemConflict
		}
		all.EventName = cmp.Or(all.EventName, receipt.EventName)
		storable = slices.DeleteFunc(slices.Clone(storable), func(alert v1alpha1.Alert) bool { return stored[alert.ID] != nil })
	}
	for i := range requested {
		if alert := stored[requested[i].ID]; alert != nil {
			all.Alerts = append(all.Alerts, *alert)
		}
	}
	return all, nil
}

// submitOrFind stores the alerts of a request with an idempotency key as the part with this number, or if there are none, finds
// the part that an earlier copy has stored. The receipt is empty if there is none.
func (h *handler) submitOrFind(x *exchange, alerts []v1alpha1.Alert, part int) (commit.Receipt, *problem) {
	if len(alerts) > 0 {
		return h.submit(x, alerts, part)
	}
	memory := h.bodies.Reserve(x.sender(), queryMemory, 0)
	if memory == nil {
		return commit.Receipt{}, &problemOverload
	}
	defer memory.Release()
	ctx, cancel := h.storeContext(x)
	defer cancel()
	receipt, err := h.committer.Find(ctx, types.NamespacedName{Namespace: x.integration.Namespace, Name: x.eventName(part)})
	if err != nil {
		x.cause = err
		return receipt, &problemUnknown
	}
	return receipt, nil
}

// eventName returns the name of the AlertEvent with a part of the request, empty without an idempotency key.
func (x *exchange) eventName(part int) string {
	key := x.key
	switch {
	case key == "":
		return ""
	case part > 0:
		key = fmt.Sprintf("%s\x00%d", key, part) // no header has a NUL
	}
	return v1alpha1.KeyedEventName(x.integration.Name, key)
}

// storeContext returns the context of a call of the committer. It does not end when the client hangs up: a request that has
// arrived whole is better stored, and many senders do not wait for the answer.
func (h *handler) storeContext(x *exchange) (context.Context, context.CancelFunc) {
	timeout := min(commit.Timeout, requestTimeout-h.options.Now().Sub(x.start))
	return context.WithTimeout(context.WithoutCancel(x.Context()), timeout)
}

// submit hands the alerts to the committer, those of a request with an idempotency key as the part with this number.
func (h *handler) submit(x *exchange, alerts []v1alpha1.Alert, part int) (commit.Receipt, *problem) {
	submission := commit.Submission{
		Integration: x.sender(),
		Defaults:    x.integration.Spec.Defaults,
		Received:    x.received,
		Alerts:      alerts,
		EventName:   x.eventName(part),
	}
	ctx, cancel := h.storeContext(x)
	defer cancel()
	receipt, err := h.committer.Commit(ctx, submission)
	if err != nil {
		return receipt, commitProblem(x, err)
	}
	return receipt, nil
}

// errQuotedToken stands for an error of the API server that cannot be repeated.
var errQuotedToken = errors.New("the API server refused the AlertEvent with a message that quotes the token")

func commitProblem(x *exchange, err error) *problem {
	x.cause = err
	var invalid *commit.InvalidError
	var denied *commit.DeniedError
	switch {
	case errors.As(err, &denied):
		refusedTotal.Of(x.sender(), denied.Reason).Inc()
		p := problemRefused
		p.reason, p.ownerDetail = denied.Reason, denied.Message
		// A policy may quote an alert that has the sender's own address in it, and its message may be cut.
		if strings.Contains(p.ownerDetail, x.token[:min(len(x.token), quotedTokenPrefix)]) {
			p.ownerDetail, x.cause = "", errQuotedToken
		}
		return &p
	case errors.As(err, &invalid):
		return problemRejected.withDetail("The alert is " + invalid.Message + ".")
	case errors.Is(err, commit.ErrOverloaded):
		return &problemOverload
	case errors.Is(err, commit.ErrUnavailable):
		return &problemUnavailable
	default:
		return &problemUnknown // the one that promises least
	}
}
