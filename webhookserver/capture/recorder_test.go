package capture

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// newTestRecorder returns a Recorder without a cluster, and the Kubernetes Events that it records.
func newTestRecorder() (*Recorder, chan string) {
	recorder := events.NewFakeRecorder(1000)
	return NewRecorder(nil, nil, recorder, nil, logr.Discard()), recorder.Events
}

func capturing(namespace, name string, payloads int64) *v1alpha1.WebhookIntegration {
	w := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
	if payloads > 0 {
		w.Spec.Capture = &v1alpha1.Capture{Payloads: payloads}
	}
	return w
}

func ofSize(bytes int) Request { return Request{Method: "POST", Path: "/x", Body: make([]byte, bytes)} }

// The newest answered requests of each integration wait, however many come, and the bytes of all stay within the limit.
func TestTheRingsStayWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, _ := newTestRecorder()
		all := map[types.NamespacedName]*v1alpha1.WebhookIntegration{}
		var added []*Pending
		sizes := rapid.SampledFrom([]int{0, 1000, 200 << 10, 2 << 20, 5 << 20})
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			w := capturing(fmt.Sprint("team-", rapid.IntRange(0, 6).Draw(t, "namespace")), fmt.Sprint("w", rapid.IntRange(0, 3).Draw(t, "name")),
				rapid.Int64Range(0, 5).Draw(t, "payloads"))
			key := client.ObjectKeyFromObject(w)
			switch rapid.IntRange(0, 9).Draw(t, "dice") {
			case 0:
				r.Remove(w)
				delete(all, key)
			case 1, 2:
				r.Set(w)
				all[key] = w
			case 3, 4, 5:
				if len(added) > 0 {
					p := rapid.SampledFrom(added).Draw(t, "answered")
					added = slices.DeleteFunc(added, func(other *Pending) bool { return other == p })
					known := p.ring
					p.Answered(202)
					if known != nil && (p.ring != known || known.answered[len(known.answered)-1] != p) {
						t.Fatal("the newest one is not the last")
					}
				}
			default:
				if all[key] != nil {
					if p := r.Add(all[key], ofSize(sizes.Draw(t, "size"))); p != nil {
						added = append(added, p)
					}
				}
			}
			checkBounds(t, r)
		}
		for _, w := range all {
			r.Remove(w)
		}
		if r.waiting.Sum() != 0 || r.integrations.Sum() != 0 || len(r.rings)+len(r.others) > 0 {
			t.Fatalf("something is left: %v", r.rings)
		}
	})
}

func checkBounds(t *rapid.T, r *Recorder) {
	sum := int64(0)
	for key, known := range r.rings {
		bytes, open := int64(0), int64(0)
		for _, p := range known.unanswered {
			open += p.bytes
		}
		for _, p := range known.answered {
			bytes += p.bytes
		}
		bytes += open
		sum += bytes
		if bytes != known.bytes || open != known.open || known.on && int64(len(known.answered)) > known.integration.Spec.Capture.Payloads {
			t.Fatalf("%v: %d bytes, not %d, in %d requests", key, bytes, known.bytes, len(known.answered))
		}
	}
	if sum != r.waiting.Sum() || sum > maxWaiting {
		t.Fatalf("%d bytes wait, not %d", sum, r.waiting.Sum())
	}
	for namespace := range r.waiting.Keys() {
		if r.waiting.Used(namespace) > maxWaiting/4 {
			t.Fatalf("%s has %d bytes", namespace, r.waiting.Used(namespace))
		}
	}
}

// In a storm, the requests that came first are kept until they are answered: the newest ones never are.
func TestAStormOfRequestsIsCapturedToo(t *testing.T) {
	for _, size := range []int{100, 1 << 20} {
		g := NewWithT(t)
		r, _ := newTestRecorder()
		w := capturing("team", "w", 20)
		r.Set(w)
		var inFlight []*Pending
		written := 0
		for range 1000 {
			inFlight = append(inFlight, r.Add(w, ofSize(size)))
			if len(inFlight) > 200 { // each is answered after 200 others have come
				inFlight[0].Answered(202)
				inFlight = inFlight[1:]
			}
			b, ok := r.next()
			if ok {
				r.finish(&b, nil)
				written += len(b.requests)
			}
			r.enqueue(true)
		}
		g.Expect(written).To(BeNumerically(">=", 4), "of %d bytes", size)
	}
}

