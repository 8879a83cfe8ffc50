package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// writeAll writes what is due, or everything as at the end.
func (r *statusReporter) writeAll(ctx context.Context, ending bool) {
	for r.enqueueAll(ending); r.turns.Available() > 0; {
		r.writeNext(ctx)
	}
	r.ending.Store(false)
}

// takePending returns a field that is to be written to the status of an integration, zero if it is not, and forgets it.
func takePending[T any](r *statusReporter, w *v1alpha1.WebhookIntegration, name string) (value T) {
	if p := r.pending[reportKey{NamespacedName: client.ObjectKeyFromObject(w)}]; p != nil {
		value, _ = p.fields[name].(T)
		delete(p.fields, name)
	}
	return value
}

func TestRejectionsAreReportedOnceAMinute(t *testing.T) {
	g := NewWithT(t)
	now := noon
	r := newReporter(nil, nil, logr.Discard())
	r.health = timeFunc(func() time.Time { return now })
	one, two := integration("team-a", "one"), integration("team-a", "two")
	reported := func(w *v1alpha1.WebhookIntegration) string { // since the last call
		if rejected := takePending[*rejection](r, w, "lastRejection"); rejected != nil {
			return rejected.Message
		}
		return ""
	}

	r.reportRejection(one, "MalformedJSON", "first")
	r.reportRejection(one, "EmptyBody", "within the minute")
	r.reportRejection(two, "MalformedJSON", "of another integration")
	g.Expect(reported(one)).To(Equal("first"))
	g.Expect(reported(two)).To(Equal("of another integration"))
	now = now.Add(reportInterval)
	r.reportRejection(one, "EmptyBody", "a minute later")
	g.Expect(reported(one)).To(Equal("a minute later"))
	g.Expect(r.postponed).To(BeEmpty())

	t.Log("a report by another replica counts as well")
	three := integration("team-a", "three")
	three.Status.LastRejection = &v1alpha1.Rejection{Time: v1alpha1.NewTimestamp(now.Add(-time.Second))}
	r.reportRejection(three, "EmptyBody", "again")
	g.Expect(reported(three)).To(BeEmpty())

	t.Log("but not one of the future, which a wrong clock has written")
	three.Status.LastRejection.Time = v1alpha1.NewTimestamp(now.Add(time.Hour))
	r.reportRejection(three, "EmptyBody", "again")
	g.Expect(reported(three)).To(Equal("again"))

	t.Log("the last ones of many integrations are remembered, but not all")
	for i := range maxReportMemory + 100 {
		r.reportRejection(integration("team-b", fmt.Sprint(i)), "EmptyBody", "")
	}
	g.Expect(r.reported.Keys()).To(HaveLen(maxReportMemory))
}

