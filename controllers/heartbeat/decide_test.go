package heartbeat

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// epoch is when the tests begin.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stage is an integration with a heartbeat of five minutes and a grace of one, which was defined at the epoch.
type stage struct {
	facts
	incident *v1alpha1.Incident
	stored   []*v1alpha1.AlertEvent
}

func newStage() *stage {
	s := &stage{facts: facts{
		now: epoch, quietFrom: epoch.Add(-time.Hour), judging: true, posted: sets.New[string](),
		integration: &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Name: "prometheus", UID: "u", Generation: 1}},
	}}
	s.open = func(string) *v1alpha1.Incident { return s.incident }
	s.integration.Spec.Heartbeats = []v1alpha1.Heartbeat{{Name: "beat", Interval: &metav1.Duration{Duration: 5 * time.Minute}}}
	s.at(0)
	return s
}

func (s *stage) heartbeat() *v1alpha1.Heartbeat { return &s.integration.Spec.Heartbeats[0] }

func (s *stage) status() *v1alpha1.HeartbeatStatus { return &s.integration.Status.Heartbeats[0] }

func (s *stage) hear(after time.Duration) {
	s.status().LastSignalTime = new(v1alpha1.NewTimestamp(epoch.Add(after)))
}

// at decides at a time after the epoch, and does what was decided. It returns the alerts' status.
func (s *stage) at(after time.Duration) (posted []v1alpha1.AlertStatus) {
	s.now = epoch.Add(after)
	p := decide(&s.facts)
	s.integration.Status.Heartbeats = p.heartbeats
	for _, alert := range p.alerts {
		posted = append(posted, alert.Status)
		s.store(alert)
		switch alert.Status {
		case v1alpha1.AlertFiring:
			s.incident = &v1alpha1.Incident{Status: v1alpha1.IncidentStatus{LastAlertTime: new(v1alpha1.NewTimestamp(s.now))}}
		default:
			s.incident = nil
		}
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
			IntegrationName: s.integration.Name, ReceivedTime: v1alpha1.NewTimestamp(s.now), Alerts: []v1alpha1.Alert{alert},
		},
	}
	event.Spec.Alerts[0].ID = event.Name
	s.stored = append(s.stored, event)
}

