package fold

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func acknowledged(s *v1alpha1.IncidentStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionAcknowledged)
}

func TestLifecycle(t *testing.T) {
	firing, resolve, ack := firingAlert(), resolvingAlert(), acknowledgingAlert()
	unack := alertOf(v1alpha1.AlertUnacknowledged, v1alpha1.AlertContent{})
	for sentence, c := range map[string]struct {
		before      []v1alpha1.Alert // folded in minutes 1, 2, …
		alert       v1alpha1.Alert   // in minute 10
		result      string
		state       v1alpha1.IncidentState
		acked       bool
		urgent      bool
		transitions []v1alpha1.TransitionType
		episode     int64
		counts      [2]int64 // of the Incident, of the episode
	}{
		"none, firing: the Incident opens": {
			alert: firing, result: ResultOpened, state: v1alpha1.IncidentOpen, urgent: true,
			transitions: []v1alpha1.TransitionType{v1alpha1.TransitionOpened}, episode: 1, counts: [2]int64{1, 1},
		},
		"Open, firing: it is updated and counted": {
			before: []v1alpha1.Alert{firing}, alert: firing, result: ResultUpdated, state: v1alpha1.IncidentOpen,
			transitions: []v1alpha1.TransitionType{}, episode: 1, counts: [2]int64{2, 2},
		},
		"Open, resolved: it is Resolved": {
			before: []v1alpha1.Alert{firing}, alert: resolve, result: ResultResolved, state: v1alpha1.IncidentResolved, urgent: true,
			transitions: []v1alpha1.TransitionType{v1alpha1.TransitionResolved}, episode: 1, counts: [2]int64{2, 2},
		},
		"Open, acknowledged: it is Acknowledged": {
			before: []v1alpha1.Alert{firing}, alert: ack, result: ResultAcknowledged, state: v1alpha1.IncidentOpen, acked: true, urgent: true,
			transitions: []v1alpha1.TransitionType{v1alpha1.TransitionAcknowledged}, episode: 1, counts: [2]int64{2, 2},
		},
		"Open and acknowledged, acknowledged: it is counted": {
			before: []v1alpha1.Alert{firing, ack}, alert: ack, result: ResultUpdated, state: v1alpha1.IncidentOpen, acked: true,
			transitions: []v1alpha1.TransitionType{}, episode: 1, counts: [2]int64{3, 3},
		},
		"Open and acknowledged, firing: it stays acknowledged": {
			before: []v1alpha1.Alert{firing, ack}, alert: firing, result: ResultUpdated, state: v1alpha1.IncidentOpen, acked: true,
			transitions: []v1alpha1.TransitionType{}, episode: 1, counts: [2]int64{3, 3},
		},
		"Open and acknowledged, resolved: it stays acknowledged": {
			before: []v1alpha1.Alert{firing, ack}, alert: resolve, result: ResultResolved, state: v1alpha1.IncidentResolved, acked: true, urgent: true,
			transitions: []v1alpha1.TransitionType{v1alpha1.TransitionResolved}, episode: 1, counts: [2]int64{3, 3},
		},
		"Open and acknowledged, unacknowledged: it is no longer acknowledged": {
			before: []v1alpha1.Alert{firing, ack}, alert: unack, result: ResultUnacknowledged, state: v1alpha1.IncidentOpen, urgent: true,
			transitions: []v1alpha1.TransitionType{v1alpha1.TransitionUnacknowledged}, episode: 1, counts: [2]int64{3, 3},
		},
		"Open, unacknowledged: it is counted": {
			before: []v1alpha1.Alert{firing}, alert: unack, result: ResultUpdated, state: v1alpha1.IncidentOpen,
			transitions: []v1alpha1.TransitionType{}, episode: 1, counts: [2]int64{2, 2},
		},
		"Open and unacknowledged, acknowledged: it is Acknowledged again": {
			before: []v1alpha1.Alert{firing, ack, unack}, alert: ack, result: ResultAcknowledged, state: v1alpha1.IncidentOpen, acked: true,
			urgent: true, transitions: []v1alpha1.TransitionType{v1alpha1.TransitionAcknowledged}, episode: 1, counts: [2]int64{4, 4},
		},
		"Resolved, unacknowledged: it is counted and stays acknowledged": {
			before: []v1alpha1.Alert{firing, ack, resolve}, alert: unack, result: ResultLate, state: v1alpha1.IncidentResolved, acked: true,
			transitions: []v1alpha1.TransitionType{}, episode: 1, counts: [2]int64{4, 4},
		},
		"Resolved, firing: it reopens with a new episode, not acknowledged": {
			before: []v1alpha1.Alert{firing, ack, resolve}, alert: firing, result: ResultReopened, state: v1alpha1.IncidentOpen, urgent: true,
			transitions: []v1alpha1.TransitionType{v1alpha1.TransitionReopened}, episode: 2, counts: [2]int64{4, 1},
		},
		"Resolved, resolved: it is counted": {
			before: []v1alpha1.Alert{firing, resolve}, alert: resolve, result: ResultLate, state: v1alpha1.IncidentResolved,
			transitions: []v1alpha1.TransitionType{}, episode: 1, counts: [2]int64{3, 3},
		},
		"Resolved, acknowledged: it is counted and not acknowledged": {
			before: []v1alpha1.Alert{firing, resolve}, alert: ack, result: ResultLate, state: v1alpha1.IncidentResolved,
			transitions: []v1alpha1.TransitionType{}, episode: 1, counts: [2]int64{3, 3},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := newBench()
			for i, alert := range c.before {
				bench.fold(eventOf(i+1, alert))
			}
			p := bench.fold(eventOf(10, c.alert))
			g.Expect(resultsOf(p)).To(Equal([]string{c.result}))
			g.Expect(kindsOf(p.Transitions)).To(Equal(c.transitions))
			g.Expect(p.Urgent).To(Equal(c.urgent))
			g.Expect(p.Write).To(BeTrue())
			s := bench.status()
			g.Expect(s.State).To(Equal(c.state))
			g.Expect(acknowledged(s)).To(Equal(c.acked))
			resolved := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResolved)
			g.Expect(resolved.Status == metav1.ConditionTrue).To(Equal(c.state == v1alpha1.IncidentResolved))
			g.Expect(isSet(s.ResolvedTime)).To(Equal(c.state == v1alpha1.IncidentResolved))
			g.Expect([2]int64{s.AlertCount, s.Episode.AlertCount}).To(Equal(c.counts))
			g.Expect(s.Episode.Number).To(Equal(c.episode))
			g.Expect(s.LastAlertTime.Time).To(Equal(minute(10)))
			g.Expect(s.ObservedGeneration).To(BeEquivalentTo(1))
		})
	}
}

