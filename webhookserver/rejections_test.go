package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

func TestRejectionsAreReportedOnceAMinute(t *testing.T) {
	g := NewWithT(t)
	now := noon
	r := newReporter(nil, nil, logr.Discard())
	r.now = func() time.Time { return now }
	one, two := integration("team-a", "one"), integration("team-a", "two")

	r.reportRejection(one, "MalformedJSON", "first")
	r.reportRejection(one, "EmptyBody", "within the minute")
	r.reportRejection(two, "MalformedJSON", "of another integration")
	g.Expect(r.queue).To(HaveLen(2))
	now = now.Add(reportInterval)
	r.reportRejection(one, "EmptyBody", "a minute later")
	g.Expect(r.queue).To(HaveLen(3))

	t.Log("a report by another replica counts as well")
	three := integration("team-a", "three")
	three.Status.LastRejection = &v1alpha1.Rejection{Time: v1alpha1.NewTimestamp(now.Add(-time.Second))}
	r.reportRejection(three, "EmptyBody", "")
	g.Expect(r.queue).To(HaveLen(3))

	t.Log("but not one of the future, which a wrong clock has written")
	three.Status.LastRejection.Time = v1alpha1.NewTimestamp(now.Add(time.Hour))
	r.reportRejection(three, "EmptyBody", "")
	g.Expect(r.queue).To(HaveLen(4))
}

func TestRejectionsNeverBlock(t *testing.T) {
	g := NewWithT(t)
	r := newReporter(nil, nil, logr.Discard())
	for i := range maxReportMemory + 100 {
		r.reportRejection(integration("team-a", fmt.Sprint(i)), "EmptyBody", "")
	}
	g.Expect(r.queue).To(HaveLen(maxReportQueue))
	g.Expect(r.reported.Keys()).To(HaveLen(maxReportMemory))

	t.Log("a report that was dropped keeps no other out")
	<-r.queue
	r.reportRejection(integration("team-a", fmt.Sprint(maxReportMemory)), "EmptyBody", "")
	g.Expect(r.queue).To(HaveLen(maxReportQueue))
}

func TestA5xxAnswerIsReportedUntilItIsWritten(t *testing.T) {
	g := NewWithT(t)
	failing, hanging := true, make(chan struct{})
	one, two := integration("team-a", "one"), integration("team-b", "two")
	c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithStatusSubresource(one).WithObjects(one).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, resource string,
			object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if object.GetNamespace() == "slow" {
				<-hanging
			}
			if failing {
				return errors.New("no")
			}
			return c.SubResource(resource).Patch(ctx, object, patch, options...)
		}}).Build()
	now := noon
	r := newReporter(c, nil, logr.Discard())
	r.now = func() time.Time { return now }
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
		r.writeUnavailable(t.Context())
	}

	tell()
	g.Expect(reported()).To(BeZero())
	g.Expect(r.unavailable).To(HaveLen(2), "it is tried again")
	failing, now = false, now.Add(time.Second)
	r.writeUnavailable(t.Context())
	g.Expect(reported()).To(BeTemporally("==", now), "with the time of the report")
	g.Expect(r.unavailable).To(BeEmpty())

	first := now
	now = now.Add(unavailableInterval - 1)
	tell()
	g.Expect(reported()).To(BeTemporally("==", first))
	now = now.Add(1)
	tell()
	g.Expect(reported()).To(BeTemporally(">", first))

	t.Log("one namespace with many integrations does not delay the reports of another one")
	now = now.Add(2 * unavailableInterval)
	for i := range 10 * maxUnavailableReports {
		r.reportUnavailable(client.ObjectKeyFromObject(integration("team-c", fmt.Sprint("many-", i))))
	}
	tell()
	g.Expect(reported()).To(BeTemporally("==", now))
	r.unavailable.Clear()

	t.Log("nor does one whose integrations cannot be written")
	now = now.Add(2 * unavailableInterval)
	for i := range 10 * maxUnavailableReports {
		r.reportUnavailable(client.ObjectKeyFromObject(integration("slow", fmt.Sprint("many-", i))))
	}
	told := make(chan struct{})
	go func() { tell(); close(told) }()
	g.Eventually(reported).Should(BeTemporally("==", now))
	close(hanging)
	<-told
	r.unavailable.Clear()

	t.Log("after an outage, many integrations do not become a storm of writes")
	for i := range 2 * maxReportMemory {
		r.reportUnavailable(client.ObjectKeyFromObject(integration("team-c", fmt.Sprint(i))))
	}
	g.Expect(r.unavailable).To(HaveLen(maxReportMemory))
	r.writeUnavailable(t.Context())
	g.Expect(r.unavailable).To(HaveLen(maxReportMemory - maxUnavailableReports))
}

