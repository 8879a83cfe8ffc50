//go:build browser

package browser

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// axeScript checks a page against rules of accessibility. "make test-browser" installs it.
const axeScript = "node_modules/axe-core/axe.min.js"

// violations returns what in the page violates WCAG 2 at the levels A and AA.
func (b *tab) violations(axe string) string {
	if b.eval("typeof window.axe") == "undefined" {
		b.eval(axe + "; 0")
	}
	b.eval(`window.violations = undefined;
		axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"]}).then(
			(found) => found.violations.flatMap((rule) => rule.nodes.map((node) => rule.id + ": " + node.html.slice(0, 200) + " " + node.failureSummary)).join("\n"),
			(error) => "axe failed: " + error).then((text) => { window.violations = text; }); 0`)
	b.Eventually(func() string { return b.eval("typeof window.violations") }).Should(Equal("string"))
	return b.eval("window.violations")
}

// All views of the page satisfy WCAG 2 AA, as far as a program can judge it.
func TestAccessibility(t *testing.T) {
	c := newCluster(t)
	disk := c.fill()
	c.put("untitled", 3, v1alpha1.AlertContent{})
	c.g.Expect(c.Create(t.Context(), testenv.Heartbeat(c.namespace, "backup", "jobs", time.Hour, nil))).To(Succeed())
	address := serveCluster(t)
	token := c.user(t, "reader", c.namespace, mayRead)
	script, err := os.ReadFile(axeScript)
	c.g.Expect(err).NotTo(HaveOccurred(), "make test-browser installs it")
	b := openTab(t)
	hidden := func(id string) func() string {
		return func() string { return b.eval(fmt.Sprintf("document.getElementById(%q).hidden", id)) }
	}
	check := func(view string) {
		for _, scheme := range []string{"light", "dark"} {
			b.media(scheme)
			b.Expect(b.violations(string(script))).To(BeEmpty(), "%s, %s", view, scheme)
		}
	}
	b.do(chromedp.Navigate(address))
	b.Eventually(hidden("sign-in")).Should(Equal("false"))
	check("the sign-in")
	b.signIn(token)
	b.Eventually(hidden("choose-scope")).Should(Equal("false"))
	check("the choice of a namespace")
	b.do(chromedp.SendKeys("#scope-name", c.namespace), chromedp.Click("#choose-scope button"))
	b.Eventually(b.titles).Should(ContainSubstring("Disk 97 %"))
	b.do(chromedp.Click("#heartbeats-tally"))
	check("the list, and the heartbeats")
	b.eval(`document.activeElement.blur()`)
	b.press("X")
	b.choose("group", "integration")
	b.choose("state", "")
	check("groups, all selected")
	b.do(chromedp.EmulateViewport(390, 844))
	check("a phone")
	b.do(chromedp.EmulateViewport(1200, 900))
	b.choose("state", "Open")
	for _, key := range []string{"n", "s"} {
		b.press(key)
		b.Eventually(func() string { return b.eval(`document.getElementById("action").open`) }).Should(Equal("true"))
		check("the dialog of " + key)
		b.do(chromedp.Click("#action-cancel"))
	}
	b.eval(fmt.Sprintf("location.hash = '#/%s/%s'", c.namespace, disk.Name))
	b.Eventually(func() string { return b.text("#incident") }).Should(ContainSubstring("Timeline"))
	check("an incident")
	b.press("r")
	b.do(chromedp.Click("#action-do"))
	b.Eventually(func() string { return b.text("#action-problems") }).Should(ContainSubstring("cannot create resource"))
	check("an action that was denied")
	b.eval("location.hash = '#/history?days=7'")
	b.Eventually(b.past).Should(ContainSubstring("Backup"))
	b.do(chromedp.Click("#episodes summary"))
	check("the history")
	b.eval("location.hash = '#/report?days=7'")
	b.Eventually(func() string { return b.text("#report") }).Should(ContainSubstring("episode ended"))
	check("the report")
}
