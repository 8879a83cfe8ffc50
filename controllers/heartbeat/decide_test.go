package heartbeat

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// epoch is when the tests begin.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stage is a heartbeat of any request, of five minutes and a grace of one, which was defined at the epoch.
type stage struct {
	facts
	open   bool // as the leader sees it when it begins
	denied bool // no alert can be stored
	names  []string
	stored []*v1alpha1.AlertEvent
}

func newStage() *stage {
	s := &stage{facts: facts{now: epoch, quietFrom: epoch.Add(-time.Hour), judging: true, heartbeat: &v1alpha1.Heartbeat{
		ObjectMeta: metav1.ObjectMeta{Name: "beat", UID: "u", Generation: 1},
		Spec:       v1alpha1.HeartbeatSpec{IntegrationName: "prometheus", Every: every(5 * time.Minute)},
	}}}
	s.isOpen = func() bool { return s.open }
	s.at(0)
	return s
}

func every(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func (s *stage) spec() *v1alpha1.HeartbeatSpec { return &s.heartbeat.Spec }

func (s *stage) status() *v1alpha1.HeartbeatStatus { return &s.heartbeat.Status }

// heard returns the reason of the condition.
func (s *stage) heard() string {
	return meta.FindStatusCondition(s.status().Conditions, v1alpha1.ConditionHeard).Reason
}

func (s *stage) start(after time.Duration) {
	s.status().LastStartTime = new(v1alpha1.NewTimestamp(epoch.Add(after)))
}

func (s *stage) hear(after time.Duration) {
	s.status().LastSignalTime = new(v1alpha1.NewTimestamp(epoch.Add(after)))
}

// fail has the heartbeat fail, as a replica writes it.
func (s *stage) fail(after time.Duration, exit int64) {
	s.hear(after)
	s.status().FailedTime, s.status().ExitCode = s.status().LastSignalTime, &exit
}

// at decides at a time after the epoch, and does what was decided. It returns the alerts' status.
func (s *stage) at(after time.Duration) (posted []v1alpha1.AlertStatus) {
	s.now = epoch.Add(after)
	p := decide(&s.facts)
	*s.status() = p.status
	if p.alert != nil && !s.denied {
		posted = append(posted, p.alert.Status)
		s.store(p.alert.Alert)
		s.status().AlertTime, s.status().AlertStatus = p.alert.about, p.alert.Status
	}
	return posted
}

// store keeps an alert as an AlertEvent.
func (s *stage) store(alert v1alpha1.Alert) {
	n := len(s.stored)
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("event-", n), UID: types.UID(fmt.Sprint(n)), ResourceVersion: fmt.Sprint(100 + n),
			CreationTimestamp: metav1.NewTime(s.now),
		},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: s.spec().IntegrationName, ReceivedTime: v1alpha1.NewTimestamp(s.now),
		},
		Alerts: []v1alpha1.Alert{alert},
	}
	s.names, event.Alerts[0].ID = append(s.names, alert.ID), event.Name
	s.stored = append(s.stored, event)
}

// folded returns the state of the Incident after each of the stored AlertEvents, as the fold has it.
func (s *stage) folded() (states []v1alpha1.IncidentState) {
	name := v1alpha1.IncidentName(s.spec().IntegrationName, v1alpha1.HeartbeatKey("beat"))
	incident := (*v1alpha1.Incident)(nil)
	for i, event := range s.stored {
		event.Alerts[0].IncidentName = name
		plan := fold.Decide(fold.Input{
			Name: name, Incident: incident, Events: s.stored[i : i+1], Listing: fold.AllListed{}, Now: event.Spec.ReceivedTime.Time,
			Policy: fold.Policy{Retention: time.Hour, LateFiringWindow: 24 * time.Hour},
		})
		if plan.Create != nil {
			incident = &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *plan.Create}
		}
		if plan.Write {
			incident.Status = plan.Status
		}
		states = append(states, incident.Status.State)
	}
	return states
}

