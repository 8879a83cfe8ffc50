//go:build browser

package browser

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/page"
)

// hanging is an API server that hangs from time to time: it accepts requests and does not answer.
type hanging struct {
	client.WithWatch
	mu     sync.Mutex
	answer chan struct{} // closed when it answers again; nil while it does
}

func (h *hanging) hang() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = make(chan struct{})
}

func (h *hanging) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.answer)
	h.answer = nil
}

func (h *hanging) await(ctx context.Context) error {
	h.mu.Lock()
	answer := h.answer
	h.mu.Unlock()
	if answer == nil {
		return nil
	}
	select {
	case <-answer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// List implements client.Client.
func (h *hanging) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := h.await(ctx); err != nil {
		return err
	}
	return h.WithWatch.List(ctx, list, options...)
}

// Get implements client.Client.
func (h *hanging) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := h.await(ctx); err != nil {
		return err
	}
	return h.WithWatch.Get(ctx, key, object, options...)
}

func TestPageWhileTheAPIServerHangs(t *testing.T) {
	c := newCluster(t)
	disk := c.put("disk", 5, v1alpha1.AlertContent{Title: "Disk full", Severity: v1alpha1.SeverityCritical, Description: "/var is full."})
	server := &hanging{WithWatch: c.WithWatch}
	c.WithWatch = server
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).Should(Equal("Disk full"))
	b.Eventually(func() string { return b.text("#connection") }).Should(Equal("live"))
	b.Eventually(func() string { return b.text("#updated") }).Should(MatchRegexp(`^updated \d s ago$`))

	server.hang()
	b.Eventually(func() string { return b.text("#connection") }).Should(Equal("Out of date: the API server does not respond."))
	b.Expect(b.titles()).To(Equal("Disk full"), "what was known stays")
	b.Eventually(func() string { return b.text("#updated") }).Should(MatchRegexp(`^updated (8|9|1\d) s ago$`), "the age grows")

	// The page of an incident is not blank: it says what is known, and then what is wrong.
	b.eval(fmt.Sprintf("location.hash = '#/%s/%s'", c.namespace, disk.Name))
	b.Eventually(func() string { return b.text("#incident h2") }).Should(Equal("Disk full"))
	b.Eventually(func() string { return b.text("#incident-problem") }).Should(
		Equal("Cannot load the incident: the API server does not respond. Trying again …"))

	// It recovers without a hand on it.
	server.wake()
	b.Eventually(func() string { return b.text("#connection") }).Should(Equal("live"))
	b.Eventually(func() string { return b.text("#incident") }).Should(ContainSubstring("/var is full."))
	b.Expect(b.text("#incident-problem")).To(BeEmpty())
	c.put("queue", 1, v1alpha1.AlertContent{Title: "Queue stalls", Severity: v1alpha1.SeverityInfo})
	b.eval("location.hash = '#/'")
	b.Eventually(b.titles).Should(Equal("Disk full|Queue stalls"))
}

func TestANewKeyInAnOpenTab(t *testing.T) {
	c := newCluster(t)
	c.put("a", 1, v1alpha1.AlertContent{Title: "A", Severity: v1alpha1.SeverityInfo})
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(base(s) + "#key=wrong"))
	b.Eventually(func() string { return b.text("#connection") }).Should(ContainSubstring("open the URL"))
	_, fragment, _ := strings.Cut(s.URL(), "#")
	b.eval(fmt.Sprintf("location.hash = '%s'", fragment))
	b.Eventually(b.titles).Should(Equal("A"))
	b.Expect(b.text("#connection")).To(Equal("live"))
	b.Expect(b.eval("location.hash")).To(Equal("#/"), "the key is not left in the address")
}

