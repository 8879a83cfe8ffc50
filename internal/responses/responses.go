// Package responses lets the manager's clients change what the API server answers, before it is decoded.
package responses

import (
	"net/http"
	"strings"

	"k8s.io/client-go/transport"
)

// Wrap returns a wrapper for rest.Config.Wrap that calls change with every response to a read of the API group. A write is
// answered with the manager's own object.
func Wrap(group string, change func(*http.Request, *http.Response)) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return &changer{next: next, path: "/apis/" + group + "/", change: change}
	}
}

// changer is the transport that Wrap adds.
type changer struct {
	next   http.RoundTripper
	path   string // part of the paths of the API group
	change func(*http.Request, *http.Response)
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (c *changer) WrappedRoundTripper() http.RoundTripper { return c.next }

// RoundTrip implements http.RoundTripper.
func (c *changer) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err == nil && request.Method == http.MethodGet && strings.Contains(request.URL.Path, c.path) {
		c.change(request, response)
	}
	return response, err
}