// A silence may begin before the end of the Incident of the last one: it is no late alert of that.
func TestEachMissOpensTheIncident(t *testing.T) {
	const open, resolved = v1alpha1.IncidentOpen, v1alpha1.IncidentResolved
	g, s := NewWithT(t), newStage()
	s.hear(0)
	g.Expect(s.at(6 * time.Minute)).To(fires)
	s.spec().Every, s.heartbeat.Generation = every(5*time.Minute+10*time.Second), 2
	g.Expect(s.at(6*time.Minute + 2*time.Second)).To(BeEmpty())
	g.Expect(s.at(6*time.Minute + alertPause)).To(resolves)
	g.Expect(s.at(6*time.Minute + 12*time.Second)).To(fires)
	g.Expect(s.folded()).To(Equal([]v1alpha1.IncidentState{open, resolved, open}))

	t.Log("A failure, which a user resolves, and then the silence")
	s = newStage()
	s.fail(time.Minute, 1)
	g.Expect(s.at(time.Minute)).To(fires)
	s.now = epoch.Add(2 * time.Minute)
	s.store(v1alpha1.Alert{DedupKey: v1alpha1.HeartbeatKey("beat"), Status: v1alpha1.AlertResolved})
	g.Expect(s.at(7 * time.Minute)).To(fires)
	g.Expect(s.folded()).To(Equal([]v1alpha1.IncidentState{open, resolved, open}))
}

var (
	fires    = Equal([]v1alpha1.AlertStatus{v1alpha1.AlertFiring})
	resolves = Equal([]v1alpha1.AlertStatus{v1alpha1.AlertResolved})
)

func TestAHeartbeatIsMissedAndHeardAgain(t *testing.T) {
	g, s := NewWithT(t), newStage()
	g.Expect(s.at(time.Hour)).To(BeEmpty(), "it waits for its first signal")
	s.hear(time.Hour)
	g.Expect(s.at(time.Hour)).To(BeEmpty())
	g.Expect(decide(&s.facts).next).To(Equal(epoch.Add(time.Hour + 6*time.Minute)))
	g.Expect(s.at(time.Hour + 6*time.Minute - 1)).To(BeEmpty())

	s.now = epoch.Add(time.Hour + 6*time.Minute)
	alert := decide(&s.facts).alert
	g.Expect(alert.DedupKey).To(Equal("heartbeat/beat"))
	g.Expect(alert.Title).To(Equal("The heartbeat beat is missed"))
	g.Expect(alert.Description).To(Equal(
		"The last signal came at 2026-03-01T13:00:00Z. One is expected every 5m, and may be late by 1m."))
	g.Expect(alert.Severity).To(Equal(v1alpha1.SeverityCritical))

	g.Expect(s.at(time.Hour + 6*time.Minute)).To(fires)
	g.Expect(s.at(10*time.Hour)).To(BeEmpty(), "it says so once")
	s.hear(10 * time.Hour)
	g.Expect(s.at(10*time.Hour + time.Second)).To(resolves)
	g.Expect(s.status().MissedTime).To(BeNil())
	g.Expect(s.at(10*time.Hour+time.Minute)).To(BeEmpty(), "one resolve")
	g.Expect(s.at(10*time.Hour + 6*time.Minute)).To(fires)
}

func TestWhileNobodyListensNothingIsMissed(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	s.judging = false
	g.Expect(s.at(time.Hour)).To(BeEmpty(), "the API server does not answer, the clock was just set, or the integration is suspended")
	g.Expect(decide(&s.facts).next).To(Equal(s.now.Add(recheck)))
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonWaiting), "nor is it heard")
	s.judging, s.quietFrom = true, epoch.Add(time.Hour)
	g.Expect(s.at(time.Hour)).To(BeEmpty())
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonWaiting))
	g.Expect(s.at(time.Hour + 6*time.Minute)).To(fires)
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonMissed))

	t.Log("a heartbeat that is not due is heard")
	s = newStage()
	s.hear(0)
	s.judging = false
	s.at(6*time.Minute - 1)
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonHeard))
	s.at(6 * time.Minute)
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonWaiting))
	s.hear(7 * time.Minute)
	s.at(7 * time.Minute)
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonHeard))
}

