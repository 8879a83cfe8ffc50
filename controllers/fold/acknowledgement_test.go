package fold

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// acknowledgedFor is a user's report that acknowledges the Incident for some minutes; 0: without a time.
func acknowledgedFor(n int) v1alpha1.Alert {
	alert := acknowledgingAlert()
	alert.IsReport, alert.By = true, "maria"
	if n != 0 {
		alert.AcknowledgeFor = minutes(n)
	}
	return alert
}

func TestAnAcknowledgementExpires(t *testing.T) {
	for sentence, test := range map[string]struct {
		asked   int // minutes of the integration's acknowledgementExpiresAfter
		reports []v1alpha1.Alert
		until   *v1alpha1.Timestamp // with the reports in the minutes from 2 on
	}{
		"never, if nobody says so":                          {reports: []v1alpha1.Alert{acknowledgedFor(0)}},
		"as the integration says":                           {asked: 60, reports: []v1alpha1.Alert{acknowledgedFor(0)}, until: minuteStamp(62)},
		"as the integration says, also one of a sender":     {asked: 60, reports: []v1alpha1.Alert{acknowledgingAlert()}, until: minuteStamp(62)},
		"as the report says":                                {reports: []v1alpha1.Alert{acknowledgedFor(30)}, until: minuteStamp(32)},
		"as the report says, whatever the integration does": {asked: 60, reports: []v1alpha1.Alert{acknowledgedFor(120)}, until: minuteStamp(122)},
		"after the newest report that says so": {
			reports: []v1alpha1.Alert{acknowledgedFor(30), acknowledgedFor(10), acknowledgedFor(0)}, until: minuteStamp(13)},
		"the integration's time after the newest report": {
			asked: 60, reports: []v1alpha1.Alert{acknowledgedFor(30), acknowledgedFor(0)}, until: minuteStamp(63)},
		"not with a firing alert":            {asked: 60, reports: []v1alpha1.Alert{acknowledgedFor(0), firingAlert()}, until: minuteStamp(62)},
		"never, for a time that is negative": {reports: []v1alpha1.Alert{acknowledgedFor(-5)}},
		"after 30 days at the most":          {reports: []v1alpha1.Alert{acknowledgedFor(60 * 24 * 365)}, until: minuteStamp(2 + 60*24*30)},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bench := NewWithT(t), openIncident()
			bench.policy.AcknowledgementExpiresAfter = time.Duration(test.asked) * time.Minute
			for i, report := range test.reports {
				bench.at(2+i, eventOf(2+i, report))
			}
			g.Expect(bench.status().Acknowledgement.ExpirationTime).To(Equal(test.until))
			g.Expect(bench.status().Acknowledgement.Time).To(Equal(*minuteStamp(2)), "who was first stays")
			if test.until == nil {
				g.Expect(Due(bench.incident, &bench.policy)).To(BeZero())
				return
			}
			g.Expect(Due(bench.incident, &bench.policy)).To(Equal(test.until.Time))
			foldAt := func(t time.Time) *Plan {
				bench.now = t
				return new(bench.fold())
			}
			g.Expect(foldAt(test.until.Time).IsIdle()).To(BeTrue())
			p := foldAt(test.until.Add(time.Second))
			g.Expect([]bool{p.Write, p.Urgent, p.ByTime}).To(Equal([]bool{true, true, true}))
			condition := meta.FindStatusCondition(bench.status().Conditions, v1alpha1.ConditionAcknowledged)
			g.Expect([]string{string(condition.Status), condition.Reason, condition.Message}).To(
				Equal([]string{"False", "Expired", "The acknowledgement has expired."}))
			g.Expect(bench.status().Acknowledgement).To(BeNil())
			g.Expect(bench.status().Episode.ExpiredAcknowledgements).To(BeEquivalentTo(1))
			g.Expect(StaysAcknowledged(bench.status())).To(BeFalse(), "so its silence ends")
			entry := bench.status().Timeline[len(bench.status().Timeline)-1]
			g.Expect(entry.Type).To(Equal(v1alpha1.TransitionUnacknowledged))
			g.Expect(entry.Message).To(MatchRegexp("^The acknowledgement by (maria|an alert) expired$"))
			g.Expect(foldAt(bench.now).IsIdle()).To(BeTrue())
		})
	}
}

func TestAnAcknowledgementDoesNotExpire(t *testing.T) {
	for sentence, change := range map[string]func(b *foldBench, in *Input){
		"while alerts wait, which may repeat it": func(_ *foldBench, in *Input) { in.HasMore = true },
		"while a repetition could not be stored": func(b *foldBench, in *Input) { in.Policy.QuietFrom = b.now.Add(time.Second) },
		"while the time is not certain":          func(b *foldBench, in *Input) { in.Policy.QuietFrom = b.now },
		"after the episode":                      func(_ *foldBench, in *Input) { in.Incident.Status.State = v1alpha1.IncidentResolved },
		"if it is repeated": func(b *foldBench, in *Input) {
			in.Events = append(in.Events, receivedAt(eventOf(40, acknowledgedFor(30)), b.now))
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bench := NewWithT(t), openIncident()
			bench.at(2, eventOf(2, acknowledgedFor(30)))
			bench.now = minute(40)
			in := bench.input()
			in.Incident = in.Incident.DeepCopy()
			change(bench, &in)
			p := Decide(in)
			g.Expect(meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionAcknowledged)).To(BeTrue())
			g.Expect(p.Status.Acknowledgement).NotTo(BeNil())
		})
	}
}

func TestTheNextEpisodeHasNoExpiredAcknowledgement(t *testing.T) {
	g, bench := NewWithT(t), openIncident()
	bench.policy.LateFiringWindow = 0
	bench.at(2, eventOf(2, acknowledgedFor(30)))
	bench.at(40)
	g.Expect(bench.status().Episode.ExpiredAcknowledgements).To(BeEquivalentTo(1))
	bench.at(41, eventOf(41, acknowledgedFor(0)))
	g.Expect(meta.IsStatusConditionTrue(bench.status().Conditions, v1alpha1.ConditionAcknowledged)).To(BeTrue())
	bench.at(42, eventOf(42, resolvingAlert()))
	bench.at(43, eventOf(43, firingAlert()))
	g.Expect(bench.status().Episode.ExpiredAcknowledgements).To(BeZero())
}

// An AlertEvent that a cache shows late does not prolong what was said after it.
func TestAnOvertakenAcknowledgementSetsNoTime(t *testing.T) {
	g, bench := NewWithT(t), openIncident()
	bench.at(3, eventOf(3, acknowledgedFor(30)))
	bench.at(4, eventOf(2, acknowledgedFor(120)))
	g.Expect(bench.status().Acknowledgement.ExpirationTime).To(Equal(minuteStamp(33)))
}
