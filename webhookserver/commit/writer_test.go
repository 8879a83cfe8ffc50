package commit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/memorystore"
)

// commitOne commits within Timeout.
func commitOne(store Store, s Submission) (Receipt, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	c := New(store, 1, nil)
	receipt, err := c.Commit(ctx, s)
	return receipt, errors.Join(err, c.Close(context.Background()))
}

func TestWriterRetries(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, test := range map[string]struct {
		store *memorystore.Store
		calls int
		least time.Duration
	}{
		"refused connections":             {store: &memorystore.Store{Before: memorystore.FailFirst(dial, dial, dial)}, calls: 4},
		"a connection that breaks before": {store: &memorystore.Store{Before: memorystore.FailFirst(io.EOF)}, calls: 2},
		"a reply that is lost":            {store: &memorystore.Store{After: memorystore.FailFirst(io.ErrUnexpectedEOF)}, calls: 2},
		"two replies that are lost":       {store: &memorystore.Store{After: memorystore.FailFirst(io.EOF), OnGet: failOnce(io.EOF)}, calls: 3},
		"server errors, stored or not": {store: &memorystore.Store{
			Before: memorystore.FailFirst(memorystore.ServerError(500, "", "etcd")), After: memorystore.FailFirst(nil, memorystore.ServerError(504, "", "late"))}, calls: 3},
		"a server that asks to wait for 2 s": {
			store: &memorystore.Store{Before: memorystore.FailFirst(apierrors.NewTooManyRequests("wait", 2))}, calls: 2, least: 2 * time.Second},
		"a lost reply to an event gone since": {store: &memorystore.Store{After: memorystore.FailFirst(io.EOF), OnGet: func(name string) error {
			return apierrors.NewNotFound(memorystore.AlertEvents, name)
		}}, calls: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				start := time.Now()
				receipt, err := commitOne(test.store, submission("x", "1"))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(test.store.Calls()).To(Equal(test.calls))
				g.Expect(test.store.Stored()).To(HaveLen(1), "all attempts are for the same name")
				g.Expect(test.store.Stored()[0].Name).To(Equal(receipt.EventName))
				g.Expect(time.Since(start)).To(BeNumerically(">=", test.least))
				g.Expect(time.Since(start)).To(BeNumerically("<", Timeout))
			})
		})
	}
}

func TestRetriesAreMarked(t *testing.T) {
	overload := apierrors.NewTooManyRequests("wait", 0)
	for sentence, test := range map[string]struct {
		failures []error
		want     []string // the annotation of each attempt
	}{
		"the first attempt is none":                   {nil, []string{""}},
		"after a lost response":                       {[]error{io.EOF, io.EOF}, []string{"", "true", "true"}},
		"not after a response that nothing is stored": {[]error{overload}, []string{"", ""}},
		"but also after that, once one was lost":      {[]error{io.EOF, overload}, []string{"", "true", "true"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				var marks []string
				store := &memorystore.Store{Before: func(_ context.Context, event *v1alpha1.AlertEvent, _ int) error {
					marks = append(marks, event.Annotations[v1alpha1.RetryAnnotation])
					if n := len(marks); n <= len(test.failures) {
						return test.failures[n-1]
					}
					return nil
				}}
				_, err := commitOne(store, submission("x", "1"))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(marks).To(Equal(test.want))
			})
		})
	}
}

func TestTheTimeBetweenAttemptsGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memorystore.Store{Before: memorystore.FailAlways(apierrors.NewTooManyRequests("wait", 0))}
		_, err := commitOne(store, submission("x", "1"))
		g := NewWithT(t)
		g.Expect(err).To(MatchError(ErrUnavailable))
		g.Expect(store.Calls()).To(And(BeNumerically(">=", 6), BeNumerically("<=", 14)), "from 50 ms to a second, within five")
	})
}

type histogram struct{ count, sum float64 }

// measured returns the histograms of writes by their names.
func measured(g Gomega) map[string]histogram {
	registry := prometheus.NewRegistry()
	RegisterMetrics(registry)
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	values := map[string]histogram{}
	for _, family := range families {
		of := family.GetMetric()[0].GetHistogram()
		values[family.GetName()] = histogram{count: float64(of.GetSampleCount()), sum: of.GetSampleSum()}
	}
	return values
}