// A leader writes that the heartbeat is missed and ends; the next one finds the alert in the status.
func TestAnotherLeaderDecidesTheSame(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	s.now = epoch.Add(10 * time.Minute)
	p := decide(&s.facts)
	first := p.alert.ID
	*s.status() = p.status
	s.now = epoch.Add(11 * time.Minute)
	p = decide(&s.facts)
	g.Expect(p.alert.ID).To(Equal(first), "the API server stores it once")
	g.Expect(p.changed).To(BeFalse())
	g.Expect(v1alpha1.IsKeyedEventName(first)).To(BeTrue())
	s.hear(12 * time.Minute)
	s.at(12 * time.Minute)
	s.at(30 * time.Minute)
	g.Expect(s.names).NotTo(ContainElement(first), "it is another absence")
}

func TestAnAbsencePagesOnce(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	g.Expect(s.at(6 * time.Minute)).To(fires)
	g.Expect(s.at(6*time.Minute-time.Second)).To(BeEmpty(), "the clock was set back")
	g.Expect(s.at(time.Hour)).To(BeEmpty(), "whether or not a user has resolved it")
	s.hear(time.Hour)
	s.at(time.Hour)
	g.Expect(s.status().MissedTime).To(BeNil())
	g.Expect(s.at(2 * time.Hour)).To(fires)
}

// The signal was on its way to the status when the heartbeat was found to be missed.
func TestASignalFromBeforeTheMissEndsIt(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	g.Expect(s.at(6 * time.Minute)).To(fires)
	s.hear(5*time.Minute + 50*time.Second)
	g.Expect(s.at(6*time.Minute + time.Second)).To(BeEmpty())
	g.Expect(s.status().MissedTime).To(BeNil())
	g.Expect(s.at(6*time.Minute + alertPause)).To(resolves)
	g.Expect(s.folded()).To(HaveExactElements(v1alpha1.IncidentOpen, v1alpha1.IncidentResolved))
}

// A quota may deny the alert for a while.
func TestAHeartbeatIsMissedThoughItsAlertIsDenied(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	s.denied = true
	s.at(6 * time.Minute)
	missed := s.status().MissedTime
	g.Expect(missed).NotTo(BeNil())
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonMissed))
	s.at(time.Hour)
	s.denied = false
	g.Expect(s.at(2 * time.Hour)).To(fires)
	g.Expect(s.status().MissedTime).To(Equal(missed))

	t.Log("and is heard before the alert could be stored, or before a leader has noted that it was")
	s = newStage()
	s.hear(0)
	s.denied = true
	s.at(6 * time.Minute)
	s.denied = false
	s.hear(7 * time.Minute)
	g.Expect(s.at(7 * time.Minute)).To(resolves)
	g.Expect(s.at(8 * time.Minute)).To(BeEmpty())
}

func TestTheSpecChangesWhileAHeartbeatIsMissed(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	g.Expect(s.at(6 * time.Minute)).To(fires)
	s.spec().Every, s.heartbeat.Generation = every(time.Hour), 2
	g.Expect(s.at(7*time.Minute)).To(resolves, "the longer interval has not passed")
	g.Expect(s.at(72 * time.Minute)).To(fires)
	s.spec().Every = every(time.Minute)
	g.Expect(s.at(73*time.Minute)).To(BeEmpty(), "it is missed as before")
}

