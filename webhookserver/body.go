package webhookserver

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// checkHeaders refuses a body for what the headers say of it.
func (h *handler) checkHeaders(r *http.Request) *problem {
	if _, ok := contentEncoding(r); !ok {
		return &problemEncoding
	}
	if r.ContentLength > h.maxBodyBytes {
		return h.tooLarge()
	}
	return nil
}

// contentEncoding tells whether the body is compressed; ok is false when it is so in another way than gzip.
func contentEncoding(r *http.Request) (gzipped, ok bool) {
	switch strings.ToLower(strings.TrimSpace(strings.Join(r.Header.Values("Content-Encoding"), ","))) {
	case "", "identity":
		return false, true
	case "gzip", "x-gzip": // RFC 9110, section 8.4.1.3: the same
		return true, true
	default:
		return false, false
	}
}

func (h *handler) tooLarge() *problem {
	p := problemTooLarge
	p.limit = h.maxBodyBytes
	return &p
}

// bodyReservation is how much memory the request's body may take.
func (h *handler) bodyReservation(r *http.Request) int64 {
	if gzipped, _ := contentEncoding(r); gzipped || r.ContentLength < 0 {
		return h.maxBodyBytes
	}
	return r.ContentLength
}

// readBody reads the body, decompressed. Neither form of it is read further than a byte beyond the limit.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	sent := &bodyReader{source: http.MaxBytesReader(w, r.Body, h.maxBodyBytes)}
	gzipped, _ := contentEncoding(r)
	var source io.Reader = sent
	if gzipped {
		unzip, err := gzip.NewReader(sent)
		if err != nil {
			return nil, h.bodyProblem(sent, err)
		}
		source = io.LimitReader(unzip, h.maxBodyBytes+1)
	}
	var body bytes.Buffer
	if r.ContentLength > 0 && !gzipped {
		body.Grow(int(r.ContentLength) + bytes.MinRead) // spares the buffer's growing; checked against the limit before
	}
	if _, err := body.ReadFrom(source); err != nil {
		return nil, h.bodyProblem(sent, err)
	}
	if int64(body.Len()) > h.maxBodyBytes {
		return nil, h.tooLarge()
	}
	return body.Bytes(), nil
}

// bodyReader remembers the error of the connection, to tell it from one of the decompression.
type bodyReader struct {
	source io.Reader
	err    error
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.source.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

func (h *handler) bodyProblem(sent *bodyReader, err error) *problem {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(sent.err, &tooLarge):
		return h.tooLarge()
	case errors.Is(sent.err, os.ErrDeadlineExceeded):
		return &problemSlow
	case sent.err != nil:
		return &problemUnreadable
	case errors.Is(err, io.EOF): // not even a header
		return &problemEmpty
	default:
		return &problemGzip
	}
}

// parse decodes a body that is JSON, or a form that carries JSON.
func parse(body []byte) (any, []payload.Warning, *problem) {
	if json, ok := payload.FromForm(body); ok {
		body = json
	}
	decoded, warnings, err := payload.ParseAny(body)
	var syntax *payload.SyntaxError
	switch {
	case err == nil:
		return decoded, warnings, nil
	case errors.Is(err, payload.ErrEmpty):
		return nil, nil, &problemEmpty
	case errors.Is(err, payload.ErrTooDeep):
		return nil, nil, &problemTooDeep
	case errors.As(err, &syntax):
		p := problemSyntax
		p.detail = fmt.Sprintf("At byte %d: %s.", syntax.Offset, strings.TrimSuffix(syntax.Detail, "."))
		p.offset, p.hasOffset = syntax.Offset, true
		return nil, nil, &p
	default:
		return nil, nil, problemSyntax.saying("It could not be decoded.")
	}
}
