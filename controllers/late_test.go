package controllers

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// at is so long after the first minute of the tests.
func at(d time.Duration) time.Time { return minute(0).Add(d) }

func atStamp(d time.Duration) *v1alpha1.Timestamp { return timestamp(at(d)) }

// receivedAt changes when an event was received and stored.
func receivedAt(event *v1alpha1.AlertEvent, t time.Time) *v1alpha1.AlertEvent {
	event.Spec.ReceivedTime, event.CreationTimestamp = v1alpha1.NewTimestamp(t), metav1.NewTime(t)
	return event
}

func TestLateFiringWindow(t *testing.T) {
	const resolvedAt = 10 * time.Minute
	for sentence, c := range map[string]struct {
		window, received time.Duration // the latter after the resolve
		want             string
	}{
		"within the window: late":                                          {30 * time.Second, 30*time.Second - time.Microsecond, resultLate},
		"when the window is over: reopens":                                 {30 * time.Second, 30 * time.Second, resultReopened},
		"four hours later: reopens":                                        {30 * time.Second, 4 * time.Hour, resultReopened},
		"by a replica whose clock is behind: late":                         {30 * time.Second, -time.Second, resultLate},
		"no window: reopens":                                               {0, time.Microsecond, resultReopened},
		"no window, by a replica whose clock is behind: reopens":           {0, -time.Second, resultReopened},
		"no window, at the very moment: reopens":                           {0, 0, resultReopened},
		"a window of a day, four hours later: late":                        {24 * time.Hour, 4 * time.Hour, resultLate},
		"the leader's own clock does not matter: late, though folded then": {30 * time.Second, time.Second, resultLate},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := newBench()
			bench.policy.lateFiringWindow = c.window
			bench.now = minute(1e6)
			firing := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartsAt: atStamp(0)})
			bench.fold(receivedAt(eventOf(1, firing), at(0)), receivedAt(eventOf(2, resolvingAlert()), at(resolvedAt)))
			p := bench.fold(receivedAt(eventOf(3, firing), at(resolvedAt+c.received)))
			g.Expect(resultsOf(p)).To(Equal([]string{c.want}))
			g.Expect(bench.status().AlertCount).To(BeEquivalentTo(3))
		})
	}
}

func TestStaleResolves(t *testing.T) {
	resolve := func(startsAt, endsAt *v1alpha1.Timestamp) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{StartsAt: startsAt, EndsAt: endsAt})
	}
	byMaria := resolve(nil, atStamp(0))
	byMaria.By = "maria"
	const second = time.Second
	for sentence, c := range map[string]struct {
		startsAt *v1alpha1.Timestamp // of the episode
		resolve  v1alpha1.Alert
		stale    bool
	}{
		"endsAt before the episode's startsAt: late":                    {atStamp(60 * second), resolve(nil, atStamp(59*second)), true},
		"endsAt equal to it: resolves":                                  {atStamp(60 * second), resolve(nil, atStamp(60*second)), false},
		"endsAt after it: resolves":                                     {atStamp(60 * second), resolve(nil, atStamp(61*second)), false},
		"endsAt after it, startsAt before it: resolves":                 {atStamp(60 * second), resolve(atStamp(0), atStamp(61*second)), false},
		"endsAt before it, startsAt after it: late":                     {atStamp(60 * second), resolve(atStamp(61*second), atStamp(59*second)), true},
		"startsAt alone, before it: late":                               {atStamp(60 * second), resolve(atStamp(0), nil), true},
		"startsAt alone, the same: resolves":                            {atStamp(60 * second), resolve(atStamp(60*second), nil), false},
		"no times: resolves":                                            {atStamp(60 * second), resolve(nil, nil), false},
		"the episode without startsAt, whatever was received: resolves": {nil, resolve(nil, atStamp(-time.Hour)), false},
		"a user's resolve, with an endsAt of before: resolves":          {atStamp(60 * second), byMaria, false},
		"endsAt in seconds, within the second of the start: resolves": {
			atStamp(60*second + 700*time.Millisecond), resolve(nil, atStamp(60*second)), false},
		"endsAt in seconds, a second before: late": {
			atStamp(60*second + 700*time.Millisecond), resolve(nil, atStamp(59*second)), true},
		"endsAt in milliseconds, within the one of the start: resolves": {
			atStamp(60*second + 1700*time.Microsecond), resolve(nil, atStamp(60*second+time.Millisecond)), false},
		"endsAt in microseconds, one before: late": {
			atStamp(60*second + 700*time.Microsecond), resolve(nil, atStamp(60*second+699*time.Microsecond)), true},
		"the episode's startsAt in the year 9999: resolves": {
			timestamp(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)), resolve(nil, atStamp(60*second)), false},
		"the episode's startsAt in a time zone ahead, endsAt of before: late": {
			atStamp(14 * time.Hour), resolve(nil, atStamp(13*time.Hour)), true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := newBench()
			bench.fold(eventOf(2, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartsAt: c.startsAt})))
			before := bench.status().Alert
			p := bench.fold(eventOf(3, c.resolve))
			s := bench.status()
			g.Expect(s.AlertCount).To(BeEquivalentTo(2))
			g.Expect(s.LastAlertTime.Time).To(Equal(minute(3)))
			if !c.stale {
				g.Expect(resultsOf(p)).To(Equal([]string{resultResolved}))
				return
			}
			g.Expect(resultsOf(p)).To(Equal([]string{resultLate}))
			g.Expect(s.State).To(Equal(v1alpha1.IncidentOpen))
			g.Expect(s.Alert).To(Equal(before))
			g.Expect([]bool{p.write, p.urgent}).To(Equal([]bool{true, false}))
		})
	}
}

