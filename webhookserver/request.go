package webhookserver

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// eventsPath is the path to which alerts are posted, followed by a slash and the token, or by nothing when the token is
// in the Authorization header.
const eventsPath = "/api/v1/events/webhook"

// notifierPath is appended to the address by Prometheus, vmalert and others that take the endpoint for an Alertmanager.
const notifierPath = "/api/v2/alerts"

// exchange is one request and the facts gathered about it.
type exchange struct {
	*http.Request
	writer http.ResponseWriter // for the limit of the body only; the answer is a return value
	start  time.Time

	token       string
	integration *v1alpha1.WebhookIntegration // of a valid token
	dryRun      bool
	key         string     // idempotency key
	read        bool       // the body has been read to its end
	cause       error      // the error behind a problem, for the log
	span        trace.Span // nil without tracing
}

// sender returns the name of the request's integration.
func (x *exchange) sender() types.NamespacedName {
	return types.NamespacedName{Namespace: x.integration.Namespace, Name: x.integration.Name}
}

// parseToken takes the token from the path or from the Authorization header. It returns false for another path.
func (x *exchange) parseToken() bool {
	pathToken, found := strings.CutPrefix(strings.TrimSuffix(x.URL.Path, notifierPath), eventsPath)
	x.token = strings.Trim(pathToken, "/")
	if !found || strings.Contains(x.token, "/") || pathToken != "" && pathToken[0] != '/' {
		return false
	}
	if x.token == "" {
		x.token = bearerToken(x.Header)
	}
	return true
}

// bearerToken returns the token of the Authorization header (RFC 6750, section 2.1), empty when there is none.
func bearerToken(header http.Header) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// parseParameters reads the query and the idempotency key.
func (x *exchange) parseParameters() (p *problem) {
	if values, given := x.URL.Query()["dryRun"]; given {
		var err error
		if x.dryRun, err = strconv.ParseBool(values[len(values)-1]); err != nil {
			return &problemDryRun
		}
	}
	x.key, p = idempotencyKey(x.Header)
	return p
}
