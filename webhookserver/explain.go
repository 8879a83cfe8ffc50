package webhookserver

import (
	"bytes"
	"context"
	"net/http"

	"github.com/go-logr/logr"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// Explain answers a request as the endpoint answers a dry run of it: by the same handler, but without a server, a cluster or a
// token. It returns the status code, the JSON of the answer (200 with the alerts, or a problem) and the expressions that failed.
func Explain(
	ctx context.Context, integration *v1alpha1.WebhookIntegration, beats []*v1alpha1.Heartbeat, header http.Header, payload []byte,
) (code int, body []byte, failures []mapping.Failure) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, eventsPath+"?dryRun=true", bytes.NewReader(payload))
	if err != nil {
		return http.StatusInternalServerError, nil, nil // neither the method nor the path can be wrong
	}
	if header != nil {
		request.Header = header.Clone()
	}
	options := Options{Heartbeats: heartbeats.NewIndex()}.withDefaults()
	for _, h := range beats {
		options.Heartbeats.Set(h)
	}
	h := newHandler(options, nil, nil, commit.New(nil, 1, nil), nil, newReporter(nil, nil, logr.Discard()), logr.Discard())
	a := &authenticated{arrived: h.arrive(request), integration: integration.DeepCopy()}
	a.integration.Spec.Verify = nil // the payload is no request
	var s served
	reply, p := h.serve(&s, a)
	if p != nil {
		reply = p.reply(nil)
	}
	if stored, ok := s.phase.(*stored); ok {
		failures = stored.Failures
	}
	return reply.Status, encode(reply.Body).body, failures
}