func TestAStormInOneNamespaceDropsNothingOfAnother(t *testing.T) {
	g := NewWithT(t)
	r, _ := newTestRecorder()
	quiet, loud := capturing("quiet", "w", 10), capturing("loud", "w", 100)
	r.Set(quiet)
	r.Set(loud)
	first := r.Add(quiet, ofSize(100<<10))
	for range 10_000 {
		r.Add(loud, ofSize(1<<20)).Answered(202)
	}
	g.Expect(first.request.Body).To(HaveLen(100 << 10))
	g.Expect(r.waiting.Used("loud")).To(BeNumerically("<=", maxWaiting/4))
	for i := range 40 { // tenants with many namespaces
		w := capturing(fmt.Sprint("loud-", i), "w", 100)
		r.Set(w)
		for range 5 {
			r.Add(w, ofSize(1<<20)).Answered(202)
		}
	}
	g.Expect(r.waiting.Sum()).To(BeNumerically("<=", maxWaiting))
	g.Expect(first.request.Body).To(HaveLen(100<<10), "those that use most give way")
}

func TestADroppedRequestHoldsNoMemory(t *testing.T) {
	g := NewWithT(t)
	r, _ := newTestRecorder()
	w := capturing("team", "w", 1)
	r.Set(w)
	first := r.Add(w, ofSize(1000))
	g.Expect(r.Add(w, ofSize(1000))).To(BeNil(), "as many wait for their answers as are kept")
	first.Answered(202)
	second := r.Add(w, ofSize(1000))
	second.Answered(400)
	g.Expect(first.request.Body).To(BeNil())
	third := r.Add(w, ofSize(1000))
	r.Set(capturing("team", "w", 0))
	g.Expect(third.request.Body).To(BeNil(), "while its sender waits for the answer")
	third.Answered(202)
	g.Expect(r.waiting.Sum()).To(BeZero())
	(*Pending)(nil).Answered(202)
	g.Expect((*Recorder)(nil).Add(w, ofSize(1))).To(BeNil())
}

func TestABodyTakesItsLength(t *testing.T) {
	g := NewWithT(t)
	r, _ := newTestRecorder()
	w := capturing("team", "w", 1)
	r.Set(w)
	p := r.Add(w, Request{Path: "/x", Body: append(make([]byte, 0, 256<<10), "{}"...)})
	g.Expect(cap(p.request.Body)).To(BeNumerically("<", 100))
	g.Expect(p.bytes).To(BeNumerically("<", 2000))
}

// A storm of requests with many tokens takes the time and the memory for those that are kept alone.
func TestNothingIsDoneForRequestsThatAreNotKept(t *testing.T) {
	g := NewWithT(t)
	r, _ := newTestRecorder()
	w := capturing("team", "w", 1)
	g.Expect(r.Wants(w)).To(BeFalse())
	r.Set(w)
	g.Expect(r.Wants(w)).To(BeTrue())
	request := Request{Path: "/x", Body: bytes.Repeat([]byte(token+" "), 10_000)}
	p := r.Add(w, request)
	g.Expect(p.request.Body).To(HaveLen(10_000 * len("REDACTED ")))
	g.Expect(r.waiting.Sum()).To(BeNumerically(">=", cap(p.request.Body)))
	g.Expect(r.Wants(w)).To(BeFalse(), "as many wait for their answers as are kept")
	g.Expect(testing.AllocsPerRun(10, func() { r.Add(w, request) })).To(BeNumerically("<=", 1))
	p.Answered(202)
	g.Expect(r.Wants(w)).To(BeTrue())
	g.Expect(r.Wants(capturing("team", "w", 0))).To(BeFalse())
	g.Expect((*Recorder)(nil).Wants(w)).To(BeFalse())
}

// What is dropped while its tokens are looked for takes no memory.
func TestARequestIsDroppedWhileItIsAdded(t *testing.T) {
	g := NewWithT(t)
	r, _ := newTestRecorder()
	w := capturing("team", "w", 5)
	r.Set(w)
	p := r.place(w, ofSize(1000), true)
	g.Expect(r.waiting.Sum()).To(BeNumerically(">=", 1000), "it counts before it is redacted")
	r.Set(capturing("team", "w", 0))
	p.Answered(202)
	g.Expect(r.waiting.Sum()).To(BeZero())
}

