package webhookserver

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/go-logr/logr"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// Reader is an integration as it reads payloads: with the features that know it.
type Reader struct {
	*v1alpha1.WebhookIntegration

	Features []feature.Feature
}

// Explain answers a payload as the endpoint answers a dry run of it, posted to the address of the integration now.
func Explain(ctx context.Context, reader Reader, header http.Header, payload []byte) (
	code int, body []byte, failures []mapping.Failure,
) {
	request, err := dryRun(ctx, http.MethodPost, eventsPath, nil, header, payload)
	if err != nil {
		return problemNotFound.Status, encode(&problemNotFound).body, nil
	}
	return answerAt(reader, request, time.Now(), DefaultMaxBodyBytes)
}

// received is the time at which a request was received.
type received struct{ time.Time }

func (r received) Now() time.Time { return r.Time }

// answerAt answers a request that was received at a time as the endpoint answers a dry run of it: by the same handler, but
// without a server, a cluster or a token. It returns the status code, the JSON of the answer (200 with the alerts, or a problem)
// and the expressions that failed.
func answerAt(reader Reader, request *http.Request, at time.Time, maxBodyBytes int64) (
	code int, body []byte, failures []mapping.Failure,
) {
	options := Options{Features: reader.Features, Clock: received{at}, MaxBodyBytes: maxBodyBytes}.withDefaults()
	h := newHandler(options, nil, nil, commit.New(nil, 1, nil), nil, newReporter(nil, nil, logr.Discard()), logr.Discard())
	a := &authenticated{arrived: h.arrive(request), integration: reader.DeepCopy()}
	if a.operation == nil || a.allowed != nil || a.operation.IsQuery() {
		return problemNotFound.Status, encode(&problemNotFound).body, nil
	}
	a.integration.Spec.Verify = nil // the payload is no request
	s := served{arrived: a.arrived, authenticated: a}
	reply, p := h.serve(&s)
	if p != nil {
		reply = p.Reply(nil)
	}
	if s.accepted != nil {
		failures = s.accepted.failures
	}
	return reply.Status, encode(reply.Body).body, failures
}

func dryRun(ctx context.Context, method, path string, query url.Values, header http.Header, body []byte) (*http.Request, error) {
	asked := url.Values{}
	maps.Copy(asked, query)
	asked.Set(protocol.DryRunParameter, "true")
	request, err := http.NewRequestWithContext(ctx, method, path+"?"+asked.Encode(), bytes.NewReader(body))
	if err == nil && header != nil {
		request.Header = header.Clone()
	}
	return request, err
}
