package incident

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
)

const day = 24 * time.Hour

// resolvedUnder makes a Resolved Incident of an integration with this retention.
func (s *site) resolvedUnder(key string, retention *metav1.Duration) *v1alpha1.WebhookIntegration {
	integration := s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Retention = retention })
	s.PostFiring(key)
	s.Post(s.Alert(v1alpha1.AlertResolved, key))
	s.fold(key)
	s.release()
	s.Expect(s.Incident(key).Status.State).To(Equal(v1alpha1.IncidentResolved))
	return integration
}

// restart is a crash of the one folder and the start of another.
func (s *site) restart() { s.folder = s.newFolder() }

func TestHistoryOutlivesItsIntegration(t *testing.T) {
	for sentence, c := range map[string]struct {
		retention *metav1.Duration
		goneAfter time.Duration // the resolve
		keptUntil time.Duration // after the resolve: not deleted before, deleted then
	}{
		"a long retention, gone after 20 days: kept for it, and then for the default": {
			&metav1.Duration{Duration: 8760 * time.Hour}, 20 * day, 8760*time.Hour + fold.DefaultRetention},
		"no retention, gone at once: kept for the default": {
			&metav1.Duration{Duration: time.Hour}, 0, time.Hour + fold.DefaultRetention},
		"the default retention, gone after 6 days": {nil, 6 * day, 2 * fold.DefaultRetention},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			integration := s.resolvedUnder("disk", c.retention)
			resolved := s.Clock.Now()
			s.Clock.SetTime(resolved.Add(c.goneAfter))
			s.fold("disk")
			s.Expect(s.Live.Delete(s.Ctx, integration)).To(Succeed())
			writes := s.faults.statusWrites
			s.fold("disk")
			s.Expect(s.faults.statusWrites).To(Equal(writes), "an integration that goes costs no writes")

			retentionOver := c.keptUntil - fold.DefaultRetention
			for _, after := range []time.Duration{c.goneAfter, retentionOver, c.keptUntil - time.Minute} {
				s.restart()
				s.Clock.SetTime(resolved.Add(after))
				s.fold("disk")
				s.Expect(s.IncidentNames()).To(HaveLen(1), "%s after the resolve", after)
				writes := 0
				if after == retentionOver {
					writes = 1
				}
				s.Expect(s.faults.statusWrites).To(Equal(writes), "%s after the resolve", after)
			}
			s.Clock.SetTime(resolved.Add(c.keptUntil))
			s.restart()
			s.fold("disk")
			s.Expect(s.IncidentNames()).To(BeEmpty())
		})
	}
}

func TestADeniedDeletionOfAnIncidentIsNoOtherVersion(t *testing.T) {
	s := newSite(t)
	s.resolvedUnder("disk", &metav1.Duration{Duration: time.Hour})
	s.pass(time.Hour)
	for _, denied := range []error{
		denial(http.StatusConflict, metav1.StatusReasonConflict), denial(http.StatusNotFound, metav1.StatusReasonNotFound),
	} {
		s.faults.onDelete = func() error { return denied }
		_, err := s.reconcile("disk")
		s.Expect(err).To(MatchError(denied))
	}
	s.faults.onDelete = nil
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(BeEmpty())
}

func TestALateFiringFindsItsIncidentAlsoWithoutRetention(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Retention = &metav1.Duration{} })
	firing := s.Alert(v1alpha1.AlertFiring, "disk")
	firing.StartTime = new(v1alpha1.NewTimestamp(s.Clock.Now().Add(-time.Minute)))
	s.Post(firing)
	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.fold("disk")
	s.release()
	s.Clock.SetTime(s.Clock.Now().Add(29 * time.Second))
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(HaveLen(1), "a replica of the sender may be late")
	s.Post(firing)
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
	s.Expect(s.Incident("disk").Status.AlertCount).To(BeEquivalentTo(3))

	s.release()
	s.Clock.SetTime(s.Clock.Now().Add(time.Second))
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(BeEmpty(), "the window is over")
}

func TestTheSpecsRetentionWinsWhileThereIsOne(t *testing.T) {
	s := newSite(t)
	integration := s.resolvedUnder("disk", &metav1.Duration{Duration: time.Hour})
	s.Expect(s.Live.Delete(s.Ctx, integration)).To(Succeed())
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Hour))
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.OrphanedTime).NotTo(BeNil())

	integration = s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Retention = &metav1.Duration{Duration: 30 * day}
	})
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
	s.fold("disk")
	status := s.Incident("disk").Status
	s.Expect(status.OrphanedTime).To(BeNil(), "the next time begins anew")
	s.Expect(status.Retention.Duration).To(Equal(30 * day))

	integration.Spec.Retention = &metav1.Duration{Duration: 3 * time.Hour}
	s.Expect(s.Live.Update(s.Ctx, integration)).To(Succeed())
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(HaveLen(1))
	s.Clock.SetTime(s.Clock.Now().Add(time.Hour))
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(BeEmpty())
}

func TestAChangeOfTheRetentionIsWrittenWhenTheIntegrationGoes(t *testing.T) {
	s := newSite(t)
	integration := s.resolvedUnder("disk", &metav1.Duration{Duration: time.Hour})
	writes := s.faults.statusWrites
	for days := range 12 {
		integration.Spec.Retention = &metav1.Duration{Duration: time.Duration(days+30) * day}
		s.Expect(s.Live.Update(s.Ctx, integration)).To(Succeed())
		s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
		s.fold("disk")
	}
	s.Expect(s.faults.statusWrites).To(Equal(writes))

	s.Expect(s.Live.Delete(s.Ctx, integration)).To(Succeed())
	s.incidents.retentions.Add(client.ObjectKeyFromObject(integration), fold.RetentionOf(integration), time.Hour) // as the watch does
	for range 2 {
		s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
		s.fold("disk")
	}
	s.Expect(s.faults.statusWrites).To(Equal(writes + 1))
	s.Expect(s.Incident("disk").Status.Retention.Duration).To(Equal(41 * day))
}

