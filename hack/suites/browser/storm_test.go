//go:build browser

package browser

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const stormSize = 2000

func (c *cluster) storm() {
	for i := range stormSize {
		c.put(fmt.Sprintf("storm-%d", i), 5, v1alpha1.AlertContent{Title: fmt.Sprintf("Node %d is unreachable", i),
			Severity: v1alpha1.SeverityError, Labels: map[string]string{"zone": string(rune('a' + i%3))}})
	}
}

// rowCount returns the number of rows of the table, also of those that are headers of groups.
func (b *tab) rowCount() string { return b.eval(`document.querySelectorAll("#rows tr").length`) }

// A storm of 2,000 incidents is grouped; all rows can be shown, the visible ones at once, and stay live.
func TestAStorm(t *testing.T) {
	c := newCluster(t)
	c.storm()
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(func() string { return b.text("tr.group") }).Should(ContainSubstring("Node # is unreachable 2000: 2000 error"))
	b.Expect(b.rowCount()).To(Equal("1"), "a large group is closed")

	// The keyboard reaches the group: it opens and closes it, and selects all in it.
	b.press("j")
	b.press("x")
	b.Expect(b.text("#selected")).To(Equal("2000 selected"))
	b.press("x")
	b.do(chromedp.KeyEvent("\r"))
	b.Eventually(b.rowCount).Should(Equal("2001"))
	b.Expect(b.eval("document.activeElement.textContent")).To(Equal("▾ Node # is unreachable"))
	b.do(chromedp.KeyEvent("\r"))
	b.Eventually(b.rowCount).Should(Equal("1"))

	// Without groups, the screen is full of rows before the browser does anything else; the other rows follow.
	b.Expect(b.eval(`(() => {
		const group = document.getElementById("group");
		group.value = "none";
		group.dispatchEvent(new Event("input", {bubbles: true}));
		const made = document.querySelectorAll("#rows tr").length;
		return made < 2000 && Boolean(document.elementFromPoint(400, innerHeight - 5).closest("#rows tr"));
	})()`)).To(Equal("true"))
	b.Eventually(b.rowCount).Should(Equal(strconv.Itoa(stormSize)))
	b.eval(`scrollTo(0, document.body.scrollHeight); window.last = document.querySelector("#rows tr:last-child"); 0`)
	late := c.put("late", 0, v1alpha1.AlertContent{Title: "Late", Severity: v1alpha1.SeverityCritical})
	b.Eventually(b.titles).Should(HavePrefix("Late|"))
	b.Expect(b.eval(`window.last.isConnected && window.last === document.querySelector("#rows tr:last-child")`)).To(Equal("false"),
		"2,000 rows are shown, and the last one made place")
	c.resolve(late, 0)
	b.Eventually(b.titles).Should(HavePrefix("Node "))
	b.Eventually(b.rowCount).Should(Equal(strconv.Itoa(stormSize)))

	b.choose("group", "label:zone")
	b.Eventually(func() string {
		return b.eval(`[...document.querySelectorAll("tr.group button")].map((g) => g.textContent).sort().join()`)
	}).Should(Equal("▸ a,▸ b,▸ c"))
	b.choose("group", "none")
	b.do(chromedp.Click(`button[data-sort="title"]`))
	b.Eventually(b.titles).Should(HavePrefix("Node 0 is unreachable|Node 1 is"))
	b.Expect(b.eval(`document.querySelector('[aria-sort]').textContent`)).To(Equal("Title"))
	b.noTrouble()
}

