package webhookserver

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// connections bounds the connections of a server. When there are too many, one that waits for a request is
// closed for a new one: of the address that has most of those, the one that has waited longest. So idle
// connections, which anybody can open without a token, shut nobody out; and of an address that many senders
// share, such as that of a proxy, those go first that are of the least use. While all are busy with
// requests, new ones are closed.
type connections struct {
	net.Listener
	limit int

	mu   sync.Mutex
	open map[net.Conn]*connection
}

// connection is one that is open.
type connection struct {
	address string
	waits   bool      // for a request, or for the rest of its headers
	since   time.Time // when it began to
}

func limitConnections(listener net.Listener, limit int) *connections {
	return &connections{Listener: listener, limit: limit, open: map[net.Conn]*connection{}}
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c.admit(accepted) {
			return &counted{Conn: accepted, closed: sync.OnceFunc(func() { c.forget(accepted) })}, nil
		}
		_ = accepted.Close() // whoever opened it sees that
	}
}

// admit counts a new connection, if need be instead of another one.
func (c *connections) admit(accepted net.Conn) bool {
	c.mu.Lock()
	victim := net.Conn(nil)
	if len(c.open) >= c.limit {
		if victim = c.victim(); victim == nil {
			c.mu.Unlock()
			return false
		}
		delete(c.open, victim)
	}
	c.open[accepted] = &connection{address: addressOf(accepted), waits: true, since: time.Now()}
	c.mu.Unlock()
	if victim != nil {
		_ = victim.Close()
	}
	return true
}

// victim is the connection to close, nil if all are busy. It looks at victimSample of them, which a map gives
// in random order, so that opening connections costs little however many there are.
func (c *connections) victim() net.Conn {
	sample := make(map[net.Conn]*connection, victimSample)
	waiting := map[string]int{}
	most := ""
	for conn, one := range c.open {
		if len(sample) == victimSample {
			break
		}
		if one.waits {
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

// stateChanged is for http.Server.ConnState.
func (c *connections) stateChanged(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn() // of a *tls.Conn
	}
	own, ok := conn.(*counted)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.open[own.Conn]; one != nil {
		// It becomes active when the headers of a request have come, so slow headers count as waiting.
		one.waits, one.since = state == http.StateIdle || state == http.StateNew, time.Now()
	}
}

func (c *connections) forget(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

// counted is a connection that is not counted any more when it is closed.
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