// folded returns the state of the Incident after each of the stored AlertEvents, as the fold has it.
func (s *stage) folded() (states []v1alpha1.IncidentState) {
	name := v1alpha1.IncidentName(s.integration.Name, v1alpha1.HeartbeatKey("beat"))
	incident := (*v1alpha1.Incident)(nil)
	for i, event := range s.stored {
		event.Spec.Alerts[0].IncidentName = name
		plan := fold.Decide(fold.Input{
			Name: name, Incident: incident, Events: s.stored[i : i+1], Version: fold.CommitVersion, Now: event.Spec.ReceivedTime.Time,
			Exists: func(string) bool { return true }, Policy: fold.Policy{Retention: time.Hour, LateFiringWindow: 24 * time.Hour},
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
	s.heartbeat().Interval, s.integration.Generation = &metav1.Duration{Duration: 5*time.Minute + 10*time.Second}, 2
	g.Expect(s.at(6*time.Minute + 2*time.Second)).To(resolves)
	g.Expect(s.at(6*time.Minute + 12*time.Second)).To(fires)
	g.Expect(s.folded()).To(Equal([]v1alpha1.IncidentState{open, resolved, open}))

	// A failure, which a user resolves, and then the silence.
	s = newStage()
	s.hear(time.Minute)
	s.status().FailedTime = s.status().LastSignalTime
	s.now = epoch.Add(time.Minute)
	s.store(v1alpha1.Alert{DedupKey: v1alpha1.HeartbeatKey("beat"), Status: v1alpha1.AlertFiring})
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
	alert := decide(&s.facts).alerts[0]
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
	g.Expect(s.at(10*time.Hour + time.Minute)).To(BeEmpty())
	g.Expect(s.at(10*time.Hour + 6*time.Minute)).To(fires)
}

func TestASilenceWhileNobodyListensIsNotTheSenders(t *testing.T) {
	for sentence, test := range map[string]struct {
		period    time.Duration
		quietFrom time.Duration // after the last signal
		missed    time.Duration
	}{
		"without a break": {6 * time.Minute, -time.Hour, 6 * time.Minute},
		"a break that ended before the signal was due":   {6 * time.Minute, time.Minute, 7 * time.Minute},
		"a break that ended after the signal was due":    {6 * time.Minute, time.Hour, time.Hour + 6*time.Minute},
		"a week, and a break on the first day":           {168 * time.Hour, 24 * time.Hour, 192 * time.Hour},
		"a week, and a restart every day":                {168 * time.Hour, 330 * time.Hour, 336 * time.Hour},
		"a week, and a restart when it has passed twice": {168 * time.Hour, 340 * time.Hour, 346 * time.Hour},
	} {
		t.Run(sentence, func(t *testing.T) {
			NewWithT(t).Expect(deadline(epoch.Add(test.period), test.period, epoch.Add(test.quietFrom))).
				To(Equal(epoch.Add(test.missed)))
		})
	}

	g, s := NewWithT(t), newStage()
	s.hear(0)
	s.judging = false
	g.Expect(s.at(time.Hour)).To(BeEmpty(), "the API server does not answer, the clock was just set, or the integration is suspended")
	g.Expect(decide(&s.facts).next).To(Equal(s.now.Add(recheck)))
	s.judging, s.quietFrom = true, epoch.Add(time.Hour)
	g.Expect(s.at(time.Hour)).To(BeEmpty())
	g.Expect(s.at(time.Hour + 6*time.Minute)).To(fires)
}

func TestAnotherLeaderDecidesTheSame(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	s.now = epoch.Add(10 * time.Minute)
	first := decide(&s.facts).alerts[0]
	s.now = epoch.Add(11 * time.Minute)
	g.Expect(decide(&s.facts).alerts[0].ID).To(Equal(first.ID), "the API server stores it once")
	g.Expect(v1alpha1.IsKeyedEventName(first.ID)).To(BeTrue())
	s.hear(time.Minute)
	g.Expect(decide(&s.facts).alerts[0].ID).NotTo(Equal(first.ID), "it is another silence")
}

func TestASilencePagesOnce(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	g.Expect(s.at(6 * time.Minute)).To(fires)
	g.Expect(s.at(6*time.Minute-time.Second)).To(BeEmpty(), "the clock was set back")
	s.incident = nil // a user resolves it
	g.Expect(s.at(time.Hour)).To(BeEmpty())
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
	g.Expect(s.at(6*time.Minute + time.Second)).To(resolves)

	// And the status could not be written for it, but the alert is stored.
	s = newStage()
	s.hear(5*time.Minute + 50*time.Second)
	s.posted.Insert("beat")
	g.Expect(s.at(6 * time.Minute)).To(resolves)
}

func TestTheSpecChangesWhileAHeartbeatIsMissed(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	g.Expect(s.at(6 * time.Minute)).To(fires)
	s.heartbeat().Interval, s.integration.Generation = &metav1.Duration{Duration: time.Hour}, 2
	g.Expect(s.at(7*time.Minute)).To(resolves, "the longer interval has not passed")
	g.Expect(s.at(72 * time.Minute)).To(fires)
	s.heartbeat().Interval = &metav1.Duration{Duration: time.Minute}
	g.Expect(s.at(73*time.Minute)).To(BeEmpty(), "it is missed as before")

	s.integration.Spec.Heartbeats = nil
	g.Expect(s.at(74*time.Minute)).To(resolves, "it was removed")
	g.Expect(s.integration.Status.Heartbeats).To(BeEmpty())
	g.Expect(s.at(75 * time.Minute)).To(BeEmpty())
}

// A replica may hold the last signals back, by the former interval.
func TestAShorterIntervalIsJudgedWhenTheReplicasKnowIt(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.heartbeat().Interval = &metav1.Duration{Duration: time.Hour}
	s.hear(0)
	s.heartbeat().Interval, s.specified = &metav1.Duration{Duration: 10 * time.Minute}, epoch.Add(19*time.Minute)
	g.Expect(s.at(19 * time.Minute)).To(BeEmpty())
	s.now = epoch.Add(19 * time.Minute)
	g.Expect(decide(&s.facts).next).To(Equal(s.specified.Add(relearn)))
	g.Expect(s.at(19*time.Minute + relearn)).To(fires)
}

func TestARequiredHeartbeatIsMissedFromItsDefinitionOn(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.heartbeat().Required = true
	g.Expect(s.at(6*time.Minute - 1)).To(BeEmpty())
	g.Expect(s.at(6 * time.Minute)).To(fires)
	g.Expect(s.at(7 * time.Minute)).To(BeEmpty())
	s.heartbeat().Required = false
	g.Expect(s.at(8 * time.Minute)).To(resolves)
}

func TestAFailureEndsWithTheNextSuccess(t *testing.T) {
	g, s := NewWithT(t), newStage()
	fail := func(after time.Duration) {
		s.hear(after)
		s.status().FailedTime = s.status().LastSignalTime
		s.incident = &v1alpha1.Incident{Status: v1alpha1.IncidentStatus{LastAlertTime: new(v1alpha1.NewTimestamp(epoch.Add(after - 1)))}}
	}
	fail(time.Minute)
	g.Expect(s.at(time.Minute)).To(BeEmpty())
	s.hear(2 * time.Minute)
	g.Expect(s.at(2 * time.Minute)).To(resolves)

	fail(3 * time.Minute)
	g.Expect(s.at(9*time.Minute)).To(fires, "and then it is silent")
	fail(10 * time.Minute)
	g.Expect(s.at(10*time.Minute)).To(BeEmpty(), "it fails when it is heard again")
	g.Expect(s.status().MissedTime).To(BeNil())
	s.hear(11 * time.Minute)
	g.Expect(s.at(11 * time.Minute)).To(resolves)
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
	s.heartbeat().Required = true
	s.status().ObservedTime = new(v1alpha1.NewTimestamp(epoch.Add(1000 * time.Hour)))
	g.Expect(s.at(0)).To(BeEmpty())
	g.Expect(s.at(6*time.Minute)).To(fires, "it was defined now, and not in a thousand hours")

	s.hear(1000 * time.Hour)
	s.status().FailedTime = s.status().LastSignalTime
	g.Expect(s.at(7 * time.Minute)).To(BeEmpty())
	s.incident = &v1alpha1.Incident{}
	s.hear(8 * time.Minute)
	g.Expect(s.at(8*time.Minute)).To(resolves, "the failure is over")
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
