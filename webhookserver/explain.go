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
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/webhookserver/capture"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// Explain answers a payload as the endpoint answers a dry run of it, posted to the address of the integration now.
func Explain(
	ctx context.Context, integration *v1alpha1.WebhookIntegration, beats []*v1alpha1.Heartbeat, header http.Header, payload []byte,
) (code int, body []byte, failures []mapping.Failure) {
	return Replay(ctx, integration, beats,
		&capture.Request{Time: time.Now(), Method: http.MethodPost, Path: eventsPath, Header: header, Body: payload},
		DefaultMaxBodyBytes)
}

// received is the time at which a request was received.
type received struct{ time.Time }

func (r received) Now() time.Time { return r.Time }

// ReplayLimit returns the MaxBodyBytes for replays of a request that an integration has received: more than the default if the
// operator must have had more to read it. The limits of presets depend on it.
func ReplayLimit(
	ctx context.Context, current *v1alpha1.WebhookIntegration, beats []*v1alpha1.Heartbeat, kept *capture.Request,
) int64 {
	size := int64(len(kept.Body))
	if size <= DefaultMaxBodyBytes || kept.Code == 0 || kept.Code == http.StatusRequestEntityTooLarge {
		return DefaultMaxBodyBytes
	}
	if code, _, _ := Replay(ctx, current, beats, kept, DefaultMaxBodyBytes); code == http.StatusRequestEntityTooLarge {
		return size
	}
	return DefaultMaxBodyBytes
}

// Replay answers a request as the endpoint answers a dry run of it: by the same handler, but without a server, a cluster or a
// token. It returns the status code, the JSON of the answer (200 with the alerts, or a problem) and the expressions that failed.
func Replay(
	ctx context.Context, integration *v1alpha1.WebhookIntegration, beats []*v1alpha1.Heartbeat, kept *capture.Request,
	maxBodyBytes int64,
) (code int, body []byte, failures []mapping.Failure) {
	query := url.Values{}
	maps.Copy(query, kept.Query)
	query.Set(dryRunParameter, "true")
	target := kept.Path + "?" + query.Encode()
	request, err := http.NewRequestWithContext(ctx, kept.Method, target, bytes.NewReader(kept.Body))
	if err != nil { // neither can be wrong but by hand
		return problemNotFound.Status, encode(&problemNotFound).body, nil
	}
	if kept.Header != nil {
		request.Header = kept.Header.Clone()
	}
	options := Options{Heartbeats: heartbeats.NewIndex(), Clock: received{kept.Time}, MaxBodyBytes: maxBodyBytes}.withDefaults()
	for _, h := range beats {
		options.Heartbeats.Set(h)
	}
	h := newHandler(options, nil, nil, commit.New(nil, 1, nil), nil, newReporter(nil, nil, logr.Discard()), logr.Discard())
	a := &authenticated{arrived: h.arrive(request), integration: integration.DeepCopy()}
	if a.operation == nil || a.allowed != nil || a.operation.IsQuery() {
		return problemNotFound.Status, encode(&problemNotFound).body, nil
	}
	a.integration.Spec.Verify = nil // the payload is no request
	s := served{arrived: a.arrived, owner: a}
	reply, p := h.serve(&s)
	if p != nil {
		reply = p.reply(nil)
	}
	if s.accepted != nil {
		failures = s.accepted.failures
	}
	return reply.Status, encode(reply.Body).body, failures
}
