//go:build browser

package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/page"
)

// user makes a service account, which may do what the rules say, and returns its token. Without a namespace it may in all.
func (c *cluster) user(t *testing.T, name, namespace string, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
	c.g.Expect(c.Create(t.Context(), account)).To(Succeed())
	full := c.namespace + "-" + name
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: c.namespace, Name: name}}
	if len(rules) > 0 {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: full}, Rules: rules}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: full}
		c.g.Expect(c.Create(t.Context(), role)).To(Succeed())
		if namespace == "" {
			c.g.Expect(c.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: full}, RoleRef: ref, Subjects: subjects})).To(Succeed())
		} else {
			c.g.Expect(c.Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: full}, RoleRef: ref, Subjects: subjects})).To(Succeed())
		}
	}
	request := &authenticationv1.TokenRequest{}
	c.g.Expect(c.SubResource("token").Create(t.Context(), account, request)).To(Succeed())
	return request.Status.Token
}

// serveCluster serves the page as in a cluster. The Connector may be changed before.
func serveCluster(t *testing.T, change ...func(page.Connector) page.Connector) string {
	t.Helper()
	connector := page.NewConnector(config)
	for _, one := range change {
		connector = one(connector)
	}
	s, err := page.ForUsers(t.Context(), connector, "127.0.0.1:0", "prod-1")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	run(t, s)
	return s.URL()
}

func (b *tab) signIn(token string) {
	b.Eventually(func() string { return b.eval(`!document.getElementById("sign-in").hidden`) }).Should(Equal("true"))
	b.do(chromedp.SendKeys("#token", token), chromedp.Click("#sign-in button"))
}

var (
	mayRead = rbacv1.PolicyRule{APIGroups: []string{"tocsin.dev"}, Resources: []string{"heartbeats", "incidents", "webhookintegrations"}, Verbs: []string{"get", "list", "watch"}}
	mayAct  = rbacv1.PolicyRule{APIGroups: []string{"tocsin.dev"}, Resources: []string{"alertevents"}, Verbs: []string{"create"}}
)