func TestASuspendedHeartbeatIsNeitherMissedNorFailed(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	g.Expect(s.at(6 * time.Minute)).To(fires)
	s.spec().Suspend = true
	g.Expect(s.at(7 * time.Minute)).To(resolves)
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonSuspended))
	g.Expect(s.status().MissedTime).To(BeNil())
	g.Expect(s.status().NextDueTime).To(BeNil())
	g.Expect(s.at(time.Hour)).To(BeEmpty())
	s.fail(2*time.Hour, 1)
	g.Expect(s.at(2*time.Hour)).To(BeEmpty(), "nobody is told of a failure")
	s.hear(3 * time.Hour)
	s.spec().Suspend = false
	g.Expect(s.at(10*time.Hour)).To(BeEmpty(), "a signal is expected from now on")
	g.Expect(s.status().NextDueTime.Time).To(BeTemporally("==", epoch.Add(10*time.Hour+6*time.Minute)))
	g.Expect(s.at(10*time.Hour + 6*time.Minute)).To(fires)
}

// It is suspended right after it has failed, or is missed, or has started. Whoever was told is told that it is over.
func TestAHeartbeatIsSuspendedMeanwhile(t *testing.T) {
	g, s := NewWithT(t), newStage()
	t.Log("the alert of a failure is to be resolved, and another failure comes")
	s.fail(0, 1)
	g.Expect(s.at(0)).To(fires)
	s.spec().Suspend = true
	g.Expect(s.at(5 * time.Second)).To(BeEmpty())
	s.fail(7*time.Second, 1)
	g.Expect(s.at(7 * time.Second)).To(BeEmpty())
	g.Expect(s.at(17 * time.Second)).To(resolves)
	g.Expect(s.at(time.Minute)).To(BeEmpty())

	t.Log("the alert of a miss may be stored, and is not noted")
	s = newStage()
	s.hear(0)
	s.denied = true
	s.at(6 * time.Minute)
	s.denied, s.spec().Suspend = false, true
	s.at(7 * time.Minute)
	g.Expect(s.stored).To(HaveLen(1))
	g.Expect(s.stored[0].Alerts[0].Status).To(Equal(v1alpha1.AlertResolved))

	t.Log("what has started before is not awaited afterwards")
	s = newStage()
	s.spec().Every, s.spec().MaxDuration = every(24*time.Hour), every(time.Hour)
	s.hear(0)
	s.start(time.Minute)
	s.at(2 * time.Minute)
	s.spec().Suspend = true
	s.at(3 * time.Minute)
	s.spec().Suspend = false
	g.Expect(s.at(5 * time.Hour)).To(BeEmpty())
	g.Expect(s.at(6 * time.Hour)).To(BeEmpty())

	t.Log("nor is what has started meanwhile")
	s.spec().Suspend = true
	s.at(7 * time.Hour)
	s.start(8 * time.Hour)
	s.at(8 * time.Hour)
	s.spec().Suspend = false
	g.Expect(s.at(10 * time.Hour)).To(BeEmpty())
	g.Expect(s.at(11 * time.Hour)).To(BeEmpty())
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonHeard))
}

func TestPingsThatAreRefusedAreToldOf(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.unsigned = true
	s.at(0)
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonPingsUnsigned))
	s.hear(time.Second)
	s.at(time.Second)
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonHeard), "it came before spec.verify")
}

func TestAHeartbeatTakesTooLong(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.spec().Every, s.spec().MaxDuration = every(24*time.Hour), every(time.Hour)
	s.hear(0)
	s.start(time.Minute)
	g.Expect(s.at(time.Hour)).To(BeEmpty())
	g.Expect(s.status().NextDueTime.Time).To(BeTemporally("==", epoch.Add(61*time.Minute)))
	g.Expect(s.at(61 * time.Minute)).To(fires)
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonTooLong))
	alert := s.stored[0].Alerts[0]
	g.Expect(alert.Title).To(Equal("The heartbeat beat takes too long"))
	g.Expect(alert.Description).To(Equal("It has started at 2026-03-01T12:01:00Z, and no success has come within 1h."))
	s.start(2 * time.Hour)
	g.Expect(s.at(2*time.Hour)).To(BeEmpty(), "that it starts again is no success")
	s.hear(3 * time.Hour)
	g.Expect(s.at(3 * time.Hour)).To(resolves)
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonHeard))

	t.Log("a start says nothing without maxDuration, and the next success may be missed all the same")
	s = newStage()
	s.hear(0)
	s.start(time.Minute)
	g.Expect(s.at(6 * time.Minute)).To(fires)
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonMissed))
}

