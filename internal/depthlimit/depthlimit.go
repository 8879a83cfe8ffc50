// Package depthlimit keeps deeply nested objects from breaking the reads of everybody else's.
//
// The API server stores nearly as many levels of nesting as a JSON decoder reads, and a list wraps its objects in a
// few more. Without a limit, one object that somebody makes by hand keeps every informer from reading the objects of
// all namespaces.
package depthlimit

import (
	"io"
	"mime"
	"net/http"
	"strings"

	"k8s.io/client-go/transport"
)

// maxDepth is how deep the JSON of a response may nest. The webhook endpoint takes 64 levels.
const maxDepth = 1000

// Wrap returns what rest.Config.Wrap needs: every JSON response to a read of the API group loses the content of
// objects and arrays that nest deeper than 1,000 levels. Other encodings pass unchanged: their decoders have limits of
// their own, and in them a bracket is an ordinary byte.
func Wrap(group string) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return &depthLimiter{next: next, path: "/apis/" + group + "/"}
	}
}

// depthLimiter is the transport that Wrap adds.
type depthLimiter struct {
	next http.RoundTripper
	path string // part of the paths of the API group
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (l *depthLimiter) WrappedRoundTripper() http.RoundTripper { return l.next }

// RoundTrip implements http.RoundTripper.
func (l *depthLimiter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	// The answer to a write is what the manager has written.
	reads := request.Method == http.MethodGet
	if err == nil && reads && strings.Contains(request.URL.Path, l.path) && isJSON(response.Header) {
		response.Body = &depthFilter{ReadCloser: response.Body, limit: maxDepth}
		response.ContentLength = -1
		response.Header.Del("Content-Length")
	}
	return response, err
}

// isJSON reports whether a response's body is plain JSON, one document or a stream of them. Lists and watches of
// metadata arrive as protobuf.
func isJSON(header http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && mediaType == "application/json" && header.Get("Content-Encoding") == ""
}

// depthFilter passes JSON on, one document or many, and empties objects and arrays that are at the limit.
type depthFilter struct {
	io.ReadCloser
	limit             int // at least 1
	depth             int
	inString, escaped bool
}

// Read implements io.Reader.
func (f *depthFilter) Read(p []byte) (int, error) {
	for {
		n, err := f.ReadCloser.Read(p)
		n = f.filter(p[:n])
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// filter drops from text what is too deep, moves the rest together, and returns its length.
func (f *depthFilter) filter(text []byte) int {
	kept := 0
	for _, c := range text {
		keep := f.depth < f.limit
		switch {
		case f.escaped:
			f.escaped = false
		case f.inString:
			f.escaped = c == '\\'
			f.inString = c != '"'
		case c == '"':
			f.inString = true
		case c == '{' || c == '[':
			f.depth++
			keep = f.depth <= f.limit
		case c == '}' || c == ']':
			keep = f.depth <= f.limit
			f.depth--
		}
		if keep {
			text[kept] = c
			kept++
		}
	}
	return kept
}