func TestLifecycleTimesAreThoseOfTheAlerts(t *testing.T) {
	g := NewWithT(t)
	bench := newBench()
	bench.now = minute(-60) // the leader's clock is an hour behind
	bench.fold(eventOf(1, firingAlert()))
	s := bench.status()
	g.Expect(s.OpenedTime.Time).To(Equal(minute(1)))
	g.Expect(s.Episode.StartTime.Time).To(Equal(minute(1)))
	g.Expect(s.Conditions).To(HaveLen(2), "both conditions from the first write on")
	for _, condition := range s.Conditions {
		g.Expect(condition.Status).To(Equal(metav1.ConditionFalse))
		g.Expect(condition.LastTransitionTime.Time).To(Equal(minute(1)))
		g.Expect(condition.ObservedGeneration).To(BeEquivalentTo(1))
		g.Expect(condition.Message).NotTo(BeEmpty())
	}
	bench.fold(eventOf(2, firingAlert()), eventOf(3, resolvingAlert()), eventOf(4, resolvingAlert()))
	s = bench.status()
	g.Expect(s.ResolvedTime.Time).To(Equal(minute(3)))
	g.Expect(s.Timeline[len(s.Timeline)-1].Time.Time).To(Equal(minute(3)))
	g.Expect(meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResolved).LastTransitionTime.Time).To(Equal(minute(3)))
	g.Expect(meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAcknowledged).LastTransitionTime.Time).To(Equal(minute(1)))
}

