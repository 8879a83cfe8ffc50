package capture

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
)

func TestMain(m *testing.M) { testsite.Main(m) }

// hangingClient answers nothing.
type hangingClient struct{ client.Client }

func (hangingClient) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func cancelled(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}

// bench is a Recorder of a site, whose integration captures requests, with a clock of its own.
type bench struct {
	*testsite.Site
	*Recorder
	integration *v1alpha1.WebhookIntegration
	told        chan string
	time        time.Time
	logged      []string
	sent        int
}

func newBench(t *testing.T, site *testsite.Site, change ...func(*interceptor.Funcs)) *bench {
	t.Helper()
	b := &bench{Site: site, time: time.Now()}
	funcs := interceptor.Funcs{}
	for _, f := range change {
		f(&funcs)
	}
	c := interceptor.NewClient(site.Live, funcs)
	recorder := events.NewFakeRecorder(1000)
	b.told = recorder.Events
	log := funcr.New(func(_, line string) { b.logged = append(b.logged, line) }, funcr.Options{})
	b.Recorder = NewRecorder(c, c, recorder, []string{site.Namespace}, log)
	b.now = func() time.Time { return b.time }
	return b
}

// capture has the requests of the site's integration be kept.
func (b *bench) capture(payloads int64) {
	b.integration = &v1alpha1.WebhookIntegration{}
	b.Expect(b.Live.Get(b.Ctx, b.IntegrationKey(), b.integration)).To(Succeed())
	b.integration.Spec.Capture = &v1alpha1.Capture{Payloads: payloads}
	b.Set(b.integration)
}

// send has a request be answered.
func (b *bench) send(body string, code int) {
	b.sent++
	b.Add(b.integration, Request{
		Time: b.time.Add(time.Duration(b.sent) * time.Microsecond), Method: "POST", Path: "/api/v1/events/webhook", Body: []byte(body),
	}).Answered(code)
}

// pass lets time pass, with all that is done meanwhile.
func (b *bench) pass(d time.Duration) {
	for end := b.time.Add(d); b.time.Before(end); b.time = b.time.Add(tickInterval) {
		b.step(b.Ctx)
	}
}

// stored returns the RequestCapture; nil if there is none.
func (b *bench) stored() *v1alpha1.RequestCapture {
	found := &v1alpha1.RequestCapture{}
	err := b.Live.Get(b.Ctx, b.IntegrationKey(), found)
	b.Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil {
		return nil
	}
	return found
}

// bodies returns the stored requests, as body and code.
func (b *bench) bodies() []string {
	all := []string{}
	if stored := b.stored(); stored != nil {
		for i := range stored.Spec.Requests {
			request, err := Decode(&stored.Spec.Requests[i])
			b.Expect(err).NotTo(HaveOccurred())
			all = append(all, fmt.Sprint(string(request.Body), " ", request.Code))
		}
	}
	return all
}

func TestTheNewestRequestsAreStored(t *testing.T) {
	site := testsite.New(t)
	b := newBench(t, site)
	site.Integrate(nil)
	b.capture(3)
	b.send("a", 202)
	waiting := b.Add(b.integration, Request{Time: b.time, Method: "POST", Path: "/x"})
	b.send("b", 400)
	b.pass(time.Second)
	b.Expect(b.bodies()).To(Equal([]string{"a 202", "b 400"}), "also one that was rejected, but none without an answer")
	stored := b.stored()
	b.Expect(stored.OwnerReferences).To(HaveLen(1))
	b.Expect(stored.OwnerReferences[0].UID).To(Equal(b.integration.UID))
	b.Expect(stored.OwnerReferences[0].BlockOwnerDeletion).To(BeNil())
	b.Expect(stored.Labels).To(HaveKeyWithValue(v1alpha1.ExcludeFromBackupLabel, "true"))

	b.send("c", 202)
	b.pass(5 * time.Second)
	b.Expect(b.bodies()).To(HaveLen(2), "one write in ten seconds")
	waiting.Answered(503)
	b.pass(10 * time.Second)
	b.Expect(b.bodies()).To(Equal([]string{"b 400", "c 202", " 503"}))
	b.Expect(b.waiting.Sum()).To(BeZero(), "what is stored leaves the memory")

	b.Expect(b.Live.Delete(b.Ctx, b.stored())).To(Succeed())
	b.pass(time.Minute)
	b.Expect(b.stored()).To(BeNil())
	b.send("d", 202)
	b.pass(time.Second)
	b.Expect(b.bodies()).To(Equal([]string{"d 202"}), "what a user deletes is gone")
	b.Expect(b.logged).To(BeEmpty())
	b.Expect(b.told).To(BeEmpty())
}