func TestTheLastRejectionOfAMinuteIsCaughtUp(t *testing.T) {
	g := NewWithT(t)
	now := noon
	r := newReporter(nil, nil, logr.Discard())
	r.health = timeFunc(func() time.Time { return now })
	one := integration("team-a", "one")
	shown := func() string { // since the last call, after a look at what is due
		r.enqueueAll(false)
		if rejected := takePending[*rejection](r, one, "lastRejection"); rejected != nil {
			return rejected.Reason + rejected.Time.Format(" 15:04:05")
		}
		return ""
	}

	r.reportRejection(one, "MethodNotAllowed", "")
	g.Expect(shown()).To(Equal("MethodNotAllowed 12:00:00"))
	for _, reason := range []string{"EmptyBody", "BodyTooLarge", "MethodNotAllowed"} {
		now = now.Add(time.Second)
		r.reportRejection(one, reason, "")
		g.Expect(shown()).To(BeEmpty(), "within the minute")
	}
	now = noon.Add(reportInterval)
	g.Expect(shown()).To(Equal("BodyTooLarge 12:00:02"), "the newest with which alerts are lost")
	g.Expect(shown()).To(BeEmpty())
	g.Expect(r.postponed).To(BeEmpty())

	t.Log("for an hour, a browser's GET does not hide it, also not that of another replica")
	now = now.Add(lossShown / 2)
	r.reportRejection(one, "MethodNotAllowed", "")
	g.Expect(shown()).To(BeEmpty())
	other := integration("team-a", "two")
	other.Status.LastRejection = &v1alpha1.Rejection{Reason: "BodyTooLarge", Time: v1alpha1.NewTimestamp(noon.Add(time.Second))}
	r.reportRejection(other, "MethodNotAllowed", "")
	g.Expect(r.pending[reportKey{NamespacedName: client.ObjectKeyFromObject(other)}]).To(BeNil())
	r.reportRejection(one, "EmptyBody", "")
	g.Expect(shown()).To(HavePrefix("EmptyBody "))
	now = now.Add(lossShown)
	r.reportRejection(one, "MethodNotAllowed", "")
	g.Expect(shown()).To(HavePrefix("MethodNotAllowed "))

	t.Log("the end shows everything")
	r.reportRejection(one, "EmptyBody", "")
	g.Expect(shown()).To(BeEmpty())
	r.enqueueAll(true)
	g.Expect(shown()).To(HavePrefix("EmptyBody "))

	t.Log("a flood of many integrations takes bounded memory, and one write a minute for each")
	for i := range maxReportMemory + 100 {
		for range 3 {
			r.reportRejection(integration("team-b", fmt.Sprint(i)), "EmptyBody", "")
		}
	}
	g.Expect(len(r.postponed)).To(BeNumerically("<=", maxReportMemory))
}

func TestA5xxAnswerIsReportedUntilItIsWritten(t *testing.T) {
	g := NewWithT(t)
	failing := true
	one, two := integration("team-a", "one"), integration("team-b", "two")
	c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithStatusSubresource(one).WithObjects(one).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, resource string,
			object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if failing {
				return errors.New("no")
			}
			return c.SubResource(resource).Patch(ctx, object, patch, options...)
		}}).Build()
	now := noon
	r := newReporter(c, nil, logr.Discard())
	r.health = timeFunc(func() time.Time { return now })
	reported := func() time.Time {
		got := &v1alpha1.WebhookIntegration{}
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(one), got)).To(Succeed())
		if got.Status.LastUnavailableTime == nil {
			return time.Time{}
		}
		return got.Status.LastUnavailableTime.Time
	}
	tell := func() {
		r.reportUnavailable(client.ObjectKeyFromObject(one))
		r.reportUnavailable(client.ObjectKeyFromObject(two)) // it does not exist any more
		r.writeAll(t.Context(), false)
	}

	tell()
	g.Expect(reported()).To(BeZero())
	g.Expect(r.pending).To(HaveLen(2), "it is tried again")
	tell()
	g.Expect(r.turns.IsEmpty()).To(BeTrue(), "but not with each 5xx answer")
	failing, now = false, now.Add(reportPause)
	r.writeAll(t.Context(), false)
	g.Expect(reported()).To(BeTemporally("==", now), "with the time of the report")
	g.Expect(r.pending).To(BeEmpty())

	first := now
	now = now.Add(unavailableInterval - 1)
	tell()
	g.Expect(reported()).To(BeTemporally("==", first))
	now = now.Add(1)
	tell()
	g.Expect(reported()).To(BeTemporally(">", first))
}

func TestARejectionThatIsInvalidKeepsNothingElseFromBeingWritten(t *testing.T) {
	g, w := NewWithT(t), integration("team-a", "one")
	now := noon
	c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithStatusSubresource(w).WithObjects(w).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, resource string,
			object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if content, _ := patch.Data(object); strings.Contains(string(content), "lastRejection") {
				return apierrors.NewInvalid(schema.GroupKind{}, "one", nil)
			}
			return c.SubResource(resource).Patch(ctx, object, patch, options...)
		}}).Build()
	r := newReporter(c, nil, logr.Discard())
	r.health = timeFunc(func() time.Time { return now })
	r.reportRejection(w, "EmptyBody", "")
	r.reportUnavailable(client.ObjectKeyFromObject(w))
	for range 2 {
		r.writeAll(t.Context(), false)
		now = now.Add(reportPause)
	}
	g.Expect(r.pending).To(BeEmpty())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(w), w)).To(Succeed())
	g.Expect(w.Status.LastUnavailableTime).NotTo(BeNil())
}

