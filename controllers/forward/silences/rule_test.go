package silences

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

const day = 24 * 60 // minutes

// minute is the n-th minute of the tests.
func minute(n int) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Minute)
}

func minuteStamp(n int) *v1alpha1.Timestamp { return new(v1alpha1.NewTimestamp(minute(n))) }

// eventOf makes the n-th AlertEvent, with an alert of the test's Incident that is received in a minute.
func eventOf(n int, received time.Time, alert v1alpha1.Alert) *v1alpha1.AlertEvent {
	alert.ID, alert.DedupKey, alert.IncidentName = fmt.Sprint("alert-", n), "disk", v1alpha1.IncidentName("mon", "disk")
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(fmt.Sprint("uid-", n)), Name: fmt.Sprintf("019f0000-0000-7000-8000-%012d", n),
			ResourceVersion: fmt.Sprint(1000 + n), CreationTimestamp: metav1.NewTime(received),
		},
		Spec:   v1alpha1.AlertEventSpec{IntegrationName: "mon", ReceivedTime: v1alpha1.NewTimestamp(received)},
		Alerts: []v1alpha1.Alert{alert},
	}
}

func alertOf(status v1alpha1.AlertStatus) v1alpha1.Alert { return v1alpha1.Alert{Status: status} }

// silencingAlert is a user's request for a silence.
func silencingAlert(length string) v1alpha1.Alert {
	duration, _ := time.ParseDuration(length)
	alert := alertOf(v1alpha1.AlertSilenced)
	alert.Title, alert.By, alert.Comment = "of no meaning", "maria", "maintenance"
	alert.SilenceFor = &metav1.Duration{Duration: duration}
	return alert
}

// foldBench folds alerts one after the other, as a leader does whose every write succeeds.
type foldBench struct {
	fold.AllListed
	incident *v1alpha1.Incident
	policy   fold.Policy
	known    Rule
	now      time.Time
}

func newBench() *foldBench {
	return &foldBench{policy: fold.Policy{Retention: 168 * time.Hour, LateFiringWindow: time.Hour}, now: minute(0)}
}

func openIncident() *foldBench {
	bench := newBench()
	bench.alert(1, alertOf(v1alpha1.AlertFiring))
	return bench
}

// alert folds the n-th alert, which is received in the n-th minute.
func (b *foldBench) alert(n int, alert v1alpha1.Alert) fold.Plan {
	b.now = fold.Latest(b.now, minute(n))
	return b.fold(eventOf(n, minute(n), alert))
}

// at folds in the n-th minute.
func (b *foldBench) at(n int, events ...*v1alpha1.AlertEvent) fold.Plan {
	b.now = minute(n)
	return b.fold(events...)
}

func (b *foldBench) fold(events ...*v1alpha1.AlertEvent) fold.Plan {
	b.policy.Rules = []fold.Rule{b.known}
	p := fold.Decide(fold.Input{
		Name: v1alpha1.IncidentName("mon", "disk"), Incident: b.incident, Events: events, Policy: b.policy, Now: b.now, Listing: b,
	})
	if p.Create != nil {
		b.incident = &v1alpha1.Incident{
			ObjectMeta: metav1.ObjectMeta{Generation: 1, CreationTimestamp: metav1.NewTime(b.now)}, Spec: *p.Create,
		}
	}
	if p.Write {
		b.incident.Status, b.incident.ResourceVersion = p.Status, "5000"
	}
	return p
}

func (b *foldBench) status() *v1alpha1.IncidentStatus { return &b.incident.Status }

func (b *foldBench) condition() *metav1.Condition {
	return meta.FindStatusCondition(b.status().Conditions, v1alpha1.ConditionSilenced)
}

// due is when the rule changes the Incident.
func (b *foldBench) due() time.Time { return fold.Due(b.incident, &b.policy) }

func resultsOf(p fold.Plan) []string {
	results := make([]string, len(p.Results))
	for i, r := range p.Results {
		results[i] = r.Result
	}
	return results
}

