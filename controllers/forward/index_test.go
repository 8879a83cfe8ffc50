package forward

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestTheIndexHasOnlyWhatIsLookedAtAgain(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	x := newIndex()
	incident := func(name string, state v1alpha1.IncidentState, resolved time.Duration, change func(*v1alpha1.IncidentStatus)) {
		i := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		i.Spec.IntegrationName = integration
		i.Status.State = state
		if state == v1alpha1.IncidentResolved {
			at := v1alpha1.NewTimestamp(now.Add(-resolved))
			i.Status.ResolvedTime = &at
		}
		if change != nil {
			change(&i.Status)
		}
		x.set(i, now)
	}
	acknowledged := func(s *v1alpha1.IncidentStatus) {
		s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue}}
	}
	incident("open", v1alpha1.IncidentOpen, 0, nil)
	incident("acknowledged", v1alpha1.IncidentOpen, 0, acknowledged)
	incident("resolved", v1alpha1.IncidentResolved, time.Minute, acknowledged)
	incident("resolved-earlier", v1alpha1.IncidentResolved, time.Hour, nil)
	incident("resolved-long-ago", v1alpha1.IncidentResolved, 48*time.Hour, nil)
	incident("requested", v1alpha1.IncidentResolved, 48*time.Hour, func(s *v1alpha1.IncidentStatus) { s.Silence = &v1alpha1.Silence{} })
	incident("silenced", v1alpha1.IncidentResolved, 48*time.Hour, func(s *v1alpha1.IncidentStatus) {
		s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionFalse}}
	})
	names := func(keys []incidentKey) []string {
		names := []string{}
		for _, key := range keys {
			names = append(names, key.name)
		}
		return names
	}
	g.Expect(names(x.active(now.Add(-15 * time.Minute)))).To(ConsistOf("open", "acknowledged", "resolved"))
	g.Expect(names(x.active(now.Add(-2 * time.Hour)))).To(ConsistOf("open", "acknowledged", "resolved", "resolved-earlier"))
	g.Expect(names(x.silenced())).To(ConsistOf("acknowledged", "requested", "silenced"))
	g.Expect(names(x.of(namespace, integration))).To(HaveLen(6))
	g.Expect(x.of("other", integration)).To(BeEmpty())

	incident("open", v1alpha1.IncidentResolved, 48*time.Hour, nil)
	x.remove(incidentKey{namespace, "acknowledged"})
	g.Expect(names(x.active(now.Add(-15 * time.Minute)))).To(ConsistOf("resolved"))
	g.Expect(x.incidents).To(HaveLen(4))
}

// oneIncident is a reader of one Incident, which counts the reads. Nothing else exists.
type oneIncident struct {
	client.Reader
	*v1alpha1.Incident
	reads int
	err   error
}

func (r *oneIncident) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if incident, ok := object.(*v1alpha1.Incident); ok {
		r.reads++
		r.DeepCopyInto(incident)
	}
	return r.err
}

func TestAnIncidentResolvedAWhileAgoIsReadWholeOnce(t *testing.T) {
	g := NewWithT(t)
	c := newCluster()
	c.fold(v1alpha1.Alert{DedupKey: "a", Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{Title: "Disk full"}})
	_, whole := c.fold(v1alpha1.Alert{DedupKey: "a", Status: v1alpha1.AlertResolved})
	resolved := whole.Status.ResolvedTime.Time
	live, objects := &oneIncident{Incident: whole}, &oneIncident{Incident: cached(whole)}
	x := newTerm(New("", realTime, nil, logr.Discard()), objects, live, nil)
	read := func(since time.Time) *v1alpha1.Incident {
		incident, _, err := x.incident(t.Context(), keyOf(whole), since)
		g.Expect(err).NotTo(HaveOccurred())
		return incident
	}
	g.Expect(read(resolved).Status.Condensed).To(BeTrue(), "resolved long ago")
	g.Expect(live.reads).To(BeZero())
	for range 3 {
		g.Expect(read(resolved.Add(-time.Minute)).Status.Alert.Title).To(Equal("Disk full"))
	}
	g.Expect(live.reads).To(Equal(1))
	objects.ResourceVersion = "17"
	g.Expect(read(resolved.Add(-time.Minute)).Status.Timeline).NotTo(BeEmpty())
	g.Expect(live.reads).To(Equal(2), "another version")

	live.err = errors.New("no connection")
	objects.ResourceVersion = "18"
	_, _, err := x.incident(t.Context(), keyOf(whole), time.Time{})
	g.Expect(err).To(MatchError("no connection"))
}