func TestFiltersAreInTheAddress(t *testing.T) {
	c := newCluster(t)
	disk := c.fill()
	other := *c
	other.namespace = "default"
	other.put(c.namespace+"-other", 3, v1alpha1.AlertContent{Title: "Elsewhere", Severity: v1alpha1.SeverityCritical})
	s, _ := serveWith(t, c, page.Options{Command: "kubectl tocsin --context=prod"})

	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).Should(ContainSubstring("Elsewhere"))
	b.Expect(b.text("#cluster")).To(Equal("cluster 127.0.0.1"), "without a name, the host of the page")
	b.choose("namespace", c.namespace)
	// There is room for the titles beside all columns.
	for _, width := range []int64{1000, 1150, 1160, 1920} {
		b.do(chromedp.EmulateViewport(width, 900))
		b.Expect(b.eval(`document.querySelector("#rows td.title").clientWidth > 200`)).To(Equal("true"), "at %d", width)
		b.Expect(b.eval(overflowing)).To(BeEmpty(), "at %d", width)
		b.Expect(b.eval(broken)).To(BeEmpty(), "at %d", width)
	}
	b.eval(`document.getElementById("unacknowledged").click()`)
	b.choose("severity", "critical")
	b.Eventually(b.titles).Should(Equal("95 % of the requests take longer than 2 s"))
	b.Expect(b.text("#matches")).To(MatchRegexp(`^1 of \d+ match$`))
	b.Expect(b.eval("location.hash")).To(Equal("#/?severity=critical&namespace=" + c.namespace + "&unacknowledged=yes"))
	b.do(chromedp.Reload())
	b.Eventually(b.titles).Should(Equal("95 % of the requests take longer than 2 s"), "a reload keeps them")

	// From an incident there is a way back to the same list.
	b.do(chromedp.Click("#rows a"))
	b.Eventually(func() string { return b.text("#incident h2") }).Should(ContainSubstring("95 %"))
	b.do(chromedp.KeyEvent(kb.Escape))
	b.Eventually(func() string { return b.eval("location.hash") }).Should(HavePrefix("#/?severity=critical"))

	// The commands to copy name the incident, and reach the same cluster.
	b.do(chromedp.Navigate(fmt.Sprintf("%s#/%s/%s", base(s), c.namespace, disk.Name)))
	b.Eventually(func() string { return b.text("#incident") }).Should(And(
		ContainSubstring(fmt.Sprintf("kubectl tocsin --context=prod resolve -n %s %s", c.namespace, disk.Name)),
		Not(ContainSubstring(" ack -n")), ContainSubstring("Began"), Not(MatchRegexp("(?i)payload"))))
}

// The bar says what its buttons act on: it is there in the list only. While an incident is shown, an action is for that one.
func TestTheBarIsForTheList(t *testing.T) {
	c := newCluster(t)
	c.fill()
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).ShouldNot(BeEmpty())
	height := func() string { return b.eval(`document.getElementById("action-bar").getBoundingClientRect().height`) }
	b.Expect(height()).To(Equal("0"))
	b.press("X")
	b.Expect(b.text("#selected")).To(Equal("5 selected"))
	b.Expect(height()).NotTo(Equal("0"))
	b.do(chromedp.Click("#rows a"))
	b.Eventually(func() string { return b.text("#incident") }).Should(ContainSubstring("Timeline"))
	b.Expect(height()).To(Equal("0"))
	b.press("a")
	b.Expect(b.text("#action-titles")).To(Equal("95 % of the requests take longer than 2 s"))
	b.do(chromedp.Click("#action-cancel"), chromedp.KeyEvent(kb.Escape))
	b.Eventually(height).ShouldNot(Equal("0"))
	b.Expect(b.text("#selected")).To(Equal("5 selected"))
	b.eval(`location.hash = "#/history"`)
	b.Eventually(height).Should(Equal("0"))
	b.noTrouble()
}

// What a filter hides is not acted on, and the dialog tells what is.
func TestAnActionIsForWhatIsShown(t *testing.T) {
	c := newCluster(t)
	c.fill()
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).ShouldNot(BeEmpty())
	all := b.titles()
	b.press("X")
	b.Expect(b.text("#selected")).To(Equal("5 selected"))
	b.press("r")
	b.Expect(b.text("#action-title")).To(Equal("Resolve 5 incidents"))
	b.Expect(b.text("#action-do")).To(Equal("Resolve 5 incidents"))
	b.Expect(b.text("#action-titles")).To(And(ContainSubstring("Disk 97 % full"), ContainSubstring("95 %")))
	b.do(chromedp.Click("#action-cancel"))
	b.choose("search", "disk")
	b.Eventually(b.titles).Should(Equal("Disk 97 % full"))
	b.Expect(b.text("#selected")).To(Equal("1 selected"))
	b.eval(`document.activeElement.blur()`)
	b.press("r")
	b.Expect(b.text("#action-titles")).To(Equal("Disk 97 % full"))
	b.Expect(b.text("#action-do")).To(Equal("Resolve incident"))
	b.do(chromedp.Click("#action-cancel"))

	// Escape ends the search.
	b.do(chromedp.Focus("#search"), chromedp.KeyEvent(kb.Escape))
	b.Eventually(b.titles).Should(Equal(all))
	b.Expect(b.eval("location.hash")).To(Equal("#/"))
	b.Expect(b.eval(`document.getElementById("search").value`)).To(BeEmpty())

	// A length that is no duration is not sent, and the dialog stays as it is.
	b.eval(`document.activeElement.blur()`)
	b.press("s")
	b.eval(`document.getElementById("action-for").value = "two hours"`)
	b.do(chromedp.SendKeys("#action-text", "why"), chromedp.Click("#action-do"))
	b.Expect(b.eval(`document.getElementById("action").open`)).To(Equal("true"))
	b.eval(`document.getElementById("action-for").value = "99w"`)
	b.do(chromedp.Click("#action-do"))
	b.Eventually(func() string { return b.text("#action-why") }).Should(ContainSubstring("at most 30d"))
	b.Expect(b.eval(`document.getElementById("action").open`)).To(Equal("true"))
	b.Expect(b.eval(`document.getElementById("action-text").value`)).To(Equal("why"))
	b.Expect(b.text("#action-problems")).To(BeEmpty())
}

