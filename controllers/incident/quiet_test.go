package incident

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// listen gives the site's folder an IngestHealth that the test controls.
func (s *site) listen() *replica.IngestHealth {
	l := replica.NewIngestHealth(s.Clock)
	s.incidents.Health = l
	return l
}

// answer is one of the API server, with its clock behind the own one.
func (s *site) answer(l *replica.IngestHealth, ahead time.Duration) {
	now := s.Clock.Now()
	l.Answered(now, now, now.Add(-ahead))
}

// listenFor lets time pass, in which alerts can be stored.
func (s *site) listenFor(l *replica.IngestHealth, d time.Duration) {
	s.answer(l, 0)
	for end := s.Clock.Now().Add(d); s.Clock.Now().Before(end); s.answer(l, 0) {
		s.Clock.SetTime(s.Clock.Now().Add(min(10*time.Second, end.Sub(s.Clock.Now()))))
	}
}

func TestAStubOfAnIntegrationIsQuietFromNowThoughTheTimeIsCertain(t *testing.T) {
	s := newSite(t)
	l, now := s.listen(), s.Clock.Now()
	policyOf := func(stub bool) fold.Policy {
		return s.incidents.withQuiet(fold.Policy{Stub: stub}, &facts{key: types.NamespacedName{Namespace: s.Namespace}, apiTime: now})
	}
	for _, stub := range []bool{false, true} {
		s.Expect(policyOf(stub).QuietFrom).To(Equal(now))
		s.Expect(policyOf(stub).Uncertain).To(BeTrue(), "the API server has not answered yet")
	}
	s.answer(l, 0)
	s.Expect(policyOf(false).QuietFrom).NotTo(Equal(now))
	s.Expect(policyOf(true).QuietFrom).To(Equal(now))
	s.Expect([]bool{policyOf(false).Uncertain, policyOf(true).Uncertain}).To(HaveEach(false))
}

func TestAnExpiryIsMeasuredFromWhenTheIntegrationAcceptsAlerts(t *testing.T) {
	s := newSite(t)
	now := s.Clock.Now()
	from := func(policy fold.Policy) time.Time {
		return s.incidents.withQuiet(policy, &facts{key: types.NamespacedName{Namespace: s.Namespace}, apiTime: now}).AcceptingFrom
	}
	since := now.Add(-time.Hour)
	s.Expect(from(fold.Policy{ReadySince: since})).To(Equal(since.Add(replica.Grace)))
	s.Expect(from(fold.Policy{ReadySince: since, NotAccepting: true})).To(Equal(now), "it accepts none")
}

// TestAnIncidentThatWaitedForSpaceStaysOpenAsLongAsAnyOther has an alert wait for two hours until its namespace has space for an
// Incident. Its repeats were rejected meanwhile.
func TestAnIncidentThatWaitedForSpaceStaysOpenAsLongAsAnyOther(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.AutoResolveAfter = &metav1.Duration{Duration: time.Hour}
	})
	s.PostFiring("disk")
	s.pass(2 * time.Hour)
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(time.Hour))
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
	s.pass(time.Hour)
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
}

