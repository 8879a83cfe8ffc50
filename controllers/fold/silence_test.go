package fold

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// silencingAlert is a user's request for a silence.
func silencingAlert(length string) v1alpha1.Alert {
	duration, _ := time.ParseDuration(length)
	alert := alertOf(v1alpha1.AlertSilenced, v1alpha1.AlertContent{Title: "of no meaning"})
	alert.By, alert.Comment, alert.SilenceFor = "maria", "maintenance", &metav1.Duration{Duration: duration}
	return alert
}

func openIncident() *foldBench {
	bench := newBench()
	bench.fold(eventOf(1, firingAlert()))
	return bench
}

func TestARequestForASilence(t *testing.T) {
	requested := &v1alpha1.Silence{EndTime: *minuteStamp(122), By: "maria", Comment: "maintenance"}
	t.Run("is recorded and counts as no alert", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		before := bench.status().DeepCopy()
		p := bench.fold(eventOf(2, silencingAlert("2h")))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultSilenced}))
		g.Expect(p.Urgent).To(BeTrue())
		g.Expect(bench.status().Silence).To(Equal(requested))
		g.Expect(p.Transitions).To(Equal([]v1alpha1.Transition{{
			Type: v1alpha1.TransitionSilenced, Time: *minuteStamp(2), Message: "Silenced for 2h by maria", By: "maria", Comment: "maintenance",
		}}))
		g.Expect(bench.status().Alert).To(Equal(before.Alert))
		g.Expect(bench.status().AlertCount).To(Equal(before.AlertCount))
		g.Expect(bench.status().LastAlertTime).To(Equal(before.LastAlertTime))
	})
	t.Run("that nothing came of ends at its time, and the condition says so", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.at(2, eventOf(2, silencingAlert("2h")))
		g.Expect(Due(bench.incident, &bench.policy)).To(Equal(minute(122)))
		bench.at(122)
		condition := meta.FindStatusCondition(bench.status().Conditions, v1alpha1.ConditionSilenced)
		g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonNotSilenced))
		g.Expect(Due(bench.incident, &bench.policy)).To(BeZero())
	})
	t.Run("ends with the episode", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.policy.LateFiringWindow = 0
		bench.fold(eventOf(2, silencingAlert("2h")))
		bench.fold(eventOf(3, resolvingAlert()))
		g.Expect(bench.status().Silence).To(BeNil())
		bench.status().Silence = requested // which an earlier version kept
		bench.fold(eventOf(4, firingAlert()))
		g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentOpen))
		g.Expect(bench.status().Silence).To(BeNil())
	})
	t.Run("ends with an episode that resolves by itself", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.policy.AutoResolveAfter = time.Minute
		bench.fold(eventOf(2, silencingAlert("2h")))
		bench.now = minute(60)
		bench.fold()
		g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
		g.Expect(bench.status().Silence).To(BeNil())
	})
	t.Run("of a Resolved Incident comes too late", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.fold(eventOf(2, resolvingAlert()))
		p := bench.fold(eventOf(3, silencingAlert("2h")))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultLate}))
		g.Expect(p.Transitions).To(BeEmpty())
		g.Expect(bench.status().Silence).To(BeNil())
		g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("ends when somebody ends its silence in Alertmanager", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.fold(eventOf(2, silencingAlert("2h")))
		bench.now = minute(10)
		bench.silenced = Silencing{Known: true, Ended: minute(90), EndedIn: "am:9093"}
		g.Expect(bench.fold().Transitions).To(BeEmpty(), "that was the silence of an earlier request")
		bench.silenced.Ended = requested.EndTime.Time
		p := bench.fold()
		g.Expect([]bool{p.Write, p.Urgent}).To(HaveEach(true))
		g.Expect(p.Transitions).To(Equal([]v1alpha1.Transition{{
			Type: v1alpha1.TransitionUnsilenced, Time: *minuteStamp(10),
			Message: "Silence ended in Alertmanager am:9093, which does not tell who ended it",
		}}))
		g.Expect(bench.status().Silence).To(BeNil())
		g.Expect(meta.FindStatusCondition(bench.status().Conditions, v1alpha1.ConditionSilenced).Reason).To(Equal(v1alpha1.ReasonNotSilenced))
		g.Expect(bench.fold().Write).To(BeFalse(), "it is recorded once")
		bench.fold(eventOf(3, silencingAlert("3h")))
		g.Expect(bench.status().Silence).NotTo(BeNil(), "a new request is another one")
	})
	t.Run("is kept when its time has passed, to say so", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.fold(eventOf(2, silencingAlert("2h")))
		bench.silenced = Silencing{Known: true, Covering: requested}
		bench.fold()
		g.Expect(Due(bench.incident, &bench.policy)).To(BeZero(), "Alertmanager tells when it ends")
		bench.now, bench.silenced = minute(123), Silencing{Known: true}
		bench.fold()
		g.Expect(bench.status().SilencedBy).To(BeNil())
		g.Expect(bench.status().Silence).To(Equal(requested))
		g.Expect(meta.FindStatusCondition(bench.status().Conditions, v1alpha1.ConditionSilenced).Reason).To(Equal(v1alpha1.ReasonNotSilenced))
		bench.now = minute(200)
		g.Expect(bench.fold().Write).To(BeFalse())
		bench.fold(eventOf(3, resolvingAlert()))
		g.Expect(bench.status().Silence).To(BeNil())
	})
	t.Run("with 0s ends the silence", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.fold(eventOf(2, silencingAlert("2h")))
		p := bench.fold(eventOf(3, silencingAlert("0s")))
		g.Expect(bench.status().Silence).To(BeNil())
		g.Expect(kindsOf(p.Transitions)).To(Equal([]v1alpha1.TransitionType{v1alpha1.TransitionUnsilenced}))
		g.Expect(bench.fold(eventOf(4, silencingAlert("0s"))).Transitions).To(BeEmpty(), "nothing to end")
		bench.fold(eventOf(5, silencingAlert("2h")))
		condition := meta.FindStatusCondition(bench.status().Conditions, v1alpha1.ConditionSilenced)
		g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonSilenceRequested), "once more, before anything is known")
		forever := silencingAlert("")
		forever.SilenceFor = nil
		bench.fold(eventOf(6, forever))
		g.Expect(bench.status().Silence).To(BeNil(), "without a time, it is none")
	})
	t.Run("opens nothing", func(t *testing.T) {
		p := newBench().fold(eventOf(1, silencingAlert("2h")))
		NewWithT(t).Expect(resultsOf(p)).To(Equal([]string{ResultNoMatch}))
	})
	t.Run("that was overtaken changes nothing", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.fold(eventOf(5, firingAlert()))
		g.Expect(resultsOf(bench.fold(eventOf(4, silencingAlert("2h"))))).To(Equal([]string{ResultLate}))
	})
}

