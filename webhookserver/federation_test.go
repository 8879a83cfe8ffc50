package webhookserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
)

// federated makes a bench whose integration takes in alerts of another Tocsin.
func federated(change ...func(*v1alpha1.WebhookIntegrationSpec)) *bench {
	b := newBench()
	w := integration("team-a", "prometheus")
	w.Spec.Federate = true
	leaf := beatEvery("leaf", 2*time.Minute, &v1alpha1.HeartbeatMatch{AnyRequest: true})
	leaf.Spec.Grace = &metav1.Duration{Duration: time.Minute}
	b.beats.Set(leaf)
	for _, f := range change {
		f(&w.Spec)
	}
	b.tokens.set(w)
	return b
}

// forwarded is an alert of a Tocsin, with more labels.
func forwarded(now time.Time, expiry time.Duration, labels string) string {
	return fmt.Sprintf(`{"labels":{"alertname":"Disk","cluster":"leaf-1","tocsin_incident":"disk-x"%s},"annotations":{"summary":"Disk full"},
		"startsAt":%q,"endsAt":%q}`, labels, now.Add(-time.Hour).Format(time.RFC3339), now.Add(expiry).Format(time.RFC3339))
}

// alertsOfTocsin posts a list of alerts as the forwarding does, and returns those that were stored.
func (b *bench) alertsOfTocsin(g *WithT, list string) (stored []v1alpha1.Alert, answer acceptance) {
	before := len(b.store.Stored())
	response := b.post(testPath+"/api/v2/alerts", list)
	g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
	for _, event := range b.store.Stored()[before:] {
		stored = append(stored, event.Alerts...)
	}
	return stored, answer
}

// Whatever a sender writes as the number of hops, none of it takes an alert further than Tocsin's own number does.
func TestHopsAreBounded(t *testing.T) {
	const dropped = ""
	for name, c := range map[string]struct{ labels, want string }{
		"a first-hand alert":          {``, "1"},
		"the first number":            {`,"tocsin_hops":"2"`, "2"},
		"the last number":             {`,"tocsin_hops":"3"`, "3"},
		"one too many":                {`,"tocsin_hops":"4"`, dropped},
		"a huge number":               {`,"tocsin_hops":"99999999999999999999"`, dropped},
		"a negative number":           {`,"tocsin_hops":"-100"`, dropped},
		"a number with a zero before": {`,"tocsin_hops":"01"`, dropped},
		"a number with a sign":        {`,"tocsin_hops":"+1"`, dropped},
		"zero":                        {`,"tocsin_hops":"0"`, dropped},
		"a fraction":                  {`,"tocsin_hops":"1.5"`, dropped},
		"no number":                   {`,"tocsin_hops":"few"`, dropped},
		"an empty text":               {`,"tocsin_hops":""`, dropped},
		"digits of another script":    {`,"tocsin_hops":"٣"`, dropped},
		"a number that is no text":    {`,"tocsin_hops":2`, dropped},
		"an object":                   {`,"tocsin_hops":{"a":1}`, dropped},
		"null, which is as no text":   {`,"tocsin_hops":null`, dropped},
		"twice: the last one wins":    {`,"tocsin_hops":"4","tocsin_hops":"2"`, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			counter := returnedAlerts.WithLabelValues("team-a", "prometheus", returnedTooManyHops)
			before := testutil.ToFloat64(counter)
			alerts, answer := federated().alertsOfTocsin(g, "["+forwarded(time.Now(), time.Hour, c.labels)+"]")
			if c.want == dropped {
				g.Expect(alerts).To(BeEmpty())
				g.Expect(answer.Alerts).To(HaveExactElements(acceptedAlert{Dropped: true}))
				g.Expect(answer.Warnings).To(ContainElement(And(
					HaveField("Field", "labels"), HaveField("Detail", ContainSubstring("more than 3 Tocsins")))))
				g.Expect(testutil.ToFloat64(counter)).To(Equal(before + 1))
				return
			}
			g.Expect(alerts).To(ConsistOf(HaveField("Labels", HaveKeyWithValue(v1alpha1.HopsLabel, c.want))))
			g.Expect(testutil.ToFloat64(counter)).To(Equal(before))
		})
	}
}

func TestFederatedAlerts(t *testing.T) {
	g := NewWithT(t)
	alerts, answer := federated().alertsOfTocsin(g, "["+forwarded(time.Now(), time.Hour, "")+`,{"labels":{"alertname":"Direct"}}]`)
	g.Expect(answer.Warnings).To(BeEmpty())
	g.Expect(alerts).To(HaveLen(2))
	g.Expect(alerts[0].Title).To(Equal("Disk full"))
	g.Expect(alerts[0].Labels).To(And(HaveKeyWithValue("cluster", "leaf-1"), HaveKeyWithValue("tocsin_incident", "disk-x")))
	g.Expect(alerts[0].Annotations).To(HaveKeyWithValue("acknowledged_by", ""), "an acknowledgement that was withdrawn")
	g.Expect(alerts[1].Labels).To(HaveKeyWithValue(v1alpha1.HopsLabel, "1"), "its Incident is forwarded as one of a federated integration")
	g.Expect(alerts[1].Annotations).To(BeEmpty())

	acknowledged := `[{"labels":{"tocsin_incident":"disk-x"},"annotations":{"acknowledged_by":"maria"}}]`
	alerts, _ = federated().alertsOfTocsin(g, acknowledged)
	g.Expect(alerts[0].Annotations).To(HaveKeyWithValue("acknowledged_by", "maria"))

	b := federated(func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Federate = false })
	alerts, _ = b.alertsOfTocsin(g, acknowledged)
	g.Expect(alerts).To(BeEmpty(), "without federate")
}

