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
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

func TestHeartbeatsAndMutedIncidents(t *testing.T) {
	c := newCluster(t)
	now := v1alpha1.NewTimestamp(time.Now())
	muted := c.put("muted", 5, v1alpha1.AlertContent{Title: "Disk full", Severity: v1alpha1.SeverityError})
	muted.Status.Mute = &v1alpha1.Mute{StartTime: now, Window: "upgrade", EndTime: new(v1alpha1.NewTimestamp(now.Add(time.Hour)))}
	muted.Status.Forwarding = &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingMuted, Time: now, Message: "The window upgrade is open."}
	c.g.Expect(c.Status().Update(t.Context(), muted)).To(Succeed())
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
	at := func(d time.Duration) *v1alpha1.Timestamp { return new(v1alpha1.NewTimestamp(now.Add(d))) }
	for name, status := range map[string]v1alpha1.HeartbeatStatus{
		"late":  {LastSignalTime: at(-5 * time.Hour), Conditions: heard(metav1.ConditionFalse, v1alpha1.ReasonMissed)},
		"heard": {LastSignalTime: at(-20 * time.Minute), NextDueTime: at(40 * time.Minute), Conditions: heard(metav1.ConditionTrue, v1alpha1.ReasonHeard)},
		"new":   {},
	} {
		beat := testenv.Heartbeat(c.namespace, name, "jobs", time.Hour, nil)
		c.g.Expect(c.Create(t.Context(), beat)).To(Succeed())
		t.Cleanup(func() { c.g.Expect(c.Delete(context.Background(), beat)).To(Succeed()) })
		beat.Status = status
		c.g.Expect(c.Status().Update(t.Context(), beat)).To(Succeed())
	}
	b.do(chromedp.Reload())
	b.Eventually(func() string { return b.text("#heartbeats-tally") }).Should(Equal("Heartbeats: 1 missed, 1 waiting, 1 heard"))
	b.Expect(b.text("#heartbeat-rows")).To(BeEmpty(), "it is closed")
	b.do(chromedp.Click("#heartbeats-tally"))
	b.Eventually(func() string {
		return b.eval(`[...document.querySelectorAll("#heartbeat-rows tr")].map((row) =>
			[...row.cells].slice(0, 4).map((cell) => cell.firstChild.textContent).join(", ")).join("|")`)
	}).Should(MatchRegexp(`^Missed, late, 5 h, –\|Waiting, new, –, –\|Heard, heard, 20 min, in (39|40) min$`))
	b.Expect(b.eval(contrast + " >= 4.5")).To(Equal("true"))
	for _, width := range []int64{1200, 768, 320} {
		b.do(chromedp.EmulateViewport(width, 800))
		b.Expect(b.eval("document.documentElement.scrollWidth <= innerWidth")).To(Equal("true"), "at %d nothing sticks out", width)
	}
	b.noTrouble()
}

func heard(status metav1.ConditionStatus, reason string) []metav1.Condition {
	return []metav1.Condition{{
		Type: v1alpha1.ConditionHeard, Status: status, Reason: reason, LastTransitionTime: metav1.Now(),
	}}
}
