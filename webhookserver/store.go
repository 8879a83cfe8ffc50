package webhookserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// alertStore stores alerts within the capacity of the server and of the cluster.
type alertStore struct {
	capacity  *commit.Capacity
	committer committer
	live      client.Reader // of the API server, not of a cache
	now       func() time.Time
}

type committer interface {
	CheckCapacity(integration types.NamespacedName) error
	Commit(ctx context.Context, submission commit.Submission) (commit.Receipt, error)
}

// exists reports whether an Incident exists; false if the API server does not answer. What is not Resolved is known.
func (s *alertStore) exists(ctx context.Context, incident types.NamespacedName) bool {
	if s.capacity.Incidents.Has(incident.Namespace, incident.Name) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, commit.Timeout)
	defer cancel()
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Incident"))
	return s.live.Get(ctx, incident, found) == nil
}

// checkCapacity refuses a request of the sender that could not be stored soon.
func (s *alertStore) checkCapacity(sender types.NamespacedName) *problem {
	switch {
	case s.capacity.Pending.IsFull(sender.Namespace):
		return &problemNamespaceFull
	case s.committer.CheckCapacity(sender) != nil:
		return &problemOverload
	}
	return nil
}

// commit stores the alerts of a request, or those that do not need an Incident for which there is no capacity. In the
// latter case it returns the problem that says so.
func (s *alertStore) commit(x *exchange, alerts []v1alpha1.Alert) (commit.Receipt, *problem) {
	if !commit.Fits(alerts) {
		return commit.Receipt{}, &problemBatchTooLarge
	}
	storable, reserved := s.withinIncidentLimit(x.integration, alerts)
	defer reserved.Release()
	if len(storable) == 0 {
		return commit.Receipt{}, &problemIncidentLimit
	}
	receipt, p := s.storeParts(x, alerts, storable)
	if p != nil {
		return commit.Receipt{}, p
	}
	for i := range receipt.Alerts {
		alertsTotal.WithLabelValues(x.integration.Namespace, x.integration.Name, string(receipt.Alerts[i].Status)).Inc()
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
// of the key has that part. The rest goes to the next one. So each copy stores what no other has stored.
func (s *alertStore) storeParts(x *exchange, request, storable []v1alpha1.Alert) (commit.Receipt, *problem) {
	stored := map[string]v1alpha1.Alert{} // by id
	first := ""
	for part := 0; len(storable) > 0; part++ {
		receipt, err := s.submit(x, storable, part)
		if err != nil {
			return commit.Receipt{}, commitProblem(x, err)
		}
		first = cmp.Or(first, receipt.EventName)
		if x.key == "" {
			return receipt, nil
		}
		for i := range receipt.Alerts {
			stored[receipt.Alerts[i].ID] = receipt.Alerts[i]
		}
		if len(receipt.Alerts) == 0 || !hasAll(request, receipt.Alerts) {
			return commit.Receipt{}, &problemConflict
		}
		storable = slices.DeleteFunc(slices.Clone(storable), func(alert v1alpha1.Alert) bool {
			_, ok := stored[alert.ID]
			return ok
		})
	}
	receipt := commit.Receipt{EventName: first}
	for i := range request {
		if alert, ok := stored[request[i].ID]; ok {
			receipt.Alerts = append(receipt.Alerts, alert)
		}
	}
	return receipt, nil
}

// hasAll reports whether the alerts are of the request. The id of a keyed alert is derived from the request's body.
func hasAll(request, alerts []v1alpha1.Alert) bool {
	ids := map[string]bool{}
	for i := range request {
		ids[request[i].ID] = true
	}
	return !slices.ContainsFunc(alerts, func(alert v1alpha1.Alert) bool { return !ids[alert.ID] })
}

// withinIncidentLimit leaves out the alerts that need a new Incident when the namespace may have none: because of
// the limit, or because the leader says that the API server rejects new ones. They would wait as an AlertEvent, without
// the sender's knowledge. It keeps firing alerts of open Incidents, and all that do not fire. The new Incidents are
// reserved for the alerts that it returns.
func (s *alertStore) withinIncidentLimit(
	integration *v1alpha1.WebhookIntegration, alerts []v1alpha1.Alert,
) (storable []v1alpha1.Alert, reserved *commit.Reservation) {
	incidents := s.capacity.Incidents
	blocked := integrations.Blocked(integration) != ""
	reserved = incidents.Reserve(integration.Namespace)
	for i := range alerts {
		name := alerts[i].IncidentName
		if alerts[i].Status != v1alpha1.AlertFiring ||
			blocked && incidents.Has(integration.Namespace, name) || !blocked && reserved.Add(name) {
			storable = append(storable, alerts[i])
		}
	}
	return storable, reserved
}

// submit hands the alerts to the committer, those of a request with an idempotency key as the part with this number. The wait
// does not end when the client hangs up: a request that has arrived whole is better stored, and many senders do not wait for
// the answer.
func (s *alertStore) submit(x *exchange, alerts []v1alpha1.Alert, part int) (commit.Receipt, error) {
	submission := commit.Submission{
		Integration: x.sender(),
		Defaults:    x.integration.Spec.Defaults,
		Received:    x.received(),
		Alerts:      alerts,
	}
	if x.key != "" {
		key := x.key
		if part > 0 {
			key = fmt.Sprintf("%s\x00%d", key, part) // no header has a NUL
		}
		submission.EventName = v1alpha1.KeyedEventName(x.integration.Name, key)
	}
	timeout := min(commit.Timeout, requestTimeout-s.now().Sub(x.start))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.Context()), timeout)
	defer cancel()
	return s.committer.Commit(ctx, submission)
}

// errQuotedToken stands for an error of the API server that cannot be repeated.
var errQuotedToken = errors.New("the API server refused the AlertEvent with a message that quotes the token")

func commitProblem(x *exchange, err error) *problem {
	x.cause = err
	var invalid *commit.InvalidError
	var denied *commit.DeniedError
	switch {
	case errors.As(err, &denied):
		refusedTotal.WithLabelValues(x.integration.Namespace, x.integration.Name, denied.Reason).Inc()
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
