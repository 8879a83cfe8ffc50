package page

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/internal/httpserver"
)

// slowAccess is an access that tells of each request, and then waits.
type slowAccess struct {
	access
	entered, goOn chan bool
	identified    bool // it waits when the caller is known, or before
}

func (a *slowAccess) identify(r *http.Request) (*caller, error) {
	if !a.identified {
		a.entered <- true
		<-a.goOn
	}
	return a.access.identify(r)
}

func (a *slowAccess) admit(c *caller) (release func(), err error) {
	a.entered <- true
	<-a.goOn
	return a.access.admit(c)
}

// TestOnlyCallersKeepTheirConnections fills the port with requests whose bodies do not come.
func TestOnlyCallersKeepTheirConnections(t *testing.T) {
	for sentence, identified := range map[string]bool{
		"requests of nobody shut nobody out":    false,
		"connections of callers are not closed": true,
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			s, err := ForOwner(t.Context(), newFake(), Options{})
			g.Expect(err).NotTo(HaveOccurred())
			slow := &slowAccess{access: s.access, entered: make(chan bool), goOn: make(chan bool), identified: identified}
			key := s.owner().key
			s.access = slow
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx, logr.Discard()) }()
			defer func() {
				close(slow.goOn)
				cancel()
				g.Expect(<-done).To(Succeed())
			}()
			dial := func() net.Conn {
				conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", s.listener.Addr().String())
				g.Expect(err).NotTo(HaveOccurred())
				t.Cleanup(func() { _ = conn.Close() })
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				return conn
			}
			end := " HTTP/1.1\r\nHost: " + s.listener.Addr().String() + "\r\n"
			for range httpserver.MaxConnections / 4 {
				_, err := io.WriteString(dial(), "GET /api/counts?hours=1"+end+"Authorization: Bearer "+key+"\r\nContent-Length: 100\r\n\r\n")
				g.Expect(err).NotTo(HaveOccurred())
				<-slow.entered
			}
			conn := dial()
			_, err = io.WriteString(conn, "GET /"+end+"\r\n")
			g.Expect(err).NotTo(HaveOccurred())
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if identified {
				g.Expect(err).To(HaveOccurred())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(answer.StatusCode).To(Equal(http.StatusOK))
		})
	}
}