// The leader takes an unreported 5xx answer for quiet of the sender, and resolves what it should not.
func TestNoNamespaceDelaysTheReportsOfAnotherOneByMoreThanAWrite(t *testing.T) {
	const many = 1000
	for sentence, write := range map[string]func(ctx context.Context) error{
		"a thousand integrations whose writes hang": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"a thousand integrations whose writes take a second": func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			return ctx.Err()
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				written := make(chan string, many)
				c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(
					ctx context.Context, _ client.Client, _ string, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
				) error {
					if object.GetNamespace() == "busy" {
						return write(ctx)
					}
					written <- object.GetName()
					return nil
				}}).Build()
				r := newReporter(c, events.NewFakeRecorder(2*many), logr.Discard())
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { r.run(ctx) })
				for i := range many {
					busy := integration("busy", fmt.Sprint(i))
					r.reportUnavailable(client.ObjectKeyFromObject(busy))
					r.reportRejection(busy, "EmptyBody", "")
				}
				for i := range 10 {
					time.Sleep(3 * time.Second)
					begun := time.Now()
					r.reportUnavailable(types.NamespacedName{Namespace: "team-a", Name: fmt.Sprint(i)})
					g.Expect(<-written).To(Equal(fmt.Sprint(i)))
					g.Expect(time.Since(begun)).To(BeNumerically("<=", time.Second))
				}
				cancel()
				ended := time.Now()
				running.Wait()
				g.Expect(time.Since(ended)).To(BeNumerically("<=", reportTimeout+time.Second))
			})
		})
	}
}

func TestTheUseOfATokenIsReportedOnceAnHour(t *testing.T) {
	g := NewWithT(t)
	now := noon
	r := newReporter(nil, nil, logr.Discard())
	r.health = timeFunc(func() time.Time { return now })
	w := integration("team-a", "one", "first", "second")
	first, second := &w.Spec.Tokens[0], &w.Spec.Tokens[1]
	reported := func(token *v1alpha1.Token) bool {
		r.reportUse(w, token)
		p := r.pending[reportKey{NamespacedName: client.ObjectKeyFromObject(w)}]
		if p == nil || len(p.uses) == 0 {
			return false
		}
		clear(p.uses)
		return true
	}
	g.Expect([]bool{reported(first), reported(second), reported(first)}).To(Equal([]bool{true, true, false}))
	now = now.Add(useInterval)
	g.Expect(reported(first)).To(BeTrue())

	t.Log("a report by another replica counts as well, but not one of an earlier token with the name, nor one of the future")
	w = integration("team-b", "two", "first")
	first = &w.Spec.Tokens[0]
	w.Status.Tokens = []v1alpha1.TokenUse{
		{Name: first.Name, SHA256: first.SHA256, LastUsedTime: v1alpha1.NewTimestamp(now.Add(-useInterval + time.Second))}}
	g.Expect(reported(first)).To(BeFalse())
	w.Status.Tokens[0].LastUsedTime = v1alpha1.NewTimestamp(now.Add(2 * useInterval))
	g.Expect(reported(first)).To(BeTrue())
	w = integration("team-c", "three", "first")
	w.Status.Tokens = []v1alpha1.TokenUse{{Name: first.Name, SHA256: "another", LastUsedTime: v1alpha1.NewTimestamp(now)}}
	g.Expect(reported(&w.Spec.Tokens[0])).To(BeTrue())
}