// Three users: one may see all namespaces, one may see and handle one namespace, and one may nothing.
func TestUsersOfACluster(t *testing.T) {
	c := newCluster(t)
	disk := c.fill()
	viewer := c.user(t, "viewer", "", mayRead)
	editor := c.user(t, "editor", c.namespace, mayRead, mayAct)
	nobody := c.user(t, "nobody", "")
	address := serveCluster(t)
	events := func() (alerts []string) {
		var list v1alpha1.AlertEventList
		c.g.Expect(c.List(context.Background(), &list, client.InNamespace(c.namespace))).To(Succeed())
		for _, event := range list.Items {
			if said := event.Spec.Report; said != nil {
				alerts = append(alerts, fmt.Sprintf("%s %s by %s: %s", said.Status, said.IncidentName, said.By, said.Comment))
			}
		}
		return alerts
	}

	t.Run("nobody", func(t *testing.T) {
		b := openTab(t)
		b.do(chromedp.Navigate(address))
		b.Eventually(func() string { return b.text("#access-problem") }).Should(ContainSubstring("no token reached the page"))
		b.signIn("not.a.token")
		b.Eventually(func() string { return b.text("#access-problem") }).Should(ContainSubstring("has expired, or is of another cluster"))
		b.signIn(nobody)
		b.Eventually(func() string { return b.text("#access-problem") }).Should(ContainSubstring("cannot list resource"))
		b.do(chromedp.SendKeys("#scope-name", c.namespace), chromedp.Click("#choose-scope button"))
		b.Eventually(func() string { return b.text("#access-problem") }).Should(ContainSubstring(`in the namespace "` + c.namespace + `"`))
		b.Expect(b.titles()).To(BeEmpty())
	})

	t.Run("viewer", func(t *testing.T) {
		b := openTab(t)
		// The address of an incident leads to it, through the sign-in.
		b.do(chromedp.Navigate(address + "incidents/" + c.namespace + "/" + disk.Name))
		b.signIn(viewer)
		b.Eventually(func() string { return b.text("#incident h2") }).Should(Equal("Disk 97 % full"))
		b.Eventually(func() string { return b.text("#cluster") }).Should(Equal("cluster prod-1"))
		b.Expect(b.eval(`localStorage.length + sessionStorage.length + document.cookie.length`)).To(Equal("0"), "the token is in memory only")
		b.Expect(b.eval(`location.href`)).NotTo(ContainSubstring(viewer[:20]))
		b.Expect(b.eval(`document.getElementById("token").value`)).To(BeEmpty())
		// RBAC denies an action, and the page says so.
		b.press("r")
		b.Eventually(func() string { return b.eval(`document.getElementById("action").open`) }).Should(Equal("true"))
		b.do(chromedp.Click("#action-do"))
		b.Eventually(func() string { return b.text("#action-problems") }).Should(And(
			ContainSubstring(disk.Name), ContainSubstring("cannot create resource")))
		b.Expect(events()).To(BeEmpty())
		// A reload forgets the token.
		b.do(chromedp.Reload())
		b.Eventually(func() string { return b.eval(`!document.getElementById("sign-in").hidden`) }).Should(Equal("true"))
	})

	t.Run("editor of one namespace", func(t *testing.T) {
		b := openTab(t)
		b.do(chromedp.Navigate(address))
		b.signIn(editor)
		b.Eventually(func() string { return b.text("#access-problem") }).Should(ContainSubstring("at the cluster scope"))
		b.do(chromedp.SendKeys("#scope-name", c.namespace), chromedp.Click("#choose-scope button"))
		b.Eventually(b.titles).Should(HavePrefix("95 %"))
		b.Expect(b.text("#scope")).To(Equal("namespace " + c.namespace))
		b.Expect(b.text("tr.acknowledged .state")).To(Equal("✓ Acknowledged by maria"))
		// All that a filter shows, by the keyboard.
		b.choose("search", "team=web")
		b.Eventually(b.titles).Should(And(HavePrefix("95 %"), HaveSuffix("18,204 messages wait")))
		b.eval(`document.activeElement.blur()`)
		b.press("X")
		b.Expect(b.text("#selected")).To(Equal("2 selected"))
		b.press("a")
		b.do(chromedp.SendKeys("#action-text", "mine"), chromedp.Click("#action-do"))
		b.Eventually(func() string { return b.text("#action-status") }).Should(Equal("acknowledge: 2 requested"))
		b.Expect(events()).To(HaveLen(2))
		for _, event := range events() {
			b.Expect(event).To(And(HavePrefix("acknowledged monitoring-"),
				HaveSuffix("by system:serviceaccount:"+c.namespace+":editor: mine")))
		}

		// A silence: that forwarding is off is said, and that Alertmanager has it.
		integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "monitoring"}}
		c.g.Expect(c.Create(t.Context(), integration)).To(Succeed())
		b.press("X")
		b.choose("search", "stalls")
		b.eval(`document.activeElement.blur()`)
		b.press("X")
		silence := func() {
			b.press("s")
			b.do(chromedp.Click("#action-do"))
		}
		silence()
		b.Eventually(func() string { return b.text("#action-problems") }).Should(ContainSubstring("Tocsin does not forward incidents of integration"))
		integration.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionForwarded, Status: metav1.ConditionTrue,
			Reason: v1alpha1.ReasonForwarding, LastTransitionTime: metav1.Now()}}
		c.g.Expect(c.Status().Update(t.Context(), integration)).To(Succeed())
		silence()
		b.Eventually(func() string { return b.text("#action-status") }).Should(Equal("silence: 1 requested, …"))
		b.Expect(b.text("#action-problems")).To(BeEmpty())
		c.silenced(v1alpha1.IncidentName("monitoring", "queue"), time.Now().Add(3*time.Hour))
		b.Eventually(func() string { return b.text("#action-status") }).Should(Equal("silence: 1 done"))
		b.Eventually(func() string { return b.text("#rows .state") }).Should(Equal("Silenced"))
		b.noAction()
	})
}

// silenced silences an Incident, as the operator and Alertmanager would have.
func (c *cluster) silenced(name string, until time.Time) {
	incident := &v1alpha1.Incident{}
	c.g.Expect(c.Get(context.Background(), client.ObjectKey{Namespace: c.namespace, Name: name}, incident)).To(Succeed())
	incident.Status.Silence = &v1alpha1.Silence{By: "editor", EndTime: v1alpha1.NewTimestamp(until)}
	incident.Status.SilencedBy = incident.Status.Silence.DeepCopy()
	incident.Status.Conditions = append(incident.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonSilenced, LastTransitionTime: metav1.Now(),
		Message: "editor silenced the incident in Alertmanager until " + until.UTC().Format(time.RFC3339) + "."})
	c.g.Expect(c.Status().Update(context.Background(), incident)).To(Succeed())
}