func TestARequestForASilence(t *testing.T) {
	requested := &v1alpha1.Silence{EndTime: *minuteStamp(122), By: "maria", Comment: "maintenance"}
	t.Run("is recorded and counts as no alert", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		before := bench.status().DeepCopy()
		p := bench.alert(2, silencingAlert("2h"))
		g.Expect(resultsOf(p)).To(Equal([]string{Result}))
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
		bench.alert(2, silencingAlert("2h"))
		g.Expect(bench.due()).To(Equal(minute(122)))
		bench.at(122)
		condition := bench.condition()
		g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonNotSilenced))
		g.Expect(bench.due()).To(BeZero())
	})
	t.Run("ends with the episode", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.policy.LateFiringWindow = 0
		bench.alert(2, silencingAlert("2h"))
		bench.alert(3, alertOf(v1alpha1.AlertResolved))
		g.Expect(bench.status().Silence).To(BeNil())
		bench.status().Silence = requested // which an earlier version kept
		bench.alert(4, alertOf(v1alpha1.AlertFiring))
		g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentOpen))
		g.Expect(bench.status().Silence).To(BeNil())
	})
	t.Run("ends with an episode that resolves by itself", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.policy.AutoResolveAfter = time.Minute
		bench.alert(2, silencingAlert("2h"))
		bench.now = minute(60)
		bench.fold()
		g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
		g.Expect(bench.status().Silence).To(BeNil())
	})
	t.Run("of a Resolved Incident comes too late", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.alert(2, alertOf(v1alpha1.AlertResolved))
		p := bench.alert(3, silencingAlert("2h"))
		g.Expect(resultsOf(p)).To(Equal([]string{fold.ResultLate}))
		g.Expect(p.Transitions).To(BeEmpty())
		g.Expect(bench.status().Silence).To(BeNil())
		g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("ends when somebody ends its silence in Alertmanager", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.alert(2, silencingAlert("2h"))
		bench.now = minute(10)
		bench.known = Rule{Read: true, Ended: minute(90), EndedIn: "am:9093"}
		g.Expect(bench.fold().Transitions).To(BeEmpty(), "that was the silence of an earlier request")
		bench.known.Ended = requested.EndTime.Time
		p := bench.fold()
		g.Expect([]bool{p.Write, p.Urgent}).To(HaveEach(true))
		g.Expect(p.Transitions).To(Equal([]v1alpha1.Transition{{
			Type: v1alpha1.TransitionUnsilenced, Time: *minuteStamp(10),
			Message: "Silence ended in Alertmanager am:9093, which does not tell who ended it",
		}}))
		g.Expect(bench.status().Silence).To(BeNil())
		g.Expect(bench.condition().Reason).To(Equal(v1alpha1.ReasonNotSilenced))
		g.Expect(bench.fold().Write).To(BeFalse(), "it is recorded once")
		bench.alert(3, silencingAlert("3h"))
		g.Expect(bench.status().Silence).NotTo(BeNil(), "a new request is another one")
	})
	t.Run("is kept when its time has passed, to say so", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.alert(2, silencingAlert("2h"))
		bench.known = Rule{Read: true, Covering: requested}
		bench.fold()
		g.Expect(bench.due()).To(BeZero(), "Alertmanager tells when it ends")
		bench.now, bench.known = minute(123), Rule{Read: true}
		bench.fold()
		g.Expect(bench.status().SilencedBy).To(BeNil())
		g.Expect(bench.status().Silence).To(Equal(requested))
		g.Expect(bench.condition().Reason).To(Equal(v1alpha1.ReasonNotSilenced))
		bench.now = minute(200)
		g.Expect(bench.fold().Write).To(BeFalse())
		bench.alert(3, alertOf(v1alpha1.AlertResolved))
		g.Expect(bench.status().Silence).To(BeNil())
	})
	t.Run("with 0s ends the silence", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.alert(2, silencingAlert("2h"))
		p := bench.alert(3, silencingAlert("0s"))
		g.Expect(bench.status().Silence).To(BeNil())
		g.Expect(p.Transitions).To(ConsistOf(HaveField("Type", v1alpha1.TransitionUnsilenced)))
		g.Expect(bench.alert(4, silencingAlert("0s")).Transitions).To(BeEmpty(), "nothing to end")
		bench.alert(5, silencingAlert("2h"))
		condition := bench.condition()
		g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonSilenceRequested), "once more, before anything is known")
		forever := silencingAlert("")
		forever.SilenceFor = nil
		bench.alert(6, forever)
		g.Expect(bench.status().Silence).To(BeNil(), "without a time, it is none")
	})
	t.Run("opens nothing", func(t *testing.T) {
		p := newBench().alert(1, silencingAlert("2h"))
		NewWithT(t).Expect(resultsOf(p)).To(Equal([]string{fold.ResultNoMatch}))
	})
	t.Run("that was overtaken changes nothing", func(t *testing.T) {
		g := NewWithT(t)
		bench := openIncident()
		bench.alert(5, alertOf(v1alpha1.AlertFiring))
		g.Expect(resultsOf(bench.alert(4, silencingAlert("2h")))).To(Equal([]string{fold.ResultLate}))
	})
}