func TestAWriteIsMeasuredOnceHoweverManyAttemptsItNeedsAndWhetherOrNotItSucceeds(t *testing.T) {
	for sentence, failures := range map[string][]error{
		"it succeeds after a retry": {apierrors.NewTooManyRequests("wait", 2)},
		"it fails after a retry": {
			apierrors.NewTooManyRequests("wait", 2), memorystore.ServerError(404, metav1.StatusReasonNotFound, "no such namespace")},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				before := measured(g)
				_, _ = commitOne(&memorystore.Store{Before: memorystore.FailFirst(failures...)}, submission("x", "1", "2", "3"))
				for name, want := range map[string]float64{
					"tocsin_webhook_write_duration_seconds": 2, "tocsin_webhook_write_alerts": 3,
				} {
					after := measured(g)[name]
					g.Expect(after.count-before[name].count).To(Equal(1.0), name)
					g.Expect(after.sum-before[name].sum).To(BeNumerically("~", want, 0.01), name)
				}
			})
		})
	}
}

// failOnce makes a function fail its first call.
func failOnce(err error) func(string) error {
	var once sync.Once
	return func(string) (result error) {
		once.Do(func() { result = err })
		return result
	}
}

func TestWriterIsBounded(t *testing.T) {
	hang := func(ctx context.Context, _ *v1alpha1.AlertEvent, _ int) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, test := range map[string]struct {
		store *memorystore.Store
		want  error
		calls int
		took  time.Duration
	}{
		"a server that never answers gets a second attempt": {
			store: &memorystore.Store{Before: hang}, want: ErrOutcomeUnknown, calls: 2, took: Timeout},
		"one that stores and never answers as well": {
			store: &memorystore.Store{After: hang, OnGet: func(string) error { return context.DeadlineExceeded }},
			want:  ErrOutcomeUnknown, took: Timeout},
		"one that asks to wait longer than the bound is not waited for": {
			store: &memorystore.Store{Before: memorystore.FailFirst(apierrors.NewTooManyRequests("wait", 60))}, want: ErrUnavailable, calls: 1},
		"one that asks to wait as long as the bound is not waited for": {
			store: &memorystore.Store{Before: memorystore.FailFirst(apierrors.NewTooManyRequests("wait", int(Timeout/time.Second)))},
			want:  ErrUnavailable, calls: 1},
		"a rejection after a lost reply says nothing of what was lost": {
			store: &memorystore.Store{Before: memorystore.FailFirst(io.EOF, memorystore.ServerError(422, metav1.StatusReasonInvalid, "bad"))},
			want:  ErrOutcomeUnknown, calls: 2, took: time.Second},
		"one that forbids the write is not asked again": {
			store: &memorystore.Store{Before: memorystore.FailFirst(apierrors.NewForbidden(memorystore.AlertEvents, "x", nil))}, want: ErrUnavailable, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				start := time.Now()
				_, err := commitOne(test.store, submission("x", "1"))
				g.Expect(err).To(MatchError(test.want))
				g.Expect(time.Since(start)).To(BeNumerically("<=", test.took))
				if test.calls > 0 {
					g.Expect(test.store.Calls()).To(Equal(test.calls))
				}
			})
		})
	}
}

func TestWriterSanitisesWhatTheServerSaid(t *testing.T) {
	g := NewWithT(t)
	message := "spec.alerts[0]: Invalid value: \"\x1b[31m\n\u202e" + strings.Repeat("ä", maxServerMessage) + "\""
	_, err := commitOne(&memorystore.Store{Before: memorystore.FailFirst(memorystore.ServerError(422, metav1.StatusReasonInvalid, message))}, submission("x", "1"))
	var denied *DeniedError
	g.Expect(errors.As(err, &denied)).To(BeTrue())
	g.Expect(denied.Message).To(HavePrefix("spec.alerts[0]: Invalid value"))
	g.Expect(denied.Message).NotTo(ContainSubstring("\x1b"))
	g.Expect(denied.Message).NotTo(ContainSubstring("\n"))
	g.Expect(len(denied.Message)).To(BeNumerically("<=", maxServerMessage+3))
}

func TestAReceiptHasTheAlertsOfItsSubmissionAloneAfterALostReplyToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var batch []*entry
		for _, s := range []Submission{submission("x", "1", "2"), submission("x", "3")} {
			batch = append(batch, &entry{Submission: s, done: make(chan result, 1), deadline: time.Now().Add(Timeout)})
		}
		store := &memorystore.Store{After: memorystore.FailFirst(io.EOF)}
		New(store, 1, nil).writeBatch(batch)
		g.Expect(store.Stored()).To(HaveLen(1))
		for _, e := range batch {
			g.Expect(<-e.done).To(Equal(result{receipt: Receipt{EventName: store.Stored()[0].Name, Alerts: e.Alerts}}))
		}
	})
}

