package webhookserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// victimSample is how many connections are examined to find the one to close for a new one.
const victimSample = 128

// connectionLimiter bounds the connections of a server. At the limit, a new one replaces one that waits for a request: of the
// address that has most of those, the one that has waited longest. So idle connections, which anybody can open without a
// token, shut nobody out; and of an address that many senders share, such as that of a proxy, the least used ones are closed
// first. While all are busy with requests, it closes new ones.
//
// A connection is not busy with a request without a valid token, or one that is answered before its body has arrived: net/http
// waits for the rest of the body, and for a client that does not read the answer.
type connectionLimiter struct {
	limit int

	mu   sync.Mutex
	open map[net.Conn]*connection
}

// connection is an open connection.
type connection struct {
	net.Conn
	address string
	idle    bool      // waiting for a request, or for the rest of its headers
	since   time.Time // the start of that
}

func newConnectionLimiter(limit int) *connectionLimiter {
	return &connectionLimiter{limit: limit, open: map[net.Conn]*connection{}}
}

// attach has a server tell the limiter of its connections.
func (l *connectionLimiter) attach(server *http.Server) {
	server.ConnState = l.stateChanged
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, notBusyKey{}, func() { l.stateChanged(conn, http.StateIdle) })
	}
}

// notBusyKey is the key of a function in the context of requests, which has their connection count as idle.
type notBusyKey struct{}

// notBusy has the connection of a request count as idle until its next one. A connection of HTTP/2 may have other requests,
// and none waits for a body that is not wanted.
func notBusy(r *http.Request) {
	if set, ok := r.Context().Value(notBusyKey{}).(func()); ok && r.ProtoMajor == 1 {
		set()
	}
}

// stateChanged is for http.Server.ConnState.
func (l *connectionLimiter) stateChanged(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.open[conn]
	switch {
	case state == http.StateNew:
		l.admit(conn)
	case state == http.StateClosed || state == http.StateHijacked:
		delete(l.open, conn)
	case known != nil:
		// It becomes active when the headers of a request have arrived, so slow headers count as idle.
		known.idle, known.since = state == http.StateIdle, time.Now()
	}
}

// admit counts a new connection, at the limit instead of another one.
func (l *connectionLimiter) admit(accepted net.Conn) {
	if len(l.open) >= l.limit {
		victim := l.victim()
		if victim == nil {
			closeNow(accepted)
			return
		}
		delete(l.open, victim)
		closeNow(victim)
	}
	address := accepted.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	l.open[accepted] = &connection{Conn: accepted, address: address, idle: true, since: time.Now()}
}

// closeNow closes a connection without the farewell of TLS, which could wait for the client.
func closeNow(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close() // both ends notice
}

// victim returns the connection to close, nil if all are busy. It examines victimSample of them, which a map yields
// in random order, so that opening connections costs little however many there are.
func (l *connectionLimiter) victim() net.Conn {
	var sample []*connection
	waiting := map[string]int{} // by address
	for _, one := range l.open {
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
	}).Conn
}
