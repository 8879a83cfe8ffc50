package heartbeat

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// epoch is when the tests begin.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stage is an integration with a heartbeat of five minutes and a grace of one, which was defined at the epoch.
type stage struct {
	facts
	open   bool // as the leader sees it when it begins
	denied bool // no alert can be stored
	names  []string
	stored []*v1alpha1.AlertEvent
}

func newStage() *stage {
	s := &stage{facts: facts{
		now: epoch, quietFrom: epoch.Add(-time.Hour), judging: true,
		integration: &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Name: "prometheus", UID: "u", Generation: 1}},
	}}
	s.isOpen = func(string) bool { return s.open }
	s.integration.Spec.Heartbeats = []v1alpha1.Heartbeat{{Name: "beat", Interval: &metav1.Duration{Duration: 5 * time.Minute}}}
	s.at(0)
	return s
}

func (s *stage) heartbeat() *v1alpha1.Heartbeat { return &s.integration.Spec.Heartbeats[0] }

func (s *stage) status() *v1alpha1.HeartbeatStatus { return &s.integration.Status.Heartbeats[0] }

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
	for i := range p.alerts {
		if s.denied {
			continue
		}
		posted = append(posted, p.alerts[i].Status)
		s.store(p.alerts[i].Alert)
		p.stored(&p.alerts[i])
	}
	s.integration.Status.Heartbeats = p.heartbeats
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
			IntegrationName: s.integration.Name, ReceivedTime: v1alpha1.NewTimestamp(s.now),
		},
		Alerts: []v1alpha1.Alert{alert},
	}
	s.names, event.Alerts[0].ID = append(s.names, alert.ID), event.Name
	s.stored = append(s.stored, event)
}

