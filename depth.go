package main

import (
	"io"
	"net/http"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// maxDepth is how deep what the manager reads of its own resources may nest. The endpoint takes 64 levels.
const maxDepth = 1000

// shallow is a transport that empties what nests deeper than maxDepth in Tocsin's own resources. The API server
// stores nearly as many levels as a JSON decoder reads, and a list wraps its objects in some more: one AlertEvent
// that somebody made by hand would keep every informer from reading those of all namespaces.
type shallow struct{ next http.RoundTripper }

func newShallow(next http.RoundTripper) http.RoundTripper { return shallow{next} }

// WrappedRoundTripper lets client-go find the transport behind this one.
func (s shallow) WrappedRoundTripper() http.RoundTripper { return s.next }

func (s shallow) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := s.next.RoundTrip(request)
	// What is answered to a write is what the manager has written.
	reads := request.Method == http.MethodGet
	if err == nil && reads && strings.Contains(request.URL.Path, "/apis/"+v1alpha1.GroupVersion.Group+"/") {
		response.Body = &depthFilter{ReadCloser: response.Body, limit: maxDepth}
		response.ContentLength = -1
		response.Header.Del("Content-Length")
	}
	return response, err
}

// depthFilter passes JSON on, one document or many, and leaves objects and arrays empty that are at the limit.
type depthFilter struct {
	io.ReadCloser
	limit             int // at least 1
	depth             int
	inString, escaped bool
}

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
