package commit

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/tocsin-dev/tocsin/internal/queue"
)

// apiServer makes a store that talks to a handler over TLS.
func apiServer(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	store, err := NewClient(&rest.Config{
		Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 0.001, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// answer makes a handler that says nothing but a status.
func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

func TestStoreSendsTypedObjectsWithoutLimit(t *testing.T) {
	g := NewWithT(t)
	var requests atomic.Int32
	store := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		g.Expect(r.Proto).To(Equal("HTTP/1.1"))
		g.Expect(r.Method + " " + r.URL.Path).To(Equal("POST /apis/tocsin.dev/v1alpha1/namespaces/team-a/alertevents"))
		g.Expect(r.URL.Query().Get("fieldManager")).To(Equal("tocsin"))
		g.Expect(r.URL.Query().Get("timeout")).NotTo(BeEmpty())
		body, err := io.ReadAll(r.Body)
		g.Expect(err).NotTo(HaveOccurred())
		var object map[string]any
		g.Expect(json.Unmarshal(body, &object)).To(Succeed())
		g.Expect(object).To(HaveKeyWithValue("kind", "AlertEvent"))
		w.WriteHeader(http.StatusCreated)
	})
	start := time.Now()
	for range 10 {
		g.Expect(store.Create(t.Context(), newAlertEvent([]*entry{{Submission: submission("x", "1")}}))).To(Succeed())
	}
	g.Expect(requests.Load()).To(BeEquivalentTo(10))
	g.Expect(time.Since(start)).To(BeNumerically("<", 5*time.Second), "the manager's rate limit does not count")
}

func TestStoreLeavesRetriesToTheWriter(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"of 429 with Retry-After": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"of a connection that breaks": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var requests atomic.Int32
			store := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				handle(w, r)
			})
			err := store.Create(t.Context(), newAlertEvent([]*entry{{Submission: submission("x", "1")}}))
			g.Expect(err).To(HaveOccurred())
			g.Expect(requests.Load()).To(BeEquivalentTo(1))
		})
	}
}

var isDenied = func(err error) bool { return errors.As(err, new(*DeniedError)) }

func TestStoreErrorsAreJudged(t *testing.T) {
	event := newAlertEvent([]*entry{{Submission: submission("x", "1")}})
	t.Run("nobody listens", func(t *testing.T) {
		g := NewWithT(t)
		store, err := NewClient(&rest.Config{Host: "https://127.0.0.1:1"})
		g.Expect(err).NotTo(HaveOccurred())
		mayBeStored, final := classify(store.Create(t.Context(), event))
		g.Expect(final).NotTo(HaveOccurred())
		g.Expect(mayBeStored).To(BeFalse())
	})
	for name, test := range map[string]struct {
		answer      http.HandlerFunc
		final       gomegatypes.GomegaMatcher
		mayBeStored bool
	}{
		"a connection that breaks": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, BeNil(), true},
		"no answer in time": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the client has gone
			<-r.Context().Done()
		}, BeNil(), true},
		"a plain 502 of a proxy": {answer(http.StatusBadGateway), BeNil(), true},
		"a plain 503":            {answer(http.StatusServiceUnavailable), BeNil(), true},
		"a plain 429":            {answer(http.StatusTooManyRequests), BeNil(), false},
		"a plain 422":            {answer(http.StatusUnprocessableEntity), Satisfy(isDenied), false},
		"a plain 401":            {answer(http.StatusUnauthorized), MatchError(ErrUnavailable), false},
		"a plain 409":            {answer(http.StatusConflict), BeNil(), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			mayBeStored, final := classify(apiServer(t, test.answer).Create(ctx, event))
			g.Expect(mayBeStored).To(Equal(test.mayBeStored))
			g.Expect(final).To(test.final)
		})
	}
}

func TestStoreReadsAlerts(t *testing.T) {
	g := NewWithT(t)
	stored := newAlertEvent([]*entry{{Submission: submission("x", "1", "2")}})
	g.Expect(queue.Encode(stored)).To(Succeed())
	store := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/tocsin.dev/v1alpha1/namespaces/team-a/alertevents/stored" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		g.Expect(json.NewEncoder(w).Encode(stored)).To(Succeed())
	})
	event, err := store.Get(t.Context(), "team-a", "stored")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(event.Alerts).To(HaveLen(2))
	_, err = store.Get(t.Context(), "team-a", "other")
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
}

func TestTheAPIServerLearnsWhenAnAttemptEnds(t *testing.T) {
	for sentence, test := range map[string]struct {
		deadline time.Duration // from now; 0: none
		want     gomegatypes.GomegaMatcher
	}{
		"with its deadline":        {deadline: time.Minute, want: BeNumerically("~", time.Minute, 5*time.Second)},
		"without one":              {want: Equal(attemptTimeout)},
		"with one that has passed": {deadline: -time.Second, want: Equal(time.Millisecond)},
	} {
		t.Run(sentence, func(t *testing.T) {
			ctx := t.Context()
			if test.deadline != 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.deadline)
				defer cancel()
			}
			NewWithT(t).Expect(timeoutOf(ctx)).To(test.want)
		})
	}
}

func TestCloseDropsTheConnectionsThatAreKeptForTheNextWrite(t *testing.T) {
	g := NewWithT(t)
	var open atomic.Int32
	server := httptest.NewUnstartedServer(answer(http.StatusCreated))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		default:
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	store, err := NewClient(&rest.Config{Host: server.URL})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(store.Create(t.Context(), newAlertEvent([]*entry{{Submission: submission("x", "1")}}))).To(Succeed())
	g.Expect(open.Load()).To(BeEquivalentTo(1))
	store.Close()
	g.Eventually(open.Load, "5s").Should(BeZero())
}
