package fold

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	testIntegration = "mon"
	testKey         = "disk"
)

var (
	testName  = v1alpha1.IncidentName(testIntegration, testKey)
	testEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// minute is the n-th minute of the tests.
func minute(n int) time.Time { return testEpoch.Add(time.Duration(n) * time.Minute) }

func minuteStamp(minutes int) *v1alpha1.Timestamp { return timestamp(minute(minutes)) }

// alertOf makes an alert of the test's Incident.
func alertOf(status v1alpha1.AlertStatus, content v1alpha1.AlertContent) v1alpha1.Alert {
	return v1alpha1.Alert{IncidentName: testName, DedupKey: testKey, Status: status, AlertContent: content}
}

func firingAlert() v1alpha1.Alert { return alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{}) }
func resolvingAlert() v1alpha1.Alert {
	return alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{})
}
func acknowledgingAlert() v1alpha1.Alert {
	return alertOf(v1alpha1.AlertAcknowledged, v1alpha1.AlertContent{})
}

// eventOf makes the n-th AlertEvent: committed n-th and received in minute n.
func eventOf(n int, alerts ...v1alpha1.Alert) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			UID:               types.UID(fmt.Sprintf("uid-%d", n)),
			Name:              fmt.Sprintf("019f0000-0000-7000-8000-%012d", n),
			ResourceVersion:   fmt.Sprint(1000 + n),
			CreationTimestamp: metav1.NewTime(minute(n)),
		},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: testIntegration,
			ReceivedTime:    *minuteStamp(n),
		},
		Alerts: alerts,
	}
	for i := range alerts {
		if alerts[i].ID == "" {
			event.Alerts[i].ID = fmt.Sprintf("alert-%d-%d", n, i)
		}
	}
	return event
}

// foldBench folds events one input after the other, as a leader does whose every write succeeds.
type foldBench struct {
	incident *v1alpha1.Incident
	gone     map[string]bool
	policy   Policy
	told     KnownForwarding
	now      time.Time

	archiveRequired bool
}

func newBench() *foldBench {
	asked := Policy{Retention: 168 * time.Hour, LateFiringWindow: time.Hour}
	return &foldBench{gone: map[string]bool{}, policy: asked, now: minute(0)}
}

// input folds no event before it is stored.
func (b *foldBench) input(events ...*v1alpha1.AlertEvent) Input {
	for _, event := range events {
		b.now = Latest(b.now, event.CreationTimestamp.Time)
	}
	return Input{
		Name: testName, Incident: b.incident, Events: events, Policy: b.policy, Forwarding: b.told, Now: b.now,
		ArchiveRequired: b.archiveRequired, Listing: b,
	}
}

// IsListed implements Queue.
func (b *foldBench) IsListed(uid string) bool { return !b.gone[uid] }

// Version implements Queue.
func (*foldBench) Version(event *v1alpha1.AlertEvent) string { return AllListed{}.Version(event) }

func (b *foldBench) fold(events ...*v1alpha1.AlertEvent) Plan {
	p := Decide(b.input(events...))
	if p.Create != nil {
		b.incident = &v1alpha1.Incident{
			ObjectMeta: metav1.ObjectMeta{Name: testName, Generation: 1, CreationTimestamp: metav1.NewTime(b.now)},
			Spec:       *p.Create,
		}
	}
	if p.Write {
		b.incident.Status = p.Status
		b.incident.ResourceVersion = "5000"
	}
	return p
}

// openIncident has an Incident that is open.
func openIncident() *foldBench {
	bench := newBench()
	bench.fold(eventOf(1, firingAlert()))
	return bench
}

func (b *foldBench) status() *v1alpha1.IncidentStatus { return &b.incident.Status }

func resultsOf(p Plan) []string {
	results := make([]string, len(p.Results))
	for i, r := range p.Results {
		results[i] = r.Result
	}
	return results
}

func kindsOf(transitions []v1alpha1.Transition) []v1alpha1.TransitionType {
	kinds := make([]v1alpha1.TransitionType, len(transitions))
	for i, t := range transitions {
		kinds[i] = t.Type
	}
	return kinds
}

func namesOf(ledger v1alpha1.Ledger) []string {
	uids := make([]string, len(ledger.Events))
	for i, entry := range ledger.Events {
		uids[i] = entry.UID
	}
	return uids
}

