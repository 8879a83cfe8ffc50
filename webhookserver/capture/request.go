package capture

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Request is a request that is kept.
type Request struct {
	Time   time.Time // at which it was received
	Code   int       // of its answer; 0: it is not answered yet
	Method string
	Path   string // escaped, without the token
	Query  url.Values
	Header http.Header
	Body   []byte // decompressed
}

// size returns about how many bytes the request takes in memory.
func (r *Request) size() int64 {
	size := overhead + len(r.Body) + len(r.Path)
	for name, values := range r.Header {
		size += len(name) + len(strings.Join(values, ""))
	}
	for name, values := range r.Query {
		size += len(name) + len(strings.Join(values, ""))
	}
	return int64(size)
}

// target returns the path with the query.
func (r *Request) target() string {
	if len(r.Query) == 0 {
		return r.Path
	}
	return r.Path + "?" + r.Query.Encode()
}

// encode returns the request as it is stored.
func (r *Request) encode() v1alpha1.CapturedRequest {
	var text bytes.Buffer
	encoder := base64.NewEncoder(base64.StdEncoding, &text)
	zip, _ := gzip.NewWriterLevel(encoder, gzip.BestSpeed) // the level is valid
	// A buffer takes all that is written to it.
	_, _ = fmt.Fprintf(zip, "%s %s HTTP/1.1\r\nHost: tocsin\r\nContent-Length: %d\r\n", r.Method, r.target(), len(r.Body))
	_ = r.Header.Write(zip)
	_, _ = zip.Write([]byte("\r\n"))
	_, _ = zip.Write(r.Body)
	_, _ = zip.Close(), encoder.Close()
	return v1alpha1.CapturedRequest{Time: v1alpha1.NewTimestamp(r.Time), Code: int64(r.Code), Content: text.String()}
}

// Decode returns a request that is stored.
func Decode(stored *v1alpha1.CapturedRequest) (*Request, error) {
	unzip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(stored.Content)))
	if err != nil {
		return nil, fmt.Errorf("decompressing the request: %w", err)
	}
	request, err := http.ReadRequest(bufio.NewReader(io.LimitReader(unzip, maxRequest)))
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	request.Header.Del("Content-Length")
	return &Request{
		Time: stored.Time.Time, Code: int(stored.Code), Method: request.Method, Path: request.URL.EscapedPath(),
		Query: request.URL.Query(), Header: request.Header, Body: body,
	}, nil
}
