// Package connlimit bounds the connections of an HTTP server.
package connlimit

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// victimSample is how many connections are examined to find the one to close for a new one.
const victimSample = 128

// Limiter bounds the connections of a server. At the limit, it closes a connection that waits for a request when the server
// accepts a new one: of the address that has most of those, the one that has waited longest. So idle
// connections, which anybody can open without a token, shut nobody out; and of an address that many senders
// share, such as that of a proxy, the least used ones are closed first. While all are busy with
// requests, it closes new ones.
type Limiter struct {
	limit int

	mu   sync.Mutex
	open map[net.Conn]*connection
}

// connection is an open connection.
type connection struct {
	address string
	idle    bool      // waiting for a request, or for the rest of its headers
	since   time.Time // the start of that
}

// New returns a Limiter, whose StateChanged the server must call for each change.
func New(limit int) *Limiter {
	return &Limiter{limit: limit, open: map[net.Conn]*connection{}}
}

// StateChanged is for http.Server.ConnState.
func (l *Limiter) StateChanged(conn net.Conn, state http.ConnState) {
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
func (l *Limiter) admit(accepted net.Conn) {
	if len(l.open) >= l.limit {
		victim := l.victim()
		if victim == nil {
			closeNow(accepted)
			return
		}
		delete(l.open, victim)
		closeNow(victim)
	}
	l.open[accepted] = &connection{address: addressOf(accepted), idle: true, since: time.Now()}
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
func (l *Limiter) victim() net.Conn {
	sample := make(map[net.Conn]*connection, victimSample)
	waiting := map[string]int{}
	most := ""
	for conn, one := range l.open {
		if len(sample) == victimSample {
			break
		}
		if one.idle {
			sample[conn] = one
			if waiting[one.address]++; most == "" || waiting[one.address] > waiting[most] {
				most = one.address
			}
		}
	}
	var victim net.Conn
	var oldest time.Time
	for conn, one := range sample {
		if one.address == most && (victim == nil || one.since.Before(oldest)) {
			victim, oldest = conn, one.since
		}
	}
	return victim
}

func addressOf(conn net.Conn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	return host
}
