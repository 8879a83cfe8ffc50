package incident

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
)

func TestAnAlertBecomesAnIncidentAndItsEventGoes(t *testing.T) {
	s := newSite(t)
	alert := s.Alert(v1alpha1.AlertFiring, "disk")
	alert.Title, alert.Severity = "Disk full", v1alpha1.SeverityCritical
	s.Post(alert)

	s.fold("disk")
	s.release()

	incident := s.Incident("disk")
	s.Expect(incident.Spec).To(Equal(v1alpha1.IncidentSpec{IntegrationName: testsite.Integration, DedupKey: "disk"}))
	s.Expect(incident.Status.State).To(Equal(v1alpha1.IncidentOpen))
	s.Expect(incident.Status.AlertCount).To(Equal(int64(1)))
	s.Expect(meta.IsStatusConditionFalse(incident.Status.Conditions, v1alpha1.ConditionResolved)).To(BeTrue())
	s.Expect(s.EventNames()).To(BeEmpty())
	s.Expect(s.told()).To(ConsistOf(HavePrefix("Warning Opened Opened with severity critical: Disk full")))
}

func TestOneKubernetesEventAChangeAndNoneADuplicate(t *testing.T) {
	s := newSite(t)
	post := func(status v1alpha1.AlertStatus, severity v1alpha1.Severity) {
		alert := s.Alert(status, "disk")
		alert.Severity = severity
		s.Post(alert)
		s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
		s.fold("disk")
	}
	post(v1alpha1.AlertFiring, v1alpha1.SeverityWarning)
	post(v1alpha1.AlertFiring, "")
	post(v1alpha1.AlertFiring, v1alpha1.SeverityError)
	post(v1alpha1.AlertAcknowledged, "")
	post(v1alpha1.AlertAcknowledged, "")
	post(v1alpha1.AlertResolved, "")
	post(v1alpha1.AlertResolved, "")
	post(v1alpha1.AlertFiring, "")

	s.Expect(s.Incident("disk").Status.AlertCount).To(Equal(int64(8)))
	s.Expect(s.told()).To(HaveExactElements(
		HavePrefix("Warning Opened "), HavePrefix("Normal SeverityChanged "), HavePrefix("Normal Acknowledged "),
		HavePrefix("Normal Resolved "), HavePrefix("Warning Reopened "),
	))
}

// A person who mistyped the name of an Incident learns of it; a sender that resolves what is not open is left alone.
func TestAnAlertEventForAnIncidentThatDoesNotExistIsReported(t *testing.T) {
	s := newSite(t)
	name := s.KeyOf("disk").Name
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, GenerateName: "by-hand-"},
		Spec:       v1alpha1.AlertEventSpec{Report: &v1alpha1.Report{Status: v1alpha1.AlertAcknowledged, IncidentName: name}},
	}
	s.Expect(s.Live.Create(s.Ctx, event)).To(Succeed())
	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
	s.fold("disk")
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty())
	s.Expect(s.told()).To(ConsistOf("Warning NoIncident No Incident is named " + name + ": the alerts for it have no effect."))

	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.pass(2 * time.Second)
	s.fold("disk")
	s.Expect(s.told()).To(BeEmpty(), "a sender need not hear of it")

	s.incidents.notices = flowcontrol.NewFakeNeverRateLimiter()
	event.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, GenerateName: "by-hand-"}
	s.Expect(s.Live.Create(s.Ctx, event)).To(Succeed())
	s.pass(2 * time.Second)
	s.fold("disk")
	s.Expect(s.told()).To(BeEmpty(), "too many others were told")
}

