package webhookserver

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// query answers a request that stores nothing. It may read an Incident from the API server.
func (h *handler) query(c *checked) (reply protocol.Reply, p *problem) {
	if _, p = h.reserve(c.authenticated, queryMemory); p != nil {
		return reply, p
	}
	request := c.forOperation()
	request.Started = h.started
	request.HasIncident = func(name string) bool { return h.hasIncident(c.authenticated, name) }
	return c.operation.Answer(request), nil
}

// hasIncident reports whether the namespace of a request has an Incident. What is not Resolved is known; it returns false if the
// API server does not answer.
func (h *handler) hasIncident(a *authenticated, name string) bool {
	namespace := a.integration.Namespace
	if h.options.Capacity.HasOpenIncident(namespace, name) {
		return true
	}
	ctx, cancel := context.WithTimeout(a.Context(), commit.Timeout)
	defer cancel()
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Incident"))
	return h.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, found) == nil
}
