package webhookserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"k8s.io/client-go/tools/events"
	certutil "k8s.io/client-go/util/cert"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// running is a server that a test has started.
type running struct {
	*Server
	*bench
	stop   context.CancelFunc
	result chan error
}

// startServer starts a server around a bench, on a free port, and waits until it is ready.
func startServer(t *testing.T, b *bench, options Options) *running {
	t.Helper()
	options.BindAddress = "127.0.0.1:0"
	s := newServer(b, options)
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Server: s, bench: b, stop: cancel, result: make(chan error, 1)}
	go func() { r.result <- s.Start(ctx) }()
	NewWithT(t).Eventually(func() error { return s.ReadyCheck() }, "10s", "5ms").Should(Succeed())
	t.Cleanup(cancel)
	return r
}

func newServer(b *bench, options Options) *Server {
	return &Server{
		options:   options.withDefaults(),
		handler:   b.handler,
		committer: b.group,
		store:     nothingToClose{},
		reports:   newReporter(nil, events.NewFakeRecorder(10), b.logs.logger()),
		log:       b.logs.logger(),
	}
}

type nothingToClose struct{}

func (nothingToClose) Close() {}

func (r *running) address() string { return (*r.listener.Load()).Addr().String() }

func (r *running) url() string { return "http://" + r.address() + testPath }

// expectNoLeak returns what to call at the end: it expects that no goroutine is left that was not there before.
func expectNoLeak(g *WithT) func() {
	before := gleak.Goroutines()
	return func() { g.Eventually(gleak.Goroutines).ShouldNot(gleak.HaveLeaked(before)) }
}

func TestServerReturnsItsErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { _ = taken.Close() }()
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"a port that is taken":         {Options{BindAddress: taken.Addr().String()}, "address already in use"},
		"an address that is none":      {Options{BindAddress: "nowhere"}, "missing port"},
		"a certificate that is absent": {Options{BindAddress: "127.0.0.1:0", TLSCertPath: t.TempDir()}, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			defer expectNoLeak(g)()
			s := newServer(newBench(), test.options)
			g.Expect(s.Start(t.Context())).To(MatchError(ContainSubstring(test.want)))
			g.Expect(s.ReadyCheck()).NotTo(Succeed())
		})
	}
}

func TestServerIsReadyWhileItServes(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	g.Expect(newServer(b, Options{}).ReadyCheck()).To(MatchError(ContainSubstring("listen")))
	b.ready = func() bool { return false }
	g.Expect(newServer(b, Options{}).ReadyCheck()).To(MatchError(ContainSubstring("synced")))
}

func TestServerDrainsWhenItIsStopped(t *testing.T) {
	g := NewWithT(t)
	defer expectNoLeak(g)()
	b := newBench()
	begun, finish := make(chan struct{}), make(chan struct{})
	b.store.Before = func(_ context.Context, event *v1alpha1.AlertEvent, _ int) error {
		if event.Alerts[0].DedupKey == "slow" {
			close(begun)
			<-finish
		}
		return nil
	}
	s := startServer(t, b, Options{ShutdownDelay: 300 * time.Millisecond})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answers := make(chan int, 1)
	go func() {
		response, err := client.Post(s.url(), "application/json", strings.NewReader(`{"dedup_key":"slow"}`))
		if err != nil {
			answers <- 0
			return
		}
		_ = response.Body.Close()
		answers <- response.StatusCode
	}()
	<-begun

	s.stop()
	g.Eventually(func() error { return s.ReadyCheck() }).Should(MatchError(ContainSubstring("stopping")))
	response, err := client.Post(s.url(), "application/json", strings.NewReader(firing))
	g.Expect(err).NotTo(HaveOccurred(), "it goes on serving for the shutdown delay")
	g.Expect(response.Body.Close()).To(Succeed())
	g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))

	g.Eventually(func() error {
		connection, err := net.Dial("tcp", s.address())
		if err == nil {
			_ = connection.Close()
		}
		return err
	}, "5s", "10ms").Should(HaveOccurred(), "then it takes no new connections")
	g.Consistently(s.result, "50ms").ShouldNot(Receive(), "but waits for the request in flight")
	close(finish)
	g.Eventually(answers).Should(Receive(Equal(http.StatusAccepted)))
	g.Eventually(s.result).Should(Receive(BeNil()))
	g.Expect(b.store.Stored()).To(HaveLen(2))
}