func TestQuietIsMeasuredOnlyWhileWeListen(t *testing.T) {
	minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }
	opened := func(t *testing.T) (*site, *replica.IngestHealth) {
		t.Helper()
		s := newSite(t)
		l := s.listen()
		s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
			spec.AutoResolveAfter = &metav1.Duration{Duration: time.Minute}
		})
		s.Clock.SetTime(s.Clock.Now().Add(-time.Hour))
		s.listenFor(l, time.Hour)
		s.PostFiring("disk")
		s.Expect(s.fold("disk").RequeueAfter).To(Equal(time.Minute))
		s.release()
		return s, l
	}
	state := func(s *site) v1alpha1.IncidentState {
		s.fold("disk")
		return s.Incident("disk").Status.State
	}
	later := func(s *site, d time.Duration) { s.Clock.SetTime(s.Clock.Now().Add(d)) }

	t.Run("listening all the while, it resolves", func(t *testing.T) {
		s, l := opened(t)
		s.listenFor(l, time.Minute)
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("the cache has only a stub of the integration: it does not resolve until that is whole again", func(t *testing.T) {
		s, l := opened(t)
		whole := s.incidents.cache
		s.incidents.cache = testsite.Stubs{Reader: whole}
		s.listenFor(l, minutes(10))
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen))
		s.incidents.cache = whole
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("the API server was away: it resolves after grace and autoResolveAfter", func(t *testing.T) {
		s, l := opened(t)
		later(s, minutes(10))
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen), "nothing is known")
		s.Expect(s.fold("disk").RequeueAfter).To(Equal(clockRetry))
		s.answer(l, 0)
		s.Expect(s.fold("disk").RequeueAfter).To(Equal(replica.Grace + time.Minute))
		for range 10 {
			later(s, 11*time.Second)
			s.answer(l, 0)
		}
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen))
		later(s, 10*time.Second)
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("an alert of the integration was missed: it does not resolve", func(t *testing.T) {
		s, l := opened(t)
		l.Missed(types.NamespacedName{Namespace: s.Namespace, Name: testsite.Integration})
		s.listenFor(l, time.Minute)
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen))
	})
	t.Run("another replica missed one, and the cache does not show it yet: it does not resolve", func(t *testing.T) {
		s, l := opened(t)
		s.listenFor(l, time.Minute)
		stale := &v1alpha1.WebhookIntegration{}
		key := types.NamespacedName{Namespace: s.Namespace, Name: testsite.Integration}
		s.Expect(s.Live.Get(s.Ctx, key, stale)).To(Succeed())
		told := stale.DeepCopy()
		told.Status.LastUnavailableTime = new(v1alpha1.NewTimestamp(s.Clock.Now().Add(-30 * time.Second)))
		s.Expect(s.Live.Status().Update(s.Ctx, told)).To(Succeed())
		s.cache.stale = stale
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen))
		s.cache.stale = nil
		s.listenFor(l, replica.Grace-time.Second)
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen))
		s.listenFor(l, 31*time.Second)
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("the clock is wrong: it resolves by the API server's", func(t *testing.T) {
		s, l := opened(t)
		s.Clock.SetTime(s.Clock.Now().Add(day)) // the clock is set: no time passes
		s.answer(l, day)
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen), "it is a day ahead")
		for range 10 {
			later(s, 13*time.Second)
			s.answer(l, day)
		}
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentResolved))
		s.Expect(s.Incident("disk").Status.ResolvedTime.Time).To(BeTemporally("~", s.Clock.Now().Add(-day), time.Second))
	})
	t.Run("the clock is wrong: it is deleted by the API server's", func(t *testing.T) {
		s, l := opened(t)
		s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
		s.fold("disk")
		s.release()
		later(s, 365*day)
		s.answer(l, 365*day)
		s.fold("disk")
		s.Incident("disk")
		s.answer(l, 364*day)
		later(s, 7*day)
		s.answer(l, 364*day)
		s.fold("disk")
		s.Expect(s.IncidentNames()).To(BeEmpty())
	})
	t.Run("an alert is stored and not seen: nothing resolves", func(t *testing.T) {
		s, l := opened(t)
		s.listenFor(l, time.Minute)
		event := s.PostFiring("disk")
		s.cache.hidden[event.UID] = true
		s.Expect(s.fold("disk").RequeueAfter).To(Equal(writeInterval))
		s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
		s.cache.hidden[event.UID] = false
		s.Expect(state(s)).To(Equal(v1alpha1.IncidentOpen))
	})
	t.Run("a replica whose clock is an hour behind received the alert: it is no hour of quiet", func(t *testing.T) {
		s, l := opened(t)
		s.listenFor(l, 30*time.Second)
		event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{
			IntegrationName: testsite.Integration, ReceivedTime: v1alpha1.NewTimestamp(s.Clock.Now().Add(-time.Hour)),
			Alerts: testenv.Text(s.Alert(v1alpha1.AlertFiring, "cpu")),
		}}
		event.Namespace, event.GenerateName = s.Namespace, "behind-"
		s.Expect(s.Live.Create(s.Ctx, event)).To(Succeed())
		s.Created[event.UID] = metav1.NewTime(s.Clock.Now())
		s.fold("cpu")
		s.Expect(s.Incident("cpu").Status.LastAlertTime.Time).To(BeTemporally(">=", s.Clock.Now().Add(-fold.MaxClockDifference-time.Second)))
	})
}

func TestAQuietIncidentResolvesByItself(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.AutoResolveAfter = &metav1.Duration{Duration: time.Hour}
	})
	s.PostFiring("disk")
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(time.Hour))
	s.release()

	s.Clock.SetTime(s.Clock.Now().Add(59 * time.Minute))
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(time.Minute))
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))

	s.Clock.SetTime(s.Clock.Now().Add(time.Minute))
	s.Expect(s.fold("disk").RequeueAfter).To(BeZero(), "a sweep comes before its retention is over")
	status := s.Incident("disk").Status
	s.Expect(status.State).To(Equal(v1alpha1.IncidentResolved))
	s.Expect(meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionResolved).Reason).To(Equal(v1alpha1.ReasonAutoResolved))
	s.Expect(status.AlertCount).To(Equal(int64(1)))
}

// newQuietSite has an Incident that is to resolve by itself now.
func newQuietSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.AutoResolveAfter = &metav1.Duration{Duration: time.Hour}
	})
	s.PostFiring("disk")
	s.fold("disk")
	s.release()
	s.pass(time.Hour)
	return s
}

// TestAnAlertThatTheWatchShowsLateEndsTheQuiet has the watch show an alert that is listed while the fold is decided.
func TestAnAlertThatTheWatchShowsLateEndsTheQuiet(t *testing.T) {
	s := newQuietSite(t)
	late := s.PostFiring("disk")
	s.cache.hidden[late.UID] = true
	s.incidents.decideFold = func(in fold.Input) fold.Plan {
		plan := fold.Decide(in)
		if s.lists > 1 { // it is decided by a list
			delete(s.cache.hidden, late.UID)
			s.watch()
		}
		return plan
	}
	result, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(writeInterval))
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
	s.Expect(s.Incident("disk").Status.AlertCount).To(BeEquivalentTo(2))
}

// TestAnAlertThatIsSettledEndsNoQuiet has the watch hide an AlertEvent, and its mark says that the Incident does not wait for it.
func TestAnAlertThatIsSettledEndsNoQuiet(t *testing.T) {
	s := newQuietSite(t)
	settled := s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertFiring, "other"))
	s.cache.hidden[settled.UID] = true
	settled.Annotations = map[string]string{
		v1alpha1.SettledAnnotation: (&queue.Mark{ResourceVersion: settled.ResourceVersion, Incidents: []string{s.KeyOf("disk").Name}}).String(),
	}
	s.Expect(s.Live.Update(s.Ctx, settled)).To(Succeed())
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
}
