package httpserver

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// bounded returns the handler of a server. It bounds what net/http does not: the wait for the rest of a body, before an answer
// and after it. Without a ReadTimeout, that has no end. A connection whose handler has not read the body is not busy any more.
func bounded(o Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.Anonymous {
			NotBusy(r)
		}
		if r.Body == nil || r.Body == http.NoBody {
			o.Handler.ServeHTTP(w, r)
			return
		}
		body := &boundedBody{ReadCloser: r.Body, limit: func(time.Time) {}}
		if o.LongAnswers != 0 {
			control := http.NewResponseController(w)
			body.limit = func(until time.Time) { _ = control.SetReadDeadline(until) }
		}
		until := time.Now().Add(ReadTimeout)
		body.limit(until)
		own := *r // net/http goes by the type of the body of its own
		own.Body = body
		o.Handler.ServeHTTP(w, &own)
		if !body.ended {
			body.limit(until) // the handler may have set another one
			NotBusy(r)
		}
	})
}

// boundedBody is a body with a deadline, which ends with it: net/http then reads on to notice that the client has gone, and would
// end a long answer at the deadline.
type boundedBody struct {
	io.ReadCloser
	limit func(until time.Time)
	ended bool
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		b.limit(time.Time{})
	}
	return n, err
}
