package fold

import (
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
		"within the window: late":                                          {30 * time.Second, 30*time.Second - time.Microsecond, ResultLate},
		"when the window is over: reopens":                                 {30 * time.Second, 30 * time.Second, ResultReopened},
		"four hours later: reopens":                                        {30 * time.Second, 4 * time.Hour, ResultReopened},
		"by a replica whose clock is behind: late":                         {30 * time.Second, -time.Second, ResultLate},
		"after the clock was set back: reopens":                            {30 * time.Second, -10 * time.Minute, ResultReopened},
		"no window: reopens":                                               {0, time.Microsecond, ResultReopened},
		"no window, by a replica whose clock is behind: reopens":           {0, -time.Second, ResultReopened},
		"no window, at the very moment: reopens":                           {0, 0, ResultReopened},
		"a window of a day, four hours later: late":                        {24 * time.Hour, 4 * time.Hour, ResultLate},
		"the leader's own clock does not matter: late, though folded then": {30 * time.Second, time.Second, ResultLate},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := newBench()
			bench.policy.LateFiringWindow = c.window
			bench.now = minute(1e6)
			firing := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: atStamp(0)})
			bench.fold(receivedAt(eventOf(1, firing), at(0)), receivedAt(eventOf(2, resolvingAlert()), at(resolvedAt)))
			p := bench.fold(receivedAt(eventOf(3, firing), at(resolvedAt+c.received)))
			g.Expect(resultsOf(p)).To(Equal([]string{c.want}))
			g.Expect(bench.status().AlertCount).To(BeEquivalentTo(3))
			if c.want != ResultLate {
				g.Expect(bench.status().LastIgnored).To(BeNil())
				return
			}
			g.Expect(bench.status().LastIgnored).To(Equal(&v1alpha1.IgnoredAlert{
				Reason: v1alpha1.IgnoredLate, Time: *atStamp(resolvedAt + c.received),
				Message: "A firing that began at 2026-03-01T12:00:00Z repeats the episode that was resolved at 2026-03-01T12:10:00Z.",
			}))
		})
	}
}

// windows are Presets with these windows.
type windows map[string]time.Duration

func (w windows) LateFiringWindow(preset string) (window time.Duration, ok bool) {
	window, ok = w[preset]
	return window, ok
}

// TestTheLateWindowIsThatOfThePresetWhichReadTheAlert has alerts of several tools in one integration.
func TestTheLateWindowIsThatOfThePresetWhichReadTheAlert(t *testing.T) {
	presets := windows{"vmalert": 0, "alertmanager": time.Minute}
	own := &metav1.Duration{Duration: 10 * time.Second}
	for sentence, c := range map[string]struct {
		chosen, used string           // by the integration, and for the alert
		own          *metav1.Duration // the integration's window
		after        time.Duration    // of the resolve
		want         string
	}{
		"a preset that delivers in order":                              {"", "vmalert", nil, time.Second, ResultReopened},
		"a preset of a cluster, 31 seconds later":                      {"", "alertmanager", nil, 31 * time.Second, ResultLate},
		"a preset of a cluster, 61 seconds later":                      {"", "alertmanager", nil, 61 * time.Second, ResultReopened},
		"the preset that was used, not the one of the integration now": {"vmalert", "alertmanager", nil, 31 * time.Second, ResultLate},
		"a preset without a window":                                    {"", "zabbix", nil, 29 * time.Second, ResultLate},
		"an alert without a preset: that of the integration":           {"alertmanager", "", nil, 31 * time.Second, ResultLate},
		"the integration's own window goes first":                      {"", "alertmanager", own, 11 * time.Second, ResultReopened},
	} {
		t.Run(sentence, func(t *testing.T) {
			bench := newBench()
			bench.policy = PolicyOf(&v1alpha1.WebhookIntegration{
				Spec: v1alpha1.WebhookIntegrationSpec{Preset: c.chosen, LateFiringWindow: c.own},
			}, presets)
			firing := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: atStamp(0), Preset: c.used})
			bench.fold(receivedAt(eventOf(1, firing), at(0)), receivedAt(eventOf(2, resolvingAlert()), at(time.Minute)))
			p := bench.fold(receivedAt(eventOf(3, firing), at(time.Minute+c.after)))
			NewWithT(t).Expect(resultsOf(p)).To(Equal([]string{c.want}))
		})
	}
}

