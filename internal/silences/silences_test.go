package silences

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/live"
)

// fakeClient is a cluster in memory, which does not stream lists.
type fakeClient struct{ client.WithWatch }

// IsWatchListSemanticsUnSupported tells the informer.
func (fakeClient) IsWatchListSemanticsUnSupported() bool { return true }

// A silence that was there before is not the requested one, which is not in effect before it was folded.
func TestAnEarlierSilenceIsNotTheRequestedOne(t *testing.T) {
	g := NewWithT(t)
	until := v1alpha1.NewTimestamp(time.Now().Add(9 * time.Hour).Truncate(time.Second))
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	incident.Status.State = v1alpha1.IncidentOpen
	incident.Status.Silence = &v1alpha1.Silence{By: "alex", EndTime: until}
	incident.Status.SilencedBy = incident.Status.Silence.DeepCopy()
	incident.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSilenced}}
	c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithObjects(incident).Build()
	feed := live.Follow(fakeClient{c}, "", live.Prune, func(live.Change) {})
	await := func() error {
		a := awaited{length: time.Hour, before: incident}
		settled, problem := a.look(feed)
		g.Expect(settled).To(BeFalse())
		g.Expect(problem).NotTo(HaveOccurred())
		return a.overdue()
	}
	g.Expect(await()).To(MatchError(ContainSubstring("not in effect yet")), "nor is an Incident deleted that a watch has not listed yet")

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		feed.Run(ctx)
	}()
	g.Eventually(feed.Synced, "10s", "10ms").Should(BeTrue())
	g.Expect(await()).To(MatchError(ContainSubstring("not in effect yet")))
	cancel()
	<-done
}
