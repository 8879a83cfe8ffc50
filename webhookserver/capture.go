package webhookserver

import (
	"context"
	"net/http"
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

// ReplayLimit returns the MaxBodyBytes for replays of a request that an integration has received: more than the default if the
// operator must have had more to read it. The limits of presets depend on it.
func ReplayLimit(ctx context.Context, current Reader, kept *capture.Request) int64 {
	size := int64(len(kept.Body))
	if size <= DefaultMaxBodyBytes || kept.Code == 0 || kept.Code == http.StatusRequestEntityTooLarge {
		return DefaultMaxBodyBytes
	}
	if code, _, _ := Replay(ctx, current, kept, DefaultMaxBodyBytes); code == http.StatusRequestEntityTooLarge {
		return size
	}
	return DefaultMaxBodyBytes
}

// Replay answers a request as the endpoint answers a dry run of it.
func Replay(ctx context.Context, reader Reader, kept *capture.Request, maxBodyBytes int64) (
	code int, body []byte, failures []mapping.Failure,
) {
	request, err := dryRun(ctx, kept.Method, kept.Path, kept.Query, kept.Header, kept.Body)
	if err != nil { // neither can be wrong but by hand
		return problemNotFound.Status, encode(&problemNotFound).body, nil
	}
	return answerAt(reader, request, kept.Time, maxBodyBytes)
}
