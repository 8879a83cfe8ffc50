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
	request.Started, request.Incidents = h.started, incidents{h, c.authenticated}
	return c.operation.Answer(request), nil
}

// incidents are those of the namespace of a request.
type incidents struct {
	handler *handler
	request *authenticated
}

// Exists implements protocol.Incidents. It returns false if the API server does not answer. What is not Resolved is known.
func (i incidents) Exists(incident string) bool {
	namespace := i.request.integration.Namespace
	if i.handler.options.Capacity.HasOpenIncident(namespace, incident) {
		return true
	}
	ctx, cancel := context.WithTimeout(i.request.Context(), commit.Timeout)
	defer cancel()
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Incident"))
	return i.handler.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: incident}, found) == nil
}
