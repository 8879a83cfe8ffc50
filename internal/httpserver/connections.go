package httpserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// victimSample is how many connections are examined to find the one to close for a new one.
const victimSample = 128

// headerReads bounds what is read at a time until the headers of a request have arrived: what is read is parsed in any case.
const headerReads = 256

// farewell is how long a connection that is refused stays open for its sender to read why, as in net/http.
const farewell = 500 * time.Millisecond

// connectionLimiter bounds the connections of a server. At the limit, a new one replaces one that waits for a request: of the
// address that has most of those, the one that has waited longest. So idle connections, which anybody can open without a
// token, shut nobody out; and of an address that many senders share, such as that of a proxy, the least used ones are closed
// first. While all are busy with requests, it closes new ones.
//
// A connection is not busy with a request without a valid token, or one that is answered before its body has arrived: net/http
// waits for the rest of the body, and for a client that does not read the answer. Otherwise anyone could fill a port with them.
type connectionLimiter struct {
	net.Listener
	log   logr.Logger
	limit int

	tls       *tls.Config // to decrypt with; nil: what is accepted is plain text, or encrypted
	encrypted bool        // so headers cannot be counted

	mu   sync.Mutex
	open map[*connection]struct{}
}

// connection is a connection. While the headers of a request arrive, it counts their fields: net/http bounds only their bytes,
// and thousands of small fields take thirty times as much memory. What a client sends ahead of its turn, behind the body of
// another request, is not counted if it is read with that: at most 4 KiB.
type connection struct {
	net.Conn // what the server reads
	raw      net.Conn
	address  string
	log      logr.Logger

	idle  bool      // waiting for a request, or for the rest of its headers
	since time.Time // the start of that

	counts bool
	header atomic.Bool // the headers of a request arrive
	fields int         // so far
	length int         // of the line under way
}

func (l *connectionLimiter) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: raw, raw: raw, address: raw.RemoteAddr().String(), log: l.log, counts: !l.encrypted}
	if host, _, err := net.SplitHostPort(c.address); err == nil {
		c.address = host
	}
	if l.tls != nil {
		c.Conn = tls.Server(raw, l.tls)
	}
	return c, nil
}

// connectionOf returns the connection behind one of net/http's.
func connectionOf(conn net.Conn) *connection {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, _ := conn.(*connection)
	return c
}

func (c *connection) Read(p []byte) (int, error) {
	if !c.counts || !c.header.Load() {
		return c.Conn.Read(p)
	}
	n, err := c.Conn.Read(p[:min(len(p), headerReads)])
	if secure, ok := c.Conn.(*tls.Conn); ok && err != nil && !secure.ConnectionState().HandshakeComplete {
		c.log.V(1).Info("TLS handshake error", "address", c.address, "reason", err.Error())
	}
	if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil {
		return 0, c.refuse(plain.Conn, http.StatusBadRequest, "This port serves HTTPS only.")
	}
	if !c.count(p[:n]) {
		return 0, c.refuse(c.Conn, http.StatusRequestHeaderFieldsTooLarge,
			fmt.Sprintf("A request may have %d header fields.", maxFields))
	}
	return n, err
}

// count counts the fields in a part of the headers, and reports whether there may be so many. An empty line ends them, but not
// before the first other one.
func (c *connection) count(part []byte) bool {
	for _, b := range part {
		switch {
		case b != '\n' && b != '\r':
			c.length++
		case b == '\n' && c.length == 0 && c.fields > 0:
			c.header.Store(false)
			return true
		case b == '\n':
			c.fields++
			c.length = 0
		}
	}
	return c.fields <= maxFields+1 // and the request line
}

// refuse answers a request that is not read any further, and returns what ends the connection.
func (c *connection) refuse(w io.Writer, code int, text string) error {
	c.counts = false
	_ = c.SetWriteDeadline(time.Now().Add(farewell))
	_, _ = fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n%s\n",
		code, http.StatusText(code), text)
	_ = c.CloseWrite()
	<-time.After(farewell)
	return io.EOF
}

// begin has the headers of the next request counted.
func (c *connection) begin() {
	c.fields, c.length = 0, 0
	c.header.Store(true)
}

// CloseWrite has the other side read the rest of an answer before the connection ends; net/http uses it.
func (c *connection) CloseWrite() error {
	if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// attach has a server tell the limiter of its connections.
func (l *connectionLimiter) attach(server *http.Server) {
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if c := connectionOf(conn); c != nil && (state == http.StateNew || state == http.StateIdle) {
			c.begin()
		}
		l.stateChanged(conn, state)
	}
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, busyKey{}, func(state http.ConnState) { l.stateChanged(conn, state) })
	}
}

// busyKey is the key of a function in the context of requests, which has their connection count as idle or active.
type busyKey struct{}

// NotBusy has the connection of a request count as idle until its next one. A connection of HTTP/2 may have other requests,
// and none waits for a body that is not wanted.
func NotBusy(r *http.Request) { setState(r, http.StateIdle) }

// Busy has the connection of a request count as busy with it until it is answered: a valid caller has sent it.
func Busy(r *http.Request) { setState(r, http.StateActive) }

func setState(r *http.Request, state http.ConnState) {
	if set, ok := r.Context().Value(busyKey{}).(func(http.ConnState)); ok && r.ProtoMajor == 1 {
		set(state)
	}
}

func (l *connectionLimiter) stateChanged(conn net.Conn, state http.ConnState) {
	c := connectionOf(conn)
	if c == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.open[c]
	switch {
	case state == http.StateNew:
		l.admit(c)
	case state == http.StateClosed || state == http.StateHijacked:
		delete(l.open, c)
	case known:
		// It becomes active when the headers of a request have arrived, so slow headers count as idle.
		c.idle, c.since = state == http.StateIdle, time.Now()
	}
}

// admit counts a new connection, at the limit instead of another one.
func (l *connectionLimiter) admit(accepted *connection) {
	if len(l.open) >= l.limit {
		victim := l.victim()
		if victim == nil {
			_ = accepted.raw.Close() // both ends notice; without the farewell of TLS, which could wait for the client
			return
		}
		delete(l.open, victim)
		_ = victim.raw.Close()
	}
	accepted.idle, accepted.since = true, time.Now()
	l.open[accepted] = struct{}{}
}

// victim returns the connection to close, nil if all are busy. It examines victimSample of them, which a map yields
// in random order, so that opening connections costs little however many there are.
func (l *connectionLimiter) victim() *connection {
	var sample []*connection
	waiting := map[string]int{} // by address
	for one := range l.open {
		if len(sample) == victimSample {
			break
		}
		if one.idle {
			sample = append(sample, one)
			waiting[one.address]++
		}
	}
	if len(sample) == 0 {
		return nil
	}
	return slices.MaxFunc(sample, func(a, b *connection) int {
		return cmp.Or(cmp.Compare(waiting[a.address], waiting[b.address]), b.since.Compare(a.since))
	})
}