func TestFoldWithoutAnIncident(t *testing.T) {
	other := firingAlert()
	other.DedupKey = "memory"
	nameless := firingAlert()
	nameless.DedupKey = ""
	for sentence, c := range map[string]struct {
		alerts             []v1alpha1.Alert
		results            []string
		creates, unmatched bool
		entries            int
	}{
		"a firing alert creates the Incident": {
			alerts: []v1alpha1.Alert{firingAlert()}, results: []string{ResultOpened}, creates: true, entries: 1,
		},
		"a resolved alert creates nothing": {
			alerts: []v1alpha1.Alert{resolvingAlert()}, results: []string{ResultNoMatch}, unmatched: true,
		},
		"an acknowledged alert creates nothing": {
			alerts: []v1alpha1.Alert{acknowledgingAlert()}, results: []string{ResultNoMatch}, unmatched: true,
		},
		"a firing alert without a dedup key matches nothing": {
			alerts: []v1alpha1.Alert{nameless}, results: []string{ResultNoMatch}, unmatched: true,
		},
		"a firing alert whose key has another name is invalid": {
			alerts: []v1alpha1.Alert{other}, results: []string{ResultInvalid},
		},
		"a resolved alert before the first firing matches nothing, and the firing opens": {
			alerts:  []v1alpha1.Alert{resolvingAlert(), firingAlert()},
			results: []string{ResultNoMatch, ResultOpened}, creates: true, unmatched: true, entries: 2,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := newBench()
			events := []*v1alpha1.AlertEvent{}
			for i, alert := range c.alerts {
				events = append(events, eventOf(i+1, alert))
			}
			p := bench.fold(events...)
			g.Expect(resultsOf(p)).To(Equal(c.results))
			g.Expect(p.Create != nil).To(Equal(c.creates))
			g.Expect(p.Write).To(Equal(c.creates))
			g.Expect(p.Urgent).To(Equal(c.creates))
			g.Expect(p.Unmatched).To(Equal(c.unmatched))
			g.Expect(p.ToSettle).To(HaveLen(len(events)))
			g.Expect(p.IsIdle()).To(BeFalse(), "the results have to be told")
			g.Expect(p.Status.Ledger.Events).To(HaveLen(c.entries))
		})
	}

	t.Run("the Incident gets the integration and the key", func(t *testing.T) {
		p := newBench().fold(eventOf(1, firingAlert()))
		NewWithT(t).Expect(*p.Create).To(Equal(v1alpha1.IncidentSpec{IntegrationName: testIntegration, DedupKey: testKey}))
	})
	t.Run("a resolve and a firing in one event are folded together", func(t *testing.T) {
		g := NewWithT(t)
		p := newBench().fold(eventOf(1, resolvingAlert(), firingAlert(), resolvingAlert()))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultNoMatch, ResultOpened, ResultResolved}))
		g.Expect(p.Status.AlertCount).To(BeEquivalentTo(2))
		g.Expect(p.Status.Ledger.Events).To(HaveLen(1))
	})
	t.Run("an Incident whose status was never written is as none, but is not created", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		bench.incident = &v1alpha1.Incident{
			ObjectMeta: metav1.ObjectMeta{Name: testName, ResourceVersion: "10", Generation: 1},
			Spec:       v1alpha1.IncidentSpec{IntegrationName: testIntegration, DedupKey: testKey},
		}
		p := Decide(bench.input(eventOf(1, resolvingAlert())))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultNoMatch}))
		g.Expect([]bool{p.Unmatched, p.Write}).To(Equal([]bool{true, false}))
		p = Decide(bench.input(eventOf(2, firingAlert())))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultOpened}))
		g.Expect(p.Create).To(BeNil())
		g.Expect([]bool{p.Urgent, p.Write}).To(Equal([]bool{true, true}))
	})
}

