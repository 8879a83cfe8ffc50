//go:build slow

package federation

import (
	"io"
	"net"
	"sync"
)

// link is the network between the clusters: a TCP proxy to the first address that takes connections, as of a Service. It can be cut,
// or swallow everything.
type link struct {
	listener net.Listener
	to       []string

	mu    sync.Mutex
	state state
	conns []net.Conn
}

type state int

const (
	up    state = iota
	cut         // connections are closed at once
	stuck       // connections are taken, and nothing comes out
)

// startLink starts a link.
func startLink(to []string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, to: to}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(conn)
		}
	}()
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

// set changes the state. What is under way is lost.
func (l *link) set(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}

// keep reports how to go on with a connection, which is closed when the state changes.
func (l *link) keep(conn net.Conn) state {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conn)
	return l.state
}

func (l *link) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	switch l.keep(conn) {
	case cut:
	case stuck:
		_, _ = io.Copy(io.Discard, conn)
	case up:
		if there := l.dial(); there != nil {
			l.pass(conn, there)
		}
	}
}

// pass passes on what comes, in both directions.
func (l *link) pass(conn, there net.Conn) {
	defer func() { _ = there.Close() }()
	if l.keep(there) != up {
		return
	}
	go func() {
		defer func() { _ = there.Close() }()
		_, _ = io.Copy(there, conn)
	}()
	_, _ = io.Copy(conn, there)
}

// dial connects to the first address that takes connections, nil if none does.
func (l *link) dial() net.Conn {
	for _, address := range l.to {
		if conn, err := net.Dial("tcp", address); err == nil {
			return conn
		}
	}
	return nil
}