// The namespace that a user has chosen is in the address, and one that gets there is followed.
func TestTheScopeIsInTheAddress(t *testing.T) {
	c := newCluster(t)
	c.fill()
	token := c.user(t, "scoped", c.namespace, mayRead)
	b := openTab(t)
	b.do(chromedp.Navigate(serveCluster(t)))
	b.signIn(token)
	b.Eventually(func() string { return b.text("#access-problem") }).Should(ContainSubstring("at the cluster scope"))
	b.do(chromedp.SendKeys("#scope-name", c.namespace), chromedp.Click("#choose-scope button"))
	b.Eventually(b.titles).Should(HavePrefix("95 %"))
	b.Expect(b.eval("location.pathname + location.search + location.hash")).To(Equal("/#/?scope=" + c.namespace))
	b.do(chromedp.Reload())
	b.signIn(token)
	b.Eventually(b.titles).Should(HavePrefix("95 %"))
	b.eval(`location.hash = "#/?scope=default"`)
	b.Eventually(func() string { return b.text("#access-problem") }).Should(ContainSubstring(`in the namespace "default"`))
	b.Expect(b.titles()).To(BeEmpty())
	b.do(chromedp.NavigateBack())
	b.Eventually(b.titles).Should(HavePrefix("95 %"))
}

// A token that expires, and a new one: the page shows nothing in between, and goes on where it was.
func TestATokenExpires(t *testing.T) {
	c := newCluster(t)
	c.fill()
	var expired atomic.Bool
	old := c.user(t, "old", c.namespace, mayRead, mayAct)
	fresh := c.user(t, "fresh", c.namespace, mayRead, mayAct)
	unauthorized := apierrors.NewUnauthorized("Unauthorized")
	address := serveCluster(t, func(inner page.Connector) page.Connector {
		return func(token string) (client.WithWatch, error) {
			one, err := inner(token)
			if token != old || err != nil {
				return one, err
			}
			return interceptor.NewClient(one, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if expired.Load() {
						return unauthorized
					}
					return c.List(ctx, list, options...)
				},
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if expired.Load() {
						return unauthorized
					}
					return c.Create(ctx, object, options...)
				},
			}), nil
		}
	})
	b := openTab(t)
	b.do(chromedp.Navigate(address + "#/?search=disk&scope=" + c.namespace))
	b.signIn(old)
	b.Eventually(b.titles).Should(Equal("Disk 97 % full"))
	b.press("X")
	b.press("n")
	b.do(chromedp.SendKeys("#action-text", "half a note"))
	expired.Store(true)
	b.do(chromedp.Click("#action-do"))
	b.Eventually(func() string { return b.text("#action-problems") }).Should(ContainSubstring("has expired"))
	b.Eventually(func() string { return b.text("#access-problem") }).Should(ContainSubstring("has expired"))
	b.Expect(b.titles()).To(BeEmpty())
	b.Expect(b.text("main:not([hidden])")).NotTo(ContainSubstring("Disk"))

	b.signIn(fresh)
	b.Eventually(b.titles).Should(Equal("Disk 97 % full"), "the same filter")
	b.Expect(b.text("#selected")).To(Equal("1 selected"))
	b.Eventually(func() string { return b.eval(`document.getElementById("action").open`) }).Should(Equal("true"), "it asks again")
	b.Expect(b.eval(`document.getElementById("action-text").value`)).To(Equal("half a note"))
	b.do(chromedp.Click("#action-do"))
	b.Eventually(func() string { return b.text("#action-status") }).Should(Equal("note: 1 requested"))
}