func TestTheConditionSilenced(t *testing.T) {
	covering := &v1alpha1.Silence{By: "ops", Comment: "deploy", EndTime: v1alpha1.NewTimestamp(minute(60))}
	const by = "ops silenced the incident in Alertmanager until 2026-03-01T13:00:00Z. deploy"
	for sentence, c := range map[string]struct {
		request string // silenceFor of an alert
		had     *v1alpha1.Silence
		now     Rule
		want    metav1.ConditionStatus // empty: there is none
		reason  string
		message string
	}{
		"nothing was ever requested or found: there is none":         {now: Rule{Read: true}},
		"forwarding is off and nothing was requested: there is none": {now: Rule{Disabled: true}},
		"a silence covers the Incident": {
			now: Rule{Read: true, Covering: covering}, want: "True", reason: v1alpha1.ReasonSilenced, message: by},
		"a silence has ended": {
			had: covering, now: Rule{Read: true}, want: "False", reason: v1alpha1.ReasonNotSilenced, message: messageNotSilenced},
		"nothing is known yet of a silence that was found": {
			had: covering, now: Rule{}, want: "True", reason: v1alpha1.ReasonSilenced, message: by},
		"forwarding was switched off": {
			had: covering, now: Rule{Disabled: true}, want: "False", reason: v1alpha1.ReasonNotSilenced, message: messageNotSilenced},
		"one was requested": {
			request: "2h", now: Rule{Read: true}, want: "False", reason: v1alpha1.ReasonSilenceRequested, message: messageSilenceRequested},
		"one was requested before anything is known": {
			request: "2h", now: Rule{}, want: "False", reason: v1alpha1.ReasonSilenceRequested, message: messageSilenceRequested},
		"one was requested and found": {
			request: "2h", now: Rule{Read: true, Covering: covering}, want: "True", reason: v1alpha1.ReasonSilenced, message: by},
		"one was requested, and nothing is known yet of a silence that was found": {
			request: "2h", had: covering, now: Rule{}, want: "True", reason: v1alpha1.ReasonSilenced, message: by},
		"one was requested, and the one that was found is gone": {
			request: "2h", had: covering, now: Rule{Read: true}, want: "False", reason: v1alpha1.ReasonSilenceRequested,
			message: messageSilenceRequested},
		"the requested one was over before anybody looked: there is none": {request: "1m", now: Rule{Read: true}},
		"one was requested without forwarding": {
			request: "2h", now: Rule{Disabled: true}, want: "False", reason: v1alpha1.ReasonForwardingDisabled,
			message: messageForwardingDisabled},
		"the requested one is over": {
			request: "1m", had: covering, now: Rule{Read: true}, want: "False", reason: v1alpha1.ReasonNotSilenced,
			message: messageNotSilenced},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := openIncident()
			if c.had != nil {
				bench.known = Rule{Read: true, Covering: c.had}
				bench.fold()
			}
			bench.now, bench.known = minute(10), c.now
			if c.request != "" {
				bench.alert(2, silencingAlert(c.request))
			} else {
				bench.fold()
			}
			condition := bench.condition()
			if c.want == "" {
				g.Expect(condition).To(BeNil())
				g.Expect(bench.due()).To(BeZero())
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

// A request ends as long after the clock was set back as it was to last.
func TestARequestEndsAfterTheClockWasSetBack(t *testing.T) {
	for how, isBare := range map[string]bool{"its content accepted": false, "its content rejected": true} {
		t.Run(how, func(t *testing.T) {
			g, bench := NewWithT(t), newBench()
			bench.policy.AutoResolveAfter = time.Hour
			ended := func() bool { return bench.condition().Reason == v1alpha1.ReasonNotSilenced }
			for n, alert := range []v1alpha1.Alert{alertOf(v1alpha1.AlertFiring), silencingAlert("30m")} {
				bench.at(day+n+1, eventOf(n+1, minute(day+n+1), alert))
			}
			stored := bench.status().DeepCopy()
			p := bench.at(3)
			if isBare {
				bench.incident.Status = p.WithoutContent(stored, &bench.policy, "rejected", bench.now).Status
				g.Expect(bench.status().Silence.Comment).To(BeEmpty())
			}
			g.Expect([]bool{p.Write, p.Urgent, p.ByTime}).To(Equal([]bool{true, false, false}))
			for _, n := range []int{3, 4} {
				plan := bench.at(n)
				g.Expect(plan.IsIdle()).To(BeTrue(), "it is written once")
			}
			g.Expect(ended()).To(BeFalse())
			g.Expect(bench.due()).To(Equal(minute(33)))
			bench.at(32)
			g.Expect(ended()).To(BeFalse())
			bench.at(33)
			g.Expect(ended()).To(BeTrue())
		})
	}
}

func TestARequestStaysWhileTheTimeIsNotCertain(t *testing.T) {
	g, bench := NewWithT(t), openIncident()
	bench.at(day+2, eventOf(2, minute(day+2), silencingAlert("30m")))
	bench.policy.QuietFrom, bench.policy.Uncertain = minute(3), true
	bench.at(3)
	g.Expect(bench.status().Silence.EndTime).To(Equal(*minuteStamp(day + 32)))
	bench.policy.Uncertain = false
	bench.at(3)
	g.Expect(bench.status().Silence.EndTime).To(Equal(*minuteStamp(33)))
}

// TestWhateverAWrongClockHasNotedEndsInTime requests silences while the clock is ahead, sets it back, and requests others.
func TestWhateverAWrongClockHasNotedEndsInTime(t *testing.T) {
	const length, folds = 30 * time.Minute, 6
	alerts := map[string]v1alpha1.Alert{
		"firing": alertOf(v1alpha1.AlertFiring), "resolved": alertOf(v1alpha1.AlertResolved), "silenced": silencingAlert("30m"),
		"acknowledged": alertOf(v1alpha1.AlertAcknowledged),
	}
	rapid.Check(t, func(t *rapid.T) {
		g, bench := NewWithT(t), newBench()
		bench.policy = fold.Policy{AutoResolveAfter: length, Retention: length}
		ahead := time.Duration(rapid.IntRange(0, 3*day).Draw(t, "minutes ahead")) * time.Minute
		bench.now = minute(0).Add(ahead)
		bench.fold(eventOf(0, bench.now, alertOf(v1alpha1.AlertFiring)))
		setBack := rapid.IntRange(1, folds).Draw(t, "set back before")
		for n := 1; n < folds; n++ {
			if bench.now = minute(n); n < setBack {
				bench.now = bench.now.Add(ahead)
			}
			kind := rapid.SampledFrom([]string{"firing", "resolved", "acknowledged", "silenced", "silenced"}).Draw(t, "alert")
			bench.fold(eventOf(n, bench.now, alerts[kind]))
		}
		bench.at(folds)
		if request := bench.status().Silence; request != nil {
			latest := bench.now.Add(fold.MaxClockDifference + length + folds*time.Minute)
			g.Expect(request.EndTime.Time).To(BeTemporally("<=", latest))
		}
		g.Expect(bench.fold().Write).To(BeFalse(), "it is written once")
	})
}

// The acknowledgement's rule comes first.
func TestAnIncidentIsDueWhenTheFirstOfItsRulesIs(t *testing.T) {
	for sentence, c := range map[string]struct {
		acknowledged time.Duration
		silenced     string
	}{
		"an earlier rule": {acknowledged: 30 * time.Minute, silenced: "2h"},
		"a later rule":    {acknowledged: 2 * time.Hour, silenced: "30m"},
	} {
		t.Run(sentence, func(t *testing.T) {
			bench, acknowledged := openIncident(), alertOf(v1alpha1.AlertAcknowledged)
			acknowledged.AcknowledgeFor = &metav1.Duration{Duration: c.acknowledged}
			bench.at(2, eventOf(2, minute(2), acknowledged))
			bench.at(2, eventOf(3, minute(2), silencingAlert(c.silenced)))
			NewWithT(t).Expect(bench.due()).To(Equal(minute(32)))
		})
	}
}