func TestFoldMatchesAlertsToTheIncident(t *testing.T) {
	byHand := func(alert v1alpha1.Alert) *v1alpha1.AlertEvent {
		event := eventOf(2, alert)
		event.Name = "ack-by-hand"
		event.Spec.IntegrationName = ""
		event.Spec.ReceivedTime = v1alpha1.Timestamp{}
		event.Alerts[0].ID = ""
		return event
	}
	foreign := eventOf(2, acknowledgingAlert())
	foreign.Spec.IntegrationName = "other"
	otherKey := acknowledgingAlert()
	otherKey.DedupKey = "memory"
	byKey := acknowledgingAlert()
	byKey.IncidentName = ""
	elsewhere := acknowledgingAlert()
	elsewhere.IncidentName = "mon-other"
	for sentence, c := range map[string]struct {
		event   *v1alpha1.AlertEvent
		results []string
		settled int
	}{
		"by its name alone": {
			event:   byHand(v1alpha1.Alert{IncidentName: testName, Status: v1alpha1.AlertAcknowledged}),
			results: []string{ResultAcknowledged}, settled: 1,
		},
		"by the integration and the key":      {event: eventOf(2, byKey), results: []string{ResultAcknowledged}, settled: 1},
		"whatever else its event has":         {event: eventOf(2, elsewhere, byKey), results: []string{ResultAcknowledged}, settled: 1},
		"not when the integration is another": {event: foreign, results: []string{ResultInvalid}, settled: 1},
		"not when the key is another":         {event: eventOf(2, otherKey), results: []string{ResultInvalid}, settled: 1},
		"and leaves those of other Incidents": {event: eventOf(2, elsewhere), results: []string{}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			bench := newBench()
			bench.fold(eventOf(1, firingAlert()))
			bench.gone["uid-1"] = true
			p := bench.fold(c.event)
			g.Expect(resultsOf(p)).To(Equal(c.results))
			g.Expect(p.ToSettle).To(HaveLen(c.settled))
			counts := len(c.results) > 0 && c.results[0] == ResultAcknowledged
			g.Expect(p.Write).To(Equal(counts))
			if counts {
				g.Expect(p.Results[0].Received).To(Equal(minute(2)), "the creation time stands in for the received time")
			}
		})
	}
}

// What decides on the deletion of an Incident is in its status, for the time when its integration is gone.
func TestTheRetentionIsRecorded(t *testing.T) {
	hours := func(n int) *metav1.Duration { return minutes(60 * n) }
	kept := func(n int) Policy { return Policy{Retention: hours(n).Duration} }
	leaves := Policy{Absent: true, RetentionKnown: true, Retention: hours(4).Duration}
	gone, orphaned := PolicyOf(nil, nil), 3+4*60
	g, bench := NewWithT(t), newBench()
	for _, step := range []struct {
		sentence  string
		policy    Policy
		at        int
		alerts    []v1alpha1.Alert
		writes    bool
		retention *metav1.Duration
		orphaned  *v1alpha1.Timestamp
	}{
		{"not if it is the default", kept(168), 1, []v1alpha1.Alert{firingAlert()}, true, nil, nil},
		{"not for its own sake", kept(2), 2, nil, false, nil, nil},
		{"with the next change", kept(3), 3, []v1alpha1.Alert{resolvingAlert()}, true, hours(3), nil},
		{"when the integration goes", leaves, 4, nil, true, hours(4), nil},
		{"once", leaves, 5, nil, false, hours(4), nil},
		{"for as long as it is gone", gone, orphaned - 1, nil, false, hours(4), nil},
		{"with the time at which it would have been deleted", gone, orphaned, nil, true, hours(4), minuteStamp(orphaned)},
		{"from which on the default counts, once", gone, orphaned + 168*60, nil, false, hours(4), minuteStamp(orphaned)},
		{"until the integration is back", kept(4), orphaned + 168*60, nil, true, hours(4), nil},
		{"and the Incident opens", kept(4), 20000, []v1alpha1.Alert{firingAlert()}, true, hours(4), nil},
		{"of which nothing is recorded without it", gone, 40000, nil, false, hours(4), nil},
	} {
		bench.policy = step.policy
		var events []*v1alpha1.AlertEvent
		if len(step.alerts) > 0 {
			events = append(events, eventOf(step.at, step.alerts...))
		}
		g.Expect(bench.at(step.at, events...).Write).To(Equal(step.writes), step.sentence)
		g.Expect(bench.status().Retention).To(Equal(step.retention), step.sentence)
		g.Expect(bench.status().OrphanedTime).To(Equal(step.orphaned), step.sentence)
	}
}

