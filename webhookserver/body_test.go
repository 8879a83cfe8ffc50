package webhookserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/httpserver"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

func TestGzipBombIsNotUnpacked(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	for range 200 {
		_, err := w.Write(make([]byte, 1<<20))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(w.Close()).To(Succeed())
	g.Expect(bomb.Len()).To(BeNumerically("<", DefaultMaxBodyBytes), "as sent it is within the limit")

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	response := b.post(testPath, bomb.String(), with("Content-Encoding", "gzip"))
	runtime.ReadMemStats(&after)
	g.Expect(response.StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
	g.Expect(after.TotalAlloc - before.TotalAlloc).To(BeNumerically("<", 4<<20))
}

// unsized hides how long a body is.
type unsized struct{ io.Reader }

func TestReadingABodyTakesNoMoreMemoryThanIsReserved(t *testing.T) {
	b := newBench()
	limit := DefaultMaxBodyBytes
	for name, size := range map[string]int{
		"a short body": 100, "one of several reads": firstRead, "one just above a half": limit/2 + 1, "one at the limit": limit,
		"one that is too large": limit + 1,
	} {
		for _, encoding := range []string{"identity", "gzip"} {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, chunked %v", name, encoding, chunked), func(t *testing.T) {
					g := NewWithT(t)
					text := strings.Repeat(" ", size)
					if encoding == "gzip" {
						text = gzipped(text)
					}
					var body io.Reader = strings.NewReader(text)
					if chunked {
						body = unsized{body}
					}
					a := &arrived{Request: httptest.NewRequest(http.MethodPost, testPath, body), operation: &protocol.Operation{}}
					a.Header.Set("Content-Encoding", encoding)
					checked, p := b.check(&authenticated{arrived: a, integration: integration("team-a", "prometheus")})
					if p != nil {
						return
					}
					reserved := checked.bodyMemory()
					const reads = 50
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					for range reads {
						a.Body = io.NopCloser(unsized{strings.NewReader(text)})
						read, p := b.read(checked)
						if p == nil {
							content, _ := read.takeBody()
							g.Expect(cap(content)).To(BeNumerically("<=", reserved))
						}
						checked.release()
						checked.memory = nil
					}
					runtime.ReadMemStats(&after)
					allocated := int64(after.TotalAlloc-before.TotalAlloc) / reads
					g.Expect(allocated).To(BeNumerically("<=", reserved+reserved/8), "an eighth for how memory is divided")
				})
			}
		}
	}
}

// endless is a body that has no end, and counts what was read of it.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += len(p)
	return len(p), nil
}

func TestBodyWithoutEndIsLeft(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	body := &endless{}
	request := httptest.NewRequest(http.MethodPost, testPath, body)
	recorder := httptest.NewRecorder()
	b.ServeHTTP(recorder, request)
	g.Expect(recorder.Code).To(Equal(http.StatusRequestEntityTooLarge))
	g.Expect(body.read).To(BeNumerically("<", 2*DefaultMaxBodyBytes))
}

func TestBodyAtTheLimitIsAccepted(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	body := firing + strings.Repeat(" ", DefaultMaxBodyBytes-len(firing))
	g.Expect(b.post(testPath, body).StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(b.post(testPath, gzipped(body), with("Content-Encoding", "gzip")).StatusCode).To(Equal(http.StatusAccepted))
}

func TestBodyThatBreaksOff(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		kind string
	}{
		"a client that hangs up":       {io.ErrUnexpectedEOF, "unreadable-body"},
		"a client that is too slow":    {os.ErrDeadlineExceeded, "body-timeout"},
		"any other trouble on the way": {errors.New("odd"), "unreadable-body"},
	} {
		for _, encoding := range []string{"identity", "gzip"} {
			t.Run(name+", "+encoding, func(t *testing.T) {
				g := NewWithT(t)
				b := newBench()
				sent := io.MultiReader(strings.NewReader(gzipped(firing)[:12]), failingReader{test.err})
				request := httptest.NewRequest(http.MethodPost, testPath, sent)
				request.Header.Set("Content-Encoding", encoding)
				recorder := httptest.NewRecorder()
				b.ServeHTTP(recorder, request)
				g.Expect(decode[problemBody](g, recorder.Result()).kind()).To(Equal(test.kind))
			})
		}
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func TestRequestsGiveTheirMemoryBack(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	for _, body := range []string{firing, "oops", "[1]", "", gzipped(firing)} {
		b.post(testPath, body)
		b.post(testPath+"?dryRun=true", body)
		b.post(testPath, body, with("Content-Encoding", "gzip"))
	}
	g.Expect(b.bodies).To(Equal(fair.NewSpace(maxBodyMemory)))
	g.Expect(b.decoded).To(Equal(fair.NewSpace(maxDecodedMemory)))
	b.bodies.Reserve(types.NamespacedName{Namespace: "other"}, maxBodyMemory, 0)
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusServiceUnavailable))
}

