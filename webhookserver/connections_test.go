package webhookserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/httpserver"
)

// serveLimited has a handler served with a limit of connections, at the returned address.
func serveLimited(t *testing.T, limit int, handler http.Handler) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	server := httpserver.New(httpserver.Options{Handler: handler, Log: logr.Discard(), Connections: limit})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// dial opens a connection from an address of this machine.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a request and returns the status of the answer, or the error.
func ask(conn net.Conn) (int, error) {
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}

// TestIdleConnectionsShutNobodyOut opens many more connections than there may be and goes on serving another address.
func TestIdleConnectionsShutNobodyOut(t *testing.T) {
	g := NewWithT(t)
	const limit = 16
	address := serveLimited(t, limit, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	kept := dial(t, "127.0.0.1", address)
	g.Expect(ask(kept)).To(Equal(http.StatusOK))
	for i := range 4 * limit {
		idle := dial(t, "127.0.0.2", address)
		if i%2 == 0 {
			_, _ = fmt.Fprint(idle, "POST / HTTP/1.1\r\nX-Slow: ") // headers that never end
		}
		g.Expect(ask(kept)).To(Equal(http.StatusOK), "the connection of another address stays open")
		g.Expect(ask(dial(t, "127.0.0.3", address))).To(Equal(http.StatusOK), "and a new one is served")
	}
}

// TestRequestsWithoutTheirBodyShutNobodyOut fills a server with requests whose bodies are not wanted, and never come.
func TestRequestsWithoutTheirBodyShutNobodyOut(t *testing.T) {
	suspended := integration("team-b", "suspended")
	suspended.Spec.Suspend = true
	for name, path := range map[string]string{
		"an unknown token": eventsPath + "/unknown", "an unknown path": "/", "the OpenAPI document": openAPIPath,
		"a suspended integration": eventsPath + "/" + testenv.Token("team-b", "suspended"),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			const limit = 4
			b := newBench()
			b.tokens.set(suspended)
			answered := make(chan bool, limit+1)
			address := serveLimited(t, limit, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b.handler.ServeHTTP(w, r)
				answered <- true
			}))
			for range limit {
				_, err := fmt.Fprintf(dial(t, "127.0.0.1", address), "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", path)
				g.Expect(err).NotTo(HaveOccurred())
				<-answered
			}
			g.Expect(ask(dial(t, "127.0.0.2", address))).To(Equal(http.StatusNotFound))
		})
	}
}

// TestBusyConnectionsAreNotClosed fills a server with requests that are being answered.
func TestBusyConnectionsAreNotClosed(t *testing.T) {
	g := NewWithT(t)
	const limit = 4
	entered, goOn := make(chan bool, limit), make(chan bool)
	address := serveLimited(t, limit, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- true
		<-goOn
	}))
	answers := make(chan int, limit)
	for range limit {
		conn := dial(t, "127.0.0.1", address)
		go func() {
			code, _ := ask(conn)
			answers <- code
		}()
	}
	for range limit {
		<-entered
	}
	_, err := ask(dial(t, "127.0.0.2", address))
	g.Expect(err).To(HaveOccurred(), "one too many is closed")
	close(goOn)
	for range limit {
		g.Expect(<-answers).To(Equal(http.StatusOK))
	}
}
