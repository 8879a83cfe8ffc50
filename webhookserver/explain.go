package webhookserver

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// explainToken is the token of the requests that Explain makes.
const explainToken = "explain"

// Explain answers a request as the endpoint answers a dry run of it: by the same handler, but without a server,
// a cluster or a token. header are the request's, body what is posted. What it returns is the status code and
// the JSON of the answer: 200 with the alerts, or a problem.
func Explain(
	ctx context.Context, integration *v1alpha1.WebhookIntegration, header http.Header, body []byte,
) (code int, answer []byte) {
	owner := integration.DeepCopy()
	owner.DeletionTimestamp = nil
	owner.Spec.Tokens = []v1alpha1.Token{{Name: explainToken, SHA256: v1alpha1.TokenHash(explainToken)}}
	tokens := newTokenIndex()
	tokens.set(owner)
	h := &handler{
		maxBodyBytes: DefaultMaxBodyBytes,
		synced:       func() bool { return true },
		tokens:       tokens,
		pending:      commit.NewPendingEvents(DefaultMaxPendingEvents, 1),
		bodies:       newMemoryBudget(bodyShares),
		decoded:      newMemoryBudget(decodedShares),
		mappings:     &mapping.Cache{},
		evaluation:   maxEvaluation,
		committer:    commit.New(nil, 1, nil),
		rejections:   noReports{},
		now:          time.Now,
		log:          logr.Discard(),
	}
	const target = eventsPath + "/" + explainToken + "?dryRun=true"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return http.StatusInternalServerError, nil // the method and the path are constants
	}
	if header != nil {
		request.Header = header.Clone()
	}
	recorder := &recorder{header: http.Header{}}
	h.ServeHTTP(recorder, request)
	return recorder.code, recorder.body.Bytes()
}

// noReports shows refusals nowhere.
type noReports struct{}

func (noReports) report(*v1alpha1.WebhookIntegration, string, string) {}

func (noReports) reportFailures(*v1alpha1.WebhookIntegration, []mapping.Failure) {}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) { r.code = code }

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