// Fire, resolve, and fire again with the same startsAt after a while.
func TestAnOutageThatGoesOnReopensItsIncident(t *testing.T) {
	spec := func(window time.Duration) func(*v1alpha1.WebhookIntegrationSpec) {
		return func(spec *v1alpha1.WebhookIntegrationSpec) {
			spec.LateFiringWindow = &metav1.Duration{Duration: window}
		}
	}
	preset := func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Preset = "in-order" }
	none := func(*v1alpha1.WebhookIntegrationSpec) {}
	both := func(s *v1alpha1.WebhookIntegrationSpec) {
		preset(s)
		spec(time.Minute)(s)
	}
	for sentence, c := range map[string]struct {
		integration func(*v1alpha1.WebhookIntegrationSpec) // nil: there is none
		after       time.Duration
		want        v1alpha1.IncidentState
	}{
		"four hours later: reopens":                                    {none, 4 * time.Hour, v1alpha1.IncidentOpen},
		"four hours later, the integration gone: reopens":              {nil, 4 * time.Hour, v1alpha1.IncidentOpen},
		"29 seconds later: stays resolved":                             {none, 29 * time.Second, v1alpha1.IncidentResolved},
		"29 seconds later, the integration gone: stays resolved":       {nil, 29 * time.Second, v1alpha1.IncidentResolved},
		"a second later, the spec says 0s: reopens":                    {spec(0), time.Second, v1alpha1.IncidentOpen},
		"two hours later, the spec says 3h: stays resolved":            {spec(3 * time.Hour), 2 * time.Hour, v1alpha1.IncidentResolved},
		"a second later, the preset says 0s: reopens":                  {preset, time.Second, v1alpha1.IncidentOpen},
		"a second later, the preset says 0s, the spec 1m: it does not": {both, time.Second, v1alpha1.IncidentResolved},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			s.incidents.presetWindow = func(preset string) (time.Duration, bool) { return 0, preset == "in-order" }
			if c.integration != nil {
				s.integrate(c.integration)
			}
			alert := s.alert(v1alpha1.AlertFiring, "disk")
			alert.StartsAt = timestamp(s.clock.Now())
			s.post(alert)
			s.post(s.alert(v1alpha1.AlertResolved, "disk"))
			s.fold("disk")
			s.Expect(s.incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))

			s.clock.SetTime(s.clock.Now().Add(c.after))
			again := s.alert(v1alpha1.AlertFiring, "disk")
			again.StartsAt = alert.StartsAt
			s.post(again)
			s.fold("disk")
			status := s.incident("disk").Status
			s.Expect(status.State).To(Equal(c.want))
			s.Expect(status.AlertCount).To(BeEquivalentTo(3))
			if c.want == v1alpha1.IncidentOpen {
				s.Expect(status.Episode.Number).To(BeEquivalentTo(2))
			}
		})
	}
}

