package webhookserver

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// bodyLimit returns the most bytes of a body of the request's integration. Tools that send groups of alerts, such as
// Alertmanager, give a group up for good when it is refused as too large. An integration that does not name a preset has the
// limit of Tocsin's own format, whatever its payloads are recognized as.
func (h *handler) bodyLimit(x *exchange) int64 {
	limit := h.options.MaxBodyBytes
	preset := presetOf(x, true)
	if (preset != mapping.Auto || x.integration.Spec.Preset != "") && mapping.Groups(preset) {
		limit = max(limit, min(groupFactor*limit, maxGroupBody))
	}
	return limit
}

// checkBody refuses a body whose headers say that it cannot be read.
func (h *handler) checkBody(x *exchange) *problem {
	switch strings.ToLower(strings.TrimSpace(strings.Join(x.Header.Values("Content-Encoding"), ","))) {
	case "", "identity":
	case "gzip", "x-gzip": // RFC 9110, section 8.4.1.3: the same
		x.gzipped = true
	default:
		return &problemEncoding
	}
	switch {
	case x.ContentLength > h.bodyLimit(x):
		return h.bodyProblem(x, &http.MaxBytesError{}, nil)
	case x.gzipped && x.integration.Spec.Verify != nil:
		return problemEncoding.withDetail("The integration requires signatures of the body as it is: send it uncompressed.")
	}
	return nil
}

// reserveBody reserves the memory that the request's body may need. It returns nil when it is not available.
func (h *handler) reserveBody(x *exchange) *fair.Reservation {
	size := x.ContentLength
	if size < 0 {
		size = h.bodyLimit(x)
	}
	if x.gzipped {
		size += h.bodyLimit(x)
	}
	return h.bodies.Reserve(x.sender(), max(size, minBodyMemory), 0)
}

// readBody reads the body, decompressed. Neither form of it is read further than a byte beyond the limit.
func (h *handler) readBody(x *exchange) ([]byte, *problem) {
	limit := h.bodyLimit(x)
	var sent bytes.Buffer
	sent.Grow(int(max(x.ContentLength, 0)) + bytes.MinRead) // at once; checked against the limit before
	if _, err := sent.ReadFrom(http.MaxBytesReader(nil, x.Body, limit)); err != nil {
		return nil, h.bodyProblem(x, err, &problemUnreadable)
	}
	x.read = true
	if !x.gzipped {
		return sent.Bytes(), nil
	}
	body, err := inflate(&sent, limit)
	if err != nil {
		return nil, h.bodyProblem(x, err, &problemGzip)
	}
	return body, nil
}

// bodyProblem returns the problem of an error of reading a body, or another one if the error tells nothing.
func (h *handler) bodyProblem(x *exchange, err error, otherwise *problem) *problem {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		p := problemTooLarge
		p.Limit = h.bodyLimit(x)
		return &p
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &problemSlow
	case errors.Is(err, io.EOF): // not even the header of gzip
		return &problemEmpty
	}
	return otherwise
}

// inflater decompresses into memory that it reuses, so that decompression bombs leave no garbage behind.
type inflater struct {
	unzip gzip.Reader
	text  bytes.Buffer
}

var inflaters = sync.Pool{New: func() any { return new(inflater) }}

// inflate decompresses at most limit bytes. When there are more, it fails as the http.MaxBytesReader does.
func inflate(source io.Reader, limit int64) ([]byte, error) {
	i, _ := inflaters.Get().(*inflater)
	defer inflaters.Put(i)
	if err := i.unzip.Reset(source); err != nil {
		return nil, err
	}
	i.text.Reset()
	if _, err := i.text.ReadFrom(http.MaxBytesReader(nil, io.NopCloser(&i.unzip), limit)); err != nil {
		return nil, err
	}
	return bytes.Clone(i.text.Bytes()), nil
}