func TestLateDuplicates(t *testing.T) {
	firing := func(startTime *v1alpha1.Timestamp) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: startTime})
	}
	resolve := func(endTime *v1alpha1.Timestamp) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{EndTime: endTime})
	}
	forever := timestamp(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	predicted := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: minuteStamp(10), EndTime: minuteStamp(90)})
	for sentence, c := range map[string]struct {
		opener, resolver, alert v1alpha1.Alert // in minutes 10, 20 and 30
		late                    bool
	}{
		"no startTime: reopens":                                             {firing(minuteStamp(9)), resolve(minuteStamp(19)), firing(nil), false},
		"a zero startTime: reopens":                                         {firing(minuteStamp(9)), resolve(nil), firing(&v1alpha1.Timestamp{}), false},
		"the episode's startTime: late":                                     {firing(minuteStamp(9)), resolve(nil), firing(minuteStamp(9)), true},
		"before the episode's start: late":                                  {firing(minuteStamp(9)), resolve(nil), firing(minuteStamp(3)), true},
		"after the start, no endTime: reopens":                              {firing(minuteStamp(9)), resolve(nil), firing(minuteStamp(12)), false},
		"not after the endTime: late":                                       {firing(minuteStamp(9)), resolve(minuteStamp(19)), firing(minuteStamp(19)), true},
		"after the endTime: reopens":                                        {firing(minuteStamp(9)), resolve(minuteStamp(19)), firing(minuteStamp(21)), false},
		"the received time is the start: late":                              {firing(nil), resolve(nil), firing(minuteStamp(10)), true},
		"an endTime predicted by a firing alert does not hide a new outage": {predicted, resolve(nil), firing(minuteStamp(25)), false},
		"an endTime of the year 9999 does not either":                       {firing(nil), resolve(forever), firing(minuteStamp(25)), false},
		"nor a startTime of the year 9999":                                  {firing(forever), resolve(nil), firing(minuteStamp(25)), false},
		"the very startTime of the year 9999 again: late":                   {firing(forever), resolve(nil), firing(forever), true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := newBench()
			bench.fold(eventOf(10, c.opener), eventOf(20, c.resolver))
			before := bench.status().Alert
			p := bench.fold(eventOf(30, c.alert))
			s := bench.status()
			g.Expect(s.AlertCount).To(BeEquivalentTo(3))
			if !c.late {
				g.Expect(resultsOf(p)).To(Equal([]string{ResultReopened}))
				return
			}
			g.Expect(resultsOf(p)).To(Equal([]string{ResultLate}))
			g.Expect(s.State).To(Equal(v1alpha1.IncidentResolved))
			g.Expect(s.Alert).To(Equal(before))
			g.Expect(s.Episode.Number).To(BeEquivalentTo(1))
			g.Expect(p.Urgent).To(BeFalse())
		})
	}
}

func TestReopeningStartsAfresh(t *testing.T) {
	g := NewWithT(t)
	bench := newBench()
	first := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{
		Title: "old", Severity: v1alpha1.SeverityCritical, Hostname: "db-1",
		Labels: map[string]string{"a": "1"}, StartTime: minuteStamp(0), EndTime: minuteStamp(2),
	})
	again := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: minuteStamp(8)})
	bench.fold(eventOf(1, first), eventOf(2, resolvingAlert()), eventOf(9, again))
	s := bench.status()
	g.Expect(s.Alert).To(Equal(v1alpha1.AlertContent{
		Title: "Alert from mon", Severity: v1alpha1.SeverityWarning, Type: "webhook", StartTime: minuteStamp(8),
	}))
	g.Expect(s.Episode).To(Equal(&v1alpha1.Episode{
		Number: 2, StartTime: *minuteStamp(8), LastStartTime: minuteStamp(8), AlertCount: 1,
	}))
	g.Expect(s.OpenedTime.Time).To(Equal(minute(9)))
	g.Expect(s.ResolvedTime).To(BeNil())
}

