// Package depthlimit prevents a deeply nested object from breaking reads of all other objects.
//
// The API server stores nearly as many levels of nesting as a JSON decoder reads, and a list adds a few more. Without a
// limit, one hand-made object prevents every informer from reading the objects of all namespaces.
package depthlimit

import (
	"io"
	"mime"
	"net/http"

	"k8s.io/client-go/transport"

	"github.com/tocsin-dev/tocsin/internal/responses"
)

// maxDepth is the maximum nesting depth of a JSON response. The webhook endpoint accepts 64 levels.
const maxDepth = 1000

// Wrap returns a wrapper for rest.Config.Wrap that empties objects and arrays nested deeper than 1,000 levels in every
// JSON response to a read of the API group. Other encodings pass unchanged: their decoders have their own limits, and
// in them a bracket is an ordinary byte.
func Wrap(group string) transport.WrapperFunc {
	return responses.Wrap(group, func(_ *http.Request, response *http.Response) {
		if isJSON(response.Header) {
			response.Body = &depthFilter{ReadCloser: response.Body, limit: maxDepth}
			response.ContentLength = -1
			response.Header.Del("Content-Length")
		}
	})
}

// isJSON reports whether a response's body is plain JSON, one document or a stream of them. Lists and watches of
// metadata arrive as protobuf.
func isJSON(header http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && mediaType == "application/json" && header.Get("Content-Encoding") == ""
}

// depthFilter reads a stream of JSON documents and empties objects and arrays below the depth limit.
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

// filter removes bytes below the depth limit from text in place, and returns the remaining length.
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
