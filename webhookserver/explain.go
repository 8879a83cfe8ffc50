package webhookserver

import (
	"bytes"
	"context"
	"net/http"

	"github.com/go-logr/logr"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// Explain answers a request as the endpoint answers a dry run of it: by the same handler, but without a server,
// a cluster or a token. It returns the status code and the JSON of the answer: 200 with the alerts, or a problem.
func Explain(
	ctx context.Context, integration *v1alpha1.WebhookIntegration, header http.Header, body []byte,
) (code int, answer []byte) {
	owner := integration.DeepCopy()
	owner.DeletionTimestamp = nil
	owner.Spec.Verify = nil // the payload is no request
	token := tokens.New(owner.Namespace, owner.Name)
	owner.Spec.Tokens = []v1alpha1.Token{{Name: "explain", SHA256: tokens.Hash(token)}}
	tokens := newTokenIndex()
	tokens.set(owner)
	options := Options{NamespaceShare: 1}.withDefaults()
	capacity := commit.NewCapacity(options.MaxPendingEvents, options.MaxIncidents, options.NamespaceShare)
	ready := func() bool { return true }
	committer, reports := commit.New(nil, 1, nil), newReporter(nil, nil, logr.Discard())
	h := newHandler(options, ready, tokens, capacity, committer, nil, reports, logr.Discard())
	target := eventsPath + "/" + token + "?dryRun=true"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return http.StatusInternalServerError, nil // neither the method nor the path can be wrong
	}
	if header != nil {
		request.Header = header.Clone()
	}
	recorder := &recorder{header: http.Header{}}
	h.ServeHTTP(recorder, request)
	return recorder.code, recorder.body.Bytes()
}

// recorder is an http.ResponseWriter that keeps the answer.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