func TestTimeline(t *testing.T) {
	severe := func(severity v1alpha1.Severity, title string) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Severity: severity, Title: title})
	}
	t.Run("it says what happened, oldest first", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		p := bench.fold(
			eventOf(1, severe(v1alpha1.SeverityInfo, "Disk\n\tfull\u202e \x1b[31m now")),
			eventOf(2, severe(v1alpha1.SeverityCritical, "")), eventOf(3, severe(v1alpha1.SeverityCritical, "")),
			eventOf(4, acknowledgingAlert()), eventOf(5, resolvingAlert()), eventOf(6, severe("", "x")))
		g.Expect(p.Transitions).To(Equal([]v1alpha1.Transition{
			{Type: v1alpha1.TransitionOpened, Time: *minuteStamp(1), Severity: "info", Message: "Opened with severity info: Disk full [31m now"},
			{Type: v1alpha1.TransitionSeverityChanged, Time: *minuteStamp(2), Severity: "critical", Message: "Severity changed from info to critical"},
			{Type: v1alpha1.TransitionAcknowledged, Time: *minuteStamp(4), Message: "Acknowledged by an alert"},
			{Type: v1alpha1.TransitionResolved, Time: *minuteStamp(5), Message: "Resolved by an alert"},
			{Type: v1alpha1.TransitionReopened, Time: *minuteStamp(6), Severity: "warning", Message: "Reopened with severity warning: x"},
		}))
		g.Expect(bench.status().Timeline).To(Equal(p.Transitions))
	})
	t.Run("it says who did what, and what they said about it", func(t *testing.T) {
		g := NewWithT(t)
		said := func(alert v1alpha1.Alert, by, comment string) v1alpha1.Alert {
			alert.By, alert.Comment = by, comment
			return alert
		}
		bench := newBench()
		p := bench.fold(
			eventOf(1, said(severe("", "x"), "mallory", "by hand")),
			eventOf(2, said(acknowledgingAlert(), "maria\u202e\n", "looking\n\x1b[31minto it")),
			eventOf(3, said(acknowledgingAlert(), "alex", "")),
			eventOf(4, said(acknowledgingAlert(), "alex", "me too")),
			eventOf(5, said(resolvingAlert(), "", "sent with a comment")),
			eventOf(6, said(severe("", "y"), "", "of no effect")), eventOf(7, said(resolvingAlert(), "maria", "")))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultOpened, ResultAcknowledged, ResultUpdated, ResultUpdated,
			ResultResolved, ResultReopened, ResultResolved}))
		texts := [][3]string{}
		for _, transition := range p.Transitions {
			texts = append(texts, [3]string{transition.Message, transition.By, transition.Comment})
		}
		g.Expect(texts).To(Equal([][3]string{
			{"Opened by mallory with severity warning: x", "mallory", "by hand"},
			{"Acknowledged by maria", "maria", "looking [31minto it"},
			{"Acknowledged by alex", "alex", "me too"},
			{"Resolved by an alert", "", "sent with a comment"},
			{"Reopened with severity warning: y"},
			{"Resolved by maria", "maria"},
		}))
		s := bench.status()
		g.Expect([2]int64{s.AlertCount, s.Episode.AlertCount}).To(Equal([2]int64{3, 1}), "the reports of people are no alerts")
		g.Expect(s.LastAlertTime).To(Equal(minuteStamp(6)))
		resolved := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResolved)
		g.Expect(resolved.Reason).To(Equal(v1alpha1.ReasonResolvedByUser))
		g.Expect(resolved.Message).To(Equal("maria resolved the incident."))
		g.Expect(s.Resolution).To(Equal(&v1alpha1.Resolution{Reason: v1alpha1.ReasonResolvedByUser, By: "maria"}))
		g.Expect(s.Acknowledgement).To(BeNil(), "that of the first episode")
	})
	t.Run("it has the notes, of a Resolved Incident too, and they are no alerts", func(t *testing.T) {
		g := NewWithT(t)
		note := func(by, comment string, content v1alpha1.AlertContent) v1alpha1.Alert {
			alert := alertOf(v1alpha1.AlertNoted, content)
			alert.By, alert.Comment = by, comment
			return alert
		}
		critical := v1alpha1.AlertContent{Title: "z", Severity: v1alpha1.SeverityCritical}
		bench := newBench()
		g.Expect(resultsOf(bench.fold(eventOf(1, note("maria", "too early", critical))))).To(Equal([]string{ResultNoMatch}))
		p := bench.fold(
			eventOf(2, severe("", "x")), eventOf(3, note("maria", "a disk\nis ordered", v1alpha1.AlertContent{Title: "y"})),
			eventOf(4, note("", "", critical)), eventOf(5, resolvingAlert()),
			eventOf(6, note("", "it was the disk", v1alpha1.AlertContent{Title: "of no effect"})))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultOpened, ResultUpdated, ResultUpdated, ResultResolved, ResultLate}))
		g.Expect(p.Transitions[1:]).To(Equal([]v1alpha1.Transition{
			{Type: v1alpha1.TransitionNoted, Time: *minuteStamp(3), Message: "Noted by maria", By: "maria", Comment: "a disk is ordered"},
			{Type: v1alpha1.TransitionSeverityChanged, Time: *minuteStamp(4), Severity: "critical", Message: "Severity changed from warning to critical"},
			{Type: v1alpha1.TransitionResolved, Time: *minuteStamp(5), Message: "Resolved by an alert"},
			{Type: v1alpha1.TransitionNoted, Time: *minuteStamp(6), Message: "Noted by an alert", Comment: "it was the disk"},
		}))
		s := bench.status()
		g.Expect(s.State).To(Equal(v1alpha1.IncidentResolved))
		g.Expect(s.Alert.Title).To(Equal("z"))
		g.Expect([2]int64{s.AlertCount, s.Episode.AlertCount}).To(Equal([2]int64{2, 2}))
		g.Expect(s.LastAlertTime).To(Equal(minuteStamp(5)))
	})
	t.Run("the first user who acknowledged is in the condition and in the acknowledgement", func(t *testing.T) {
		g := NewWithT(t)
		maria, alex := acknowledgingAlert(), acknowledgingAlert()
		maria.By, alex.By, alex.Comment = "maria", "alex", "me too"
		bench := newBench()
		bench.fold(eventOf(1, severe("", "x")), eventOf(2, maria), eventOf(3, alex))
		condition := meta.FindStatusCondition(bench.status().Conditions, v1alpha1.ConditionAcknowledged)
		g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonAcknowledgedByUser))
		g.Expect(condition.Message).To(Equal("maria acknowledged the incident."))
		g.Expect(bench.status().Acknowledgement).To(Equal(&v1alpha1.Acknowledgement{
			Time: *minuteStamp(2), By: "maria", Severity: v1alpha1.SeverityWarning,
		}))
	})
	t.Run("it says who withdrew the acknowledgement, and that is no alert", func(t *testing.T) {
		g := NewWithT(t)
		maria, alex := acknowledgingAlert(), alertOf(v1alpha1.AlertUnacknowledged, v1alpha1.AlertContent{})
		maria.By, alex.By, alex.Comment = "maria", "alex", "she is on leave"
		bench := newBench()
		p := bench.fold(eventOf(1, severe("", "x")), eventOf(2, maria), eventOf(3, alex))
		g.Expect(p.Transitions[2]).To(Equal(v1alpha1.Transition{
			Type: v1alpha1.TransitionUnacknowledged, Time: *minuteStamp(3), Message: "Unacknowledged by alex", By: "alex", Comment: "she is on leave",
		}))
		g.Expect(bench.status().Acknowledgement).To(BeNil())
		condition := meta.FindStatusCondition(bench.status().Conditions, v1alpha1.ConditionAcknowledged)
		g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonUnacknowledgedByUser))
		g.Expect(condition.Message).To(Equal("alex unacknowledged the incident."))
		g.Expect(condition.LastTransitionTime.Time).To(Equal(minute(3)))
		g.Expect(bench.status().AlertCount).To(BeEquivalentTo(1))
		g.Expect(bench.status().LastAlertTime).To(Equal(minuteStamp(1)))
	})
	t.Run("it keeps the newest 20, and the plan has them all", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		alerts := []v1alpha1.Alert{}
		for i := range 15 {
			alerts = append(alerts, severe("", fmt.Sprint("number ", i)), resolvingAlert())
		}
		p := bench.fold(eventOf(1, alerts...))
		g.Expect(p.Transitions).To(HaveLen(30))
		g.Expect(bench.status().Timeline).To(Equal(p.Transitions[10:]))
	})
	t.Run("a message has at most 256 characters", func(t *testing.T) {
		g := NewWithT(t)
		p := newBench().fold(eventOf(1, severe("", strings.Repeat("ü", 1000))))
		message := []rune(p.Transitions[0].Message)
		g.Expect(len(message)).To(BeNumerically("<=", 256))
		g.Expect(string(message[len(message)-2:])).To(Equal("ü…"))
	})
	t.Run("an entry has at most 256 characters of each text, and little JSON", func(t *testing.T) {
		g := NewWithT(t)
		for _, letter := range []string{"x", "ü", "&", "漢"} {
			noted := alertOf(v1alpha1.AlertNoted, v1alpha1.AlertContent{})
			noted.By, noted.Comment = strings.Repeat(letter, 256), strings.Repeat(letter, 1024)
			entry := newBench().fold(eventOf(1, severe("", "x")), eventOf(2, noted)).Transitions[1]
			for _, text := range []string{entry.Message, entry.By, entry.Comment} {
				g.Expect(utf8.RuneCountInString(text)).To(BeNumerically("<=", 256))
			}
			encoded, err := json.Marshal(&entry)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(encoded)).To(BeNumerically("<=", 1200), letter)
		}
	})
	t.Run("a resolve with a lower severity is one transition, and leaves the severity", func(t *testing.T) {
		bench := newBench()
		bench.fold(eventOf(1, severe(v1alpha1.SeverityCritical, "")))
		p := bench.fold(eventOf(2, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{Severity: v1alpha1.SeverityInfo})))
		g := NewWithT(t)
		g.Expect(kindsOf(p.Transitions)).To(Equal([]v1alpha1.TransitionType{v1alpha1.TransitionResolved}))
		g.Expect(p.Status.Alert.Severity).To(Equal(v1alpha1.SeverityCritical))
	})
}