// An Incident whose creator died before it wrote the status, or whose status a restore lost.
func TestAnIncidentThatNeverGotAStatus(t *testing.T) {
	empty := func(s *site) {
		incident := &v1alpha1.Incident{Spec: v1alpha1.IncidentSpec{IntegrationName: testsite.Integration, DedupKey: "disk"}}
		incident.Namespace, incident.Name = s.Namespace, s.KeyOf("disk").Name
		s.Expect(s.Live.Create(s.Ctx, incident)).To(Succeed())
		s.Clock.SetTime(incident.CreationTimestamp.Time)
	}
	t.Run("is opened by the next alert", func(t *testing.T) {
		s := newSite(t)
		empty(s)
		s.PostFiring("disk")
		s.Clock.SetTime(s.Clock.Now().Add(fold.EmptyPatience))
		s.fold("disk")
		s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
	})
	t.Run("is deleted after a while", func(t *testing.T) {
		s := newSite(t)
		empty(s)
		s.Expect(s.fold("disk").RequeueAfter).To(Equal(fold.EmptyPatience))
		s.Clock.SetTime(s.Clock.Now().Add(fold.EmptyPatience))
		s.fold("disk")
		s.Expect(s.IncidentNames()).To(BeEmpty())
	})
	t.Run("is kept while alerts of it wait", func(t *testing.T) {
		s := newSite(t)
		empty(s)
		s.PostFiring("disk")
		s.Clock.SetTime(s.Clock.Now().Add(fold.EmptyPatience))
		s.faults.beforeStatus = func() error { return apierrors.NewInternalError(errCrash) }
		for range 3 {
			_, err := s.reconcile("disk")
			s.Expect(err).To(HaveOccurred())
		}
		s.Incident("disk")
	})
	t.Run("is kept when it gets a status at the last moment", func(t *testing.T) {
		s := newSite(t)
		empty(s)
		s.Clock.SetTime(s.Clock.Now().Add(fold.EmptyPatience))
		s.faults.onDelete = func() error {
			incident := s.Incident("disk")
			incident.Status.State = v1alpha1.IncidentOpen
			return s.Live.Status().Update(s.Ctx, incident)
		}
		result, err := s.reconcile("disk")
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(result.RequeueAfter).To(Equal(writeInterval))
		s.Incident("disk")
	})
}

func TestASweepHasIncidentsFoldedThatAreDueBeforeTheNextOne(t *testing.T) {
	s := newSite(t)
	incident := s.resolved("disk")
	at, ok := fold.Deadline(incident, fold.PolicyOf(nil, nil))
	s.Expect(ok).To(BeTrue())
	for _, test := range []struct {
		before time.Duration
		want   bool
	}{{before: 3 * sweep.Interval}, {before: 2 * sweep.Interval, want: true}, {want: true}} {
		s.Clock.SetTime(at.Add(-test.before))
		s.Expect(s.incidents.IsDue(s.Ctx, incident)).To(Equal(test.want), "%s before", test.before)
	}
	s.Clock.SetTime(at.Add(-3 * sweep.Interval))
	goes := incident.DeepCopy()
	goes.DeletionTimestamp = &metav1.Time{Time: s.Clock.Now()}
	s.Expect(s.incidents.IsDue(s.Ctx, goes)).To(BeTrue(), "it is being deleted, and alerts may wait")
	flaps := incident.DeepCopy()
	flaps.Status.Flapping = &v1alpha1.Flapping{EndTime: &v1alpha1.Timestamp{Time: s.Clock.Now().Add(sweep.Interval)}}
	s.Expect(s.incidents.IsDue(s.Ctx, flaps)).To(BeTrue(), "it flaps no longer before the next sweep")
	flaps.Status.Flapping.EndTime.Time = at.Add(3 * sweep.Interval)
	s.Expect(s.incidents.IsDue(s.Ctx, flaps)).To(BeFalse())
	s.Clock.SetTime(at.Add(-sweep.Interval))
	s.Expect(s.incidents.IsDue(s.Ctx, flaps)).To(BeTrue(), "its retention is over before that")
	s.Clock.SetTime(at.Add(-3 * sweep.Interval))
	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.Expect(s.incidents.IsDue(s.Ctx, incident)).To(BeTrue(), "an alert waits")
}

func TestWhatCannotBeReadIsDueAndIsNotDeleted(t *testing.T) {
	s := newSite(t)
	incident := s.resolved("disk")
	s.incidents.cache = unreadable{}
	s.Expect(s.incidents.IsDue(s.Ctx, incident)).To(BeTrue())
	deleted, err := s.incidents.Delete(s.Ctx, s.Namespace, []*v1alpha1.Incident{incident}, func() bool { return true })
	s.Expect(err).To(MatchError(errUnreadable))
	s.Expect(deleted).To(BeZero())
	s.Expect(s.IncidentNames()).To(HaveLen(1))
}

func TestAnExpiredIncidentThatChangedMeanwhileStays(t *testing.T) {
	s := newSite(t)
	s.Integrate(nil)
	s.PostFiring("disk")
	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.fold("disk")
	s.release()
	s.Clock.SetTime(s.Clock.Now().Add(fold.DefaultRetention))
	s.faults.onDelete = func() error {
		incident := s.Incident("disk")
		incident.Status.AlertCount++
		return s.Live.Status().Update(s.Ctx, incident)
	}
	result, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(writeInterval))
	s.Incident("disk")
}
