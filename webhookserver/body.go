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
	"sync"

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
	var body []byte
	var err error
	if gzipped, _ := contentEncoding(r); gzipped {
		body, err = inflate(sent, h.maxBodyBytes)
	} else {
		var buffer bytes.Buffer
		buffer.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead) // spares its growing; checked against the limit before
		_, err = buffer.ReadFrom(sent)
		body = buffer.Bytes()
	}
	if err != nil {
		return nil, h.bodyProblem(sent, err)
	}
	return body, nil
}

// errTooLong is what a body is that decompresses to more than the limit.
var errTooLong = errors.New("longer than the limit")

// inflater decompresses into memory that it keeps, so that bombs leave no garbage behind.
type inflater struct {
	unzip gzip.Reader
	text  bytes.Buffer
}

var inflaters = sync.Pool{New: func() any { return new(inflater) }}

// inflate decompresses limit bytes at the most, and fails when there are more.
func inflate(source io.Reader, limit int64) ([]byte, error) {
	i, _ := inflaters.Get().(*inflater)
	defer inflaters.Put(i)
	if err := i.unzip.Reset(source); err != nil {
		return nil, err
	}
	i.text.Reset()
	if _, err := i.text.ReadFrom(io.LimitReader(&i.unzip, limit+1)); err != nil {
		return nil, err
	}
	if int64(i.text.Len()) > limit {
		return nil, errTooLong
	}
	return bytes.Clone(i.text.Bytes()), nil
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
	case errors.As(sent.err, &tooLarge), errors.Is(err, errTooLong):
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

// parse decodes JSON.
func parse(body []byte) (any, []payload.Warning, *problem) {
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