func TestTheUseOfATokenIsReportedOnceAnHour(t *testing.T) {
	g := NewWithT(t)
	now := noon
	r := newReporter(nil, nil, logr.Discard())
	r.now = func() time.Time { return now }
	w := integration("team-a", "one", "first", "second")
	first, second := &w.Spec.Tokens[0], &w.Spec.Tokens[1]
	reported := func(token *v1alpha1.Token) bool {
		before := len(r.uses)
		r.reportUse(w, token)
		return len(r.uses) > before
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

	t.Log("it never blocks, and what is dropped is reported at the next use")
	for i := range 2 * maxReportQueue {
		r.reportUse(integration("team-d", fmt.Sprint(i), "first"), first)
	}
	g.Expect(r.uses).To(HaveLen(maxReportQueue))
	last := integration("team-d", fmt.Sprint(2*maxReportQueue-1), "first")
	<-r.uses
	r.reportUse(last, first)
	g.Expect(r.uses).To(HaveLen(maxReportQueue))
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
	reads := 0
	raced := interceptor.NewClient(store, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
		object client.Object, options ...client.GetOption) error {
		err := c.Get(ctx, key, object, options...)
		if reads++; reads == 1 { // the other replica writes between the read and the write of this one
			use := use(0, noon.Add(2*time.Hour))
			g.Expect(other.writeUse(ctx, key, &use)).To(Succeed())
		}
		return err
	}})
	second := use(1, noon.Add(time.Hour))
	g.Expect(newReporter(raced, nil, logr.Discard()).writeUse(t.Context(), key, &second)).To(Succeed())
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
	gone := types.NamespacedName{Namespace: "team-a", Name: "gone"}
	g.Expect(other.writeUse(t.Context(), gone, &second)).To(Succeed())
}

func TestRejectionIsWrittenToStatusAndAsEvent(t *testing.T) {
	failing := interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
		...client.SubResourcePatchOption) error {
		return errors.New("no")
	}}
	for name, test := range map[string]struct {
		exists bool
		funcs  interceptor.Funcs
		fails  bool
		events int
	}{
		"the field of the status, then the Event":     {exists: true, events: 1},
		"no Event when the status was not written":    {exists: true, funcs: failing, fails: true},
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
			err := r.write(t.Context(), report{integration: w, rejection: &v1alpha1.Rejection{
				Reason: "MalformedJSON", Message: "The body is not valid JSON, at byte 3.", Time: v1alpha1.NewTimestamp(noon)}})
			g.Expect(err != nil).To(Equal(test.fails))
			g.Expect(recorder.Events).To(HaveLen(test.events))
			if test.events == 0 {
				return
			}
			g.Expect(<-recorder.Events).To(Equal(
				"Warning Rejected Refused a request (MalformedJSON): The body is not valid JSON, at byte 3."))
			got := &v1alpha1.WebhookIntegration{}
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(w), got)).To(Succeed())
			g.Expect(got.Status.LastRejection.Reason).To(Equal("MalformedJSON"))
			g.Expect(got.Status.LastRejection.Time.Time).To(BeTemporally("==", noon))
			g.Expect(got.Status.ObservedGeneration).To(BeEquivalentTo(7), "the rest of the status is left alone")
		})
	}
}
