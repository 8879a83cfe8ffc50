package forward

import (
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestTheIndexHasOnlyWhatIsLookedAtAgain(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	const day = 24 * time.Hour
	x, version := newIndex(), 0
	incident := func(name string, state v1alpha1.IncidentState, resolved time.Duration, change func(*v1alpha1.IncidentStatus)) {
		i := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		version++
		i.ResourceVersion = strconv.Itoa(version)
		i.Spec.IntegrationName = integration
		i.Status.State = state
		if state == v1alpha1.IncidentResolved {
			at := v1alpha1.NewTimestamp(now.Add(-resolved))
			i.Status.ResolvedTime = &at
		}
		if change != nil {
			change(&i.Status)
		}
		x.set(i, now.Add(-day))
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
		s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSilenced}}
	})
	incident("silenced-once", v1alpha1.IncidentResolved, 48*time.Hour, func(s *v1alpha1.IncidentStatus) {
		s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSilenced}}
	})
	names := func(keys []types.NamespacedName) []string {
		names := []string{}
		for _, key := range keys {
			names = append(names, key.Name)
		}
		return names
	}
	open, ended := x.active(now.Add(-2 * time.Hour))
	g.Expect(names(open)).To(ConsistOf("open", "acknowledged"))
	g.Expect(names(ended)).To(ConsistOf("resolved", "resolved-earlier"))
	g.Expect(names(x.silenced())).To(ConsistOf("acknowledged", "requested", "silenced"))
	g.Expect(names(x.of(types.NamespacedName{Namespace: namespace, Name: integration}))).To(HaveLen(6))
	g.Expect(x.of(types.NamespacedName{Namespace: "other", Name: integration})).To(BeEmpty())

	incident("open", v1alpha1.IncidentResolved, 48*time.Hour, nil)
	open, ended = x.active(now.Add(-15 * time.Minute))
	g.Expect(names(open)).To(ConsistOf("acknowledged"))
	g.Expect(names(ended)).To(ConsistOf("resolved"))
	g.Expect(x.incidents).To(HaveLen(4), "no more than a round needs, and what silences concern")
}

// The cache shows the end of an Incident, and the fold or a sweep tells what became of it, in any order.
func TestTheIndexKnowsTheNewestVersion(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	version := func(number string, resolved time.Time) *v1alpha1.Incident {
		i := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", ResourceVersion: number}}
		i.Status.State = v1alpha1.IncidentOpen
		if !resolved.IsZero() {
			at := v1alpha1.NewTimestamp(resolved)
			i.Status.State, i.Status.ResolvedTime = v1alpha1.IncidentResolved, &at
		}
		return i
	}
	key := types.NamespacedName{Namespace: namespace, Name: "a"}
	x := newIndex()
	set := func(incident *v1alpha1.Incident) bool {
		_, news := x.set(incident, now.Add(-time.Hour))
		return news
	}
	g.Expect(set(version("9", time.Time{}))).To(BeTrue())
	g.Expect(set(version("10", now.Add(-time.Second)))).To(BeTrue(), "the fold tells")
	g.Expect(x.gone(version("10", time.Time{}), now)).To(BeFalse(), "it is known")
	g.Expect(x.incidents[key].resolved).To(BeTemporally("~", now.Add(-time.Second), time.Millisecond))

	g.Expect(set(version("11", time.Time{}))).To(BeTrue(), "it is open again")
	g.Expect(set(version("10", now))).To(BeFalse(), "a sweep read it before")
	g.Expect(x.incidents[key].resolved).To(BeZero())
	g.Expect(x.gone(version("12", time.Time{}), now)).To(BeTrue(), "somebody else resolved or deleted it")
	_, ended := x.active(now.Add(-time.Minute))
	g.Expect(ended).To(ConsistOf(key), "its alert has to end")

	g.Expect(set(version("13", time.Time{}))).To(BeTrue())
	g.Expect(x.gone(version("13", time.Time{}), now)).To(BeTrue(), "a new list lacks it, and no event told its end")
	g.Expect(x.incidents[key].open).To(BeNil())
	g.Expect(set(version("14", now))).To(BeTrue())
}