func TestAnIgnoredAlertLeavesATraceUntilTheNextEpisode(t *testing.T) {
	g := NewWithT(t)
	bench := newBench()
	bench.fold(eventOf(1, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{})))
	g.Expect(bench.status().LastIgnored).To(BeNil())
	bench.fold(eventOf(3, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{})))
	bench.fold(eventOf(2, resolvingAlert()))
	g.Expect(bench.status().LastIgnored.Reason).To(Equal(v1alpha1.IgnoredOvertaken))
	g.Expect(bench.status().LastIgnored.Message).To(
		Equal("An alert with status resolved was folded after one that had been accepted later."))

	t.Log("a resolve that is repeated is as usual")
	before := bench.status().LastIgnored
	bench.fold(eventOf(4, resolvingAlert()), eventOf(5, resolvingAlert()))
	g.Expect(bench.status().LastIgnored).To(Equal(before))

	bench.fold(eventOf(6, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{})))
	g.Expect(bench.status().LastIgnored).To(BeNil())
}

func TestStaleResolves(t *testing.T) {
	resolve := func(startTime, endTime *v1alpha1.Timestamp) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{StartTime: startTime, EndTime: endTime})
	}
	byMaria := resolve(nil, atStamp(0))
	byMaria.By = "maria"
	const second = time.Second
	for sentence, c := range map[string]struct {
		startTime *v1alpha1.Timestamp // of the episode
		resolve   v1alpha1.Alert
		stale     bool
	}{
		"endTime before the episode's startTime: late":                   {atStamp(60 * second), resolve(nil, atStamp(59*second)), true},
		"endTime equal to it: resolves":                                  {atStamp(60 * second), resolve(nil, atStamp(60*second)), false},
		"endTime after it: resolves":                                     {atStamp(60 * second), resolve(nil, atStamp(61*second)), false},
		"endTime after it, startTime before it: resolves":                {atStamp(60 * second), resolve(atStamp(0), atStamp(61*second)), false},
		"endTime before it, startTime after it: late":                    {atStamp(60 * second), resolve(atStamp(61*second), atStamp(59*second)), true},
		"startTime alone, before it: late":                               {atStamp(60 * second), resolve(atStamp(0), nil), true},
		"startTime alone, the same: resolves":                            {atStamp(60 * second), resolve(atStamp(60*second), nil), false},
		"no times: resolves":                                             {atStamp(60 * second), resolve(nil, nil), false},
		"the episode without startTime, whatever was received: resolves": {nil, resolve(nil, atStamp(-time.Hour)), false},
		"a user's resolve, with an endTime of before: resolves":          {atStamp(60 * second), byMaria, false},
		"endTime in seconds, within the second of the start: resolves": {
			atStamp(60*second + 700*time.Millisecond), resolve(nil, atStamp(60*second)), false},
		"endTime in seconds, a second before: late": {
			atStamp(60*second + 700*time.Millisecond), resolve(nil, atStamp(59*second)), true},
		"endTime in milliseconds, within the one of the start: resolves": {
			atStamp(60*second + 1700*time.Microsecond), resolve(nil, atStamp(60*second+time.Millisecond)), false},
		"endTime in microseconds, one before: late": {
			atStamp(60*second + 700*time.Microsecond), resolve(nil, atStamp(60*second+699*time.Microsecond)), true},
		"the episode's startTime in the year 9999: resolves": {
			timestamp(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)), resolve(nil, atStamp(60*second)), false},
		"the episode's startTime in a time zone ahead, endTime of before: late": {
			atStamp(14 * time.Hour), resolve(nil, atStamp(13*time.Hour)), true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := newBench()
			bench.fold(eventOf(2, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: c.startTime})))
			before := bench.status().Alert
			p := bench.fold(eventOf(3, c.resolve))
			s := bench.status()
			if c.resolve.By == "" {
				g.Expect(s.AlertCount).To(BeEquivalentTo(2))
				g.Expect(s.LastAlertTime.Time).To(Equal(minute(3)))
			}
			if !c.stale {
				g.Expect(resultsOf(p)).To(Equal([]string{ResultResolved}))
				g.Expect(s.LastIgnored).To(BeNil())
				return
			}
			g.Expect(s.LastIgnored).To(HaveField("Reason", v1alpha1.IgnoredStale))
			g.Expect(s.LastIgnored.Message).To(MatchRegexp(
				`^A resolve of what (began|ended) at \S+Z is about an earlier firing than the one that began at \S+Z\.$`))
			g.Expect(resultsOf(p)).To(Equal([]string{ResultLate}))
			g.Expect(s.State).To(Equal(v1alpha1.IncidentOpen))
			g.Expect(s.Alert).To(Equal(before))
			g.Expect([]bool{p.Write, p.Urgent}).To(Equal([]bool{true, false}))
		})
	}
}

