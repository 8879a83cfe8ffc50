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

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

type bodyReader struct {
	maxBytes int64 // without groups
	memory   *memoryBudget
}

// limit returns the most bytes of a body of the request's integration. Tools that send groups of alerts, such as
// Alertmanager, give a group up for good when it is refused as too large.
func (b *bodyReader) limit(x *exchange) int64 {
	if !mapping.Groups(presetOf(x, true)) {
		return b.maxBytes
	}
	return max(b.maxBytes, min(groupFactor*b.maxBytes, maxGroupBody))
}

// checkHeaders refuses a body whose headers say that it cannot be read.
func (b *bodyReader) checkHeaders(x *exchange) *problem {
	if _, ok := contentEncoding(x.Request); !ok {
		return &problemEncoding
	}
	if x.ContentLength > b.limit(x) {
		return b.tooLarge(x)
	}
	return nil
}

// contentEncoding says whether the body is compressed with gzip; ok is false for any other compression.
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

func (b *bodyReader) tooLarge(x *exchange) *problem {
	p := problemTooLarge
	p.limit = b.limit(x)
	return &p
}

// reserve reserves the memory that the request's body may need. It returns nil when it is not available.
func (b *bodyReader) reserve(x *exchange) *memoryReservation {
	size := x.ContentLength
	if gzipped, _ := contentEncoding(x.Request); gzipped || size < 0 {
		size = b.limit(x)
	}
	return b.memory.reserve(x.sender(), size, 0)
}

// read reads the body, decompressed. Neither form of it is read further than a byte beyond the limit.
func (b *bodyReader) read(x *exchange) ([]byte, *problem) {
	sent := &connectionReader{source: http.MaxBytesReader(x.writer, x.Body, b.limit(x))}
	var body []byte
	var err error
	if gzipped, _ := contentEncoding(x.Request); gzipped {
		body, err = inflate(sent, b.limit(x))
	} else {
		var buffer bytes.Buffer
		buffer.Grow(int(max(x.ContentLength, 0)) + bytes.MinRead) // at once; checked against the limit before
		_, err = buffer.ReadFrom(sent)
		body = buffer.Bytes()
	}
	if err != nil {
		return nil, b.problemOf(x, sent, err)
	}
	x.read = true
	return body, nil
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
	if _, err := i.text.ReadFrom(io.LimitReader(&i.unzip, limit+1)); err != nil {
		return nil, err
	}
	if int64(i.text.Len()) > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	return bytes.Clone(i.text.Bytes()), nil
}

// connectionReader remembers the error of the connection, to tell it from one of the decompression.
type connectionReader struct {
	source io.Reader
	err    error
}

func (c *connectionReader) Read(p []byte) (int, error) {
	n, err := c.source.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

func (b *bodyReader) problemOf(x *exchange, sent *connectionReader, err error) *problem {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(sent.err, &tooLarge), errors.As(err, &tooLarge):
		return b.tooLarge(x)
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