func TestASchedule(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.spec().Every, s.spec().Schedule = nil, &v1alpha1.HeartbeatSchedule{Cron: "0 3 * * *", TimeZone: "Europe/Berlin"}
	s.hear(0)
	g.Expect(s.at(time.Minute)).To(BeEmpty())
	due := time.Date(2026, 3, 2, 2, 15, 0, 0, time.UTC) // 3:00 in Berlin, and the default grace
	g.Expect(s.status().NextDueTime.Time).To(BeTemporally("==", due))
	g.Expect(s.at(due.Sub(epoch) - 1)).To(BeEmpty())
	g.Expect(s.at(due.Sub(epoch))).To(fires)
	g.Expect(s.stored[0].Alerts[0].Description).To(Equal("The last signal came at 2026-03-01T12:00:00Z. " +
		"One was expected at 2026-03-02T02:00:00Z, and may be late by 15m."))

	s.spec().Schedule.Cron = "0 3 30 2 *"
	g.Expect(s.at(due.Sub(epoch)+time.Hour)).To(resolves, "it is missed no more than it is expected")
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonInvalidSchedule))
	g.Expect(decide(&s.facts).invalid).To(BeFalse(), "an Event tells it once")
}

func TestWithoutAnIntegrationNothingIsJudged(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	s.absent = true
	g.Expect(s.at(time.Hour)).To(BeEmpty())
	g.Expect(s.heard()).To(Equal(v1alpha1.ReasonNoIntegration))
}

func TestTheIncidentSaysWhatTheSpecSays(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.spec().Incident = &v1alpha1.HeartbeatIncident{
		Severity: "error", Title: "No backup", Labels: map[string]v1alpha1.LabelValue{"team": "storage"}, Runbook: "https://wiki.example.com/backup",
	}
	s.hear(0)
	g.Expect(s.at(6 * time.Minute)).To(fires)
	alert := s.stored[0].Alerts[0]
	g.Expect(alert.Title).To(Equal("No backup"))
	g.Expect(alert.Severity).To(Equal(v1alpha1.SeverityError))
	g.Expect(alert.Labels).To(Equal(v1alpha1.Texts{"team": "storage"}))
	g.Expect(alert.Annotations).To(Equal(v1alpha1.Texts{"runbook_url": "https://wiki.example.com/backup"}))
}

// A leader that was suspended stores the resolve of an earlier miss while the next one is open.
func TestALateResolveEndsNoLaterMiss(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	s.at(6 * time.Minute)
	s.hear(7 * time.Minute)
	s.now = epoch.Add(7 * time.Minute)
	late := decide(&s.facts).alert
	s.at(7 * time.Minute)
	g.Expect(s.at(13 * time.Minute)).To(fires)
	s.store(late.Alert)
	g.Expect(s.folded()).To(HaveExactElements(
		v1alpha1.IncidentOpen, v1alpha1.IncidentResolved, v1alpha1.IncidentOpen, v1alpha1.IncidentOpen))
}

// The heartbeat was deleted while it was missed, and is there again before its Incident has ended.
func TestAnOpenIncidentOfANewHeartbeatEndsWhenItIsHeard(t *testing.T) {
	g, s := NewWithT(t), newStage()
	*s.status(), s.open = v1alpha1.HeartbeatStatus{}, true
	g.Expect(s.at(time.Hour)).To(BeEmpty())
	s.hear(2 * time.Hour)
	g.Expect(s.at(2 * time.Hour)).To(resolves)
	g.Expect(s.at(2*time.Hour + time.Minute)).To(BeEmpty())
}