// A replica whose clock is 90 seconds behind receives a resolve that is stale, and a firing that is late, half a second after what
// they follow.
func TestAReplicaWhoseClockIsBehindMakesNothingOfAnEarlierRound(t *testing.T) {
	behind := func(n int, after time.Duration, a v1alpha1.Alert) *v1alpha1.AlertEvent {
		event := receivedAt(eventOf(n, a), minute(10).Add(after-90*time.Second))
		event.CreationTimestamp = metav1.NewTime(minute(10).Add(after).Truncate(time.Second))
		return event
	}
	at := func(after time.Duration) *v1alpha1.Timestamp { return timestamp(minute(10).Add(after)) }
	const half, second = 500 * time.Millisecond, time.Second
	firing := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: at(half)})
	g, bench := NewWithT(t), newBench()
	bench.fold(receivedAt(eventOf(1, firing), minute(10).Add(half)))
	bench.fold(behind(2, second-time.Millisecond, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{EndTime: at(-10 * second)})))
	g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentOpen))
	g.Expect(bench.status().LastIgnored).To(HaveField("Reason", v1alpha1.IgnoredStale))

	bench.fold(receivedAt(eventOf(3, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{EndTime: at(2 * second)})), minute(10).Add(2*second+half)))
	bench.fold(behind(4, 3*second-time.Millisecond, firing))
	g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
	g.Expect(bench.status().LastIgnored).To(HaveField("Reason", v1alpha1.IgnoredLate))
}

// A heartbeat tells its times by the API server's clock.
func TestNoResolveIsStaleAfterTheClockWasSetBack(t *testing.T) {
	tomorrow := minute(24 * 60)
	for sentence, c := range map[string]struct {
		between []v1alpha1.AlertStatus // received before the resolve, after the clock was set back
		certain bool
	}{
		"it is the first alert after that":             {certain: true},
		"another alert has come before":                {between: []v1alpha1.AlertStatus{v1alpha1.AlertAcknowledged}, certain: true},
		"another one, while the time was not certain":  {between: []v1alpha1.AlertStatus{v1alpha1.AlertAcknowledged}},
		"nothing but the time, while it was uncertain": {between: []v1alpha1.AlertStatus{""}},
		"nothing but the time":                         {between: []v1alpha1.AlertStatus{""}, certain: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bench := NewWithT(t), newBench()
			firing := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: timestamp(tomorrow)})
			bench.fold(receivedAt(eventOf(1, firing), tomorrow))
			for _, status := range c.between {
				if bench.now = minute(2); !c.certain {
					bench.policy.QuietFrom, bench.policy.Uncertain = bench.now, true
				}
				if bench.fold(); status != "" {
					bench.fold(eventOf(2, alertOf(status, v1alpha1.AlertContent{})))
				}
			}
			bench.now, bench.policy.Uncertain = minute(5), false
			resolve := alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{EndTime: minuteStamp(1)})
			g.Expect(resultsOf(bench.fold(eventOf(5, resolve)))).To(Equal([]string{ResultResolved}))
		})
	}
}

func TestAStaleResolveNeverEndsWhatFires(t *testing.T) {
	const minute = time.Minute
	firing := func(startTime time.Duration) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: atStamp(startTime)})
	}
	resolve := func(startTime, endTime time.Duration) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{StartTime: atStamp(startTime), EndTime: atStamp(endTime)})
	}
	withoutEnd := alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{StartTime: atStamp(-20 * minute)})
	for sentence, c := range map[string]struct {
		before []v1alpha1.Alert // of earlier episodes
		firing []v1alpha1.Alert
		stale  v1alpha1.Alert
	}{
		"of an earlier round, which is over": {
			firing: []v1alpha1.Alert{firing(-20 * minute), firing(-2 * minute)}, stale: resolve(-20*minute, -5*minute)},
		"of an earlier round, without an end": {
			firing: []v1alpha1.Alert{firing(-20 * minute), firing(-2 * minute)}, stale: withoutEnd},
		"of an earlier round, whose firing comes once more": {
			firing: []v1alpha1.Alert{firing(-20 * minute), firing(-2 * minute), firing(-20 * minute)}, stale: resolve(-20*minute, -5*minute)},
		"of an earlier episode": {
			before: []v1alpha1.Alert{firing(-20 * minute), resolve(-20*minute, -5*minute)},
			firing: []v1alpha1.Alert{firing(-2 * minute)}, stale: resolve(-20*minute, -5*minute)},
		"of an earlier episode, whose firing comes once more": {
			before: []v1alpha1.Alert{firing(-20 * minute), resolve(-20*minute, -5*minute)},
			firing: []v1alpha1.Alert{firing(-2 * minute), firing(-20 * minute)}, stale: resolve(-20*minute, -5*minute)},
		"of a round before one whose start is in another century": {
			firing: []v1alpha1.Alert{firing(-2 * minute), firing(800_000 * time.Hour)}, stale: resolve(-20*minute, -5*minute)},
	} {
		for place, fold := range map[string]func(bench *foldBench, n int, alerts ...v1alpha1.Alert){
			"kept": func(bench *foldBench, n int, alerts ...v1alpha1.Alert) { bench.fold(eventOf(n, alerts...)) },
			"rejected": func(bench *foldBench, n int, alerts ...v1alpha1.Alert) {
				stored := v1alpha1.IncidentStatus{}
				if bench.incident != nil {
					stored = bench.incident.Status
				}
				p := bench.fold(eventOf(n, alerts...))
				bench.incident.Status = p.WithoutContent(&stored, &bench.policy, "too large", bench.now).Status
			},
		} {
			t.Run(sentence+", while content is "+place, func(t *testing.T) {
				g := NewWithT(t)
				bench := newBench()
				fold(bench, 1, append(c.before, c.firing...)...)
				fold(bench, 2, c.stale)
				g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentOpen))
				g.Expect(bench.status().AlertCount).To(BeEquivalentTo(len(c.before) + len(c.firing) + 1))
				fold(bench, 3, resolve(-2*minute, 0))
				g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
			})
		}
	}
}