// A page of another site, which the user opens while a proxy adds the user's token to all requests: it can neither act nor read nor frame.
func TestAnotherSite(t *testing.T) {
	c := newCluster(t)
	disk := c.fill()
	token := c.user(t, "maria", c.namespace, mayRead, mayAct)
	address, err := url.Parse(serveCluster(t))
	c.g.Expect(err).NotTo(HaveOccurred())
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(address)
		r.Out.Header.Set("Authorization", "Bearer "+token)
	}})
	t.Cleanup(proxy.Close)
	t.Cleanup(proxy.CloseClientConnections)
	action := fmt.Sprintf(`{"action":"resolve","incidents":[{"namespace":%q,"name":%q}]}`, c.namespace, disk.Name)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><iframe id="frame" name="frame" src="%[1]s/"></iframe><iframe name="sink"></iframe>
			<form action="%[1]s/api/actions" method="post" enctype="text/plain" target="sink"><input name='%[2]s' value=''></form>
			<script src="%[1]s/api/incidents?scope=%[3]s"></script>
			<script>
			const results = window.results = [], note = (name) => [(r) => results.push(name + " " + r.type + r.status), () => results.push(name + " failed")];
			const body = %[2]q;
			fetch("%[1]s/api/actions", {method: "POST", mode: "no-cors", body}).then(...note("simple"));
			fetch("%[1]s/api/actions", {method: "POST", headers: {"X-Tocsin-Page": "1"}, body}).then(...note("with the header"));
			fetch("%[1]s/api/incidents?scope=%[3]s").then(...note("read"));
			document.forms[0].submit();
			</script>`, proxy.URL, action, c.namespace)
	}))
	t.Cleanup(other.Close)

	b := openTab(t)
	b.do(chromedp.Navigate(proxy.URL + "/#/?scope=" + c.namespace))
	b.Eventually(b.titles).Should(ContainSubstring("Disk 97 %"), "the proxy's token is enough")
	b.noTrouble()
	b.do(chromedp.Navigate(strings.Replace(other.URL, "127.0.0.1", "localhost", 1)))
	b.Eventually(func() string { return b.eval(`window.results.sort().join()`) }).Should(
		Equal("read failed,simple failed,with the header failed"))
	b.Eventually(func() string {
		b.mu.Lock()
		defer b.mu.Unlock()
		return strings.Join(b.troubles, "\n")
	}).Should(And(ContainSubstring("frame-ancestors"), ContainSubstring("CORS policy")))
	var events v1alpha1.AlertEventList
	c.g.Expect(c.List(t.Context(), &events, client.InNamespace(c.namespace))).To(Succeed())
	c.g.Expect(events.Items).To(BeEmpty())
}

// noAction expects that nothing but requests that the API server denied went wrong.
func (b *tab) noAction() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, trouble := range b.troubles {
		b.Expect(trouble).To(HavePrefix("Failed to load resource"))
	}
}

// overflowing has the texts of the cells of the list that stick out of them.
const overflowing = `[...document.querySelectorAll("#incidents td, #incidents th")].filter((cell) => {
	const range = document.createRange();
	range.selectNodeContents(cell);
	return [...range.getClientRects()].some((box) => box.right > cell.getBoundingClientRect().right + 1);
}).map((cell) => cell.textContent).join("|")`

// Nothing important vanishes, at any width and in both schemes, and texts have the contrast of AA.
func TestWidths(t *testing.T) {
	c := newCluster(t)
	c.fill()
	s, _ := serve(t, c)
	b := openTab(t)
	for _, scheme := range []string{"light", "dark"} {
		b.media(scheme)
		for _, width := range []int64{390, 1280, 1920} {
			b.do(chromedp.EmulateViewport(width, 900), chromedp.Navigate("about:blank"), chromedp.Navigate(s.URL()))
			b.Eventually(b.titles).Should(ContainSubstring("Disk"))
			b.Eventually(func() string { return b.eval(`document.querySelectorAll("#chart rect").length > 40`) }).Should(Equal("true"))
			b.Expect(b.eval(overflowing)).To(BeEmpty(), "%s at %d: texts that stick out of their cells", scheme, width)
			b.picture(fmt.Sprintf("page-%s-%d.png", scheme, width))
			b.Expect(b.eval(`document.documentElement.scrollWidth <= innerWidth`)).To(Equal("true"), "%d", width)
			b.Expect(b.eval(`[...document.querySelectorAll("#rows tr:first-child td:not(.namespace)")].every((td) => td.getClientRects().length > 0)`)).To(Equal("true"))
			for _, class := range []string{"severity", "title", "state", "number", "opened", "integration"} {
				b.Expect(strings.TrimSpace(b.text("#rows tr td."+class))).NotTo(BeEmpty(), "%s at %d", class, width)
			}
			if width < 1000 { // no headers
				b.Expect(b.eval(`getComputedStyle(document.querySelector("#rows td.when:not(.opened)"), "::before").content`)).To(Equal(`"last alert "`))
			}
			b.Expect(b.eval(contrast+" >= 4.5")).To(Equal("true"), "%s at %d: %s", scheme, width, b.eval(contrast))
			b.Expect(b.eval(`new Set(["critical", "error", "warning", "info"].map((s) =>
				getComputedStyle(document.querySelector(".legend ." + s), "::before").content)).size`)).To(Equal("4"), "each severity has a shape")
			b.Expect(b.eval(`["critical", "error", "warning", "info"].every((s) => getComputedStyle(document.querySelector("#rows .mark." + s), "::before").color ===
				getComputedStyle(document.querySelector(".legend ." + s), "::before").color)`)).To(Equal("true"), "the same in table and chart")
		}
	}
	b.noTrouble()
}
