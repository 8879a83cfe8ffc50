package incident

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// told is a Forwarder that keeps the newest versions of Incidents, and knows nothing else.
type told struct {
	justBegun
	versions []string
}

func (f *told) Observe(incident *v1alpha1.Incident) {
	f.versions = append(f.versions, incident.ResourceVersion)
}

// The forwarding knows what a fold writes, and what it reads because an answer was lost or the watch shows nothing.
func TestTheForwardingIsToldWhatTheWatchMayLose(t *testing.T) {
	s, forwarder := newSite(t), &told{}
	s.incidents.Forwarder = forwarder
	s.PostFiring("disk")
	s.fold("disk")
	opened := s.Incident("disk")
	s.Expect(forwarder.versions).To(ContainElement(opened.ResourceVersion), "it is written")

	s.cache.frozen[s.KeyOf("disk")] = opened
	incident := opened.DeepCopy()
	incident.Labels = map[string]string{"by": "somebody"}
	s.Expect(s.Live.Update(s.Ctx, incident)).To(Succeed())
	forwarder.versions = nil
	s.PostFiring("disk")
	for range 5 {
		_, err := s.reconcile("disk")
		s.Expect(err).NotTo(HaveOccurred())
		s.pass(writeInterval)
	}
	s.Expect(forwarder.versions[:2]).To(HaveExactElements(incident.ResourceVersion, s.Incident("disk").ResourceVersion), "it is read")
}

// An Incident that the cache does not show is read; it may be Open, and the forwarding has to know it then.
func TestTheForwardingIsToldWhatTheCacheLacks(t *testing.T) {
	s, forwarder := newSite(t), &told{}
	s.PostFiring("disk")
	s.fold("disk")
	s.release()
	s.folder = s.newFolder()
	s.incidents.Forwarder = forwarder
	s.cache.frozen[s.KeyOf("disk")] = nil
	_, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(forwarder.versions).To(ConsistOf(s.Incident("disk").ResourceVersion))
	s.fold("none")
	s.Expect(forwarder.versions).To(HaveLen(1), "there is nothing to tell of none")
}

// justBegun is a Forwarder that knows nothing yet.
type justBegun struct{}

func (justBegun) Forwarding(types.NamespacedName) fold.KnownForwarding     { return fold.KnownForwarding{} }
func (justBegun) Observe(*v1alpha1.Incident)                               {}
func (justBegun) RequestFolds(context.Context, func(types.NamespacedName)) {}

// What is held back and what is acknowledged ends at its time, whoever leads.
func TestWhatTheTimeEndsSurvivesLeaders(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.ForwardAfter = &v1alpha1.ForwardAfter{
			Default: &metav1.Duration{Duration: 10 * time.Minute}, Critical: &metav1.Duration{},
		}
		spec.AcknowledgementExpiresAfter = &metav1.Duration{Duration: time.Hour}
	})
	l := s.listen()
	lead := func() {
		s.folder = s.newFolder()
		s.incidents.Forwarder, s.incidents.Health = justBegun{}, l
	}
	at := func(minutes int) {
		s.Clock.SetTime(testEpoch.Add(time.Duration(minutes) * time.Minute))
		s.answer(l, 0)
	}
	acknowledge := func(length time.Duration) {
		alert := s.Alert(v1alpha1.AlertAcknowledged, "disk")
		alert.By, alert.AcknowledgeFor = "maria", &metav1.Duration{Duration: length}
		s.Post(alert)
	}
	told := func() v1alpha1.ForwardingReason {
		if told := s.Incident("disk").Status.Forwarding; told != nil {
			return told.Reason
		}
		return ""
	}
	isAcknowledged := func() bool {
		return meta.IsStatusConditionTrue(s.Incident("disk").Status.Conditions, v1alpha1.ConditionAcknowledged)
	}

	lead()
	at(0)
	s.PostFiring("disk")
	wait := s.fold("disk").RequeueAfter
	s.Expect(told()).To(Equal(v1alpha1.ForwardingHeld))
	opened := s.Incident("disk").Status.OpenedTime
	s.Expect(s.Incident("disk").Status.Episode.ForwardTime.Time).To(Equal(opened.Add(10 * time.Minute)))
	s.Expect(wait).To(BeNumerically("~", 10*time.Minute, 2*time.Minute))
	lead()
	at(5)
	s.Expect(s.fold("disk").RequeueAfter).To(BeNumerically("<=", opened.Add(10*time.Minute).Sub(s.incidents.Health.APITime())))
	s.Expect(told()).To(Equal(v1alpha1.ForwardingHeld))
	at(12)
	s.fold("disk")
	s.Expect(told()).To(BeEmpty(), "what comes of it is not known yet")

	acknowledge(3 * time.Hour)
	s.fold("disk")
	until := s.Incident("disk").Status.Acknowledgement.ExpirationTime
	s.Expect(until.Sub(testEpoch)).To(BeNumerically("~", 12*time.Minute+3*time.Hour, 2*time.Minute), "the report wins")
	lead()
	at(120)
	s.Expect(s.fold("disk").RequeueAfter).To(BeNumerically("~", until.Sub(s.incidents.Health.APITime()), time.Second))
	s.Expect(isAcknowledged()).To(BeTrue())
	at(3*60 + 20)
	s.fold("disk")
	s.Expect(isAcknowledged()).To(BeTrue(), "a leader that has just come waits: a repetition may have found nobody")
	s.listenFor(l, 2*time.Minute)
	s.fold("disk")
	s.Expect(isAcknowledged()).To(BeFalse())
	s.Expect(s.Incident("disk").Status.Episode.ExpiredAcknowledgements).To(BeEquivalentTo(1))
	s.Expect(s.Incident("disk").Status.Acknowledgement).To(BeNil())
}

