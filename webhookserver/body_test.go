package webhookserver

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
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

func TestBodyBudget(t *testing.T) {
	g := NewWithT(t)
	b := newBodyBudget()
	lane := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "team-a", Name: name} }
	g.Expect(b.reserve(lane("a"), maxLaneBodyBudget)).To(BeTrue())
	g.Expect(b.reserve(lane("a"), 1)).To(BeFalse(), "an integration has its share")
	for _, name := range []string{"b", "c", "d"} {
		g.Expect(b.reserve(lane(name), maxLaneBodyBudget)).To(BeTrue())
	}
	g.Expect(b.reserve(lane("e"), 1)).To(BeFalse(), "all of them together have the whole")
	b.release(lane("a"), maxLaneBodyBudget)
	g.Expect(b.reserve(lane("e"), 1)).To(BeTrue())
	b.release(lane("e"), 1)
	for _, name := range []string{"b", "c", "d"} {
		b.release(lane(name), maxLaneBodyBudget)
	}
	g.Expect(b.reserve(lane("a"), 2*maxBodyBudget)).To(BeTrue(), "however large it may be, one body is read")
	b.release(lane("a"), 2*maxBodyBudget)
	g.Expect(b.total).To(BeZero())
	g.Expect(b.lanes).To(BeEmpty())
}

func TestRequestsGiveTheirBudgetBack(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	for _, body := range []string{firing, "oops", "", gzipped(firing)} {
		b.post(testPath, body)
		b.post(testPath, body, with("Content-Encoding", "gzip"))
	}
	g.Expect(b.budget.total).To(BeZero())
	b.budget.total = maxBodyBudget
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusServiceUnavailable))
}