func TestReplicasDoNotOverwriteTheUsesOfEachOther(t *testing.T) {
	g := NewWithT(t)
	w := integration("team-a", "one", "first", "second")
	w.Spec.Tokens = append(w.Spec.Tokens, v1alpha1.Token{Name: "replaced", SHA256: "new"})
	use := func(i int, at time.Time) v1alpha1.TokenUse {
		return v1alpha1.TokenUse{Name: w.Spec.Tokens[i].Name, SHA256: w.Spec.Tokens[i].SHA256, LastUsedTime: v1alpha1.NewTimestamp(at)}
	}
	w.Status.Tokens = []v1alpha1.TokenUse{{Name: "revoked", SHA256: "x", LastUsedTime: v1alpha1.NewTimestamp(noon)},
		{Name: "replaced", SHA256: "old", LastUsedTime: v1alpha1.NewTimestamp(noon)}, use(0, noon)}
	w.Status.ObservedGeneration = 7
	key := client.ObjectKeyFromObject(w)
	store := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithStatusSubresource(w).WithObjects(w).Build()
	other := newReporter(store, nil, logr.Discard())
	write := func(r *statusReporter, use v1alpha1.TokenUse) {
		_, err := r.write(t.Context(), reportKey{NamespacedName: key}, &pendingReports{uses: map[string]v1alpha1.TokenUse{use.SHA256: use}})
		g.Expect(err).NotTo(HaveOccurred())
	}
	reads := 0
	raced := interceptor.NewClient(store, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
		object client.Object, options ...client.GetOption) error {
		err := c.Get(ctx, key, object, options...)
		if reads++; reads == 1 { // the other replica writes between the read and the write of this one
			write(other, use(0, noon.Add(2*time.Hour)))
		}
		return err
	}})
	write(newReporter(raced, nil, logr.Discard()), use(1, noon.Add(time.Hour)))
	g.Expect(reads).To(Equal(2))

	got := &v1alpha1.WebhookIntegration{}
	g.Expect(store.Get(t.Context(), key, got)).To(Succeed())
	times := map[string]time.Time{}
	for _, use := range got.Status.Tokens {
		times[use.Name] = use.LastUsedTime.UTC()
	}
	g.Expect(times).To(Equal(map[string]time.Time{"a": noon.Add(2 * time.Hour).UTC(), "b": noon.Add(time.Hour).UTC()}),
		"both uses, and none of tokens that are not listed any more")
	g.Expect(got.Status.ObservedGeneration).To(BeEquivalentTo(7))
}

func TestRejectionIsWrittenToStatusAndAsEvent(t *testing.T) {
	failing := interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
		...client.SubResourcePatchOption) error {
		return errors.New("no")
	}}
	for name, test := range map[string]struct {
		exists bool
		funcs  interceptor.Funcs
		waits  bool // to be tried again
		events int
	}{
		"the field of the status, then the Event":     {exists: true, events: 1},
		"no Event when the status was not written":    {exists: true, funcs: failing, waits: true},
		"nothing for an integration that was deleted": {},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := integration("team-a", "prometheus")
			w.Status.ObservedGeneration = 7
			builder := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithInterceptorFuncs(test.funcs).
				WithStatusSubresource(&v1alpha1.WebhookIntegration{})
			if test.exists {
				builder = builder.WithObjects(w)
			}
			c := builder.Build()
			recorder := events.NewFakeRecorder(10)
			r := newReporter(c, recorder, logr.Discard())
			r.health = timeFunc(func() time.Time { return noon })
			r.reportRejection(w, "MalformedJSON", "The body is not valid JSON, at byte 3.")
			r.writeAll(t.Context(), false)
			g.Expect(len(r.pending) > 0).To(Equal(test.waits))
			g.Expect(recorder.Events).To(HaveLen(test.events))
			if test.events == 0 {
				return
			}
			g.Expect(<-recorder.Events).To(Equal(
				"Warning Rejected Rejected a request (MalformedJSON): The body is not valid JSON, at byte 3."))
			got := &v1alpha1.WebhookIntegration{}
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(w), got)).To(Succeed())
			g.Expect(got.Status.LastRejection.Reason).To(Equal("MalformedJSON"))
			g.Expect(got.Status.LastRejection.Time.Time).To(BeTemporally("==", noon))
			g.Expect(got.Status.ObservedGeneration).To(BeEquivalentTo(7), "the rest of the status is left alone")
		})
	}
}
