//go:build browser

package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestAnIncidentTellsWhatEndedItsAcknowledgement(t *testing.T) {
	c := newCluster(t)
	incident := c.put("disk", 5, v1alpha1.AlertContent{Title: "Disk full", Severity: v1alpha1.SeverityError})
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(func() string { return b.text("#rows td.title a") }).Should(Equal("Disk full"))
	b.do(chromedp.Click("#rows td.title a"))
	details := func() string { return b.text("#incident") }
	b.Eventually(details).Should(MatchRegexp(`Acknowledged\s+no\s`))
	c.acknowledge(incident, 2)
	b.Eventually(details).Should(MatchRegexp(`Acknowledged\s+.* ago\): maria acknowledged the incident\.`))
	for reason, message := range map[string]string{
		v1alpha1.ReasonExpired: "The acknowledgement has expired.", v1alpha1.ReasonUnacknowledgedByUser: "alex unacknowledged the incident.",
	} {
		acknowledged := &incident.Status.Conditions[1]
		acknowledged.Status, acknowledged.Reason, acknowledged.Message = metav1.ConditionFalse, reason, message
		incident.Status.Acknowledgement = nil
		c.g.Expect(c.Status().Update(t.Context(), incident)).To(Succeed())
		b.Eventually(details).Should(MatchRegexp(`Acknowledged\s+no, since .* ago\)\. ` + message))
	}
	b.noTrouble()
}

func TestAnIncidentTellsWhereItsFieldsComeFrom(t *testing.T) {
	c := newCluster(t)
	c.put("disk", 5, v1alpha1.AlertContent{Title: "Disk full", Severity: v1alpha1.SeverityError, Origins: "//n-b///ASummary"})
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(func() string { return b.text("#rows td.title a") }).Should(Equal("Disk full"))
	b.do(chromedp.Click("#rows td.title a"))
	b.do(chromedp.Click("#origins summary"))
	b.Eventually(func() string { return b.text("#origins dl") }).Should(MatchRegexp(`title\s+key Summary\s+severity\s+default`))
	b.noTrouble()
}