func TestResolvedIncidentsAndLinks(t *testing.T) {
	c := newCluster(t)
	for i, title := range []string{"Oldest", "Newest", "Middle"} {
		incident := c.put(title, 60, v1alpha1.AlertContent{Title: title, Severity: []v1alpha1.Severity{"critical", "info", "error"}[i]})
		c.resolve(incident, []int{30, 10, 20}[i])
	}
	links := c.put("links", 1, v1alpha1.AlertContent{
		Title: "Links", Severity: v1alpha1.SeverityInfo,
		Description: "See https://runbooks.example.com/a?b=c&d=<b>, or (http://example.com/x). Not javascript:alert(1) nor ftp://example.com",
	})
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).Should(Equal("Links"))
	b.choose("state", "Resolved")
	b.Eventually(b.titles).Should(Equal("Newest|Middle|Oldest"))
	b.eval(fmt.Sprintf("location.hash = '#/%s/%s'", c.namespace, links.Name))
	b.Eventually(func() string {
		return b.eval(`[...document.querySelectorAll("#incident pre:first-of-type a")].map((a) => a.href + " " + a.rel).join("|")`)
	}).Should(Equal("https://runbooks.example.com/a?b=c&d= noopener noreferrer nofollow|http://example.com/x noopener noreferrer nofollow"))
	b.Expect(b.eval(`document.querySelectorAll("#incident b").length`)).To(Equal("0"))
	b.noTrouble()
}

// Ten seconds are enough to say how many are critical, which is the newest, and what nobody has taken.
func TestTheCountsAreTheFilter(t *testing.T) {
	c := newCluster(t)
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(func() string { return b.text("#rest") }).Should(Equal("No incident is open. All is quiet."))
	b.Expect(b.text("#newest")).To(BeEmpty())
	c.fill()
	counts := func() string {
		return b.eval(`[...document.querySelectorAll("#counts button")].map((one) => one.innerText.replace(/\s+/g, " ")).join("|")`)
	}
	b.Eventually(counts).Should(Equal("5 all|2 critical|1 error|1 warning|1 info|4 unacknowledged"))
	b.Expect(b.text("#newest")).To(MatchRegexp(`^Newest: 95 % of the requests take longer than 2 s, opened \d+ min ago$`))
	pressed := func() string {
		return b.eval(`[...document.querySelectorAll("#counts [aria-pressed=true]")].map((one) => one.id).join()`)
	}
	b.Expect(pressed()).To(Equal("only-all"))

	b.do(chromedp.Click("#only-critical"))
	b.Eventually(b.titles).Should(Equal("95 % of the requests take longer than 2 s|Disk 97 % full"))
	b.Expect(pressed()).To(Equal("only-critical"))
	b.Expect(counts()).To(HavePrefix("5 all|2 critical|1 error"), "what there is, whatever is shown")
	b.Expect(b.eval("document.activeElement.id")).To(Equal("only-critical"), "the focus stays")
	b.do(chromedp.Click("#only-untaken strong"))
	b.Eventually(b.titles).Should(Equal("95 % of the requests take longer than 2 s"))
	b.Expect(b.eval("location.hash")).To(Equal("#/?severity=critical&unacknowledged=yes"))
	b.do(chromedp.Click("#only-critical"), chromedp.Click("#only-untaken"))
	b.Eventually(func() string { return b.eval(`document.querySelectorAll("#rows tr").length`) }).Should(Equal("5"))

	b.Expect(b.eval(`getComputedStyle(document.querySelector("#rows tr.critical td.select")).borderLeftWidth`)).NotTo(Equal("0px"), "a coloured edge")
	b.Expect(b.text("#rows tr.critical .host")).To(Equal("api-3"))
	b.noTrouble()
}