func TestWhoseRequestsAreKept(t *testing.T) {
	g := NewWithT(t)
	r, _ := newTestRecorder()
	w := capturing("team", "w", 5)
	g.Expect(r.Add(w, ofSize(1))).To(BeNil(), "before the integration is known")
	r.Set(w)
	g.Expect(r.Add(w, ofSize(1))).NotTo(BeNil())
	again := capturing("team", "w", 3)
	again.UID = "another"
	g.Expect(r.Add(again, ofSize(1))).To(BeNil(), "of another integration of the same name, before that is known")
	g.Expect(r.Add(capturing("team", "w", 0), ofSize(1))).To(BeNil(), "of one whose capture was just turned off")

	stub := capturing("team", "w", 3)
	integrations.MakeStub(stub, false)
	r.Set(stub)
	g.Expect(r.rings).To(HaveLen(1))
	g.Expect(r.Add(w, ofSize(1))).NotTo(BeNil(), "a stub says nothing of the capture")

	g.Expect(r.Add(w, Request{Path: "/v2/alerts/" + token + "/close"})).To(BeNil(), "with a token as an identifier")
	g.Expect(r.Add(w, ofSize(maxWaiting))).To(BeNil())
	g.Expect(r.rings[client.ObjectKeyFromObject(w)].leftOut).To(BeEquivalentTo(2))
}

func TestTooManyIntegrationsAreNotCaptured(t *testing.T) {
	g := NewWithT(t)
	r, told := newTestRecorder()
	for i := range 1000 {
		for range 3 {
			r.Set(capturing("greedy", fmt.Sprint("w", i), 1))
		}
	}
	g.Expect(r.integrations.Used("greedy")).To(BeEquivalentTo(16))
	g.Expect(told).To(HaveLen(1000-16), "each is told once")
	g.Expect(<-told).To(Equal("Warning CaptureFailed Keeps no requests: other integrations came first, of at most 16 of a namespace and 256 in all"))
	other := capturing("other", "w", 1)
	r.Set(other)
	g.Expect(r.Add(other, ofSize(1))).NotTo(BeNil())
	next, late := capturing("greedy", "w100", 1), capturing("greedy", "w101", 1)
	g.Expect(r.Add(next, ofSize(1))).To(BeNil())
	r.Remove(capturing("greedy", "w0", 1))
	g.Expect(r.Add(next, ofSize(1))).NotTo(BeNil(), "the first one takes the place")
	r.Set(late)
	g.Expect(r.Add(late, ofSize(1))).To(BeNil())
	r.Set(capturing("greedy", "w1", 0))
	g.Expect(r.Add(late, ofSize(1))).NotTo(BeNil(), "and the next one the next")
	g.Expect(r.integrations.Used("greedy")).To(BeEquivalentTo(16))
	for i := range 1000 {
		r.Remove(capturing("greedy", fmt.Sprint("w", i), 1))
	}
	g.Expect(r.integrations.Sum()).To(BeEquivalentTo(1))
	g.Expect(r.others).To(BeEmpty())
}

// A place in all is for the integrations of any namespace.
func TestAPlaceGoesToAnotherNamespace(t *testing.T) {
	g := NewWithT(t)
	r, _ := newTestRecorder()
	for i := range MaxIntegrations {
		r.Set(capturing(fmt.Sprint("team-", i/MaxOfNamespace), fmt.Sprint("w", i), 1))
	}
	for i := range MaxOfNamespace {
		r.Set(capturing("late", fmt.Sprint("w", i), 1))
	}
	g.Expect(r.integrations.Used("late")).To(BeNumerically("<", MaxOfNamespace))
	for i := range MaxIntegrations / 2 {
		r.Remove(capturing(fmt.Sprint("team-", i/MaxOfNamespace), fmt.Sprint("w", i), 1))
	}
	g.Expect(r.integrations.Used("late")).To(BeEquivalentTo(MaxOfNamespace))
	g.Expect(r.others).To(BeEmpty())
}

// BenchmarkAdd adds requests in a storm that drops one for each.
func BenchmarkAdd(b *testing.B) {
	r, _ := newTestRecorder()
	var all []*v1alpha1.WebhookIntegration
	for n := range 256 {
		all = append(all, capturing(fmt.Sprint("team-", n/16), fmt.Sprint("w", n), 100))
		r.Set(all[n])
	}
	body := bytes.Repeat([]byte("x"), 64<<10)
	for n := 0; b.Loop(); n++ {
		r.Add(all[n%len(all)], Request{Path: "/x", Body: body}).Answered(202)
	}
}

func TestRunEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		hanging := hangingClient{}
		r := NewRecorder(hanging, hanging, events.NewFakeRecorder(100), nil, logr.Discard())
		for i := range 100 {
			w := capturing(fmt.Sprint("team-", i), "w", 1)
			r.Set(w)
			r.Add(w, ofSize(1)).Answered(202)
		}
		ctx, cancel := cancelled(t)
		defer cancel()
		begin := time.Now()
		r.Run(ctx)
		g.Expect(time.Since(begin)).To(BeNumerically("<=", flushTimeout))
	})
}