func TestARepeatedResolveOfBeforeDoesNotEndTheEpisode(t *testing.T) {
	s := newSite(t)
	began := s.clock.Now()
	told := func(status v1alpha1.AlertStatus, startsAt, endsAt time.Duration) {
		alert := s.alert(status, "disk")
		alert.StartsAt = timestamp(began.Add(startsAt))
		if endsAt > 0 {
			alert.EndsAt = timestamp(began.Add(endsAt))
		}
		s.clock.SetTime(s.clock.Now().Add(10 * time.Minute))
		s.post(alert)
		s.fold("disk")
	}
	told(v1alpha1.AlertFiring, 0, 0)
	told(v1alpha1.AlertResolved, 0, 12*time.Minute)
	told(v1alpha1.AlertFiring, 25*time.Minute, 0)
	told(v1alpha1.AlertResolved, 0, 12*time.Minute)
	s.Expect(s.incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
	told(v1alpha1.AlertResolved, 25*time.Minute, 45*time.Minute)
	status := s.incident("disk").Status
	s.Expect(status.State).To(Equal(v1alpha1.IncidentResolved))
	s.Expect([]int64{status.AlertCount, status.Episode.Number}).To(Equal([]int64{5, 2}))
}

// Whatever times somebody writes into an AlertEvent, it is folded and released.
func TestHostileTimesAreFolded(t *testing.T) {
	times := []string{
		"0100-01-01T00:00:00Z", "0100-01-01T00:00:00+23:59", "1969-12-31T23:59:59.999999999Z",
		"9998-12-31T23:59:59-23:59", "9999-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-23:59",
	}
	for i, text := range times {
		for _, field := range []string{"receivedTime", "startsAt", "endsAt"} {
			for _, status := range []v1alpha1.AlertStatus{v1alpha1.AlertFiring, v1alpha1.AlertResolved, v1alpha1.AlertAcknowledged} {
				t.Run(fmt.Sprintf("%s of %s in an alert that is %s", field, text, status), func(t *testing.T) {
					s := newSite(t)
					key := fmt.Sprint("disk-", i)
					s.integrate(nil)
					if status != v1alpha1.AlertFiring {
						s.postFiring(key)
						s.fold(key)
						s.release()
					}
					var when v1alpha1.Timestamp
					s.Expect(when.UnmarshalJSON([]byte(`"` + text + `"`))).To(Succeed())
					alert := s.alert(status, key)
					event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{IntegrationName: integrationName}}
					event.Namespace, event.GenerateName = s.namespace, "by-hand-"
					switch field {
					case "receivedTime":
						event.Spec.ReceivedTime = when
					case "startsAt":
						alert.StartsAt = &when
					case "endsAt":
						alert.EndsAt = &when
					}
					event.Spec.Alerts = []v1alpha1.Alert{alert}
					s.Expect(s.live.Create(s.ctx, event)).To(Succeed())
					s.clock.SetTime(s.clock.Now().Add(writeInterval))
					s.fold(key)
					s.release()
					s.Expect(s.eventNames()).To(BeEmpty())
					got := s.incident(key).Status
					s.Expect(got.State).NotTo(BeEmpty())
					s.Expect(got.LastAlertTime.Time).To(BeTemporally("~", time.Now(), 2*maxClockDifference))

					// A resolve without times ends it in any case, and a firing begins anew.
					s.clock.SetTime(s.clock.Now().Add(time.Hour))
					s.post(s.alert(v1alpha1.AlertResolved, key))
					s.fold(key)
					s.Expect(s.incident(key).Status.State).To(Equal(v1alpha1.IncidentResolved))
					s.clock.SetTime(s.clock.Now().Add(time.Hour))
					s.postFiring(key)
					s.fold(key)
					s.Expect(s.incident(key).Status.State).To(Equal(v1alpha1.IncidentOpen))
				})
			}
		}
	}
	t.Run("the years that no Timestamp has are refused or count as absent", func(t *testing.T) {
		for _, text := range []string{"0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z"} {
			var when v1alpha1.Timestamp
			NewWithT(t).Expect(when.UnmarshalJSON([]byte(`"` + text + `"`))).To(Succeed())
			event := eventOf(3, firingAlert())
			event.Spec.ReceivedTime = when
			NewWithT(t).Expect(receivedTime(event)).To(Equal(minute(3)), text)
		}
	})
}

func TestReceivedTimeIsBoundByTheCreation(t *testing.T) {
	for sentence, c := range map[string]struct {
		received, want, heard time.Duration // from the creation
	}{
		"a minute ahead: believed":                                            {time.Minute, time.Minute, time.Minute},
		"more than a minute ahead: the creation":                              {time.Minute + time.Microsecond, 0, 0},
		"years ahead: the creation":                                           {200 * 365 * 24 * time.Hour, 0, 0},
		"a minute before: believed":                                           {-time.Minute, -time.Minute, -time.Minute},
		"an hour before: believed, but heard no earlier than a minute before": {-time.Hour, -time.Hour, -time.Minute},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			event := eventOf(0, firingAlert())
			event.Spec.ReceivedTime = *atStamp(c.received)
			g.Expect(receivedTime(event)).To(Equal(at(c.want)))
			g.Expect(heardTime(event)).To(Equal(at(c.heard)))
		})
	}
}
