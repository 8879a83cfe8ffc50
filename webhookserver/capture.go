package webhookserver

import (
	"net/url"
	"strings"

	"github.com/tocsin-dev/tocsin/webhookserver/capture"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// capture keeps a request that has a place at a processor, whatever its answer will be, unless it is a dry run: that stores
// nothing.
func (h *handler) capture(r *read, body []byte) {
	if r.dryRun || !h.captures.Wants(r.integration) {
		return
	}
	query := url.Values{}
	for name, value := range r.queryParts() {
		capture.AddParameter(query, name, value)
	}
	r.captured = h.captures.Add(r.integration, capture.Request{
		Time: r.received, Method: r.Method, Query: query, Body: body,
		Path:   eventsPath + strings.Replace(r.operation.Path, "{identifier}", url.PathEscape(r.identifier), 1),
		Header: capture.Headers(mapping.VisibleHeaders(r.contentHeader())),
	})
}