func TestForeignStatus(t *testing.T) {
	// An Incident that was written by hand may lack what the operator always writes.
	for _, state := range []v1alpha1.IncidentState{v1alpha1.IncidentOpen, v1alpha1.IncidentResolved} {
		for _, status := range []v1alpha1.AlertStatus{
			v1alpha1.AlertFiring, v1alpha1.AlertResolved, v1alpha1.AlertAcknowledged, v1alpha1.AlertUnacknowledged,
		} {
			t.Run(fmt.Sprintf("a bare %s Incident takes in a %s alert", state, status), func(t *testing.T) {
				g := NewWithT(t)
				bench := newBench()
				bench.incident = &v1alpha1.Incident{
					Spec:   v1alpha1.IncidentSpec{IntegrationName: testIntegration, DedupKey: testKey},
					Status: v1alpha1.IncidentStatus{State: state},
				}
				bench.fold(eventOf(1, alertOf(status, v1alpha1.AlertContent{StartTime: minuteStamp(0)})))
				s := bench.status()
				g.Expect(s.AlertCount).To(BeEquivalentTo(1))
				g.Expect(s.Episode.AlertCount).To(BeEquivalentTo(1))
				g.Expect(s.Episode.Number).To(BeNumerically(">=", 1))
				g.Expect(s.Episode.StartTime.IsZero()).To(BeFalse(), "the API server would refuse it")
				g.Expect(s.Ledger.Digest).To(HaveLen(32))
			})
		}
	}
}