func TestFoldOrder(t *testing.T) {
	titled := func(title string) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: title})
	}
	t.Run("events are folded by resourceVersion as a number, whatever their order in the input", func(t *testing.T) {
		g := NewWithT(t)
		older, newer := eventOf(1, titled("older")), eventOf(2, titled("newer"))
		older.ResourceVersion, newer.ResourceVersion = "999", "1000"
		p := newBench().fold(newer, older)
		g.Expect(p.Status.Alert.Title).To(Equal("newer"))
		g.Expect(p.Status.Ledger.ResourceVersion).To(Equal("1000"))
	})
	t.Run("alerts of one event are folded by their place", func(t *testing.T) {
		p := newBench().fold(eventOf(1, titled("a"), titled("b"), titled("c")))
		NewWithT(t).Expect(p.Status.Alert.Title).To(Equal("c"))
	})
	t.Run("an event that is in the input twice is folded once", func(t *testing.T) {
		p := newBench().fold(eventOf(1, firingAlert()), eventOf(1, firingAlert()))
		NewWithT(t).Expect(p.Status.AlertCount).To(BeEquivalentTo(1))
	})
	t.Run("an event that does not exist is neither folded nor settled", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		bench.gone["uid-1"] = true
		p := bench.fold(eventOf(1, firingAlert()))
		g.Expect(p.Results).To(BeEmpty())
		g.Expect(p.ToSettle).To(BeEmpty())
	})
	t.Run("an alert older than the newest folded one counts and changes nothing", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		bench.fold(eventOf(1, titled("first")), eventOf(5, resolvingAlert()))
		p := bench.fold(eventOf(3, titled("late")))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultLate}))
		g.Expect([]bool{p.Write, p.Urgent}).To(Equal([]bool{true, false}))
		g.Expect(p.Status.State).To(Equal(v1alpha1.IncidentResolved))
		g.Expect(p.Status.Alert.Title).To(Equal("first"))
		g.Expect(p.Status.AlertCount).To(BeEquivalentTo(3))
		g.Expect(p.Status.LastAlertTime.Time).To(Equal(minute(5)), "the newest stays")
		g.Expect(p.Status.Ledger.ResourceVersion).To(Equal("1005"))
	})
	t.Run("the stamp of another cluster is ignored", func(t *testing.T) {
		g := NewWithT(t)
		bench := newBench()
		bench.fold(eventOf(1, firingAlert()))
		bench.incident.Status.Ledger.ResourceVersion = "90000" // above the Incident's own
		p := bench.fold(eventOf(2, resolvingAlert()))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultResolved}))
		g.Expect(p.Status.Ledger.ResourceVersion).To(Equal("1002"))
	})
}

func TestFoldIsAFunction(t *testing.T) {
	g := NewWithT(t)
	bag := map[string]string{"a": "1"}
	alert := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Title: "x", Labels: bag, StartTime: minuteStamp(1)})
	bench := newBench()
	bench.fold(eventOf(1, alert))
	more := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{
		Labels: map[string]string{"b": "2"}, Custom: v1alpha1.Bag{"c": json.RawMessage(`3`)}, StartTime: minuteStamp(0),
	})
	events := []*v1alpha1.AlertEvent{eventOf(3, resolvingAlert()), eventOf(2, more), eventOf(4, more, acknowledgingAlert())}
	for _, event := range events {
		event.Spec.Defaults = &v1alpha1.AlertDefaults{Labels: map[string]v1alpha1.LabelValue{"team": "ops"}}
	}
	incidentBefore, eventsBefore := bench.incident.DeepCopy(), []*v1alpha1.AlertEvent{}
	for _, event := range events {
		eventsBefore = append(eventsBefore, event.DeepCopy())
	}
	first := Decide(bench.input(events...))
	second := Decide(bench.input(events[2], events[0], events[1]))
	g.Expect(second).To(Equal(first), "the same input in another order gives the same plan")
	g.Expect(bench.incident).To(Equal(incidentBefore), "the Incident is not modified")
	g.Expect(events).To(Equal(eventsBefore), "the events are not modified")

	// What the plan holds is its own.
	clear(first.Status.Alert.Labels)
	for _, value := range first.Status.Alert.Custom {
		value[0] = '!'
	}
	g.Expect(bench.incident).To(Equal(incidentBefore))
	g.Expect(events).To(Equal(eventsBefore))
}
