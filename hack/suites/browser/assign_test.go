//go:build browser

package browser

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// assign assigns an Incident, as the operator would have.
func (c *cluster) assign(incident *v1alpha1.Incident, to string) {
	incident.Status.Assignee = &v1alpha1.Assignee{Name: to, Time: v1alpha1.NewTimestamp(time.Now()), By: "maria"}
	c.g.Expect(c.Status().Update(context.Background(), incident)).To(Succeed())
}

// reported is what the page has reported: the status, and to whom or for how long.
func (c *cluster) reported() (reports []string) {
	var events v1alpha1.AlertEventList
	c.g.Expect(c.List(context.Background(), &events, client.InNamespace(c.namespace))).To(Succeed())
	for _, event := range events.Items {
		report := event.Spec.Report
		reports = append(reports, fmt.Sprint(report.Status, " ", report.Assignee, cmp.Or(report.AcknowledgeFor, &metav1.Duration{}).Duration))
	}
	return reports
}

func TestWhoWorksOnAnIncident(t *testing.T) {
	c := newCluster(t)
	disk := c.fill()
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).ShouldNot(BeEmpty())
	b.Expect(b.eval(`document.getElementById("assignee").parentNode.hidden`)).To(Equal("true"), "nobody is assigned")
	c.assign(disk, hostileTitle[:80])
	b.Eventually(func() string { return b.text("tr.acknowledged .state") }).Should(
		Equal("✓ Acknowledged by maria, assigned to " + hostileTitle[:80]))

	// By person, and by nobody.
	all := b.titles()
	b.choose("assignee", "person:"+hostileTitle[:80])
	b.Eventually(b.titles).Should(Equal("Disk 97 % full"))
	b.choose("assignee", "nobody")
	b.Eventually(b.titles).Should(And(Not(ContainSubstring("Disk")), ContainSubstring("95 %")))
	b.Expect(b.eval("location.hash")).To(ContainSubstring("assignee=nobody"))
	b.choose("assignee", "")
	b.Eventually(b.titles).Should(Equal(all))

	// To oneself, to somebody, and for some time.
	b.do(chromedp.Navigate(fmt.Sprintf("%s#/%s/%s", base(s), c.namespace, disk.Name)))
	b.Eventually(func() string { return b.text("#incident") }).Should(And(
		ContainSubstring("acknowledged by maria, assigned to "+hostileTitle[:80]), MatchRegexp(`Assigned\s+to .*, since .*, by maria`)))
	b.press("t")
	b.Expect(b.eval(`document.getElementById("action-lasting").hidden`)).To(Equal("true"))
	b.do(chromedp.Click("#action-do"))
	b.Eventually(c.reported).Should(ConsistOf("assigned admin0s"))
	b.press("t")
	b.do(chromedp.SendKeys("#action-to", "alex"), chromedp.Click("#action-do"))
	b.Eventually(c.reported).Should(ContainElement("assigned alex0s"))
	b.press("a")
	b.Expect(b.eval(`document.getElementById("action-name").hidden`)).To(Equal("true"))
	b.eval(`document.getElementById("action-lasts").value = "4h"`)
	b.do(chromedp.Click("#action-do"))
	b.Eventually(c.reported).Should(ContainElement("acknowledged 4h0m0s"))
	b.noTrouble()
}

func TestASilenceStandsBesideItsIncident(t *testing.T) {
	c := newCluster(t)
	disk := c.fill()
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).ShouldNot(BeEmpty())
	b.do(chromedp.Navigate(fmt.Sprintf("%s#/%s/%s", base(s), c.namespace, disk.Name)))
	c.silenced(disk.Name, time.Now().Add(time.Hour))
	c.g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(disk), disk)).To(Succeed())
	const link = "https://am.example.com/#/silences/7b3f"
	disk.Status.SilencedBy.ID, disk.Status.SilencedBy.Link = "7b3f", link
	c.g.Expect(c.Status().Update(t.Context(), disk)).To(Succeed())
	b.Eventually(func() string {
		return b.eval(fmt.Sprintf(`document.querySelector('#incident a[href=%q]')?.rel ?? ""`, link))
	}).Should(
		ContainSubstring("noopener"))
	const hostile = "javascript:window.hacked=1"
	disk.Status.SilencedBy.Link = hostile
	c.g.Expect(c.Status().Update(t.Context(), disk)).To(Succeed())
	b.Eventually(func() string { return b.text("#incident") }).Should(ContainSubstring(hostile), "as a text")
	b.Expect(b.eval(`document.querySelector('#incident a[href^="javascript"]') === null`)).To(Equal("true"))
	disk.Status.SilencedBy = nil
	disk.Status.Silence.EndTime = v1alpha1.NewTimestamp(time.Now().Add(-time.Hour))
	c.g.Expect(c.Status().Update(t.Context(), disk)).To(Succeed())
	b.Eventually(func() string { return b.text("#incident") }).Should(ContainSubstring("The one that editor requested has expired at "))
	b.noTrouble()
}
