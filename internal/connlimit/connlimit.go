// Package connlimit bounds the connections of an HTTP server.
package connlimit

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// victimSample is how many connections are examined to find the one to close for a new one.
const victimSample = 128

// Listener bounds the connections that it has accepted. At the limit, it closes a connection that waits for a request
// when it accepts a new one: of the address that has most of those, the one that has waited longest. So idle
// connections, which anybody can open without a token, shut nobody out; and of an address that many senders
// share, such as that of a proxy, the least used ones are closed first. While all are busy with
// requests, new ones are closed.
type Listener struct {
	net.Listener
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

// Limit returns a Listener that accepts connections from another one. The server must call StateChanged for each change.
func Limit(listener net.Listener, limit int) *Listener {
	return &Listener{Listener: listener, limit: limit, open: map[net.Conn]*connection{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.admit(accepted) {
			return &counted{Conn: accepted, closed: sync.OnceFunc(func() { l.forget(accepted) })}, nil
		}
		_ = accepted.Close() // the client notices
	}
}

// admit counts a new connection, at the limit instead of another one.
func (l *Listener) admit(accepted net.Conn) bool {
	l.mu.Lock()
	victim := net.Conn(nil)
	if len(l.open) >= l.limit {
		if victim = l.victim(); victim == nil {
			l.mu.Unlock()
			return false
		}
		delete(l.open, victim)
	}
	l.open[accepted] = &connection{address: addressOf(accepted), idle: true, since: time.Now()}
	l.mu.Unlock()
	if victim != nil {
		_ = victim.Close()
	}
	return true
}

// victim returns the connection to close, nil if all are busy. It examines victimSample of them, which a map yields
// in random order, so that opening connections costs little however many there are.
func (l *Listener) victim() net.Conn {
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

// StateChanged is for http.Server.ConnState.
func (l *Listener) StateChanged(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn() // of a *tls.Conn
	}
	own, ok := conn.(*counted)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.open[own.Conn]; one != nil {
		// It becomes active when the headers of a request have arrived, so slow headers count as idle.
		one.idle, one.since = state == http.StateIdle || state == http.StateNew, time.Now()
	}
}

func (l *Listener) forget(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, conn)
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	closed func()
}

// Close closes the connection.
func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// CloseWrite lets the server end a connection so that its last answer is read: without it a client that still
// sends sees a reset.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func addressOf(conn net.Conn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	return host
}