func TestWhatIsStoredHasABound(t *testing.T) {
	site := testsite.New(t)
	b := newBench(t, site)
	site.Integrate(nil)
	b.capture(100)
	random := func(size int) string {
		text := make([]byte, size)
		_, _ = rand.Read(text)
		return string(text)
	}
	for range 4 {
		for range 5 {
			b.send(random(100<<10), 202)
		}
		b.pass(15 * time.Second)
	}
	stored, size := b.stored(), 0
	for i := range stored.Spec.Requests {
		size += len(stored.Spec.Requests[i].Content)
	}
	b.Expect(size).To(And(BeNumerically("<=", v1alpha1.MaxCaptureBytes), BeNumerically(">", 800<<10)))
	b.Expect(len(stored.Spec.Requests)).To(BeNumerically("<", 20))
	b.send(random(1<<20), 202)
	b.send("small", 202)
	b.pass(15 * time.Second)
	b.Expect(b.stored().Spec.LeftOut).To(BeEquivalentTo(1), "one that is too large alone")
	b.Expect(len(b.stored().Spec.Requests)).To(BeNumerically(">=", len(stored.Spec.Requests)), "and the others stay")
	b.Expect(slices.Contains(b.bodies(), "small 202")).To(BeTrue())
}

func TestTwoReplicasWriteAtOnce(t *testing.T) {
	site := testsite.New(t)
	var between atomic.Pointer[func()]
	first := newBench(t, site, func(f *interceptor.Funcs) {
		f.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, o, options...)
			if act := between.Swap(nil); act != nil {
				(*act)()
			}
			return err
		}
	})
	second := newBench(t, site)
	site.Integrate(nil)
	first.capture(10)
	second.capture(10)
	for round := range 3 { // the first one creates it
		first.send(fmt.Sprint("first ", round), 202)
		second.send(fmt.Sprint("second ", round), 202)
		between.Store(new(func() { second.pass(time.Second) }))
		first.pass(30 * time.Second)
		second.pass(30 * time.Second)
	}
	first.Expect(first.bodies()).To(Equal([]string{
		"second 0 202", "first 0 202", "second 1 202", "first 1 202", "second 2 202", "first 2 202"}))
	first.Expect(append(first.logged, second.logged...)).To(BeEmpty(), "a conflict is nothing to tell")
}

func TestAWriteOfUnknownOutcomeStoresNothingTwice(t *testing.T) {
	site := testsite.New(t)
	lost := true
	b := newBench(t, site, func(f *interceptor.Funcs) {
		f.Create = func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			err := c.Create(ctx, o, options...)
			if lost {
				return errors.Join(errors.New("the answer was lost"), err)
			}
			return err
		}
	})
	site.Integrate(nil)
	b.capture(10)
	b.send("a", 202)
	b.pass(time.Second)
	b.send("b", 202)
	lost = false
	b.pass(time.Minute)
	b.Expect(b.bodies()).To(Equal([]string{"a 202", "b 202"}))
}

func TestAnIntegrationThatIsMadeAgainHasNothingOfTheFormer(t *testing.T) {
	site := testsite.New(t)
	b := newBench(t, site)
	former := site.Integrate(nil)
	b.capture(10)
	b.send("a", 202)
	b.pass(time.Second)
	b.send("b", 202)
	b.Expect(b.Live.Delete(b.Ctx, former)).To(Succeed())
	b.Remove(b.integration)
	b.Expect(b.Recorder.waiting.Sum()).To(BeZero())
	if stored := b.stored(); stored == nil { // its garbage was collected
		t.Skip("this API server collects garbage")
	}
	site.Integrate(nil)
	b.capture(10)
	b.send("c", 202)
	b.pass(time.Minute)
	b.Expect(b.bodies()).To(Equal([]string{"c 202"}))
	b.Expect(b.stored().OwnerReferences[0].UID).To(Equal(b.integration.UID))
}

