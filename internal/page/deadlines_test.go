package page

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

// deadlines records that a write to a browser has a deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// deadlineListener records the deadlines of the connections of a server.
type deadlineListener struct {
	net.Listener
	set chan time.Time
}

// deadlineConn records deadlines, and not that there are none any more.
type deadlineConn struct {
	net.Conn
	set chan time.Time
}

func (l deadlineListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return deadlineConn{conn, l.set}, err
}

func (c deadlineConn) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() {
		c.set <- at
	}
	return c.Conn.SetWriteDeadline(at)
}

func TestEveryResponseHasADeadline(t *testing.T) {
	g := NewWithT(t)
	s, err := ForOwner(t.Context(), newFake(incidentNamed("shop", "a")), Options{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, path := range []string{"api/incidents/shop/a", "api/incidents/shop/none", "api/counts?hours=1", "api/heartbeats"} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		request := httptest.NewRequest(http.MethodGet, s.base()+path, nil)
		request.Header.Set("Authorization", "Bearer "+s.owner().key)
		s.Handler().ServeHTTP(w, request)
		g.Expect(w.set).To(HaveLen(1), path)
	}

	// So have the files.
	listener := deadlineListener{s.listener, make(chan time.Time, 100)}
	s.listener = listener
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, logr.Discard()) }()
	g.Expect(s.get(t, "app.js", nil).StatusCode).To(Equal(http.StatusOK))
	cancel()
	g.Expect(<-done).To(Succeed())
	g.Expect(listener.set).NotTo(BeEmpty())
}