// It was replaced or restored without its status, with spec.suspend.
func TestAnOpenIncidentOfANewHeartbeatEndsIfThatIsSuspended(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	g.Expect(s.at(6 * time.Minute)).To(fires)
	*s.status(), s.open, s.spec().Suspend = v1alpha1.HeartbeatStatus{}, true, true
	g.Expect(s.at(time.Hour)).To(BeEmpty())
	g.Expect(decide(&s.facts).next).To(BeTemporally("==", s.now.Add(alertPause)))
	g.Expect(s.at(time.Hour + alertPause)).To(resolves)
	g.Expect(s.folded()).To(HaveExactElements(v1alpha1.IncidentOpen, v1alpha1.IncidentResolved))
	s.open = false
	g.Expect(s.at(2 * time.Hour)).To(BeEmpty())

	t.Log("it has failed since then, which opens no Incident")
	s = newStage()
	*s.status(), s.open, s.spec().Suspend = v1alpha1.HeartbeatStatus{}, true, true
	s.fail(time.Hour, 1)
	g.Expect(s.at(time.Hour)).To(BeEmpty())
	g.Expect(s.at(time.Hour + alertPause)).To(resolves)
}

// A replica may hold the last signals back, by the former interval.
func TestAShorterIntervalIsJudgedWhenTheReplicasKnowIt(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.spec().Every = every(time.Hour)
	s.hear(0)
	s.spec().Every, s.specified = every(10*time.Minute), epoch.Add(19*time.Minute)
	g.Expect(s.at(19 * time.Minute)).To(BeEmpty())
	s.now = epoch.Add(19 * time.Minute)
	g.Expect(decide(&s.facts).next).To(Equal(s.specified.Add(relearn)))
	g.Expect(s.at(19*time.Minute + relearn)).To(fires)
}

func TestARequiredHeartbeatIsMissedFromItsDefinitionOn(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.spec().Required = true
	g.Expect(s.at(6*time.Minute - 1)).To(BeEmpty())
	g.Expect(s.at(6 * time.Minute)).To(fires)
	g.Expect(s.at(7 * time.Minute)).To(BeEmpty())
	s.spec().Required = false
	g.Expect(s.at(8 * time.Minute)).To(resolves)
}

func TestAFailureEndsWithTheNextSuccess(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.fail(time.Minute, 3)
	s.now = epoch.Add(time.Minute)
	alert := decide(&s.facts).alert
	g.Expect(alert.DedupKey).To(Equal("heartbeat/beat"))
	g.Expect(alert.Title).To(Equal("The heartbeat beat has failed"))
	g.Expect(alert.Description).To(Equal("The sender reported a failure, with the exit code 3."))
	g.Expect(alert.Severity).To(Equal(v1alpha1.SeverityCritical))
	g.Expect(s.at(time.Minute)).To(fires)
	g.Expect(s.at(time.Minute + time.Second)).To(BeEmpty())
	s.fail(2*time.Minute, 4)
	g.Expect(s.at(2*time.Minute)).To(fires, "it fails again")
	s.hear(3 * time.Minute)
	g.Expect(s.at(3 * time.Minute)).To(resolves)
	g.Expect(s.at(4 * time.Minute)).To(BeEmpty())

	s.fail(5*time.Minute, 1)
	g.Expect(s.at(5 * time.Minute)).To(fires)
	g.Expect(s.at(11*time.Minute)).To(fires, "and then it is quiet")
	s.fail(12*time.Minute, 1)
	g.Expect(s.at(12*time.Minute)).To(fires, "it fails when it is heard again")
	g.Expect(s.status().MissedTime).To(BeNil())
	s.hear(13 * time.Minute)
	g.Expect(s.at(13 * time.Minute)).To(resolves)
}

