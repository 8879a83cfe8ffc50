package httpserver

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"
)

// serve has a handler served, with TLS or without, and returns a function that connects.
func serve(t *testing.T, o Options, secure bool) (dial func() net.Conn) {
	t.Helper()
	g := NewWithT(t)
	if secure {
		certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
		g.Expect(err).NotTo(HaveOccurred())
		pair, err := tls.X509KeyPair(certificate, key)
		g.Expect(err).NotTo(HaveOccurred())
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	o.Log = logr.Discard()
	server := New(o)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return func() net.Conn {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", listener.Addr().String())
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if secure {
			return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the certificate is of this test
		}
		return conn
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	_, _ = fmt.Fprintf(w, "%d fields, %d bytes", len(r.Header), n)
}

func TestTheFieldsOfARequestAreCountedWhileTheyArrive(t *testing.T) {
	fields := func(count int) string {
		var text strings.Builder
		for n := range count {
			fmt.Fprintf(&text, "X-%d: a\r\n", n)
		}
		return text.String()
	}
	const get, post = "GET / HTTP/1.1\r\nHost: x\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 600\r\n"
	lines := strings.Repeat("\n", 600)
	for sentence, test := range map[string]struct {
		requests []string // on one connection
		want     []string // the status lines
	}{
		"many fields":                                {[]string{get + fields(99) + "\r\n"}, []string{"200 OK"}},
		"too many fields, which do not end":          {[]string{get + fields(101)}, []string{"431 Request Header Fields Too Large"}},
		"too many fields that repeat one":            {[]string{get + strings.Repeat("a:\n", 101)}, []string{"431 Request Header Fields Too Large"}},
		"an empty line before the first request":     {[]string{"\r\n" + fields(3)}, []string{"400 Bad Request"}},
		"one field that does not end":                {[]string{get + "X: " + strings.Repeat("a", 32<<10)}, []string{"431 Request Header Fields Too Large"}},
		"a body of many lines, and another request":  {[]string{post + "\r\n" + lines, get + fields(99) + "\r\n"}, []string{"200 OK", "200 OK"}},
		"too many fields after a body of many lines": {[]string{post + "\r\n" + lines, get + fields(101)}, []string{"200 OK", "431 Request Header Fields Too Large"}},
		"two requests with many fields each":         {[]string{get + fields(60) + "\r\n", get + fields(60) + "\r\n"}, []string{"200 OK", "200 OK"}},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprint(sentence, ", with TLS ", secure), func(t *testing.T) {
				g := NewWithT(t)
				conn := serve(t, Options{Handler: http.HandlerFunc(echo), Connections: 10}, secure)()
				answers := bufio.NewReader(conn)
				for n, request := range test.requests {
					_, err := io.WriteString(conn, request)
					g.Expect(err).NotTo(HaveOccurred())
					answer, err := http.ReadResponse(answers, nil)
					g.Expect(err).NotTo(HaveOccurred())
					_, err = io.Copy(io.Discard, answer.Body)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(answer.Status).To(Equal(test.want[n]))
				}
			})
		}
	}
}

func TestConnectionsTakeLittleMemory(t *testing.T) {
	g := NewWithT(t)
	const count = 500
	dial := serve(t, Options{Handler: http.HandlerFunc(echo), Connections: 2 * count}, false)
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapInuse + stats.StackInuse
	}
	before := heap()
	for range count {
		_, err := io.WriteString(dial(), "GET / HTTP/1.1\r\nHost: x\r\n"+strings.Repeat("a:\n", 99))
		g.Expect(err).NotTo(HaveOccurred())
	}
	time.Sleep(100 * time.Millisecond) // until they have been read
	g.Expect(heap()-before).To(BeNumerically("<", count*40<<10), "both ends")
}

func TestPlainHTTPToATLSPortIsTold(t *testing.T) {
	g := NewWithT(t)
	dial := serve(t, Options{Handler: http.HandlerFunc(echo), Connections: 10}, true)
	raw := dial().(*tls.Conn).NetConn()
	_, err := io.WriteString(raw, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	g.Expect(err).NotTo(HaveOccurred())
	answer, err := io.ReadAll(raw)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(answer)).To(HaveSuffix("This port serves HTTPS only.\n"))
}

func TestHTTP2HasFewerConnections(t *testing.T) {
	g := NewWithT(t)
	server := New(Options{Handler: http.HandlerFunc(echo), Log: logr.Discard(), Connections: MaxConnections, TLS: &tls.Config{}, HTTP2: true})
	g.Expect(server.limiter.limit).To(Equal(MaxConnections / http2Part))
	g.Expect(New(Options{Log: logr.Discard(), Connections: MaxConnections}).limiter.limit).To(Equal(MaxConnections))
}

// TestGarbageTokensDoNotReachTheAPIServer has very many of them come at once.
func TestGarbageTokensDoNotReachTheAPIServer(t *testing.T) {
	g := NewWithT(t)
	var reviews, scrapes atomic.Int32
	dial := serve(t, Options{Connections: 1000, Handler: Gate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reviews.Add(1)
		if r.Header.Get("Authorization") != "Bearer valid" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		scrapes.Add(1)
	}))}, false)
	get := func(token string) int {
		conn := dial()
		_, _ = fmt.Fprintf(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", token)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0
		}
		return answer.StatusCode
	}
	g.Expect(get("valid")).To(Equal(http.StatusOK))
	codes := make(chan int)
	const garbage = 300
	for n := range garbage {
		go func() { codes <- get(fmt.Sprint("garbage-", n)) }()
	}
	for range 20 {
		g.Expect(get("valid")).To(Equal(http.StatusOK), "it is known")
	}
	for range garbage {
		g.Expect(<-codes).To(BeElementOf(http.StatusUnauthorized, http.StatusServiceUnavailable))
	}
	g.Expect(reviews.Load()-scrapes.Load()).To(BeNumerically("<", garbage/2), "of %d", garbage)
	before := reviews.Load()
	g.Expect(get("again")).To(Equal(http.StatusUnauthorized))
	for range 20 {
		g.Expect(get("again")).To(Equal(http.StatusUnauthorized))
	}
	g.Expect(reviews.Load()).To(Equal(before+1), "it is remembered")
}

func TestErrorLogKeepsTokensOut(t *testing.T) {
	g := NewWithT(t)
	const token = "tocsin_secret"
	var logs strings.Builder
	log := funcr.New(func(_, line string) { logs.WriteString(line) }, funcr.Options{Verbosity: 1})
	for _, line := range []string{
		"odd request POST /api/v1/events/webhook/" + token + " from 10.0.0.1\n",
		`header "Authorization: Bearer ` + token + `"`,
		"GET /api/v1/events/webhook/" + token + "?dryRun=true",
	} {
		n, err := (&errorLog{log}).Write([]byte(line))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(n).To(Equal(len(line)))
	}
	g.Expect(logs.String()).NotTo(ContainSubstring(token))
	g.Expect(logs.String()).To(ContainSubstring("{token} from 10.0.0.1"))
}