func TestAFiringOfAnyRoundOfAnEpisodeIsALateDuplicate(t *testing.T) {
	g := NewWithT(t)
	firing := func(startTime time.Duration) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: atStamp(startTime)})
	}
	bench := newBench()
	bench.fold(eventOf(1, firing(-time.Hour), firing(0), resolvingAlert()))
	p := bench.fold(eventOf(2, firing(-time.Hour), firing(0), firing(-time.Minute)))
	g.Expect(resultsOf(p)).To(HaveEach(ResultLate))
	g.Expect(resultsOf(bench.fold(eventOf(3, firing(time.Second))))).To(Equal([]string{ResultReopened}))
}

// Its receipt is long before the resolve, as it is after the clock was set back. By the time of its creation, it was not.
func TestAFiringThatIsStoredLateIsALateDuplicate(t *testing.T) {
	firing := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: atStamp(-time.Minute)})
	for late, want := range map[bool]string{true: ResultLate, false: ResultReopened} {
		bench := newBench()
		bench.fold(eventOf(4, firingAlert(), resolvingAlert()))
		event := eventOf(5, firing)
		if event.Spec.ReceivedTime = *minuteStamp(1); !late {
			event.CreationTimestamp = metav1.NewTime(minute(1))
		}
		NewWithT(t).Expect(resultsOf(bench.fold(event))).To(Equal([]string{want}), "stored late: %t", late)
	}
}

func TestOnlyAFiringBeginsARoundOfAnEpisode(t *testing.T) {
	bench := openIncident()
	ack := alertOf(v1alpha1.AlertAcknowledged, v1alpha1.AlertContent{StartTime: minuteStamp(4)})
	resolve := alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{EndTime: minuteStamp(3)})
	p := bench.fold(eventOf(5, ack), eventOf(6, resolve))
	NewWithT(t).Expect(resultsOf(p)).To(Equal([]string{ResultAcknowledged, ResultResolved}))
}

func TestReceivedTimeIsBoundByTheCreation(t *testing.T) {
	for sentence, c := range map[string]struct {
		received, want, quiet time.Duration // from the creation
	}{
		"a minute ahead: believed":                                              {time.Minute, time.Minute, time.Minute},
		"more than a minute ahead: the creation":                                {time.Minute + time.Microsecond, 0, 0},
		"years ahead: the creation":                                             {200 * 365 * 24 * time.Hour, 0, 0},
		"a minute before: believed":                                             {-time.Minute, -time.Minute, -time.Minute},
		"stored late: believed, but quiet from no earlier than a minute before": {-5 * time.Minute, -5 * time.Minute, -time.Minute},
		"more than five minutes before: the creation":                           {-5*time.Minute - time.Microsecond, 0, 0},
		"years before: the creation":                                            {-200 * 365 * 24 * time.Hour, 0, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			event := eventOf(0, firingAlert())
			event.Spec.ReceivedTime = *atStamp(c.received)
			g.Expect(ReceivedTime(event)).To(Equal(at(c.want)))
			g.Expect(quietSince(event)).To(Equal(at(c.quiet)))
		})
	}
}

func TestYearsThatNoTimestampHasCountAsAbsent(t *testing.T) {
	for _, text := range []string{"0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z"} {
		var when v1alpha1.Timestamp
		NewWithT(t).Expect(when.UnmarshalJSON([]byte(`"` + text + `"`))).To(Succeed())
		event := eventOf(3, firingAlert())
		event.Spec.ReceivedTime = when
		NewWithT(t).Expect(ReceivedTime(event)).To(Equal(minute(3)), text)
	}
}