// The rows of a large list come in parts. None of them is new, and a reload shows all.
func TestTheFirstRowsAreNotNew(t *testing.T) {
	const count = 450
	c := newCluster(t)
	for i := range count {
		c.put(fmt.Sprintf("part-%d", i), 5, v1alpha1.AlertContent{Title: fmt.Sprintf("Node %d is unreachable", i), Severity: v1alpha1.SeverityError})
	}
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(func() string { return b.text("#summary") }).Should(Equal("450 open: 450 error"))
	b.choose("group", "none")
	for range 2 {
		b.Eventually(b.rowCount).Should(Equal(strconv.Itoa(count)))
		b.Expect(b.text("#summary")).To(Equal("450 open: 450 error"))
		b.Expect(b.eval(`document.querySelectorAll("tr.fresh").length`)).To(Equal("0"))
		b.do(chromedp.Reload())
	}
	c.put("late", 0, v1alpha1.AlertContent{Title: "Late", Severity: v1alpha1.SeverityCritical})
	b.Eventually(b.titles).Should(HavePrefix("Late|"))
	b.Expect(b.eval(`document.querySelectorAll("tr.fresh").length`)).To(Equal("1"), "this one is")
	b.noTrouble()
}

// cpu returns the CPU time in ms that the page has taken so far, which does not depend on what else the machine does.
func (b *tab) cpu() float64 {
	found, err := chromedp.Call(b.ctx, performance.GetMetrics, cdp.Empty{})
	b.Expect(err).NotTo(HaveOccurred())
	for _, metric := range found.Metrics {
		if metric.Name == "TaskDuration" {
			return 1000 * metric.Value
		}
	}
	return 0
}

// BenchmarkStorm measures, in a browser with 2,000 open incidents: the time from a click until the rows of the screen are laid out, and
// the CPU time for all rows and, when all are shown, for the change of one incident. And how many frames the browser shows in a
// second of scrolling by 50 pixels a frame, as fast as anybody reads, and the longest time between two of them.
func BenchmarkStorm(bench *testing.B) {
	c := newCluster(bench)
	c.storm()
	s, _ := serve(bench, c)
	b := openTab(bench)
	_, err := chromedp.Call(b.ctx, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
	b.Expect(err).NotTo(HaveOccurred())
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(func() string { return b.text("tr.group") }).Should(ContainSubstring("2000"))
	var screen, all, change, frames, longest float64
	rounds := 0
	for bench.Loop() {
		rounds++
		b.choose("group", "")
		b.Eventually(b.rowCount).Should(Equal("1"))
		begun := b.cpu()
		screen += b.number(`(() => {
			const group = document.getElementById("group"), begun = performance.now();
			group.value = "none";
			group.dispatchEvent(new Event("input", {bubbles: true}));
			document.body.offsetHeight;
			return performance.now() - begun; })()`)
		b.Eventually(func() string {
			return b.eval(`document.body.offsetHeight && document.querySelectorAll("#rows tr").length`)
		}).Should(
			Equal(strconv.Itoa(stormSize)))
		all += b.cpu() - begun

		b.eval(`(() => {
			const begun = performance.now();
			let count = 0, longest = 0, last = begun;
			window.frames = undefined;
			requestAnimationFrame(function step(now) {
				count++;
				longest = Math.max(longest, now - last);
				last = now;
				scrollBy(0, 50);
				if (now - begun < 1000) requestAnimationFrame(step); else window.frames = [count, longest];
			});
		})()`)
		b.Eventually(func() string { return b.eval(`String(window.frames !== undefined)`) }).Should(Equal("true"))
		frames += b.number(`window.frames[0]`)
		longest += b.number(`window.frames[1]`)
		b.eval(`scrollTo(0, 0)`)

		title := "Late " + strconv.Itoa(rounds)
		begun = b.cpu()
		late := c.put(title, 0, v1alpha1.AlertContent{Title: title, Severity: v1alpha1.SeverityCritical})
		b.Eventually(func() string { return b.text("#rows tr .title a") }).Should(Equal(title))
		change += b.cpu() - begun
		c.resolve(late, 0)
		b.Eventually(func() string { return b.text("#rows tr .title a") }).ShouldNot(Equal(title))
	}
	bench.ReportMetric(0, "ns/op")
	bench.ReportMetric(screen/float64(rounds), "ms/screen")
	bench.ReportMetric(frames/float64(rounds), "frames/s")
	bench.ReportMetric(longest/float64(rounds), "ms/longest-frame")
	bench.ReportMetric(all/float64(rounds), "cpu-ms/all-rows")
	bench.ReportMetric(change/float64(rounds), "cpu-ms/change")
}
