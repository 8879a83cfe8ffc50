package webhookserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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

func TestMemoryBudget(t *testing.T) {
	g := NewWithT(t)
	b := newMemoryBudget(400)
	reserve := func(namespace, name string, size int64) *memoryReservation {
		return b.reserve(types.NamespacedName{Namespace: namespace, Name: name}, size, 0)
	}
	first := reserve("team-a", "a", 100)
	g.Expect(first).NotTo(BeNil())
	g.Expect(reserve("team-a", "a", 1)).To(BeNil(), "an integration has its share")
	held := []*memoryReservation{reserve("team-a", "b", 100)}
	g.Expect(reserve("team-a", "c", 1)).To(BeNil(), "a namespace has its share")
	held = append(held, reserve("team-b", "a", 100), reserve("team-c", "a", 100))
	g.Expect(reserve("team-d", "a", 1)).To(BeNil(), "all of them together have the whole")
	first.shrink(99)
	held = append(held, reserve("team-d", "a", 1))
	first.release()
	first.release()
	for _, reservation := range held {
		g.Expect(reservation).NotTo(BeNil())
		reservation.release()
	}
	g.Expect(b.held).To(BeEmpty())
	large := reserve("team-a", "a", 1000)
	g.Expect(large).NotTo(BeNil(), "however large it may be, one is let in")
	g.Expect(reserve("team-b", "a", 1)).To(BeNil())
	large.release()
	g.Expect(b.held).To(BeEmpty())
}

func TestAReservationWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		b := newMemoryBudget(400)
		one := types.NamespacedName{Namespace: "team-a", Name: "a"}
		first := b.reserve(one, 100, 0)
		begin := time.Now()
		g.Expect(b.reserve(one, 60, time.Second)).To(BeNil())
		g.Expect(time.Since(begin)).To(Equal(time.Second))
		var served atomic.Int32
		for range 2 {
			go func() {
				if memory := b.reserve(one, 60, time.Minute); memory != nil {
					served.Add(1)
					time.Sleep(time.Second)
					memory.release()
				}
			}()
		}
		synctest.Wait()
		g.Expect(served.Load()).To(BeZero())
		first.release()
		synctest.Wait()
		g.Expect(served.Load()).To(BeEquivalentTo(1), "there is capacity for one of them")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		g.Expect(served.Load()).To(BeEquivalentTo(2))
		g.Expect(b.held).To(BeEmpty())
	})
}

func TestRequestsGiveTheirMemoryBack(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	for _, body := range []string{firing, "oops", "[1]", "", gzipped(firing)} {
		b.post(testPath, body)
		b.post(testPath+"?dryRun=true", body)
		b.post(testPath, body, with("Content-Encoding", "gzip"))
	}
	g.Expect(b.bodies.memory.held).To(BeEmpty())
	g.Expect(b.decoder.memory.held).To(BeEmpty())
	b.bodies.memory.held[types.NamespacedName{}] = maxBodyMemory
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusServiceUnavailable))
}

// TestNothingIsHeldWhileAnAlertWaitsForTheStore looks at the budgets in the middle of a write.
func TestNothingIsHeldWhileAnAlertWaitsForTheStore(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.store.Before = func(context.Context, *v1alpha1.AlertEvent, int) error {
		b.bodies.memory.mu.Lock()
		defer b.bodies.memory.mu.Unlock()
		b.decoder.memory.mu.Lock()
		defer b.decoder.memory.mu.Unlock()
		g.Expect(b.bodies.memory.held).To(BeEmpty())
		g.Expect(b.decoder.memory.held).To(BeEmpty())
		return nil
	}
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(b.store.Stored()).To(HaveLen(1))
}

func TestABodyThatDecodesToTooMuchIsRefused(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.bodies.maxBytes = 4 << 20
	body := `{"a":[` + strings.Repeat(`{"":0},`, 200_000) + `0]}`
	response := b.post(testPath, body)
	g.Expect(response.StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
	g.Expect(decode[problemBody](g, response).kind()).To(Equal("body-too-complex"))
	g.Expect(b.reports.reasons).To(ConsistOf("BodyTooComplex"))
}