// A hub that was not told that it is one looks well everywhere else.
func TestDroppedAlertsOfAnotherTocsinAreReported(t *testing.T) {
	b := newBench()
	own := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mine"}}
	b.options.Capacity.SetIncident(own, true)
	for name, c := range map[string]struct{ alert, want string }{
		"of an Incident that is open here":                        {`"labels":{"namespace":"shop","tocsin_incident":"mine"}`, ""},
		"of one that is not":                                      {`"labels":{"namespace":"shop","tocsin_incident":"other"}`, returnedNotFederated},
		"of one of the same name in a namespace of its own":       {`"labels":{"namespace":"web","tocsin_incident":"mine"}`, returnedNotFederated},
		"that has ended, which an Incident of one's own has, too": {`"endsAt":"2020-01-01T00:00:00Z","labels":{"namespace":"shop","tocsin_incident":"other"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b.reports.reasons = nil
			counter := returnedAlerts.WithLabelValues("team-a", "prometheus", returnedNotFederated)
			before := testutil.ToFloat64(counter)
			alerts, _ := b.alertsOfTocsin(g, "[{"+c.alert+"}]")
			g.Expect(alerts).To(BeEmpty())
			if c.want == "" {
				g.Expect(b.reports.reasons).To(BeEmpty())
				g.Expect(testutil.ToFloat64(counter)).To(Equal(before))
				return
			}
			g.Expect(b.reports.reasons).To(Equal([]string{c.want}))
			g.Expect(testutil.ToFloat64(counter)).To(Equal(before + 1))
		})
	}
}

// A heartbeat is missed before any alert ends, whatever expiry the sender has, and whichever clock.
func TestExpiryOfFederatedAlertsOutlastTheHeartbeat(t *testing.T) {
	const least = 6 * time.Minute // twice the interval and the grace
	for name, c := range map[string]struct {
		expiry, want time.Duration
		federate     bool
	}{
		"a short expiry":         {time.Minute, least, true},
		"a long one":             {15 * time.Minute, 15 * time.Minute, true},
		"without federate":       {time.Minute, 0, false},
		"an alert that ended":    {-time.Second, 0, true},
		"the last of its expiry": {least, least, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := federated(func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Federate = c.federate })
			b.beats.Set(beatEvery("slow", 24*time.Hour, nil)) // of pings
			now := time.Now().Truncate(time.Second)
			alerts, _ := b.alertsOfTocsin(g, "["+forwarded(now, c.expiry, "")+"]")
			switch {
			case !c.federate:
				g.Expect(alerts).To(BeEmpty())
			case c.want == 0:
				g.Expect(alerts).To(ConsistOf(And(HaveField("Status", v1alpha1.AlertResolved), HaveField("ExpiryTime", BeNil()))))
			default:
				g.Expect(alerts[0].ExpiryTime.Time).To(BeTemporally("~", now.Add(c.want), 2*time.Second))
			}
		})
	}
	g := NewWithT(t)
	alerts, _ := federated().alertsOfTocsin(g, fmt.Sprintf(`[{"labels":{"tocsin_incident":"x"},"startsAt":%q,"endsAt":%q}]`,
		time.Now().Add(time.Hour).Format(time.RFC3339), time.Now().Add(time.Hour+time.Minute).Format(time.RFC3339)))
	g.Expect(alerts[0].ExpiryTime.Sub(alerts[0].StartTime.Time)).To(Equal(least), "a leaf whose clock is an hour ahead")
}

// Nothing is stored of a request that has no alerts, and it is a signal all the same.
func TestAnEmptyListIsASignal(t *testing.T) {
	g := NewWithT(t)
	b := federated()
	alerts, _ := b.alertsOfTocsin(g, "[]")
	g.Expect(alerts).To(BeEmpty())
	g.Expect(b.reports.signals).To(HaveLen(1))
	g.Expect(b.heard()).To(Equal("leaf"))
}

// The operator has not made the heartbeat of the link yet.
func TestAnExpiryOutlastsTheHeartbeatThatIsToCome(t *testing.T) {
	g, b := NewWithT(t), newBench()
	w := integration("team-a", "prometheus")
	w.Spec.Federate = true
	b.tokens.set(w)
	now := time.Now().Truncate(time.Second)
	alerts, _ := b.alertsOfTocsin(g, "["+forwarded(now, time.Minute, "")+"]")
	g.Expect(alerts[0].ExpiryTime.Time).To(BeTemporally("~", now.Add(2*heartbeats.LinkPeriod), 2*time.Second))
}
