package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func fullIncident(state v1alpha1.IncidentState) *v1alpha1.Incident {
	at := v1alpha1.NewTimestamp(time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC))
	text := strings.Repeat("x", 1000)
	bag := v1alpha1.Bag{"a": []byte(`"` + text + `"`)}
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "mon-a", UID: "1", ResourceVersion: "2", CreationTimestamp: metav1.NewTime(at.Time),
			Labels: map[string]string{"a": text}, Annotations: map[string]string{"a": text}, Finalizers: []string{"example.com/" + text},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: text}},
		},
		Spec: v1alpha1.IncidentSpec{IntegrationName: "mon", DedupKey: "a"},
	}
	incident.Status = v1alpha1.IncidentStatus{
		State: state, ObservedGeneration: 1, AlertCount: 3, Episode: &v1alpha1.Episode{Number: 2, StartTime: at, AlertCount: 3},
		OpenedTime: &at, ResolvedTime: &at, LastAlertTime: &at, Retention: &metav1.Duration{Duration: time.Hour}, OrphanedTime: &at,
		Silence:            &v1alpha1.Silence{Until: at},
		Timeline:           []v1alpha1.Transition{{Type: v1alpha1.TransitionOpened, Time: at, Message: text}},
		Ledger:             v1alpha1.Ledger{Events: []v1alpha1.LedgerEntry{{UID: text, Name: text}}, Digest: text[:32]},
		UnarchivedEpisodes: []v1alpha1.UnarchivedEpisode{{Number: 1, ResolvedTime: at, Digest: text[:32], Packed: text}},
		Alert: v1alpha1.AlertContent{
			Title: text, Description: text, Severity: v1alpha1.SeverityError, Labels: bag, Annotations: bag, Values: bag, Custom: bag,
			StartsAt: &at, EndsAt: &at,
		},
	}
	for _, kind := range []string{v1alpha1.ConditionResolved, v1alpha1.ConditionAcknowledged, v1alpha1.ConditionSilenced} {
		meta.SetStatusCondition(&incident.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAutoResolved, Message: text,
			LastTransitionTime: metav1.NewTime(at.Time),
		})
	}
	return incident
}

func TestACondensedIncidentHasWhatDecidesAboutIt(t *testing.T) {
	g := NewWithT(t)
	whole, condensed := fullIncident(v1alpha1.IncidentResolved), fullIncident(v1alpha1.IncidentResolved)
	condensed.Condense()
	s := condensed.Status
	g.Expect(s.Condensed).To(BeTrue())
	g.Expect(condensed.Spec).To(Equal(whole.Spec))
	g.Expect([]any{condensed.Name, condensed.UID, condensed.ResourceVersion, condensed.CreationTimestamp}).
		To(Equal([]any{whole.Name, whole.UID, whole.ResourceVersion, whole.CreationTimestamp}))
	g.Expect(s.Ledger).To(Equal(v1alpha1.Ledger{Digest: whole.Status.Ledger.Digest}), "it identifies the episode in an archive")
	g.Expect(s.UnarchivedEpisodes).To(HaveExactElements(And(HaveField("Digest", whole.Status.Ledger.Digest), HaveField("Packed", ""))))
	g.Expect(whole.Status.UnarchivedEpisodes[0].Packed).NotTo(BeEmpty())
	decisive := func(s v1alpha1.IncidentStatus) []any {
		return []any{
			s.State, s.Episode, s.ResolvedTime, s.Retention, s.OrphanedTime, s.Silence, s.Alert.Severity, s.Alert.StartsAt, s.Alert.EndsAt,
		}
	}
	g.Expect(decisive(s)).To(Equal(decisive(whole.Status)))
	g.Expect(s.Conditions).To(ConsistOf(HaveField("Type", v1alpha1.ConditionResolved), HaveField("Type", v1alpha1.ConditionSilenced)))

	again := condensed.DeepCopy()
	again.Condense()
	g.Expect(again).To(Equal(condensed), "the cache may do it twice")
	condensed.Status.Conditions = nil
	encoded, err := json.Marshal(condensed)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(encoded)).To(BeNumerically("<", 1000))
	g.Expect(string(encoded)).NotTo(ContainSubstring("ondensed"), "the mark is never stored")
}

func TestAnOpenIncidentKeepsItsStatus(t *testing.T) {
	g := NewWithT(t)
	whole, cached := fullIncident(v1alpha1.IncidentOpen), fullIncident(v1alpha1.IncidentOpen)
	cached.Condense()
	g.Expect(cached.Status).To(Equal(whole.Status))
	g.Expect(cached.ManagedFields).To(BeNil())
	g.Expect(cached.Annotations).To(BeNil(), "nobody fills the memory of every replica with them")
}