// broken has the texts of the titles and states of which a word is broken: a line breaks at a space or a hyphen.
const broken = `[...document.querySelectorAll("td.title a, td.state")].map((one) => one.firstChild).filter((text) => text.nodeType === 3).filter((text) => {
	const range = document.createRange();
	let at = 0;
	return text.data.split(/(?<=[\s-])/).some((word) => {
		range.setStart(text, at);
		range.setEnd(text, at + word.trimEnd().length);
		at += word.length;
		return range.getClientRects().length > 1;
	});
}).map((text) => text.data).join("|")`

func TestLayout(t *testing.T) {
	c := newCluster(t)
	disk := c.fill()
	for i := range 40 {
		c.put("more-"+strconv.Itoa(i), 2+20*i, v1alpha1.AlertContent{Title: "Unreachable: node-" + strconv.Itoa(i) + ".internal.example.com",
			Severity: v1alpha1.SeverityWarning})
	}
	s, _ := serve(t, c)
	b := openTab(t)
	// lightness is the relative luminance (WCAG 2) of a colour.
	const lightness = `(c) => c.match(/[\d.]+/g).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)`
	contrasts := `(() => { const light = ` + lightness + `;
		const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const all = ["critical", "error", "warning", "info"].map((s) => light(getComputedStyle(document.querySelector("#chart rect." + s)).fill));
		const paper = light(getComputedStyle(document.body).backgroundColor);
		return Math.min(...all.map((a) => ratio(a, paper))) >= 3 && Math.min(...all.slice(1).map((a, i) => ratio(a, all[i]))) >= 1.4; })()`
	for _, scheme := range []string{"light", "dark"} {
		b.media(scheme)
		for _, size := range [][2]int64{{1200, 900}, {768, 900}, {390, 844}, {320, 800}} {
			b.do(chromedp.EmulateViewport(size[0], size[1]), chromedp.Navigate("about:blank"), chromedp.Navigate(s.URL()))
			b.Eventually(func() string { return b.eval(`document.querySelectorAll("#rows tr").length`) }).Should(Equal("45"))
			b.Eventually(func() string { return b.eval(`document.querySelectorAll("#chart rect").length > 40`) }).Should(Equal("true"))
			above := "4" // of the height
			if size[0] < 1000 {
				above = "3" // with all filters
			}
			b.Expect(b.eval(`document.querySelector("#rows tr").getBoundingClientRect().top <= innerHeight / `+above)).To(Equal("true"),
				"%v: the first row is at %s", size, b.eval(`document.querySelector("#rows tr").getBoundingClientRect().top`))
			b.Expect(b.eval(`document.documentElement.scrollWidth <= innerWidth`)).To(Equal("true"), "%v: %s", size,
				b.eval(`[...document.querySelectorAll("body *")].filter((e) => !e.closest("#filters, thead") &&
					e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML.slice(0, 80)).slice(0, 3).join()`))
			b.Expect(b.eval(contrasts)).To(Equal("true"), "%s: the colours of the chart", scheme)
			b.Expect(b.eval(`document.querySelectorAll("#chart text.count").length`)).To(Or(Equal("2"), Equal("3")))
			b.Expect(b.eval(`document.querySelectorAll("#chart text:not(.count)").length >= 3`)).To(Equal("true"))
			b.Expect(b.eval(broken)).To(BeEmpty(), "%v: words that are broken", size)
		}
	}
	b.do(chromedp.EmulateViewport(1200, 900))
	b.eval(fmt.Sprintf("location.hash = '#/%s/%s'", c.namespace, disk.Name))
	b.Eventually(func() string { return b.text("#incident") }).Should(ContainSubstring("Timeline"))

	// The arrow keys scroll.
	b.eval("location.hash = '#/'")
	b.Eventually(b.titles).ShouldNot(BeEmpty())
	b.eval(`document.activeElement.blur(); scrollTo(0, 0)`)
	b.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	b.Eventually(func() string { return b.eval("scrollY > 0") }).Should(Equal("true"))
	b.noTrouble()
}