// TestSlowBodiesOfAnIntegrationLeaveConnectionsToOthers begins many short bodies that do not come.
func TestSlowBodiesOfAnIntegrationLeaveConnectionsToOthers(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.tokens.set(integration("team-b", "other"))
	begun, goOn := make(chan bool), make(chan bool)
	var slow sync.WaitGroup
	for range httpserver.MaxConnections / 4 {
		slow.Go(func() {
			request := httptest.NewRequest(http.MethodPost, testPath, readerFunc(func([]byte) (int, error) {
				begun <- true
				<-goOn
				return 0, io.ErrUnexpectedEOF
			}))
			request.ContentLength = 10
			b.handler.ServeHTTP(httptest.NewRecorder(), request)
		})
		<-begun
	}
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusServiceUnavailable))
	g.Expect(b.post(eventsPath+"/"+testenv.Token("team-b", "other"), firing).StatusCode).To(Equal(http.StatusAccepted))
	close(goOn)
	slow.Wait()
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusAccepted))
}

// TestQueriesOfAnIntegrationReadTheAPIServerWithinALimit has many queries wait for the API server.
func TestQueriesOfAnIntegrationReadTheAPIServerWithinALimit(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.tokens.set(integration("team-b", "other"))
	slow := slowReader{begun: make(chan bool, 1), goOn: make(chan bool)}
	b.handler.live = slow
	ask := func(token string) int {
		path := fmt.Sprintf("%s/%s/v2/alerts/requests/%s", eventsPath, token, strings.Repeat("a", 26))
		return b.post(path, "", method(http.MethodGet)).StatusCode
	}
	codes := make(chan int, 64)
	begin := func(token string) {
		go func() { codes <- ask(token) }()
		<-slow.begun
	}
	for range 63 {
		begin(testToken)
	}
	begin(testenv.Token("team-b", "other"))
	begin(testToken)
	g.Expect(ask(testToken)).To(Equal(http.StatusServiceUnavailable))
	close(slow.goOn)
	for range 65 {
		g.Expect(<-codes).To(Equal(http.StatusNotFound))
	}
	g.Expect(b.bodies).To(Equal(fair.NewSpace(maxBodyMemory)))
}

type slowReader struct{ begun, goOn chan bool }

func (r slowReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	r.begun <- true
	<-r.goOn
	return errors.New("gone")
}

func (slowReader) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestAnAlertThatWaitsForTheStoreHoldsOnlyItsConnection looks at the budgets in the middle of a write.
func TestAnAlertThatWaitsForTheStoreHoldsOnlyItsConnection(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	sender := types.NamespacedName{Namespace: "team-a", Name: "prometheus"}
	waiting := fair.NewSpace(maxBodyMemory)
	waiting.Reserve(sender, minBodyMemory, 0)
	b.store.Before = func(context.Context, *v1alpha1.AlertEvent, int) error {
		g.Expect(b.bodies).To(Equal(waiting))
		g.Expect(b.decoded).To(Equal(fair.NewSpace(maxDecodedMemory)))
		return nil
	}
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(b.store.Stored()).To(HaveLen(1))

	t.Log("however slow the store is, the connections of one integration leave some for others")
	for b.bodies.Allows(sender, minBodyMemory) {
		b.bodies.Reserve(sender, minBodyMemory, 0)
	}
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusServiceUnavailable))
}

func TestABodyThatDecodesToTooMuchIsRefused(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.options.MaxBodyBytes = 4 << 20
	body := `{"a":[` + strings.Repeat(`{"":0},`, 200_000) + `0]}`
	for _, body := range []string{body, strconv.Quote(body)} { // also if that shows in a text only
		response := b.post(testPath, body)
		g.Expect(response.StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
		g.Expect(decode[problemBody](g, response).kind()).To(Equal("body-too-complex"))
	}
	g.Expect(b.reports.reasons).To(HaveEach("BodyTooComplex"))
}