// The sender has been told that the failure was accepted.
func TestAFailureThatIsOverBeforeTheLeaderSeesItIsAlertedToo(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.fail(time.Minute, 1)
	s.hear(time.Minute + time.Millisecond)
	g.Expect(s.at(time.Minute + time.Second)).To(fires)
	g.Expect(s.at(time.Minute + 2*time.Second)).To(BeEmpty())
	g.Expect(decide(&s.facts).next).To(BeTemporally("~", epoch.Add(time.Minute+alertPause), time.Millisecond))
	g.Expect(s.at(time.Minute + alertPause + time.Second)).To(resolves)
	g.Expect(s.folded()).To(HaveExactElements(v1alpha1.IncidentOpen, v1alpha1.IncidentResolved))
}

// A failure may follow the resolve within the window of late alerts.
func TestEachFailureOpensTheIncident(t *testing.T) {
	g, s := NewWithT(t), newStage()
	want := []v1alpha1.IncidentState{}
	for i := range 5 {
		at := time.Minute + time.Duration(i)*20*time.Second
		s.fail(at, 1)
		g.Expect(s.at(at)).To(fires)
		s.hear(at + alertPause)
		g.Expect(s.at(at + alertPause)).To(resolves)
		want = append(want, v1alpha1.IncidentOpen, v1alpha1.IncidentResolved)
	}
	g.Expect(s.folded()).To(Equal(want))
}

func TestASignalFromTheFutureIsOfNow(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(1000 * time.Hour)
	g.Expect(s.at(0)).To(BeEmpty())
	g.Expect(s.status().LastSignalTime.Time).To(BeTemporally("==", epoch))
	g.Expect(s.at(6 * time.Minute)).To(fires)
}

func TestNoTimeOfAHeartbeatIsInTheFuture(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.spec().Required = true
	s.status().ObservedTime = new(v1alpha1.NewTimestamp(epoch.Add(1000 * time.Hour)))
	g.Expect(s.at(0)).To(BeEmpty())
	g.Expect(s.at(6*time.Minute)).To(fires, "it was defined now, and not in a thousand hours")

	s.hear(1000 * time.Hour)
	s.status().FailedTime = s.status().LastSignalTime
	g.Expect(s.at(7*time.Minute)).To(fires, "it failed now")
	s.hear(8 * time.Minute)
	g.Expect(s.at(8*time.Minute)).To(resolves, "the failure is over")
}

// TestAMissOfTheFutureWasFoundNow sets the API server's clock back while a heartbeat is missed, and after it was.
func TestAMissOfTheFutureWasFoundNow(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	g.Expect(s.at(0)).To(BeEmpty())
	g.Expect(s.at(6 * time.Minute)).To(fires)
	later := new(v1alpha1.NewTimestamp(epoch.Add(1000 * time.Hour)))
	s.status().MissedTime, s.status().AlertTime = later, later.DeepCopy()
	g.Expect(s.at(7*time.Minute)).To(BeEmpty(), "it was told of already")
	g.Expect(s.status().MissedTime.Time).To(BeTemporally("==", epoch.Add(7*time.Minute)))
	s.hear(8 * time.Minute)
	g.Expect(s.at(8 * time.Minute)).To(resolves)
	s.status().MissedUntilTime = later
	g.Expect(s.at(9 * time.Minute)).To(BeEmpty())
	g.Expect(s.status().MissedUntilTime.Time).To(BeTemporally("==", epoch.Add(9*time.Minute)), "from then on, Incidents may be quiet")
}

// People may edit the status.
func TestAnAlertWithoutATimeIsNone(t *testing.T) {
	g := NewWithT(t)
	s := newStage()
	s.hear(time.Minute)
	s.status().AlertStatus = v1alpha1.AlertFiring
	g.Expect(s.at(2 * time.Minute)).To(BeEmpty())
}

func TestShortDurations(t *testing.T) {
	g := NewWithT(t)
	for d, text := range map[time.Duration]string{
		time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", 10 * time.Hour: "10h",
		20 * time.Minute: "20m",
	} {
		g.Expect(duration(d)).To(Equal(text))
	}
}
