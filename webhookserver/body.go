package webhookserver

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// bodyLimit returns the most bytes of a body that is read. Tools that send groups of alerts, such as Alertmanager, give a group
// up for good when it is refused as too large. Where the payload tells the preset, checkSize has the last word; a length that
// is not announced would need memory for the largest body.
func (h *handler) bodyLimit(x *exchange) int64 {
	preset := presetOf(x, true)
	if preset == mapping.Auto && x.integration.Spec.Preset == "" && (x.ContentLength < 0 || x.gzipped) {
		return h.options.MaxBodyBytes
	}
	return h.limitFor(preset)
}

// checkSize refuses a body that is too large for the preset which has read it, if one has.
func (h *handler) checkSize(x *exchange, size int, decoded *decodedAlerts) *problem {
	preset := presetOf(x, true)
	if preset == mapping.Auto {
		preset = ""
	}
	if decoded != nil {
		preset = cmp.Or(decoded.Preset, preset)
	}
	if limit := h.limitFor(preset); int64(size) > limit {
		return tooLargeFor(limit)
	}
	return nil
}

func tooLargeFor(limit int64) *problem {
	p := problemTooLarge
	p.Limit = limit
	return &p
}

// limitFor returns the most bytes of a body that the preset reads.
func (h *handler) limitFor(preset string) int64 {
	limit := h.options.MaxBodyBytes
	if mapping.IsLarge(preset) {
		limit = max(limit, min(largeFactor*limit, maxLargeBody))
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

// bodyMemory returns how much memory reading the request's body may take.
func (h *handler) bodyMemory(x *exchange) int64 {
	limit := h.bodyLimit(x)
	unknown := limit + firstRead
	size := x.ContentLength
	if size < 0 {
		size = unknown
	}
	if x.gzipped {
		size += unknown
	}
	return max(size+2*bytes.MinRead, minBodyMemory)
}

// readBody reads the body, decompressed. Neither form of it is read further than a byte beyond the limit.
func (h *handler) readBody(x *exchange) ([]byte, *problem) {
	limit, first := h.bodyLimit(x), int64(firstRead)
	if x.ContentLength >= 0 {
		first = x.ContentLength + 1 // checked against the limit before
	}
	body, err := readAll(x.Body, first, limit)
	if err != nil {
		return nil, h.bodyProblem(x, err, &problemUnreadable)
	}
	x.read = true
	if !x.gzipped {
		return body, nil
	}
	if body, err = inflate(bytes.NewReader(body), limit); err != nil {
		return nil, h.bodyProblem(x, err, &problemGzip)
	}
	return body, nil
}

// readAll reads at most limit bytes, into memory for the first ones or, if there are more, for all. A buffer that grows would
// hold up to three times as much, more than is reserved.
func readAll(source io.Reader, first, limit int64) ([]byte, error) {
	source = http.MaxBytesReader(nil, io.NopCloser(source), limit)
	part := bytes.NewBuffer(make([]byte, 0, first+bytes.MinRead))
	if n, err := part.ReadFrom(io.LimitReader(source, first)); err != nil || n < first {
		return part.Bytes(), err
	}
	whole := bytes.NewBuffer(make([]byte, 0, limit+bytes.MinRead))
	whole.Write(part.Bytes())
	_, err := whole.ReadFrom(source)
	return whole.Bytes(), err
}

// bodyProblem returns the problem of an error of reading a body, or another one if the error tells nothing.
func (h *handler) bodyProblem(x *exchange, err error, otherwise *problem) *problem {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return tooLargeFor(h.bodyLimit(x))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &problemSlow
	case errors.Is(err, io.EOF): // not even the header of gzip
		return &problemEmpty
	}
	return otherwise
}

var inflaters = sync.Pool{New: func() any { return new(gzip.Reader) }}

// inflate decompresses at most limit bytes. When there are more, it fails as the http.MaxBytesReader does.
func inflate(source io.Reader, limit int64) ([]byte, error) {
	unzip, _ := inflaters.Get().(*gzip.Reader)
	defer inflaters.Put(unzip)
	if err := unzip.Reset(source); err != nil {
		return nil, err
	}
	return readAll(unzip, firstRead, limit)
}