func TestServerEndsConnectionsWhileItStops(t *testing.T) {
	g := NewWithT(t)
	s := startServer(t, newBench(), Options{ShutdownDelay: time.Second})
	client := &http.Client{Transport: &http.Transport{}}
	post := func() *http.Response {
		response, err := client.Post(s.url(), "application/json", strings.NewReader(firing))
		g.Expect(err).NotTo(HaveOccurred())
		_, err = io.Copy(io.Discard, response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		return response
	}
	g.Expect(post().Close).To(BeFalse(), "a sender may keep its connection")

	s.stop()
	g.Eventually(func() error { return s.ReadyCheck() }).Should(HaveOccurred())
	g.Expect(post().Close).To(BeTrue(), "or its next request would meet the end of the server")
	g.Eventually(s.result, "5s").Should(Receive(BeNil()))
}

func TestServerSpeaksTLS(t *testing.T) {
	for name, test := range map[string]struct {
		http2 bool
		proto string
	}{
		"HTTP/1.1 unless told otherwise": {false, "HTTP/1.1"},
		"HTTP/2 when enabled":            {true, "HTTP/2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), cert, 0o600)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)).To(Succeed())
			s := startServer(t, newBench(), Options{TLSCertPath: dir, EnableHTTP2: test.http2, ShutdownDelay: time.Millisecond})
			transport := &http.Transport{ForceAttemptHTTP2: true,
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			response, err := client.Post("https://"+s.address()+testPath, "application/json", strings.NewReader(firing))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Body.Close()).To(Succeed())
			g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			g.Expect(response.Proto).To(Equal(test.proto))

			t.Log("what is no TLS is logged without what was sent")
			connection, err := net.Dial("tcp", s.address())
			g.Expect(err).NotTo(HaveOccurred())
			_, err = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\n\r\n", testPath)
			g.Expect(err).NotTo(HaveOccurred())
			g.Eventually(s.logs.String).Should(ContainSubstring("TLS handshake error"))
			g.Expect(s.logs.String()).NotTo(ContainSubstring(testToken))
			g.Expect(connection.Close()).To(Succeed())
			s.stop()
			g.Eventually(s.result, "10s").Should(Receive(BeNil()))
		})
	}
}

func TestServerOnTheWire(t *testing.T) {
	s := startServer(t, newBench(), Options{ShutdownDelay: time.Millisecond})
	for name, test := range map[string]struct {
		request string
		want    string
		closes  bool
	}{
		"an unknown token is answered before any of the body has come": {
			request: "POST " + eventsPath + "/nobody HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
			want:    "401 Unauthorized", closes: true},
		"the client that asks before sending is not told to send": {
			request: "POST " + eventsPath + "/nobody HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
			want:    "401 Unauthorized", closes: true},
		"a body that was read leaves the connection open": {
			request: fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", testPath, len(firing), firing),
			want:    "202 Accepted"},
		"headers over 16 KiB": {
			request: "POST " + testPath + " HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("x", 32<<10) + "\r\n\r\n",
			want:    "431 Request Header Fields Too Large", closes: true},
		"a request that is no HTTP": {request: "POST " + testPath + "\r\n\r\n", want: "400 Bad Request", closes: true},
		"a header that is none": {
			request: "POST " + testPath + " HTTP/1.1\r\nHost: x\r\n" + testToken + "\r\n\r\n", want: "400 Bad Request", closes: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			connection, err := net.Dial("tcp", s.address())
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = connection.Close() }()
			g.Expect(connection.SetDeadline(time.Now().Add(4 * time.Second))).To(Succeed())
			_, err = io.WriteString(connection, test.request)
			g.Expect(err).NotTo(HaveOccurred())
			response, err := http.ReadResponse(bufio.NewReader(connection), nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Status).To(Equal(test.want))
			g.Expect(response.Close).To(Equal(test.closes))
			body, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(body)).NotTo(ContainSubstring(testToken))
		})
	}
	NewWithT(t).Expect(s.logs.String()).NotTo(ContainSubstring(testToken))
}
