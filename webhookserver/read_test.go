package webhookserver

import (
	"bytes"
	"cmp"
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

// A typing error in dryRun must not store the alert of a test, and a sender's own parameters must not stop its alerts.
func TestTheQuery(t *testing.T) {
	for query, status := range map[string]int{
		"dryRun=true":                   http.StatusOK,
		"dryrun=true":                   http.StatusOK,
		"DRYRUN=1":                      http.StatusOK,
		"dry%52un=tru%65":               http.StatusOK,
		"utm_source=x&dryRun=true":      http.StatusOK,
		"utm_source=x?dryRun=true":      http.StatusOK, // a second address was appended
		"a=b;dryRun=true":               http.StatusOK, // url.ParseQuery drops both
		"x=%zz&dryRun=true":             http.StatusOK,
		"dryRun=true&dryrun=TRUE":       http.StatusOK,
		"dryRun=true&dryrun=false":      http.StatusBadRequest,
		"dryrun":                        http.StatusBadRequest,
		"dryrun=%zz":                    http.StatusBadRequest,
		"dry-run=true":                  http.StatusBadRequest,
		"dry_run=true":                  http.StatusBadRequest,
		"dry%20run=true":                http.StatusBadRequest,
		"dry=true":                      http.StatusBadRequest,
		"dryRn=true":                    http.StatusBadRequest,
		"dyrRun=true":                   http.StatusBadRequest,
		"dryruns=true":                  http.StatusBadRequest,
		"dryRun[]=true":                 http.StatusBadRequest,
		"isDryRun=true":                 http.StatusBadRequest,
		"a=1&b=2;ddryrun=true":          http.StatusBadRequest,
		"":                              http.StatusAccepted,
		"dryRun=false":                  http.StatusAccepted,
		"run=1&rerun=2&date=3":          http.StatusAccepted,
		"duration=5&dry-cough=1&driver": http.StatusAccepted,
		"utm_campaign=dryRun&%zz&=&;":   http.StatusAccepted,
	} {
		t.Run(query, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath+"?"+query, firing)
			g.Expect(response.StatusCode).To(Equal(status))
			if status == http.StatusAccepted {
				g.Expect(b.store.Stored()).To(HaveLen(1))
				return
			}
			g.Expect(b.store.Stored()).To(BeEmpty())
			if status == http.StatusBadRequest {
				g.Expect(decode[problemBody](g, response).Detail).To(ContainSubstring("dryRun"))
			}
		})
	}
}

// Parameters that are named like fields are read where the body has none. A name that resembles a field is refused.
func TestParametersAreDefaults(t *testing.T) {
	const body = `{"title":"Disk full"}`
	for query, test := range map[string]struct {
		body   string
		status int // 0: accepted
		want   v1alpha1.Alert
	}{
		"severity=critical&dedup_key=k":                    {want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full", Severity: "critical"}}},
		"dedupKey=k&title=Other&priority=P1&x=1&dryRunner": {status: http.StatusBadRequest},
		"dedupKey=k&title=Other&priority=P1&x=1": {
			want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full", Severity: "critical"}}},
		"status=resolved&dedup_key=k": {
			want: v1alpha1.Alert{DedupKey: "k", Status: v1alpha1.AlertResolved, AlertContent: v1alpha1.AlertContent{Title: "Disk full"}}},
		"status=resolved&dedup_key=x": {body: `{"title":"Disk full","status":"firing","dedup_key":"k"}`,
			want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full"}}},
		"hostname=db-1&region=eu&hostname=db-1&severity=&dedup_key=k": {
			want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full", Hostname: "db-1", Region: "eu"}}},
		"dedup_key=k&description=Down": {body: `{}`, want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Description: "Down"}}},
		"severity=warning&dedup_key=x": {body: `{"title":"Disk full","level":"critical","dedupKey":"k"}`,
			want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full", Severity: "critical",
				Custom: v1alpha1.Bag{"level": []byte(`"critical"`), "dedupKey": []byte(`"k"`)}}}},
		"severtiy=critical":            {status: http.StatusBadRequest},
		"labels=a":                     {status: http.StatusBadRequest},
		"starts_at=now":                {status: http.StatusBadRequest},
		"hostname=a&host_name=b":       {status: http.StatusBadRequest},
		"dedup_key=k&utm=x&team=y&%zz": {want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full"}}},
	} {
		t.Run(query, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath+"?"+query, cmp.Or(test.body, body))
			if test.status != 0 {
				g.Expect(response.StatusCode).To(Equal(test.status))
				g.Expect(decode[problemBody](g, response).Detail).To(HaveSuffix("Nothing was stored."))
				g.Expect(b.store.Stored()).To(BeEmpty())
				return
			}
			g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			got := b.store.Stored()[0].Alerts[0]
			test.want.ID, test.want.IncidentName, test.want.Origins = got.ID, got.IncidentName, got.Origins
			test.want.Status = cmp.Or(test.want.Status, v1alpha1.AlertFiring)
			g.Expect(got).To(Equal(test.want))
		})
	}
}

// The alerts of a list are of different Incidents, and a signature does not include the query.
func TestDefaultsOfListsAndOfSignedRequests(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.post(testPath+"?dedup_key=k&severity=info", `[{"title":"a"},{"title":"b","severity":"error"}]`)
	alerts := b.store.Stored()[0].Alerts
	g.Expect([]v1alpha1.Severity{alerts[0].Severity, alerts[1].Severity}).To(Equal([]v1alpha1.Severity{"info", "error"}))
	g.Expect(alerts[0].DedupKey).NotTo(Or(Equal("k"), Equal(alerts[1].DedupKey)))

	signed := integration("team-a", "prometheus")
	signed.Spec.Verify = &v1alpha1.Verification{}
	b.tokens.set(signed)
	response := b.post(testPath+"?status=resolved", firing)
	g.Expect(response.StatusCode).To(BeNumerically(">=", http.StatusBadRequest))
	g.Expect(b.store.Stored()).To(HaveLen(1))
}

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
		err    error
		kind   string
		status int
	}{
		"a client that hangs up":         {io.ErrUnexpectedEOF, "unreadable-body", http.StatusBadRequest},
		"a slow client is to come again": {os.ErrDeadlineExceeded, "body-timeout", http.StatusServiceUnavailable},
		"any other trouble on the way":   {errors.New("odd"), "unreadable-body", http.StatusBadRequest},
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
				g.Expect(recorder.Code).To(Equal(test.status))
				g.Expect(recorder.Header().Get("Retry-After") != "").To(Equal(test.status == http.StatusServiceUnavailable))
				g.Expect(decode[problemBody](g, recorder.Result()).kind()).To(Equal(test.kind))
				g.Expect(len(b.reports.unavailable) > 0).To(Equal(test.status == http.StatusServiceUnavailable))
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