func TestAnAlertEventMadeByHandIsFolded(t *testing.T) {
	for sentence, test := range map[string]struct {
		spec func(s *site) v1alpha1.AlertEventSpec
		want func(status *v1alpha1.IncidentStatus) bool
	}{
		"acknowledged by the name of the incident": {
			func(s *site) v1alpha1.AlertEventSpec {
				return v1alpha1.AlertEventSpec{Report: &v1alpha1.Report{
					Status: v1alpha1.AlertAcknowledged, IncidentName: s.KeyOf("disk").Name,
				}}
			},
			func(status *v1alpha1.IncidentStatus) bool {
				return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAcknowledged)
			},
		},
		"resolved by the name of the incident": {
			func(s *site) v1alpha1.AlertEventSpec {
				return v1alpha1.AlertEventSpec{Report: &v1alpha1.Report{
					Status: v1alpha1.AlertResolved, IncidentName: s.KeyOf("disk").Name,
				}}
			},
			func(status *v1alpha1.IncidentStatus) bool { return status.State == v1alpha1.IncidentResolved },
		},
		"resolved by integration and key": {
			func(*site) v1alpha1.AlertEventSpec {
				return v1alpha1.AlertEventSpec{IntegrationName: testsite.Integration, Alerts: testenv.Text(v1alpha1.Alert{
					Status: v1alpha1.AlertResolved, DedupKey: "disk",
				})}
			},
			func(status *v1alpha1.IncidentStatus) bool { return status.State == v1alpha1.IncidentResolved },
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			s.PostFiring("disk")
			s.fold("disk")
			event := &v1alpha1.AlertEvent{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, GenerateName: "by-hand-"},
				Spec:       test.spec(s),
			}
			s.Expect(s.Live.Create(s.Ctx, event)).To(Succeed())
			s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
			s.fold("disk")
			s.release()
			incident := s.Incident("disk")
			s.Expect(test.want(&incident.Status)).To(BeTrue(), "%+v", incident.Status)
			s.Expect(incident.Status.AlertCount).To(Equal(int64(2)))
			s.Expect(s.EventNames()).To(BeEmpty())
		})
	}
}

func TestAnAlertWithoutAnIncidentIsLetGo(t *testing.T) {
	s := newSite(t)
	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.fold("disk")
	s.release()
	s.Expect(s.IncidentNames()).To(BeEmpty())
	s.Expect(s.EventNames()).To(BeEmpty())
}

func TestABusyIncidentIsWrittenOnceASecond(t *testing.T) {
	s := newSite(t)
	s.PostFiring("disk")
	s.fold("disk")
	s.Expect(s.faults.statusWrites).To(Equal(1))

	s.Clock.SetTime(s.Clock.Now().Add(300 * time.Millisecond))
	s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertResolved, "other"))
	lists := s.lists
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(700 * time.Millisecond))
	s.Expect(s.faults.statusWrites).To(Equal(1))
	s.Expect(s.lists).To(Equal(lists), "waiting costs no list")

	s.PostFiring("disk")
	s.Clock.SetTime(s.Clock.Now().Add(700 * time.Millisecond))
	s.fold("disk")
	s.Expect(s.faults.statusWrites).To(Equal(2))
	s.Expect(s.Incident("disk").Status.AlertCount).To(Equal(int64(3)))

	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.fold("disk")
	s.Expect(s.faults.statusWrites).To(Equal(3), "a change of state does not wait")
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
}

// A sender may repeat the resolve of an Incident, which the cache does not have any more, a hundred times a second.
func TestAResolvedIncidentIsWrittenOnceASecond(t *testing.T) {
	s := newSite(t)
	events := []*v1alpha1.AlertEvent{s.PostFiring("disk")}
	s.fold("disk")
	events = append(events, s.Post(s.Alert(v1alpha1.AlertResolved, "disk")))
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved), "at once")
	writes, reads, lists := s.faults.statusWrites, s.faults.incidentReads, s.lists
	for range 5 {
		events = append(events, s.Post(s.Alert(v1alpha1.AlertResolved, "disk"), s.Alert(v1alpha1.AlertFiring, "other")))
		s.Expect(s.fold("disk").RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", writeInterval)))
	}
	s.Expect([]int{s.faults.statusWrites, s.faults.incidentReads, s.lists}).To(Equal([]int{writes, reads, lists}))
	s.pass(writeInterval)
	s.fold("disk")
	s.ExpectCounted("disk", events...)
	s.Expect(s.faults.statusWrites).To(Equal(writes + 1))

	events = append(events, s.Post(s.Alert(v1alpha1.AlertResolved, "disk")), s.PostFiring("disk"))
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen), "at once")
	s.ExpectCounted("disk", events...)
}