// folded returns the state of the Incident after each of the stored AlertEvents, as the fold has it.
func (s *stage) folded() (states []v1alpha1.IncidentState) {
	name := v1alpha1.IncidentName(s.integration.Name, v1alpha1.HeartbeatKey("beat"))
	incident := (*v1alpha1.Incident)(nil)
	for i, event := range s.stored {
		event.Alerts[0].IncidentName = name
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
	g.Expect(s.at(10*time.Hour+time.Minute)).To(BeEmpty(), "one resolve")
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

// A leader writes that the heartbeat is missed and ends; the next one finds the alert in the status.
func TestAnotherLeaderDecidesTheSame(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	s.now = epoch.Add(10 * time.Minute)
	p := decide(&s.facts)
	first := p.alerts[0].ID
	s.integration.Status.Heartbeats = p.heartbeats
	s.now = epoch.Add(11 * time.Minute)
	p = decide(&s.facts)
	g.Expect(p.alerts[0].ID).To(Equal(first), "the API server stores it once")
	g.Expect(p.changed).To(BeFalse())
	g.Expect(v1alpha1.IsKeyedEventName(first)).To(BeTrue())
	s.hear(12 * time.Minute)
	s.at(12 * time.Minute)
	s.at(30 * time.Minute)
	g.Expect(s.names).NotTo(ContainElement(first), "it is another silence")
}

func TestASilencePagesOnce(t *testing.T) {
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
	g.Expect(fold.MissesHeartbeat(s.integration)).To(BeTrue())
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

// The status says that it was removed before the resolve is stored. So whatever the next leader sees, a heartbeat that is missed
// has its alert.
func TestAMissedHeartbeatIsRemovedAndDefinedAgain(t *testing.T) {
	for sentence, resolved := range map[string]bool{
		"before the resolve was stored": false, "after the resolve was stored, before the status says so": true,
	} {
		t.Run(sentence, func(t *testing.T) {
			g, s := NewWithT(t), newStage()
			s.hear(0)
			g.Expect(s.at(6 * time.Minute)).To(fires)
			defined := s.integration.Spec.Heartbeats
			s.integration.Spec.Heartbeats = nil
			s.now = epoch.Add(7 * time.Minute)
			p := decide(&s.facts)
			s.integration.Status.Heartbeats = p.heartbeats
			if resolved {
				s.store(p.alerts[0].Alert)
			}
			s.integration.Spec.Heartbeats, s.specified = defined, s.now
			s.at(7 * time.Minute)
			g.Expect(s.at(7*time.Minute+relearn)).To(fires, "it is quiet since before")
			g.Expect(s.status().MissedTime).NotTo(BeNil())
			states := s.folded()
			g.Expect(states[len(states)-1]).To(Equal(v1alpha1.IncidentOpen))
			if resolved {
				g.Expect(s.names[1]).To(Equal(s.names[2]), "the API server stores one resolve")
			}
		})
	}
	g, s := NewWithT(t), newStage()
	for i := range maxStatuses + 1 {
		s.integration.Status.Heartbeats = append(s.integration.Status.Heartbeats, v1alpha1.HeartbeatStatus{
			Name: fmt.Sprint("former-", i), AlertTime: new(v1alpha1.NewTimestamp(epoch)), AlertStatus: v1alpha1.AlertFiring,
		})
	}
	s.denied = true
	s.at(0)
	g.Expect(s.integration.Status.Heartbeats).To(HaveLen(maxStatuses), "as many as the schema allows")
}

// A leader that was suspended stores the resolve of an earlier miss while the next one is open.
func TestALateResolveEndsNoLaterMiss(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.hear(0)
	s.at(6 * time.Minute)
	s.hear(7 * time.Minute)
	s.now = epoch.Add(7 * time.Minute)
	late := decide(&s.facts).alerts[0]
	s.at(7 * time.Minute)
	g.Expect(s.at(13 * time.Minute)).To(fires)
	s.store(late.Alert)
	g.Expect(s.folded()).To(HaveExactElements(
		v1alpha1.IncidentOpen, v1alpha1.IncidentResolved, v1alpha1.IncidentOpen, v1alpha1.IncidentOpen))
}

// The integration was deleted while its heartbeat was missed, and is there again.
func TestAnOpenIncidentOfANewHeartbeatEndsWhenItIsHeard(t *testing.T) {
	g, s := NewWithT(t), newStage()
	s.integration.Status.Heartbeats, s.open = nil, true
	g.Expect(s.at(time.Hour)).To(BeEmpty())
	s.hear(2 * time.Hour)
	g.Expect(s.at(2 * time.Hour)).To(resolves)
	g.Expect(s.at(2*time.Hour + time.Minute)).To(BeEmpty())
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
	s.fail(time.Minute, 3)
	s.now = epoch.Add(time.Minute)
	alert := decide(&s.facts).alerts[0]
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
	s.heartbeat().Required = true
	s.status().ObservedTime = new(v1alpha1.NewTimestamp(epoch.Add(1000 * time.Hour)))
	g.Expect(s.at(0)).To(BeEmpty())
	g.Expect(s.at(6*time.Minute)).To(fires, "it was defined now, and not in a thousand hours")

	s.hear(1000 * time.Hour)
	s.status().FailedTime = s.status().LastSignalTime
	g.Expect(s.at(7*time.Minute)).To(fires, "it failed now")
	s.hear(8 * time.Minute)
	g.Expect(s.at(8*time.Minute)).To(resolves, "the failure is over")
}

// People may edit the status.
func TestAnAlertWithoutATimeIsNone(t *testing.T) {
	g := NewWithT(t)
	s := newStage()
	s.hear(time.Minute)
	s.status().AlertStatus = v1alpha1.AlertFiring
	g.Expect(s.at(2 * time.Minute)).To(BeEmpty())
	s.integration.Spec.Heartbeats = nil
	g.Expect(s.at(3 * time.Minute)).To(BeEmpty())
	g.Expect(s.integration.Status.Heartbeats).To(BeEmpty())
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