func TestKeyedSubmissions(t *testing.T) {
	keyed := func(ids ...string) Submission {
		s := submission("x", ids...)
		s.EventName = v1alpha1.KeyedEventName("x", "key")
		return s
	}
	for name, second := range map[string]Submission{
		"the same alerts again":           keyed("1", "2"),
		"other alerts under the same key": keyed("1", "3"),
		"fewer alerts under the same key": keyed("1"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				store := &memorystore.Store{}
				first, err := commitOne(store, keyed("1", "2"))
				g.Expect(err).NotTo(HaveOccurred())
				receipt, err := commitOne(store, second)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(receipt).To(Equal(first), "it is told what is stored")
				g.Expect(store.Stored()).To(HaveLen(1))
			})
		})
	}
	t.Run("a key that is forgotten between two looks is used anew", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			store := &memorystore.Store{Before: memorystore.FailFirst(apierrors.NewAlreadyExists(memorystore.AlertEvents, "key"))}
			_, err := commitOne(store, keyed("1"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(store.Stored()).To(HaveLen(1))
		})
	})
}

// TestNothingIsAcknowledgedThatIsNotStored has a store fail in every way at random, under a load that
// fills the writers: what is acknowledged is stored once, and what is said not to be stored is not.
func TestNothingIsAcknowledgedThatIsNotStored(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				store := newFlakyStore(seed)
				c := startCommits(store, 3)
				for i := range 300 {
					s := submission(fmt.Sprintf("queue-%d", i%4), fmt.Sprint(i))
					if i%10 == 0 {
						s.EventName = v1alpha1.KeyedEventName(s.Integration.Name, fmt.Sprint(i))
					}
					c.wait.Go(func() {
						time.Sleep(time.Duration(i) * 20 * time.Millisecond)
						patience := Timeout
						if i%7 == 0 { // a client hangs up
							patience /= 20
						}
						ctx, cancel := context.WithTimeout(context.Background(), patience)
						defer cancel()
						_, err := c.committer.Commit(ctx, s)
						c.mu.Lock()
						defer c.mu.Unlock()
						c.errs[s.Alerts[0].ID] = err
					})
				}
				c.finish()
				g.Expect(c.committer.Close(t.Context())).To(Succeed())
				expectIdle(g, c.committer)
				stored := map[string]int{}
				for _, event := range store.Stored() {
					for _, alert := range event.Alerts {
						stored[alert.ID]++
					}
				}
				for id, err := range c.errs {
					switch {
					case err == nil:
						g.Expect(stored[id]).To(Equal(1), "acknowledged: %s", id)
					case errors.Is(err, ErrOutcomeUnknown):
						g.Expect(stored[id]).To(BeNumerically("<=", 1), "unknown: %s", id)
					default:
						g.Expect(stored[id]).To(BeZero(), "%s: %v", id, err)
					}
				}
			})
		})
	}
}

// newFlakyStore makes a store that fails before, after or instead of storing.
func newFlakyStore(seed uint64) *memorystore.Store {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	fail := func(ctx context.Context, definite ...error) error {
		mu.Lock()
		n := random.IntN(14)
		wait := time.Duration(random.IntN(400)) * time.Millisecond
		mu.Unlock()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		failures := append([]error{
			io.ErrUnexpectedEOF,
			memorystore.ServerError(500, metav1.StatusReasonInternalError, "etcd"),
			memorystore.ServerError(503, metav1.StatusReasonServiceUnavailable, "starting"),
			memorystore.ServerError(504, metav1.StatusReasonTimeout, "slow"),
		}, definite...)
		if n == len(failures) { // hangs
			<-ctx.Done()
			return ctx.Err()
		}
		if n < len(failures) {
			return failures[n]
		}
		return nil
	}
	return &memorystore.Store{
		Before: func(ctx context.Context, _ *v1alpha1.AlertEvent, _ int) error {
			return fail(ctx, apierrors.NewTooManyRequests("later", 1), memorystore.ServerError(422, metav1.StatusReasonInvalid, "bad"),
				&net.OpError{Op: "dial", Err: errors.New("refused")}, apierrors.NewForbidden(memorystore.AlertEvents, "x", nil))
		},
		After: func(ctx context.Context, _ *v1alpha1.AlertEvent, _ int) error { return fail(ctx) },
		OnGet: func(string) error {
			mu.Lock()
			defer mu.Unlock()
			if random.IntN(3) == 0 {
				return memorystore.ServerError(500, metav1.StatusReasonInternalError, "etcd")
			}
			return nil
		},
	}
}