func TestWithNothingToDoThereIsNoList(t *testing.T) {
	s := newSite(t)
	s.PostFiring("disk")
	s.fold("disk")
	s.release()
	lists, writes, reads := s.lists, s.faults.statusWrites, s.faults.incidentReads
	for range 3 {
		s.Expect(s.fold("disk").RequeueAfter).To(BeZero())
	}
	s.Expect(s.faults.incidentReads).To(Equal(reads), "the cache has it")
	s.Expect(s.fold("nothing").RequeueAfter).To(BeZero())
	s.Expect(s.lists).To(Equal(lists))
	s.Expect(s.faults.statusWrites).To(Equal(writes))
}

func TestAResolvedIncidentIsDeletedWhenItsRetentionIsOver(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Retention = &metav1.Duration{Duration: time.Hour} })
	s.PostFiring("disk")
	event := s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(time.Hour))

	s.Clock.SetTime(s.Clock.Now().Add(time.Hour))
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(writeInterval), "its AlertEvents still exist")
	s.Incident("disk")
	s.Clock.SetTime(s.Clock.Now().Add(5 * time.Second))
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(5*time.Second), "less and less often")
	s.Clock.SetTime(s.Clock.Now().Add(time.Hour))

	// The cache has seen them go, the quorum has not.
	s.cache.hidden[event.UID] = true
	for _, ref := range s.releases.Refs() {
		if ref.UID != event.UID {
			_, err := s.releases.Reconcile(s.Ctx, ref)
			s.Expect(err).NotTo(HaveOccurred())
		}
	}
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(deletionRetry), "the ledger holds an AlertEvent that exists")
	s.Incident("disk")

	s.release()
	s.Expect(s.EventNames()).To(BeEmpty())
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(BeEmpty())
}

// A fold that has read an Incident just before the cache drops it must not take it for the newest version: nothing else would come
// back to it before the next sweep.
func TestAFoldThatReadAnIncidentBeforeItsEndLooksAgain(t *testing.T) {
	s := newSite(t)
	s.Integrate(nil)
	s.PostFiring("disk")
	s.fold("disk")
	stale := s.Incident("disk")
	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.pass(2 * time.Second)
	s.fold("disk")
	s.release()
	s.Expect(s.incidents.noteGone(s.Ctx, s.Incident("disk"))).To(BeFalse())
	s.cache.frozen[s.KeyOf("disk")] = stale
	result, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(writeInterval))
}

// The watch of Incidents lags, or has stalled, while alerts come twice a second.
func TestAFoldReadsAnIncidentForWhichTheCacheIsBehind(t *testing.T) {
	for sentence, test := range map[string]struct {
		byAnother bool // the leader did not make the write that its cache lacks
		conflicts int
	}{
		"the cache lacks the own last write":     {false, 0},
		"the cache lacks a write of another one": {true, 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			events := []*v1alpha1.AlertEvent{s.PostFiring("disk")}
			s.fold("disk")
			s.cache.frozen[s.KeyOf("disk")] = s.Incident("disk")
			if test.byAnother {
				incident := s.Incident("disk")
				incident.Labels = map[string]string{"by": "somebody"}
				s.Expect(s.Live.Update(s.Ctx, incident)).To(Succeed())
			}
			writes := 0
			s.faults.beforeStatus = func() error { writes++; return nil }
			s.faults.statusWrites, s.faults.incidentReads = 0, 0
			for half := range 20 {
				events = append(events, s.PostFiring("disk"))
				for range 20 { // as changes of the cache and of AlertEvents have it folded
					_, err := s.reconcile("disk")
					s.Expect(err).NotTo(HaveOccurred())
				}
				s.release()
				s.pass(500 * time.Millisecond)
				if half == 10 {
					s.pass(rememberWrite) // what is remembered does not matter
				}
			}
			s.Expect(writes - s.faults.statusWrites).To(Equal(test.conflicts + 1))
			s.Expect(s.faults.statusWrites).To(BeNumerically(">=", 8), "once a second")
			s.Expect(s.faults.incidentReads).To(BeNumerically("<=", writes+2))
			s.pass(writeInterval)
			s.fold("disk")
			s.release()
			s.ExpectCounted("disk", events...)
		})
	}
}