func TestARequestCaptureIsDeletedOnceNothingIsCaptured(t *testing.T) {
	site := testsite.New(t)
	b, other := newBench(t, site), newBench(t, site)
	site.Integrate(nil)
	b.capture(10)
	b.send("a", 202)
	b.pass(time.Second)
	b.send("b", 202)
	off := b.integration.DeepCopy()
	off.Spec.Capture = nil
	b.Set(off)
	b.Set(off)
	b.pass(time.Second)
	b.Expect(b.stored()).To(BeNil())
	b.Expect(b.rings).To(BeEmpty())

	b.Set(b.integration)
	b.send("c", 202)
	b.pass(time.Minute)
	b.Expect(b.bodies()).To(Equal([]string{"c 202"}))
	other.Set(off) // it starts later, and has seen nothing of that
	other.pass(firstSweep - time.Second)
	b.Expect(b.stored()).NotTo(BeNil())
	other.pass(2 * time.Second)
	b.Expect(b.stored()).To(BeNil(), "the sweep finds it")
	b.Expect(append(b.logged, other.logged...)).To(BeEmpty())
}

// An integration whose capture is turned off and on again may find its place taken. Another replica may keep its requests.
func TestWhatAnotherReplicaKeepsIsNotDeleted(t *testing.T) {
	site := testsite.New(t)
	var duringDelete func()
	deletes := 0
	b := newBench(t, site, func(f *interceptor.Funcs) {
		f.Delete = func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			deletes++
			duringDelete()
			return nil // as if it came before what the other replica has written
		}
	})
	other := newBench(t, site)
	site.Integrate(nil)
	b.capture(10)
	off := b.integration.DeepCopy()
	off.Spec.Capture = nil
	for name, during := range map[string]bool{"before the RequestCapture is deleted": false, "while it is deleted": true} {
		deletes, duringDelete = 0, func() {}
		b.Set(b.integration)
		b.Set(off)
		for i := range MaxOfNamespace {
			b.Set(capturing(site.Namespace, fmt.Sprint("w", i), 1))
		}
		if on := func() { b.Set(b.integration) }; during {
			duringDelete = on
		} else {
			on()
		}
		b.pass(time.Second)
		other.capture(10)
		other.send("a", 202)
		other.pass(time.Minute)
		b.pass(2 * sweepInterval)
		b.Expect(deletes).To(Equal(map[bool]int{true: 1}[during]), name)
		b.Expect(b.others[b.IntegrationKey()]).NotTo(BeNil(), name)
		b.Expect(b.rings).To(HaveLen(MaxOfNamespace), name)
		for i := range MaxOfNamespace {
			b.Remove(capturing(site.Namespace, fmt.Sprint("w", i), 1))
		}
	}
}

func TestAWriteThatFailsIsToldOnce(t *testing.T) {
	captures := schema.GroupResource{Group: "tocsin.dev", Resource: "requestcaptures"}
	for name, failure := range map[string]error{
		"a quota or a policy denies it":      apierrors.NewForbidden(captures, "shop", errors.New("exceeded quota: \x1b[2Jhostile\ntext")),
		"there is no permission":             apierrors.NewForbidden(captures, "shop", errors.New("no")),
		"the definition is missing":          apierrors.NewNotFound(captures, ""),
		"the definition is of another shape": apierrors.NewInvalid(schema.GroupKind{}, "shop", nil),
	} {
		t.Run(name, func(t *testing.T) {
			site := testsite.New(t)
			failing, attempts := true, 0
			b := newBench(t, site, func(f *interceptor.Funcs) {
				f.Create = func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
					attempts++
					if failing {
						return failure
					}
					return c.Create(ctx, o, options...)
				}
			})
			site.Integrate(nil)
			b.capture(2)
			for i := range 1000 {
				b.send(fmt.Sprint(i), 202)
				b.pass(3 * time.Second)
			}
			b.Expect(attempts).To(BeNumerically("<", 15), "in 50 minutes")
			b.Expect(b.logged).To(HaveLen(1))
			b.Expect(b.told).To(HaveLen(1))
			b.Expect(<-b.told).To(And(HavePrefix("Warning CaptureFailed Could not store captured requests: "), Not(ContainSubstring("\x1b"))))
			failing = false
			b.pass(maxPause + time.Second)
			b.Expect(b.bodies()).To(Equal([]string{"998 202", "999 202"}))
		})
	}
}

