package process

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tocsin-dev/tocsin/internal/httpserver"
)

// serverManager keeps the servers that are added to it. It has no cluster.
type serverManager struct {
	ctrl.Manager
	servers map[string]*manager.Server
}

func (m *serverManager) GetLogger() logr.Logger      { return logr.Discard() }
func (m *serverManager) GetConfig() *rest.Config     { return &rest.Config{Host: "127.0.0.1:1"} }
func (m *serverManager) GetHTTPClient() *http.Client { return http.DefaultClient }
func (m *serverManager) Add(r manager.Runnable) error {
	server := r.(*manager.Server)
	m.servers[server.Name] = server
	return nil
}

// TestRequestsWithoutTheirBodyShutNobodyOut fills each port with requests that have no token and whose bodies do not come. Then
// another client is answered, and the server stops in time.
func TestRequestsWithoutTheirBodyShutNobodyOut(t *testing.T) {
	for name, test := range map[string]struct {
		path   string
		secure bool
		code   int // of another client without a token
	}{
		"health probe": {"/readyz", false, http.StatusOK},
		"metrics":      {"/metrics", true, http.StatusUnauthorized},
		"pprof":        {"/debug/pprof/cmdline", false, http.StatusOK},
	} {
		for _, path := range []string{test.path, "/none"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				const loopback = "127.0.0.1:0"
				o := Options{ProbeAddress: loopback, MetricsAddress: loopback, PprofAddress: loopback, MetricsSecure: true}
				mgr := &serverManager{servers: map[string]*manager.Server{}}
				g.Expect(o.AddServers(t.Context(), mgr, nil)).To(Succeed())
				server, answered := mgr.servers[name], make(chan bool, 2*httpserver.FewConnections)
				handler := server.Server.Handler
				server.Server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					handler.ServeHTTP(w, r)
					answered <- true
				})
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				done := make(chan error, 1)
				go func() { done <- server.Start(ctx) }()

				dial := func() net.Conn { return dialServer(t, server.Listener.Addr().String(), test.secure) }
				for range httpserver.FewConnections {
					_, err := fmt.Fprintf(dial(), "GET %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", path)
					g.Expect(err).NotTo(HaveOccurred())
					<-answered
				}
				g.Eventually(func() (int, error) { return get(dial(), test.path) }, "3s", "10ms").Should(Equal(test.code))
				stop()
				g.Eventually(done, 2*stopTimeout).Should(Receive(BeNil()))
			})
		}
	}
}

// TestSlowProbesShutNobodyOut fills the port with requests that are being answered: anyone may send them.
func TestSlowProbesShutNobodyOut(t *testing.T) {
	g := NewWithT(t)
	asked, answer := make(chan bool), make(chan bool)
	defer close(answer)
	slow := func() error {
		asked <- true
		<-answer
		return nil
	}
	mgr := &serverManager{servers: map[string]*manager.Server{}}
	o := Options{ProbeAddress: "127.0.0.1:0", MetricsAddress: Off, PprofAddress: Off}
	g.Expect(o.AddServers(t.Context(), mgr, slow)).To(Succeed())
	server := mgr.servers["health probe"]
	go func() { _ = server.Start(t.Context()) }()
	dial := func() net.Conn { return dialServer(t, server.Listener.Addr().String(), false) }
	for range httpserver.FewConnections {
		_, err := io.WriteString(dial(), "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
		g.Expect(err).NotTo(HaveOccurred())
		<-asked
	}
	g.Expect(get(dial(), "/healthz")).To(Equal(http.StatusOK))
}

// dialServer opens a connection.
func dialServer(t *testing.T, address string, secure bool) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", address)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if secure {
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the server has made the certificate itself
	}
	return conn
}

// get sends a request and returns the status of the answer.
func get(conn net.Conn, path string) (int, error) {
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