// A resolve does not wait longer than a moment behind a watch that lags.
func TestAResolveIsFoldedWhileTheCacheIsBehind(t *testing.T) {
	s := newSite(t)
	events := []*v1alpha1.AlertEvent{s.PostFiring("disk")}
	s.cache.frozen[s.KeyOf("disk")] = nil
	s.fold("disk")
	events = append(events, s.Post(s.Alert(v1alpha1.AlertResolved, "disk")))
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(writeInterval))
	s.pass(writeInterval)
	s.fold("disk")
	s.ExpectCounted("disk", events...)
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
}

// unreadable is a reader that fails.
type unreadable struct{ client.Reader }

var errUnreadable = errors.New("the cache has stopped")

func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errUnreadable
}

func (unreadable) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errUnreadable
}

// resolved makes an Incident that is Resolved, and whose AlertEvents are gone.
func (s *site) resolved(key string) *v1alpha1.Incident {
	s.PostFiring(key)
	s.Post(s.Alert(v1alpha1.AlertResolved, key))
	s.fold(key)
	s.release()
	return s.Incident(key)
}

// TestAnIntegrationIsReadFromTheQuorumOnlyAtTheEnd counts the reads of a fold with a deadline far away, and without one.
func TestAnIntegrationIsReadFromTheQuorumOnlyAtTheEnd(t *testing.T) {
	reads := func(autoResolveAfter *metav1.Duration) (reads int) {
		s := newSite(t)
		s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) { spec.AutoResolveAfter = autoResolveAfter })
		s.PostFiring("disk")
		s.fold("disk")
		s.pass(time.Minute)
		s.PostFiring("disk")
		s.faults.beforeRead = func() { reads++ }
		s.fold("disk")
		return reads
	}
	NewWithT(t).Expect(reads(&metav1.Duration{Duration: time.Hour})).To(Equal(reads(nil)))
}

func TestANewPolicyMovesTheDeadline(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(nil)
	s.PostFiring("disk")
	s.Expect(s.fold("disk").RequeueAfter).To(BeZero())
	integration.Spec.AutoResolveAfter = &metav1.Duration{Duration: 2 * time.Hour}
	s.Expect(s.Live.Update(s.Ctx, integration)).To(Succeed())
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(2 * time.Hour))
	s.Expect(s.Live.Delete(s.Ctx, integration)).To(Succeed())
	s.Expect(s.fold("disk").RequeueAfter).To(BeZero(), "without its integration an incident never resolves by itself")
}

func TestAnErrorOfTheAPIServerIsReturned(t *testing.T) {
	s := newSite(t)
	s.PostFiring("disk")
	s.faults.beforeStatus = func() error { return apierrors.NewInternalError(errCrash) }
	_, err := s.reconcile("disk")
	s.Expect(err).To(MatchError(ContainSubstring("writing the Incident's status")))
	s.Expect(s.told()).To(BeEmpty(), "nothing is told that was not written")
	s.release()
	s.Expect(s.EventNames()).To(HaveLen(1), "nothing is released that was not written")

	s.faults.beforeStatus = nil
	s.fold("disk")
	s.release()
	s.Expect(s.Incident("disk").Status.AlertCount).To(Equal(int64(1)))
	s.Expect(s.EventNames()).To(BeEmpty())
}