func TestTheConditionSilenced(t *testing.T) {
	covering := &v1alpha1.Silence{By: "ops", Comment: "deploy", EndTime: v1alpha1.NewTimestamp(minute(60))}
	const by = "ops silenced the incident in Alertmanager until 2026-03-01T13:00:00Z. deploy"
	for sentence, c := range map[string]struct {
		request string // silenceFor of an alert
		had     *v1alpha1.Silence
		now     Silencing
		want    metav1.ConditionStatus // empty: there is none
		reason  string
		message string
	}{
		"nothing was ever requested or found: there is none":         {now: Silencing{Known: true}},
		"forwarding is off and nothing was requested: there is none": {now: Silencing{Disabled: true}},
		"a silence covers the Incident": {
			now: Silencing{Known: true, Covering: covering}, want: "True", reason: v1alpha1.ReasonSilenced, message: by},
		"a silence has ended": {
			had: covering, now: Silencing{Known: true}, want: "False", reason: v1alpha1.ReasonNotSilenced, message: messageNotSilenced},
		"nothing is known yet of a silence that was found": {
			had: covering, now: Silencing{}, want: "True", reason: v1alpha1.ReasonSilenced, message: by},
		"forwarding was switched off": {
			had: covering, now: Silencing{Disabled: true}, want: "False", reason: v1alpha1.ReasonNotSilenced, message: messageNotSilenced},
		"one was requested": {
			request: "2h", now: Silencing{Known: true}, want: "False", reason: v1alpha1.ReasonSilenceRequested, message: messageSilenceRequested},
		"one was requested before anything is known": {
			request: "2h", now: Silencing{}, want: "False", reason: v1alpha1.ReasonSilenceRequested, message: messageSilenceRequested},
		"one was requested and found": {
			request: "2h", now: Silencing{Known: true, Covering: covering}, want: "True", reason: v1alpha1.ReasonSilenced, message: by},
		"one was requested, and nothing is known yet of a silence that was found": {
			request: "2h", had: covering, now: Silencing{}, want: "True", reason: v1alpha1.ReasonSilenced, message: by},
		"one was requested, and the one that was found is gone": {
			request: "2h", had: covering, now: Silencing{Known: true}, want: "False", reason: v1alpha1.ReasonSilenceRequested,
			message: messageSilenceRequested},
		"the requested one was over before anybody looked: there is none": {request: "1m", now: Silencing{Known: true}},
		"one was requested without forwarding": {
			request: "2h", now: Silencing{Disabled: true}, want: "False", reason: v1alpha1.ReasonForwardingDisabled,
			message: messageForwardingDisabled},
		"the requested one is over": {
			request: "1m", had: covering, now: Silencing{Known: true}, want: "False", reason: v1alpha1.ReasonNotSilenced,
			message: messageNotSilenced},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := openIncident()
			if c.had != nil {
				bench.silenced = Silencing{Known: true, Covering: c.had}
				bench.fold()
			}
			bench.now, bench.silenced = minute(10), c.now
			if c.request != "" {
				bench.fold(eventOf(2, silencingAlert(c.request)))
			} else {
				bench.fold()
			}
			condition := meta.FindStatusCondition(bench.status().Conditions, v1alpha1.ConditionSilenced)
			if c.want == "" {
				g.Expect(condition).To(BeNil())
				g.Expect(Due(bench.incident, &bench.policy)).To(BeZero())
				return
			}
			g.Expect([]any{condition.Status, condition.Reason, condition.Message}).To(Equal([]any{c.want, c.reason, c.message}))
			if c.want == metav1.ConditionTrue {
				g.Expect(bench.status().SilencedBy).To(Equal(covering))
			} else {
				g.Expect(bench.status().SilencedBy).To(BeNil())
			}
			bench.now = bench.now.Add(time.Second)
			g.Expect(bench.fold().Write).To(BeFalse(), "it is written once")
		})
	}
}