func TestANamespaceThatIsDeletedIsLeftAlone(t *testing.T) {
	site := testsite.New(t)
	b := newBench(t, site, func(f *interceptor.Funcs) {
		f.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			err := apierrors.NewForbidden(schema.GroupResource{}, "shop", errors.New("being terminated"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return err
		}
	})
	site.Integrate(nil)
	b.capture(2)
	b.send("a", 202)
	b.pass(time.Minute)
	b.Expect(b.logged).To(BeEmpty())
	b.Expect(b.told).To(BeEmpty())
}

// Of many integrations that all receive requests, two are written in a second, fewer if they are large, and namespaces take turns.
func TestWritesAreFewAndInTurns(t *testing.T) {
	site := testsite.New(t)
	var mu sync.Mutex
	var written []string
	b := newBench(t, site, func(f *interceptor.Funcs) {
		f.Create = func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			mu.Lock()
			defer mu.Unlock()
			written = append(written, o.GetNamespace())
			return nil
		}
	})
	r := b.Recorder
	send := func(w *v1alpha1.WebhookIntegration, size int) {
		body := make([]byte, size)
		_, _ = rand.Read(body)
		r.Add(w, Request{Time: b.time, Path: "/x", Body: body}).Answered(202)
	}
	var crowd []*v1alpha1.WebhookIntegration
	for i := range 16 {
		crowd = append(crowd, capturing("crowd", fmt.Sprint("w", i), 5))
		r.Set(crowd[i])
	}
	alone := capturing("alone", "w", 5)
	r.Set(alone)
	for _, w := range append(slices.Clone(crowd), alone) {
		send(w, 10)
	}
	b.pass(3 * time.Second)
	b.Expect(written).To(HaveLen(6))
	b.Expect(slices.Index(written, "alone")).To(BeNumerically("<", 2))
	b.pass(time.Minute)
	b.Expect(written).To(HaveLen(17))

	written = nil
	for _, w := range crowd[:4] {
		send(w, 500<<10)
	}
	b.pass(4 * time.Second)
	b.Expect(len(written)).To(BeNumerically("<=", 2), "256 KiB a second")
	b.pass(time.Minute)
	b.Expect(written).To(HaveLen(4))
}

func TestTheEndWritesWhatIsLeft(t *testing.T) {
	site := testsite.New(t)
	b := newBench(t, site)
	site.Integrate(nil)
	b.capture(10)
	b.send("a", 202)
	b.pass(time.Second)
	b.send("b", 202)
	ctx, cancel := cancelled(t)
	defer cancel()
	b.Run(ctx)
	b.Expect(b.bodies()).To(Equal([]string{"a 202", "b 202"}), "although it is not due")
}

// A real API server has quotas.
func TestAQuotaDeniesACapture(t *testing.T) {
	site := testsite.NewReal(t)
	b := newBench(t, site)
	quota := &corev1.ResourceQuota{}
	quota.Namespace, quota.Name = site.Namespace, "none"
	quota.Spec.Hard = corev1.ResourceList{"count/requestcaptures.tocsin.dev": resource.MustParse("0")}
	b.Expect(site.Live.Create(site.Ctx, quota)).To(Succeed())
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard} // no controller fills it in
	b.Expect(site.Live.Status().Update(site.Ctx, quota)).To(Succeed())
	b.Eventually(func() error { return site.Live.Create(site.Ctx, named(site.IntegrationKey()), client.DryRunAll) }, "20s").
		ShouldNot(Succeed())
	site.Integrate(nil)
	b.capture(10)
	b.send("a", 202)
	b.pass(5 * time.Second)
	b.Expect(b.told).To(HaveLen(1))
	b.Expect(<-b.told).To(ContainSubstring("quota"))
	b.Expect(b.Live.Delete(b.Ctx, quota)).To(Succeed())
	b.Eventually(func() []string {
		b.pass(time.Minute)
		return b.bodies()
	}, "20s").Should(Equal([]string{"a 202"}))
}
