package httpserver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

// withoutBody is a request whose body does not come.
const withoutBody = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"

// TestRequestsWithoutTheirBodyShutNobodyOut fills a server with them, and has another client ask.
func TestRequestsWithoutTheirBodyShutNobodyOut(t *testing.T) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	read := http.HandlerFunc(echo)
	for sentence, o := range map[string]Options{
		"the handler returns at once":                        {Handler: nothing, LongAnswers: time.Minute},
		"the handler returns at once, and answers are brief": {Handler: nothing},
		"the handler waits, and the request is nobody's":     {Handler: read, LongAnswers: time.Minute, Anonymous: true},
		"the gate finds no token":                            {Handler: Gate(read), LongAnswers: time.Minute, Anonymous: true},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprint(sentence, ", with TLS ", secure), func(t *testing.T) {
				g := NewWithT(t)
				const limit = 4
				began := make(chan bool, limit+1)
				handler := o.Handler
				o.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						return
					}
					began <- true
					handler.ServeHTTP(w, r)
				})
				o.Connections = limit
				dial := serve(t, o, secure)
				for range limit {
					_, err := io.WriteString(dial(), withoutBody)
					g.Expect(err).NotTo(HaveOccurred())
					<-began
				}
				g.Eventually(func() (int, error) { return get(dial()) }, "3s", "10ms").Should(Equal(http.StatusOK))
			})
		}
	}
}

// get sends a request and returns the status of the answer.
func get(conn net.Conn) (int, error) {
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// TestConnectionsOfCallersAreNotClosed fills a server with requests that Busy was called for.
func TestConnectionsOfCallersAreNotClosed(t *testing.T) {
	g := NewWithT(t)
	const limit = 4
	entered, goOn := make(chan bool, limit), make(chan bool)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		Busy(r)
		entered <- true
		<-goOn
	})
	dial := serve(t, Options{Connections: limit, Anonymous: true, Handler: handler}, false)
	answers := make(chan int, limit)
	for range limit {
		conn := dial()
		go func() {
			code, _ := get(conn)
			answers <- code
		}()
		<-entered
	}
	_, err := get(dial())
	g.Expect(err).To(HaveOccurred(), "one too many is closed")
	close(goOn)
	for range limit {
		g.Expect(<-answers).To(Equal(http.StatusOK))
	}
}

// TestTheGateKnowsWhoIsPermitted fills a server with scrapes that take their time.
func TestTheGateKnowsWhoIsPermitted(t *testing.T) {
	for token, closed := range map[string]bool{"permitted": true, "forbidden": false} {
		t.Run(token, func(t *testing.T) {
			g := NewWithT(t)
			const limit = 4
			entered, goOn := make(chan bool, limit), make(chan bool)
			handler := Gate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "forbidden" {
					w.WriteHeader(http.StatusForbidden)
				}
				if r.URL.Path == "/slow" {
					entered <- true
					<-goOn
				}
			}))
			dial := serve(t, Options{Connections: limit, Anonymous: true, Handler: handler}, false)
			t.Cleanup(func() { close(goOn) })
			ask := func(path string) net.Conn {
				conn := dial()
				_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n", path, token)
				g.Expect(err).NotTo(HaveOccurred())
				return conn
			}
			first := ask("/") // so that the token is known
			_, err := http.ReadResponse(bufio.NewReader(first), nil)
			g.Expect(err).NotTo(HaveOccurred())
			_ = first.Close()
			for range limit {
				ask("/slow")
				<-entered
			}
			_, err = get(dial())
			g.Expect(err != nil).To(Equal(closed), "%v", err)
		})
	}
}

// pipes is a listener of connections in memory, whose deadlines go by the clock of the test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestABodyHasADeadlineAndALongAnswerHasNot(t *testing.T) {
	for sentence, test := range map[string]struct {
		request string
		handler http.HandlerFunc
		took    time.Duration // until the answer
	}{
		"a body that does not come and is not wanted": {withoutBody, func(http.ResponseWriter, *http.Request) {}, ReadTimeout},
		"a body that does not come and is read":       {withoutBody, echo, ReadTimeout},
		"a handler ends the deadline": {withoutBody, func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		}, ReadTimeout},
		"an answer takes longer than a body may": {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
			func(w http.ResponseWriter, r *http.Request) {
				if json.NewDecoder(r.Body).Decode(&struct{}{}) != nil {
					w.WriteHeader(http.StatusBadRequest)
				}
				select {
				case <-r.Context().Done():
					w.WriteHeader(http.StatusBadGateway)
				case <-time.After(3 * ReadTimeout):
				}
			}, 3 * ReadTimeout},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := New(Options{Handler: test.handler, Log: logr.Discard(), Connections: 1, LongAnswers: 4 * ReadTimeout})
				listener, done := make(pipes), make(chan error, 1)
				go func() { done <- server.Serve(listener) }()
				conn, far := net.Pipe()
				listener <- far
				began := time.Now()
				_, err := io.WriteString(conn, test.request)
				g.Expect(err).NotTo(HaveOccurred())
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(answer.StatusCode).To(Equal(http.StatusOK))
				g.Expect(time.Since(began)).To(Equal(test.took))
				_ = conn.Close()
				close(listener)
				g.Expect(<-done).To(HaveOccurred())
				_ = server.Close()
			})
		})
	}
}