func TestAStatusWithoutContentStillTellsWhatIsLate(t *testing.T) {
	g := NewWithT(t)
	bench := newBench()
	bench.policy.LateFiringWindow = 0
	bench.fold(eventOf(1, firingAlert()), eventOf(2, resolvingAlert()))
	stored := bench.status().DeepCopy()
	plan := bench.fold(eventOf(3, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: minuteStamp(40)})))
	bench.incident.Status = plan.WithoutContent(stored, &bench.policy, "rejected", minute(41)).Status
	bench.fold(eventOf(4, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{EndTime: minuteStamp(30)})))
	g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentOpen), "the resolve is of the episode before")

	bench.policy.LateFiringWindow = time.Hour
	stored = bench.status().DeepCopy()
	plan = bench.fold(eventOf(50, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{EndTime: minuteStamp(45)})))
	bench.incident.Status = plan.WithoutContent(stored, &bench.policy, "rejected", minute(50)).Status
	plan = bench.fold(eventOf(51, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: minuteStamp(44)})))
	g.Expect(resultsOf(plan)).To(Equal([]string{ResultLate}), "it began before the end")
}

func TestTheTimelineOfAStatusWithoutContent(t *testing.T) {
	g, bench := NewWithT(t), newBench()
	reject := func(n int, alerts ...v1alpha1.Alert) Plan {
		stored := v1alpha1.IncidentStatus{}
		if bench.incident != nil {
			stored = bench.incident.Status
		}
		plan := bench.at(n, eventOf(n, alerts...))
		bare := plan.WithoutContent(&stored, &bench.policy, "too large", minute(n))
		bench.incident.Status = bare.Status
		return bare
	}
	titled := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: "of a kind that is rejected"})
	want := []v1alpha1.Transition{
		{Type: v1alpha1.TransitionOpened, Time: *minuteStamp(1), Severity: v1alpha1.SeverityWarning},
		{Type: v1alpha1.TransitionContentRejected, Time: *minuteStamp(1), Message: "too large"},
	}
	g.Expect(reject(1, titled).Transitions).To(Equal(want), "without texts")
	g.Expect(reject(2, titled).Transitions).To(BeEmpty(), "a sender who does it every time does not fill it")
	g.Expect(bench.status().Timeline).To(Equal(want))
}

