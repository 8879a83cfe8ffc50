//go:build browser

package browser

import (
	"fmt"
	"strconv"
	"testing"

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

// count returns the number of nodes that a selector selects.
func (b *tab) count(selector string) string {
	return b.eval(fmt.Sprintf("document.querySelectorAll(%q).length", selector))
}

// A storm of 2,000 incidents is grouped; all rows can be shown, the visible ones at once, and stay live.
func TestAStorm(t *testing.T) {
	c := newCluster(t)
	c.storm()
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(func() string { return b.text("tr.group") }).Should(ContainSubstring("Node # is unreachable 2000: 2000 error"))
	b.Expect(b.count("#rows tr")).To(Equal("1"), "a large group is closed")

	// The keyboard reaches the group: it opens and closes it, and selects all in it.
	b.press("j")
	b.press("x")
	b.Expect(b.text("#selected")).To(Equal("2000 selected"))
	b.press("x")
	b.do(chromedp.KeyEvent("\r"))
	b.Eventually(func() string { return b.count("#rows tr") }).Should(Equal("2001"))
	b.Expect(b.eval("document.activeElement.textContent")).To(Equal("▾ Node # is unreachable"))
	b.do(chromedp.KeyEvent("\r"))
	b.Eventually(func() string { return b.count("#rows tr") }).Should(Equal("1"))

	// Without groups, the screen is full of rows before the browser does anything else; the other rows follow.
	b.Expect(b.eval(`(() => {
		const group = document.getElementById("group");
		group.value = "none";
		group.dispatchEvent(new Event("input", {bubbles: true}));
		const made = document.querySelectorAll("#rows tr").length;
		return made < 2000 && Boolean(document.elementFromPoint(400, innerHeight - 5).closest("#rows tr"));
	})()`)).To(Equal("true"))
	b.Eventually(func() string { return b.count("#rows tr") }).Should(Equal(strconv.Itoa(stormSize)))
	b.eval(`scrollTo(0, document.body.scrollHeight); window.last = document.querySelector("#rows tr:last-child"); 0`)
	late := c.put("late", 0, v1alpha1.AlertContent{Title: "Late", Severity: v1alpha1.SeverityCritical})
	b.Eventually(b.titles).Should(HavePrefix("Late|"))
	b.Expect(b.eval(`window.last.isConnected && window.last === document.querySelector("#rows tr:last-child")`)).To(Equal("false"),
		"2,000 rows are shown, and the last one made place")
	c.resolve(late, 0)
	b.Eventually(b.titles).Should(HavePrefix("Node "))
	b.Eventually(func() string { return b.count("#rows tr") }).Should(Equal(strconv.Itoa(stormSize)))

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

// BenchmarkStorm measures, in a browser with 2,000 open incidents: the time from a click until the rows of the screen and until all
// rows are laid out, and the longest that a change of one incident keeps the page from responding while all rows are shown.
func BenchmarkStorm(bench *testing.B) {
	c := newCluster(bench)
	c.storm()
	s, _ := serve(bench, c)
	b := openTab(bench)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(func() string { return b.text("tr.group") }).Should(ContainSubstring("2000"))
	number := func(name string) float64 {
		value, err := strconv.ParseFloat(b.eval("window."+name), 64)
		b.Expect(err).NotTo(HaveOccurred())
		return value
	}
	var screen, all, change float64
	rounds := 0
	for bench.Loop() {
		rounds++
		b.eval(`(() => {
			const group = document.getElementById("group"), choose = (value) => { group.value = value; group.dispatchEvent(new Event("input", {bubbles: true})); };
			choose("");
			window.screenTime = window.allTime = undefined;
			requestAnimationFrame(() => setTimeout(() => {
				const begun = performance.now();
				choose("none");
				document.body.offsetHeight;
				window.screenTime = performance.now() - begun;
				const wait = () => {
					if (document.querySelectorAll("#rows tr").length < 2000) return setTimeout(wait);
					document.body.offsetHeight;
					window.allTime = performance.now() - begun;
				};
				wait();
			}));
		})()`)
		b.Eventually(func() string { return b.eval("typeof window.allTime") }).Should(Equal("number"))
		screen, all = screen+number("screenTime"), all+number("allTime")
		b.eval(`window.longest = 0;
			window.round = (window.round ?? 0) + 1;
			((round) => {
				let last = performance.now();
				const tick = () => {
					const now = performance.now();
					window.longest = Math.max(window.longest, now - last);
					last = now;
					if (window.round === round) setTimeout(tick);
				};
				tick();
			})(window.round); 0`)
		title := "Late " + strconv.Itoa(rounds)
		late := c.put(title, 0, v1alpha1.AlertContent{Title: title, Severity: v1alpha1.SeverityCritical})
		b.Eventually(b.titles).Should(HavePrefix(title + "|"))
		b.eval(`document.body.offsetHeight`)
		change += number("longest")
		c.resolve(late, 0)
		b.Eventually(b.titles).ShouldNot(HavePrefix(title + "|"))
	}
	bench.ReportMetric(0, "ns/op")
	bench.ReportMetric(screen/float64(rounds), "ms/screen")
	bench.ReportMetric(all/float64(rounds), "ms/all-rows")
	bench.ReportMetric(change/float64(rounds), "ms/change")
}
