//go:build browser

package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/ui"
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

// serveCluster serves the page as in a cluster.
func serveCluster(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, authenticationv1.AddToScheme} {
		g.Expect(add(scheme)).To(Succeed())
	}
	for _, kind := range []string{"Incident", "AlertEvent"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	s, _ := serveWith(t, &cluster{}, ui.Options{
		Connect: ui.Connector(config, scheme, mapper), BindAddress: "127.0.0.1:0", ClusterName: "prod-1",
	})
	return base(s)
}

func (b *tab) signIn(token string) {
	b.Eventually(func() string { return b.eval(`!document.getElementById("sign-in").hidden`) }).Should(Equal("true"))
	b.do(chromedp.SendKeys("#token", token), chromedp.Click("#sign-in button"))
}

var (
	mayRead = rbacv1.PolicyRule{APIGroups: []string{"tocsin.dev"}, Resources: []string{"incidents"}, Verbs: []string{"get", "list", "watch"}}
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
			for _, alert := range event.Spec.Alerts {
				alerts = append(alerts, fmt.Sprintf("%s %s by %s: %s", alert.Status, alert.IncidentName, alert.By, alert.Comment))
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
		b.noAction()
	})
}

// noAction expects that nothing but requests that the API server denied went wrong.
func (b *tab) noAction() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, trouble := range b.troubles {
		b.Expect(trouble).To(HavePrefix("Failed to load resource"))
	}
}

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
			b.picture(fmt.Sprintf("page-%s-%d.png", scheme, width))
			b.Expect(b.eval(`document.documentElement.scrollWidth <= innerWidth`)).To(Equal("true"), "%d", width)
			b.Expect(b.eval(`[...document.querySelectorAll("#rows tr:first-child td:not(.namespace)")].every((td) => td.getClientRects().length > 0)`)).To(Equal("true"))
			for _, class := range []string{"severity", "title", "state", "number", "opened", "integration"} {
				b.Expect(strings.TrimSpace(b.text("#rows tr td."+class))).NotTo(BeEmpty(), "%s at %d", class, width)
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
