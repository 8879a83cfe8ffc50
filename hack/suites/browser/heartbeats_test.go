//go:build browser

package browser

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestHeartbeatsAndMutedIncidents(t *testing.T) {
	c := newCluster(t)
	now := v1alpha1.NewTimestamp(time.Now())
	muted := c.put("muted", 5, v1alpha1.AlertContent{Title: "Disk full", Severity: v1alpha1.SeverityError})
	muted.Status.Mute = &v1alpha1.Mute{StartTime: now, Window: "upgrade", EndTime: new(v1alpha1.NewTimestamp(now.Add(time.Hour)))}
	muted.Status.Forwarding = &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingMuted, Time: now, Message: "The window upgrade is open."}
	c.g.Expect(c.Status().Update(t.Context(), muted)).To(Succeed())
	jobs := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "jobs"}}
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))

	// A window mutes an Incident, until it ends or the Incident does.
	state := func() string { return b.text("#rows td.state") }
	b.Eventually(state).Should(Equal("Muted"))
	c.acknowledge(muted, 1)
	b.Eventually(state).Should(Equal("✓ Acknowledged by maria, muted"))
	b.do(chromedp.Click("#rows td.title a"))
	b.Eventually(func() string { return b.text("#incident") }).Should(MatchRegexp(`by the maintenance window upgrade until .*UTC`))
	b.do(chromedp.NavigateBack())
	muted.Status.Mute, muted.Status.Forwarding = nil, nil
	c.g.Expect(c.Status().Update(t.Context(), muted)).To(Succeed())
	b.Eventually(state).Should(Equal("✓ Acknowledged by maria"))

	// Without heartbeats there is no list of them.
	display := func() string { return b.eval(`getComputedStyle(document.getElementById("heartbeats")).display`) }
	b.Expect(display()).To(Equal("none"))
	for _, name := range []string{"late", "heard", "new"} {
		jobs.Spec.Heartbeats = append(jobs.Spec.Heartbeats, v1alpha1.Heartbeat{
			Name: name, Interval: &metav1.Duration{Duration: time.Hour}, Match: &v1alpha1.HeartbeatMatch{Ping: true},
		})
	}
	c.g.Expect(c.Create(t.Context(), jobs)).To(Succeed())
	t.Cleanup(func() { c.g.Expect(c.Delete(context.Background(), jobs)).To(Succeed()) })
	before := func(d time.Duration) *v1alpha1.Timestamp { return new(v1alpha1.NewTimestamp(now.Add(-d))) }
	jobs.Status.Heartbeats = []v1alpha1.HeartbeatStatus{
		{Name: "late", LastSignalTime: before(5 * time.Hour), MissedTime: before(3 * time.Hour)},
		{Name: "heard", LastSignalTime: before(20 * time.Minute)},
	}
	c.g.Expect(c.Status().Update(t.Context(), jobs)).To(Succeed())
	b.do(chromedp.Reload())
	b.Eventually(func() string { return b.text("#heartbeats-tally") }).Should(Equal("Heartbeats: 1 missed, 1 waiting, 1 heard"))
	b.Expect(b.text("#heartbeat-rows")).To(BeEmpty(), "it is closed")
	b.do(chromedp.Click("#heartbeats-tally"))
	b.Eventually(func() string {
		return b.eval(`[...document.querySelectorAll("#heartbeat-rows tr")].map((row) =>
			[...row.cells].slice(0, 4).map((cell) => cell.firstChild.textContent).join(", ")).join("|")`)
	}).Should(MatchRegexp(`^Missed, late, 5 h, 4 h ago\|Waiting, new, –, –\|Heard, heard, 20 min, in (39|40) min$`))
	b.Expect(b.eval(contrast + " >= 4.5")).To(Equal("true"))
	for _, width := range []int64{1200, 768, 320} {
		b.do(chromedp.EmulateViewport(width, 800))
		b.Expect(b.eval("document.documentElement.scrollWidth <= innerWidth")).To(Equal("true"), "at %d nothing sticks out", width)
	}
	b.noTrouble()
}
