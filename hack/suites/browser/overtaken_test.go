//go:build browser

package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Two changes of the incident that is shown cause two requests, and the answer to the first one may come last.
func TestAnOvertakenAnswerIsNotDrawn(t *testing.T) {
	c := newCluster(t)
	incident := c.put("disk", 5, v1alpha1.AlertContent{Title: "Disk full", Severity: v1alpha1.SeverityError})
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(func() string { return b.text("#rows td.title a") }).Should(Equal("Disk full"))
	b.do(chromedp.Click("#rows td.title a"))
	details := func() string { return b.text("#incident") }
	b.Eventually(details).Should(ContainSubstring("Timeline"))

	// The answer to the next request for the incident is kept back.
	b.eval(`(() => { const ask = fetch; window.kept = 0; window.fetch = async (...of) => {
		const mine = String(of[0]).includes("api/incidents/") && window.kept++ === 0;
		const answer = await ask(...of);
		if (mine) await new Promise((release) => { window.release = release; });
		return answer;
	}; })()`)
	incident.Status.AlertCount = 41
	c.g.Expect(c.Status().Update(t.Context(), incident)).To(Succeed())
	b.Eventually(func() string { return b.eval("typeof window.release") }).Should(Equal("function"))
	c.acknowledge(incident, 1)
	b.Eventually(details).Should(ContainSubstring("maria acknowledged"))
	b.eval("window.release()")
	b.Consistently(details, "1s").Should(ContainSubstring("maria acknowledged"))
	b.noTrouble()
}