func TestAStatusWithoutContentIsStillOfAHeartbeat(t *testing.T) {
	for kind, want := range map[string]string{"heartbeat": "heartbeat", "of a kind that is rejected": defaultType} {
		g, bench := NewWithT(t), newBench()
		bench.policy.KeptTypes = []string{"heartbeat"}
		p := bench.fold(eventOf(1, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Type: kind})))
		bare := p.WithoutContent(&v1alpha1.IncidentStatus{}, &bench.policy, "rejected", minute(1))
		g.Expect(bare.Status.Alert.Type).To(Equal(want))
	}
}

func TestTheTitleOfAnEpisode(t *testing.T) {
	titled := func(title string) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: title})
	}
	g := NewWithT(t)
	bench := newBench()
	bench.policy.LateFiringWindow = 0
	title := func() string { return bench.status().Episode.Title }
	bench.fold(eventOf(1, titled("Disk 91% full")), eventOf(2, titled("Disk 92% full")))
	g.Expect(title()).To(Equal("Disk 91% full"), "it does not change")
	stored := bench.status().DeepCopy()
	plan := bench.fold(eventOf(3, titled("Disk 93% full")))
	bare := plan.WithoutContent(stored, &bench.policy, "rejected", minute(3))
	g.Expect(bare.Status.Episode.Title).To(Equal("Disk 91% full"), "which the API server accepted")

	bench.fold(eventOf(4, resolvingAlert()))
	plan = bench.fold(eventOf(5, titled(strings.Repeat("é", 300))))
	g.Expect(title()).To(Equal(strings.Repeat("é", 255) + "…"))
	bare = plan.WithoutContent(stored, &bench.policy, "rejected", minute(5))
	g.Expect(bare.Status.Episode.Title).To(BeEmpty(), "it may be the cause")

	bench.fold(eventOf(6, resolvingAlert()))
	bench.fold(eventOf(7, titled("")))
	g.Expect(title()).To(BeEmpty(), "a title that Tocsin makes names nothing")
}

func TestAReportReopensAnIncidentAsItWas(t *testing.T) {
	g := NewWithT(t)
	bench := newBench()
	full := v1alpha1.AlertContent{
		Title: "Disk full", Severity: v1alpha1.SeverityCritical, Labels: v1alpha1.Texts{"team": "storage"}, StartTime: minuteStamp(0),
	}
	bench.fold(eventOf(1, alertOf(v1alpha1.AlertFiring, full)), eventOf(2, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{})))
	report := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{})
	report.IsReport, report.By, report.Comment = true, "maria", "wrong one"
	g.Expect(resultsOf(bench.fold(eventOf(3, report)))).To(Equal([]string{ResultReopened}))
	full.StartTime, full.Type = nil, defaultType
	s := bench.status()
	g.Expect(s.Alert).To(Equal(full), "but for the time, which is that of the first problem")
	g.Expect(s.Episode.Number).To(BeEquivalentTo(2))
	g.Expect(s.Episode.AlertCount).To(BeEquivalentTo(1), "it says that the problem continues")
	g.Expect(s.LastAlertTime).To(Equal(minuteStamp(3)))
	last := s.Timeline[len(s.Timeline)-1]
	g.Expect(last.Message).To(Equal("Reopened by maria with severity critical: Disk full"))

	bench.fold(eventOf(4, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{})))
	bench.fold(eventOf(5, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: "Disk full again"})))
	g.Expect(bench.status().Alert.Labels).To(BeEmpty(), "an alert tells its own content")
}

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("x", 63)
	for sentence, c := range map[string]struct{ text, want string }{
		"a value stays":                         {"db-1.example_com", "db-1.example_com"},
		"the longest value stays":               {long, long},
		"a longer one is cut":                   {long + "y", long},
		"a cut leaves no mark at the end":       {long[:60] + "-._" + "y", long[:60]},
		"other characters become _":             {"10.0.0.1:9100/metrics", "10.0.0.1_9100_metrics"},
		"one character becomes one _":           {"a\U0001F525é\nb", "a___b"},
		"it begins and ends with a letter":      {" -_.a.- ", "a"},
		"marks before it do not count":          {strings.Repeat("/", 1000) + "a", "a"},
		"nothing stays of marks":                {"-._/", ""},
		"nothing stays of other scripts":        {"東京", ""},
		"nothing stays of nothing":              {"", ""},
		"an injection is a text":                {`x","uid":null,"`, "x___uid__null"},
		"invalid UTF-8 is replaced":             {"a\xff\xfeb", "a__b"},
		"a very long one takes no longer value": {strings.Repeat("ä", 1<<20) + "b", "b"},
		"letters beyond ASCII are no letters":   {"Ａpple", "pple"},
	} {
		t.Run(sentence, func(t *testing.T) { NewWithT(t).Expect(labelValue(c.text)).To(Equal(c.want)) })
	}
}

func TestLabelValueIsValidAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[-_.a/]{0,130}`)).Draw(t, "text")
		value := labelValue(text)
		if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
			t.Fatalf("%q becomes %q: %s", text, value, wrong)
		}
		if again := labelValue(value); again != value {
			t.Fatalf("%q becomes %q and then %q", text, value, again)
		}
		if len(validation.IsValidLabelValue(text)) == 0 && value != text {
			t.Fatalf("%q is valid, and becomes %q", text, value)
		}
	})
}

func labelled(status v1alpha1.AlertStatus, labels map[string]string) v1alpha1.Alert {
	return alertOf(status, v1alpha1.AlertContent{Labels: labels})
}

func TestTheLabelsOfTheObjectAreThoseOfTheFirstAlertOfAnEpisode(t *testing.T) {
	firing := func(team string) v1alpha1.Alert {
		return labelled(v1alpha1.AlertFiring, map[string]string{"team": team, "pod": "p", "empty": "/"})
	}
	start := func(t *testing.T, names ...string) (*WithT, *foldBench) {
		t.Helper()
		bench := newBench()
		bench.policy.LateFiringWindow, bench.policy.ObjectLabels = 0, names
		return NewWithT(t), bench
	}
	team := func(name string) map[string]string { return map[string]string{"alert.tocsin.dev/team": name} }

	t.Run("once", func(t *testing.T) {
		g, bench := start(t, "team", "empty", "none")
		g.Expect(bench.at(1, eventOf(1, firing("a"), firing("b"))).ObjectLabels).To(Equal(team("a")))
		g.Expect(bench.at(2, eventOf(2, firing("c"))).ObjectLabels).To(BeNil(), "a repeat changes none")
		g.Expect(bench.at(3, eventOf(3, labelled(v1alpha1.AlertResolved, team("d")))).ObjectLabels).To(BeNil())
		g.Expect(bench.at(4, eventOf(4, firing("e"))).ObjectLabels).To(Equal(team("e")))
		g.Expect(bench.at(5, eventOf(5, resolvingAlert(), firing("f"), resolvingAlert())).ObjectLabels).To(Equal(team("f")))
		g.Expect(bench.at(6).ObjectLabels).To(BeNil())
	})
	t.Run("with the integration's defaults", func(t *testing.T) {
		g, bench := start(t, "team", "site")
		event := eventOf(1, firing("a"))
		event.Spec.Defaults = &v1alpha1.AlertDefaults{Labels: map[string]v1alpha1.LabelValue{"team": "z", "site": "north"}}
		want := team("a")
		want["alert.tocsin.dev/site"] = "north"
		g.Expect(bench.at(1, event).ObjectLabels).To(Equal(want))
	})
	t.Run("none if the integration lists none, or no label has a value", func(t *testing.T) {
		g, bench := start(t)
		g.Expect(bench.at(1, eventOf(1, firing("a"))).ObjectLabels).To(And(BeEmpty(), Not(BeNil())), "those of earlier settings go")
		g, bench = start(t, "team")
		g.Expect(bench.at(1, eventOf(1, firingAlert())).ObjectLabels).To(And(BeEmpty(), Not(BeNil())))
	})
	t.Run("those that it has while its integration is deleted", func(t *testing.T) {
		g, bench := start(t)
		bench.policy.Absent = true
		g.Expect(bench.at(1, eventOf(1, firing("a"))).ObjectLabels).To(BeNil())
	})
}
