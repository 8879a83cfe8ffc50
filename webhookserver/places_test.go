package webhookserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

// TestASmallRequestGetsNoLargeAnswer has what is said once repeated in hundreds of alerts.
func TestASmallRequestGetsNoLargeAnswer(t *testing.T) {
	large, alerts := strings.Repeat("x", 80<<10), strings.TrimSuffix(strings.Repeat("{},", 500), ",")
	var attributes strings.Builder
	for n := range 5000 {
		fmt.Fprintf(&attributes, `,"a%d":"b"`, n)
	}
	for sentence, test := range map[string]struct{ contentType, body string }{
		"attributes of a CloudEvent": {eventType, fmt.Sprintf(
			`{"specversion":"1.0","id":"1","source":"s","type":%q,"subject":%q,"other":%q,"data":[%s]}`, large, large, large, alerts)},
		"many attributes of a CloudEvent": {eventType, fmt.Sprintf(
			`{"specversion":"1.0","id":"1","source":"s","type":"t","data":[%s]%s}`, alerts, attributes.String())},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath+"?dryRun=true", gzipped(test.body), func(r *http.Request) {
				r.Header.Set("Content-Type", test.contentType)
				r.Header.Set("Content-Encoding", "gzip")
			})
			answer, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.StatusCode).To(Equal(http.StatusOK), "%.300s", answer)
			g.Expect(len(answer)).To(BeNumerically("<", 2<<20))
		})
	}
}

// unread is an answer that the client does not read.
type unread struct {
	*httptest.ResponseRecorder
	writing chan<- bool
	release <-chan bool
}

func (u unread) Write(p []byte) (int, error) {
	u.writing <- true
	<-u.release
	return u.ResponseRecorder.Write(p)
}

func TestAnAnswerCountsUntilItIsWritten(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	body := fmt.Sprintf(`{"dedup_key":"unread","custom":{"text":%q}}`, strings.Repeat("x", 160<<10))
	sender := types.NamespacedName{Namespace: "team-a", Name: "prometheus"}
	writing, release, done := make(chan bool), make(chan bool), make(chan bool)
	const most = maxBodyMemory / 4 / (160 << 10) // of an integration
	for range most / 2 {
		go func() {
			request := httptest.NewRequest(http.MethodPost, testPath+"?dryRun=true", strings.NewReader(body))
			b.handler.ServeHTTP(unread{httptest.NewRecorder(), writing, release}, request)
			done <- true
		}()
		<-writing
	}
	g.Expect(b.bodies.Allows(sender, maxBodyMemory/4/2)).To(BeFalse(), "half of what the integration may have is taken")
	close(release)
	for range most / 2 {
		<-done
	}
	g.Expect(b.bodies.Allows(sender, maxBodyMemory/4)).To(BeTrue())
}

// TestWhatABodyHasDecodedToIsFreeWhileItsAnswerIsWritten has clients that do not read the answers to bodies that decode to many
// times their bytes.
func TestWhatABodyHasDecodedToIsFreeWhileItsAnswerIsWritten(t *testing.T) {
	var body strings.Builder
	for n := range 20_000 {
		if n%200 == 0 {
			fmt.Fprintf(&body, `%s{"dedup_key":"%d","values":{"first":0`, map[bool]string{true: "[", false: "}},"}[n == 0], n)
		}
		fmt.Fprintf(&body, `,"%d":0`, n)
	}
	body.WriteString("}}]")
	for query, most := range map[string]int{
		"?dryRun=true":  5 * body.Len(),
		"?dryRun=false": 11 * body.Len(), // the store of the test keeps the alerts
	} {
		t.Run(query, func(t *testing.T) {
			g, b := NewWithT(t), newBench()
			writing, release, done := make(chan bool), make(chan bool), make(chan bool)
			const clients = 4
			heap := func() int64 {
				var stats runtime.MemStats
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&stats)
				return int64(stats.HeapAlloc)
			}
			before := heap()
			for range clients {
				go func() {
					request := httptest.NewRequest(http.MethodPost, testPath+query, strings.NewReader(body.String()))
					b.handler.ServeHTTP(unread{httptest.NewRecorder(), writing, release}, request)
					done <- true
				}()
				<-writing
			}
			took := (heap() - before) / clients
			close(release)
			for range clients {
				<-done
			}
			t.Logf("%d bytes take %d", body.Len(), took)
			g.Expect(took).To(BeNumerically("<", most))
		})
	}
}

// postWithoutPlace posts a request that waits in vain for a processor, until leave is called.
func (b *bench) postWithoutPlace(t *testing.T) (response *http.Response, leave func()) {
	t.Helper()
	g := NewWithT(t)
	b.places = fair.NewPlaces(1)
	held, err := b.places.Enter(t.Context(), "team-b", 0)
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as after maxPlaceWait
	response = b.post(testPath, firing, func(r *http.Request) { *r = *r.WithContext(ctx) })
	g.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	return response, held.Leave
}

func TestARequestWaitsForItsTurn(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	response, leave := b.postWithoutPlace(t)
	g.Expect(io.ReadAll(response.Body)).To(ContainSubstring(`:busy"`))
	leave()
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusAccepted))
}

// keepBusy has another namespace take the only place for so long at a time, until the test ends it.
func (b *bench) keepBusy(t *testing.T, each time.Duration) (end func()) {
	t.Helper()
	b.places = fair.NewPlaces(1)
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		for ctx.Err() == nil {
			if place, err := b.places.Enter(ctx, "team-b", time.Hour); err == nil {
				<-time.After(each)
				place.Leave()
			}
		}
	})
	return func() { cancel(); busy.Wait() }
}

// TestWhatAGroupWaitsForProcessorsIsNoEvaluation posts a group that pauses dozens of times.
func TestWhatAGroupWaitsForProcessorsIsNoEvaluation(t *testing.T) {
	for sentence, test := range map[string]struct {
		each time.Duration
		code int
	}{
		"waits of several seconds in all leave it its second":  {maxEvaluation / 10, http.StatusOK},
		"waits that leave no time to store it end the request": {maxPlaceWait - time.Millisecond, http.StatusServiceUnavailable},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, b := NewWithT(t), newBench()
				defer b.keepBusy(t, test.each)()
				began := time.Now()
				response := b.post(testPath+"?dryRun=true", largeGroup(2<<10))
				g.Expect(response.StatusCode).To(Equal(test.code))
				g.Expect(time.Since(began)).To(And(BeNumerically(">", 2*maxEvaluation), BeNumerically("<", requestTimeout)))
			})
		})
	}
}