// The Incident of a person, or of a heartbeat, is held back as any other.
func TestWhatNoSenderOpensIsHeldBack(t *testing.T) {
	s := newSite(t)
	s.incidents.Forwarder = justBegun{}
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.ForwardAfter = &v1alpha1.ForwardAfter{Default: &metav1.Duration{Duration: 10 * time.Minute}}
	})
	byHand, missed := s.Alert(v1alpha1.AlertFiring, "by-hand"), s.Alert(v1alpha1.AlertFiring, v1alpha1.HeartbeatKey("backup"))
	byHand.By = "maria"
	for _, alert := range []v1alpha1.Alert{byHand, missed} {
		s.Post(alert)
		s.fold(alert.DedupKey)
		s.Expect(s.Incident(alert.DedupKey).Status.Forwarding.Reason).To(Equal(v1alpha1.ForwardingHeld), alert.DedupKey)
	}
}

// The condition Flapping ends at its time, also if the Incident is Resolved, which is kept until its end is forwarded.
func TestFlappingEndsWhileAnIncidentIsResolved(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Retention = &metav1.Duration{}
		spec.Flapping = &v1alpha1.FlappingPolicy{Openings: 1, KeepFiringFor: &metav1.Duration{Duration: 2 * time.Hour}}
	})
	s.incidents.Forwarder = justBegun{}
	flapping := func() *metav1.Condition {
		return meta.FindStatusCondition(s.Incident("disk").Status.Conditions, v1alpha1.ConditionFlapping)
	}
	began := s.Clock.Now()
	for _, status := range []v1alpha1.AlertStatus{v1alpha1.AlertFiring, v1alpha1.AlertResolved, v1alpha1.AlertFiring} {
		s.Post(s.Alert(status, "disk"))
		s.fold("disk")
	}
	s.Expect(flapping()).To(HaveValue(And(
		HaveField("Status", metav1.ConditionTrue), HaveField("Message", "The incident has opened more than once in 1h."))))
	s.Expect(s.fold("disk").RequeueAfter).To(BeNumerically("~", time.Hour, 2*time.Minute))
	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.Expect(s.fold("disk").RequeueAfter).To(BeNumerically("~", 2*time.Hour, 2*time.Minute), "it flaps until its end is forwarded")
	s.release()
	end := s.Incident("disk").Status.Flapping.KeptFiring.EndTime
	s.Expect(s.Incident("disk").Status.Flapping.EndTime.Time).To(Equal(end.Time))

	s.restart()
	s.incidents.Forwarder = justBegun{}
	s.Clock.SetTime(began.Add(90 * time.Minute))
	s.Expect(s.incidents.IsDue(s.Ctx, s.Incident("disk"))).To(BeTrue(), "the first sweep of a new leader finds it")
	s.Expect(s.fold("disk").RequeueAfter).To(BeNumerically("~", 30*time.Minute, 2*time.Minute))
	s.Expect(flapping().Status).To(Equal(metav1.ConditionTrue))
	s.Clock.SetTime(end.Add(time.Second))
	s.fold("disk")
	s.Expect(flapping()).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1alpha1.ReasonNotFlapping))))
	s.Clock.SetTime(end.Add(10 * time.Minute))
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(BeEmpty(), "without retention, nothing keeps it any longer")
}
