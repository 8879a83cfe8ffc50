package states

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
)

func TestHeartbeats(t *testing.T) {
	g := NewWithT(t)
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) *v1alpha1.Timestamp {
		return new(v1alpha1.NewTimestamp(noon.Add(time.Duration(minutes) * time.Minute)))
	}
	beat := func(namespace, name, reason string, last, due *v1alpha1.Timestamp) *v1alpha1.Heartbeat {
		made := &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		made.Spec.IntegrationName = "jobs"
		made.Status.LastSignalTime, made.Status.NextDueTime = last, due
		if reason != "" {
			made.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionHeard, Reason: reason}}
		}
		return made
	}
	scheme := runtime.NewScheme()
	g.Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		beat("shop", "heard", v1alpha1.ReasonHeard, at(30), at(42)),
		beat("shop", "failed", v1alpha1.ReasonFailed, at(30), at(42)),
		beat("shop", "missed", v1alpha1.ReasonMissed, at(1), nil),
		beat("shop", "slow", v1alpha1.ReasonTooLong, at(1), nil),
		beat("shop", "new", "", nil, nil), // nobody has seen it yet
		beat("shop", "off", v1alpha1.ReasonSuspended, at(2), nil),
		beat("bank", "first", v1alpha1.ReasonWaiting, nil, at(15)),
	).Build()
	all, err := Heartbeats{}.List(t.Context(), server, "")
	g.Expect(err).NotTo(HaveOccurred())
	line := func(h live.Part) string {
		text := h.Namespace + " " + h.Name + " " + h.State
		for _, time := range []*v1alpha1.Timestamp{h.Last, h.Due} {
			if time == nil {
				text += " -"
			} else {
				text += time.UTC().Format(" 15:04")
			}
		}
		return text
	}
	var lines []string
	for _, h := range all {
		lines = append(lines, line(h))
	}
	g.Expect(lines).To(Equal([]string{
		"shop missed Missed 12:01 -", "shop slow TooLong 12:01 -", "shop failed Failed 12:30 12:42", "bank first Waiting - 12:15",
		"shop new Waiting - -", "shop off Suspended 12:02 -", "shop heard Heard 12:30 12:42",
	}))
	g.Expect(Heartbeats{}.Tally(all)).To(Equal("1 missed, 1 too long, 1 failed, 2 waiting, 1 suspended, 1 heard"))
	g.Expect(Heartbeats{}.Tally(nil)).To(BeEmpty())

	all, err = Heartbeats{}.List(t.Context(), server, "bank")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(1))
	limit := int64(0)
	refusing := interceptor.NewClient(server, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) error {
			limit = (&client.ListOptions{}).ApplyOptions(options).Limit
			return errors.New("refused")
		},
	})
	_, err = Heartbeats{}.List(t.Context(), refusing, "")
	g.Expect(err).To(MatchError(ContainSubstring("listing heartbeats: ")))
	g.Expect(limit).To(BeEquivalentTo(live.PageSize), "a user decides how large an object is")
}
