//go:build browser

// Package browser tests the page, that of "kubectl tocsin ui" and that of a cluster, in a headless Chromium.
package browser

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/page"
)

var config *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(c *rest.Config) { config = c }))
}

const hostileTitle = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>&lt;b&gt; ${window.hacked=1}`

// cluster is a namespace with Incidents in it.
type cluster struct {
	client.WithWatch
	namespace string
	g         *WithT
}

func newCluster(tb testing.TB) *cluster {
	tb.Helper()
	g := NewWithT(tb)
	c, err := client.NewWithWatch(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	// A name for pictures, so a new one only when it is taken.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	if c.Create(tb.Context(), namespace) != nil {
		return &cluster{c, testenv.Namespace(tb, c), g}
	}
	return &cluster{c, namespace.Name, g}
}

// put makes an Incident, as the operator would have.
func (c *cluster) put(key string, minutesAgo int, content v1alpha1.AlertContent) *v1alpha1.Incident {
	at := v1alpha1.NewTimestamp(time.Now().Add(-time.Duration(minutesAgo) * time.Minute))
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: v1alpha1.IncidentName("monitoring", key)},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "monitoring", DedupKey: key},
	}
	c.g.Expect(c.Create(context.Background(), incident)).To(Succeed())
	condition := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at.Time)}
	}
	incident.Status = v1alpha1.IncidentStatus{
		State: v1alpha1.IncidentOpen, Alert: content, AlertCount: int64(1 + minutesAgo/10),
		OpenedTime: &at, LastAlertTime: &at,
		Episode: &v1alpha1.Episode{Number: 1, StartTime: at, AlertCount: 1},
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionResolved, v1alpha1.ReasonFiring, "The incident is open."),
			condition(v1alpha1.ConditionAcknowledged, v1alpha1.ReasonNotAcknowledged, "Nobody has acknowledged the incident."),
		},
		Timeline: []v1alpha1.Transition{{Type: v1alpha1.TransitionOpened, Time: at, Severity: content.Severity,
			Message: fmt.Sprintf("Opened with severity %s: %.100s", content.Severity, content.Title)}},
	}
	c.g.Expect(c.Status().Update(context.Background(), incident)).To(Succeed())
	return incident
}

// resolve resolves an Incident so many minutes ago.
func (c *cluster) resolve(incident *v1alpha1.Incident, minutesAgo int) {
	at := v1alpha1.NewTimestamp(time.Now().Add(-time.Duration(minutesAgo) * time.Minute))
	incident.Status.State, incident.Status.ResolvedTime = v1alpha1.IncidentResolved, &at
	incident.Status.Conditions[0].Status, incident.Status.Conditions[0].Reason = metav1.ConditionTrue, v1alpha1.ReasonResolvedByUser
	incident.Status.Conditions[0].Message = "maria resolved the incident."
	incident.Status.Resolution = &v1alpha1.Resolution{Reason: v1alpha1.ReasonResolvedByUser, By: "maria"}
	incident.Status.Timeline = append(incident.Status.Timeline,
		v1alpha1.Transition{Type: v1alpha1.TransitionResolved, Time: at, Message: "Resolved by maria", By: "maria", Comment: "replaced the disk"})
	c.g.Expect(c.Status().Update(context.Background(), incident)).To(Succeed())
}

// acknowledge acknowledges an Incident so many minutes ago.
func (c *cluster) acknowledge(incident *v1alpha1.Incident, minutesAgo int) {
	at := v1alpha1.NewTimestamp(time.Now().Add(-time.Duration(minutesAgo) * time.Minute))
	incident.Status.Conditions[1].Status, incident.Status.Conditions[1].Reason = metav1.ConditionTrue, v1alpha1.ReasonAcknowledgedByUser
	incident.Status.Conditions[1].Message = "maria acknowledged the incident."
	incident.Status.Acknowledgement = &v1alpha1.Acknowledgement{Time: at, By: "maria", Comment: "looking into it", Severity: incident.Status.Alert.Severity}
	incident.Status.Timeline = append(incident.Status.Timeline,
		v1alpha1.Transition{Type: v1alpha1.TransitionAcknowledged, Time: at, Message: "Acknowledged by maria", By: "maria", Comment: "looking into it"})
	c.g.Expect(c.Status().Update(context.Background(), incident)).To(Succeed())
}

// fill puts what the pictures show.
func (c *cluster) fill() (disk *v1alpha1.Incident) {
	bag := func(pairs ...string) v1alpha1.Bag {
		b := v1alpha1.Bag{}
		for i := 0; i < len(pairs); i += 2 {
			b[pairs[i]] = []byte(pairs[i+1])
		}
		return b
	}
	disk = c.put("disk-db-1", 43, v1alpha1.AlertContent{
		Title: "Disk 97 % full", Severity: v1alpha1.SeverityCritical, Hostname: "db-1", Type: "metric", Region: "eu-west",
		Description: "/var is at 97 %.\nIt grows by 1 % an hour.", Link: "https://grafana.example.com/d/disk",
		Labels: map[string]string{"team": "storage", "mount": "/var"}, Values: bag("used", "0.97"),
		Annotations: map[string]string{"runbook": "https://runbooks.example.com/disk"}, Custom: bag("check", `{"id": 4711, "flags": ["a", null]}`),
	})
	c.acknowledge(disk, 31)
	c.put("latency-api", 9, v1alpha1.AlertContent{Title: "95 % of the requests take longer than 2 s", Severity: v1alpha1.SeverityCritical,
		Hostname: "api-3", Labels: map[string]string{"team": "web"}})
	c.put("queue", 380, v1alpha1.AlertContent{Title: "Queue stalls: 18,204 messages wait", Severity: v1alpha1.SeverityError, Labels: map[string]string{"team": "web"}})
	c.put("cert", 1100, v1alpha1.AlertContent{Title: "The certificate of shop.example.com ends in 12 days", Severity: v1alpha1.SeverityWarning})
	c.put("update", 700, v1alpha1.AlertContent{Title: "Node pool wants an update", Severity: v1alpha1.SeverityInfo})
	backup := c.put("backup", 1300, v1alpha1.AlertContent{Title: "Backup of db-2 failed", Severity: v1alpha1.SeverityError, Hostname: "db-2"})
	c.resolve(backup, 900)
	return disk
}

func serve(tb testing.TB, c *cluster) (s *page.Server, stop func()) {
	tb.Helper()
	return serveWith(tb, c, page.Options{Namespace: c.namespace, ClusterName: "prod-1"})
}

func serveWith(tb testing.TB, c *cluster, options page.Options) (s *page.Server, stop func()) {
	tb.Helper()
	s, err := page.ForOwner(tb.Context(), c, options)
	NewWithT(tb).Expect(err).NotTo(HaveOccurred())
	return s, run(tb, s)
}

// run runs a page until the test ends, or until stop is called.
func run(tb testing.TB, s *page.Server) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, logr.Discard()) }()
	stop = sync.OnceFunc(func() {
		cancel()
		NewWithT(tb).Expect(<-done).To(Succeed())
	})
	tb.Cleanup(stop)
	return stop
}

// base is the address of the page without the key.
func base(s *page.Server) string {
	address, _, _ := strings.Cut(s.URL(), "#")
	return address
}

func TestPage(t *testing.T) {
	c := newCluster(t)
	disk := c.fill()
	s, _ := serve(t, c)
	b := openTab(t)
	b.media("light")
	b.do(chromedp.Navigate(s.URL()))

	// The list: what is open, the worst and the unacknowledged first.
	b.Eventually(b.titles).Should(Equal("95 % of the requests take longer than 2 s|Disk 97 % full|" +
		"Queue stalls: 18,204 messages wait|The certificate of shop.example.com ends in 12 days|Node pool wants an update"))
	b.Expect(b.text("#summary")).To(Equal("5 open: 2 critical, 1 error, 1 warning, 1 info"))
	b.Expect(b.text("#connection")).To(Equal("live"))
	b.Expect(b.eval("document.title")).To(Equal("(5) Tocsin"))
	b.Expect(b.eval("location.hash")).To(Equal("#/"), "the key is not left in the address")
	b.Eventually(func() string { return b.eval(`document.querySelectorAll("#chart rect").length > 40`) }).Should(Equal("true"))
	b.Expect(b.text("#chart-caption")).To(Equal("At most 5 open at a time"))
	b.picture("ui-light.png")
	b.media("dark")
	b.picture("ui-dark.png")
	b.do(chromedp.EmulateViewport(390, 700))
	b.picture("ui-narrow.png")
	b.do(chromedp.EmulateViewport(1200, 900))
	b.media("light")

	// A reload, and another tab, need no key again.
	b.do(chromedp.Reload())
	b.Eventually(b.titles).Should(HavePrefix("95 %"))

	// Live: what comes, changes and goes.
	fresh := c.put("fresh", 0, v1alpha1.AlertContent{Title: "Just now", Severity: v1alpha1.SeverityCritical})
	b.Eventually(b.titles).Should(HavePrefix("Just now|95 %"))
	c.resolve(fresh, 0)
	b.Eventually(b.titles).ShouldNot(ContainSubstring("Just now"))
	b.Expect(c.Delete(context.Background(), fresh)).To(Succeed())

	// Search and filters.
	b.do(chromedp.SendKeys("#search", "TEAM=web stalls"))
	b.Eventually(b.titles).Should(Equal("Queue stalls: 18,204 messages wait"))
	b.do(chromedp.Clear("#search"), chromedp.SendKeys("#search", "nothing like that"))
	b.Eventually(func() string { return b.text("#rest") }).Should(Equal("Nothing found."))
	b.choose("search", "")
	b.choose("state", "Resolved")
	b.Eventually(b.titles).Should(Equal("Backup of db-2 failed"))
	// The order is that of the plugin.
	b.choose("state", "")
	var all v1alpha1.IncidentList
	b.Expect(c.List(t.Context(), &all, client.InNamespace(c.namespace))).To(Succeed())
	slices.SortFunc(all.Items, func(x, y v1alpha1.Incident) int { return live.ByUrgency(&x, &y) })
	order := make([]string, len(all.Items))
	for i := range all.Items {
		order[i] = all.Items[i].Status.Alert.Title
	}
	b.Eventually(b.titles).Should(Equal(strings.Join(order, "|")))
	b.choose("state", "Open")
	b.choose("severity", "critical")
	b.Eventually(b.titles).Should(Equal("95 % of the requests take longer than 2 s|Disk 97 % full"))

	// The page of an incident, while it changes.
	b.do(chromedp.Click(fmt.Sprintf("a[data-id=%q]", c.namespace+"/"+disk.Name)))
	b.Eventually(func() string {
		b.eval(`for (const one of document.querySelectorAll("#incident details")) one.open = true`)
		return b.text("#incident")
	}).Should(And(
		ContainSubstring("Disk 97 % full"), ContainSubstring("critical, open, acknowledged by maria"), ContainSubstring("/var is at 97 %."), ContainSubstring("maria acknowledged the incident."),
		ContainSubstring("Acknowledged by maria: looking into it"), ContainSubstring(`"flags": [`), ContainSubstring(disk.Name),
		ContainSubstring("Only the component admission-policy verifies them.")))
	b.eval(`document.querySelector("#incident details").open = false`)
	b.picture("ui-incident.png")
	b.Expect(b.text("#incident dl")).To(MatchRegexp(`Opened\s+\w+ \d+, \d{4}, \d\d:\d\d:\d\d UTC \(4\d min ago\)`), "as kubectl tocsin show has it")
	b.Expect(b.eval(`document.querySelector('#incident a[href="https://grafana.example.com/d/disk"]').rel`)).To(ContainSubstring("noopener"))
	b.Expect(b.eval(`!!document.querySelector('#incident a[href="https://runbooks.example.com/disk"]')`)).To(Equal("true"))
	b.Expect(b.eval(`getComputedStyle(document.getElementById("list")).display`)).To(Equal("none"))
	b.Expect(b.text("#incident .actions")).NotTo(ContainSubstring("Reopen"))
	c.resolve(disk, 0)
	b.Eventually(func() string { return b.text("#incident") }).Should(ContainSubstring("Resolved by maria: replaced the disk"))
	b.do(chromedp.Click("#do-reopen"))
	b.Expect(b.text("#action-title")).To(Equal("Reopen an incident"))
	b.do(chromedp.Click("#action-cancel"))
	b.do(chromedp.NavigateBack())
	b.Eventually(b.titles).Should(Equal("95 % of the requests take longer than 2 s"))

	// A row that comes back has the age of today.
	b.eval(`window.now = Date.now; Date.now = () => window.now() + 24 * 3600000; 0`)
	b.choose("severity", "info")
	b.choose("severity", "critical")
	b.Expect(b.text("#rows td.opened time")).To(Equal("24 h"))
	b.noTrouble()
}

func TestKeyboard(t *testing.T) {
	c := newCluster(t)
	for i, title := range []string{"First", "Second", "Third"} {
		c.put(title, i, v1alpha1.AlertContent{Title: title, Severity: v1alpha1.SeverityError, Labels: map[string]string{"place": title}})
	}
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).Should(Equal("First|Second|Third"))
	focused := func() string { return b.eval("document.activeElement.textContent.trim() || document.activeElement.id") }
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	b.Expect(focused()).To(Equal("Third"), "the end is the end")
	b.do(chromedp.KeyEvent("k"))
	b.Expect(focused()).To(Equal("Second"))
	// A change redraws the list, and the focus stays.
	c.put("Fourth", 9, v1alpha1.AlertContent{Title: "Fourth", Severity: v1alpha1.SeverityError})
	b.Eventually(b.titles).Should(HaveSuffix("Fourth"))
	b.Expect(focused()).To(Equal("Second"))
	b.do(chromedp.KeyEvent(kb.Enter))
	b.Eventually(func() string { return b.eval("document.activeElement.tagName") }).Should(Equal("H2"), "the heading of its page")
	b.Expect(focused()).To(Equal("Second"))
	b.do(chromedp.KeyEvent(kb.Escape))
	b.Eventually(func() string { return b.eval("document.activeElement.tagName") }).Should(Equal("A"), "back where it was")
	b.Expect(focused()).To(Equal("Second"))
	// The labels of an incident are a step aside.
	b.do(chromedp.KeyEvent(kb.ArrowRight))
	b.Expect(focused()).To(Equal("place=Second"))
	b.do(chromedp.KeyEvent(kb.ArrowLeft))
	b.Expect(focused()).To(Equal("Second"))
	b.do(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.Enter))
	b.Eventually(b.titles).Should(Equal("Second"))
	b.Expect(b.eval(`document.getElementById("search").value`)).To(Equal("place=second"))
	b.choose("search", "")
	b.press("/")
	b.press("j")
	b.Expect(b.eval("document.activeElement.value")).To(Equal("j"), "a letter in the search is a letter")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.noTrouble()
}

func TestHostileIncidents(t *testing.T) {
	c := newCluster(t)
	incident := c.put(hostileTitle, 1, v1alpha1.AlertContent{
		Title: hostileTitle, Severity: v1alpha1.SeverityCritical, Description: hostileTitle, Hostname: hostileTitle,
		Type: hostileTitle, Region: hostileTitle, Link: "javascript:window.hacked=1",
		Labels: map[string]string{hostileTitle: "javascript:window.hacked=1", "__proto__": `{"hacked": 1}`},
		Custom: v1alpha1.Bag{"</pre><script>": []byte(`"data:text/html,<script>window.hacked=1</script>"`)},
	})
	c.put("long", 2, v1alpha1.AlertContent{Title: strings.Repeat("W", 1024), Severity: v1alpha1.SeverityInfo})
	s, _ := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).Should(HavePrefix(hostileTitle + "|"))
	b.do(chromedp.Navigate(fmt.Sprintf("%s#/%s/%s", base(s), c.namespace, incident.Name)))
	b.Eventually(func() string { return b.text("#incident h2") }).Should(Equal(hostileTitle))
	b.Eventually(func() string { return b.text("#incident") }).Should(ContainSubstring("javascript:window.hacked=1"))
	b.Expect(b.eval(`[...document.querySelectorAll("a")].map((a) => a.protocol).filter((p) => p !== "http:").join()`)).To(BeEmpty())
	b.Expect(b.eval(`document.querySelectorAll("main img, main script, main b").length`)).To(Equal("0"))
	b.Expect(b.eval("String(window.hacked) + String({}.hacked)")).To(Equal("undefinedundefined"))
	// Even a mistake in the page would be held back.
	b.Expect(b.eval(`try { document.body.insertAdjacentHTML("beforeend", "<i>x</i>"); "it worked" } catch (e) { e.name }`)).To(Equal("TypeError"))
	b.Expect(b.eval(`document.documentElement.scrollWidth <= innerWidth`)).To(Equal("true"), "a long title breaks")
}

// contrast is the least contrast (WCAG 2, 1.4.3) of a text of the page to its background.
const contrast = `(() => {
	const parts = (c) => c.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = (e) => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c[3] !== 0) return c; } };
	return Math.min(...[...document.querySelectorAll("main:not([hidden]) *, header *, footer *")]
		.filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
		.map((e) => [light(parts(getComputedStyle(e).color)), light(ground(e))].sort((a, b) => b - a))
		.map(([a, b]) => (a + 0.05) / (b + 0.05)));
})()`

func TestSchemesAndScreens(t *testing.T) {
	c := newCluster(t)
	disk := c.fill()
	s, _ := serve(t, c)
	b := openTab(t)
	backgrounds := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		b.media(scheme)
		for _, hash := range []string{"#/", "#/" + c.namespace + "/" + disk.Name} {
			b.do(chromedp.Navigate(s.URL()))
			b.Eventually(b.titles).Should(ContainSubstring("Disk"))
			b.eval(fmt.Sprintf("location.hash = %q", hash))
			b.Eventually(func() string { return b.text("main:not([hidden])") }).Should(ContainSubstring("Disk 97 % full"))
			b.Eventually(func() string { return b.eval(contrast + " >= 4.5") }).Should(Equal("true"), "%s %s: %s", scheme, hash, b.eval(contrast))
			for _, width := range []int64{1200, 768, 320} {
				b.do(chromedp.EmulateViewport(width, 800))
				b.Expect(b.eval("document.documentElement.scrollWidth <= innerWidth")).To(Equal("true"), "%s at %d: nothing sticks out", hash, width)
			}
			b.do(chromedp.EmulateViewport(1200, 900))
		}
		backgrounds[b.eval("getComputedStyle(document.body).backgroundColor")] = true
	}
	b.Expect(backgrounds).To(HaveLen(2))
	b.noTrouble()
}

func TestWithoutTheKeyAndWithoutTheServer(t *testing.T) {
	c := newCluster(t)
	c.put("a", 1, v1alpha1.AlertContent{Title: "A", Severity: v1alpha1.SeverityInfo})
	s, stop := serve(t, c)
	b := openTab(t)
	b.do(chromedp.Navigate(base(s)))
	b.Eventually(func() string { return b.text("#connection") }).Should(ContainSubstring("open the URL that kubectl tocsin ui has printed"))
	b.Expect(b.titles()).To(BeEmpty())
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.URL()))
	b.Eventually(b.titles).Should(Equal("A"))
	stop()
	b.Eventually(func() string { return b.text("#connection") }).Should(HavePrefix("Out of date: kubectl tocsin ui "))
	b.Expect(b.titles()).To(Equal("A"), "what was known stays")
}
