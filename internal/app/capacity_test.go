package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// tenants are the namespaces "bad" and "good" of a test, each with an integration "test", and a manager that
// serves both.
type tenants struct {
	*WithT
	client.Client
	ctx       context.Context
	bad, good string
	webhook   string
	metrics   string
}

func startTenants(t *testing.T, flags ...string) *tenants {
	t.Helper()
	free := freeAddresses(t, 3)
	s := &tenants{WithT: NewWithT(t), ctx: t.Context(), webhook: free[0], metrics: free[1]}
	var err error
	s.Client, err = client.New(config, client.Options{Scheme: testenv.Scheme()})
	s.Expect(err).NotTo(HaveOccurred())
	s.bad, s.good = testenv.Namespace(t, s.Client), testenv.Namespace(t, s.Client)
	for _, namespace := range []string{s.bad, s.good} {
		s.Expect(s.Create(t.Context(), &v1alpha1.WebhookIntegration{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"},
			Spec:       v1alpha1.WebhookIntegrationSpec{Tokens: testenv.Tokens(namespace, "test")},
		})).To(Succeed())
	}
	t.Cleanup(func() { // nothing deletes what a namespace of a test leaves
		for _, namespace := range []string{s.bad, s.good} {
			_ = s.DeleteAllOf(context.Background(), &v1alpha1.AlertEvent{}, client.InNamespace(namespace))
		}
	})
	probe := free[2]
	manager := exec.Command(os.Args[0], append([]string{
		"--webhook-bind-address=" + s.webhook, "--health-probe-bind-address=" + probe, "--metrics-bind-address=" + s.metrics,
		"--metrics-secure=false", "--watch-namespaces=" + s.bad + "," + s.good,
	}, flags...)...)
	manager.Env = append(os.Environ(), asManager+"=true", "KUBECONFIG="+kubeconfigFile(t))
	manager.Stderr = t.Output()
	s.Expect(manager.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = manager.Process.Kill()
		_ = manager.Wait()
	})
	s.Eventually(func() int { return status(http.Get("http://" + probe + "/readyz")) }, "30s", "50ms").Should(Equal(http.StatusOK))
	return s
}

// post posts a body and returns the answer: its status and its body.
func (s *tenants) post(namespace, body string) string {
	response, err := http.Post("http://"+s.webhook+"/api/v1/events/webhook/"+testenv.Token(namespace, "test"), "", strings.NewReader(body))
	s.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	s.Expect(err).NotTo(HaveOccurred())
	return fmt.Sprint(response.StatusCode, " ", string(answer))
}

// condition returns the status and the reason of a condition of the integration.
func (s *tenants) condition(namespace, kind string) func() string {
	return func() string {
		var integration v1alpha1.WebhookIntegration
		s.Expect(s.Get(s.ctx, client.ObjectKey{Namespace: namespace, Name: "test"}, &integration)).To(Succeed())
		condition := meta.FindStatusCondition(integration.Status.Conditions, kind)
		if condition == nil {
			return ""
		}
		return string(condition.Status) + " " + condition.Reason
	}
}

func (s *tenants) state(namespace, key string) func() v1alpha1.IncidentState {
	return func() v1alpha1.IncidentState {
		var incident v1alpha1.Incident
		name := client.ObjectKey{Namespace: namespace, Name: v1alpha1.IncidentName("test", key)}
		s.Expect(client.IgnoreNotFound(s.Get(s.ctx, name, &incident))).To(Succeed())
		return incident.Status.State
	}
}

func (s *tenants) gathered() string {
	response, err := http.Get("http://" + s.metrics + "/metrics")
	s.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	s.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// byHand is an AlertEvent as somebody with the role edit may create it.
func byHand(namespace, name, key string) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: "test",
			Alerts:          testenv.Text(v1alpha1.Alert{DedupKey: key, Status: v1alpha1.AlertFiring}),
		},
	}
}

// quota lets a namespace have so many Incidents.
func (s *tenants) quota(namespace string, incidents int64) {
	limits := corev1.ResourceList{"count/incidents.tocsin.dev": *resource.NewQuantity(incidents, resource.DecimalSI)}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "few-incidents"}}
	err := s.Get(s.ctx, client.ObjectKeyFromObject(quota), quota)
	if client.IgnoreNotFound(err) == nil && err != nil {
		quota.Spec.Hard = limits
		s.Expect(s.Create(s.ctx, quota)).To(Succeed())
		// No controller counts here; the admission goes on from what it finds.
		quota.Status.Used = corev1.ResourceList{"count/incidents.tocsin.dev": resource.MustParse("0")}
	}
	quota.Spec.Hard = limits
	s.Expect(s.Update(s.ctx, quota)).To(Succeed())
	if quota.Status.Used == nil {
		quota.Status.Used = corev1.ResourceList{"count/incidents.tocsin.dev": resource.MustParse("0")}
	}
	quota.Status.Hard = limits
	s.Expect(s.Status().Update(s.ctx, quota)).To(Succeed())
}

func TestAQueueThatCannotDrainRefusesNobodyElse(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*tenants)
		event   func(*v1alpha1.AlertEvent)
		reason  string
	}{
		"AlertEvents that finalizers keep": {reason: queue.StuckTerminating, event: func(e *v1alpha1.AlertEvent) {
			e.Finalizers = []string{"example.com/keep"}
		}},
		"AlertEvents that cannot be decoded": {reason: queue.StuckUnreadable, event: func(e *v1alpha1.AlertEvent) {
			e.Spec.Alerts = "[no JSON"
		}},
		"a quota on Incidents": {reason: v1alpha1.ReasonQuotaExceeded, prepare: func(s *tenants) { s.quota(s.bad, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := startTenants(t, "--max-pending-events=80")
			if test.prepare != nil {
				test.prepare(s)
			}
			var created []*v1alpha1.AlertEvent
			for i := range 80 {
				event := byHand(s.bad, fmt.Sprint("by-hand-", i), fmt.Sprint("new-", i))
				if test.event != nil {
					test.event(event)
				}
				s.Expect(s.Create(s.ctx, event)).To(Succeed())
				created = append(created, event)
			}
			t.Cleanup(func() {
				for _, event := range created {
					if len(event.Finalizers) > 0 {
						patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
						_ = s.Patch(context.Background(), event, patch)
					}
				}
			})
			s.Eventually(s.condition(s.bad, v1alpha1.ConditionAlertsFolded), "30s", "100ms").Should(Equal("False " + test.reason))
			s.Eventually(s.gathered, "30s", "100ms").Should(And(
				ContainSubstring("tocsin_alertevents_stuck{reason=%q} 80\n", test.reason),
				ContainSubstring("tocsin_webhook_namespace_backlog_ratio{namespace=%q} 4\n", s.bad)))
			s.Expect(s.post(s.bad, firing("one"))).To(ContainSubstring("namespace-full"))
			s.Expect(s.post(s.good, firing("one"))).To(HavePrefix("202 "))
			s.Eventually(s.state(s.good, "one"), "10s", "50ms").Should(Equal(v1alpha1.IncidentOpen))
			s.Expect(s.condition(s.bad, v1alpha1.ConditionReady)()).To(Equal("True Accepting"), "capacity is no part of it")
			s.Expect(s.condition(s.good, v1alpha1.ConditionReady)()).To(Equal("True Accepting"))
			s.Expect(s.condition(s.good, v1alpha1.ConditionAlertsFolded)()).To(Equal("True Folding"))
		})
	}
}

func firing(key string) string { return fmt.Sprintf(`{"dedup_key":%q}`, key) }

func resolve(key string) string { return fmt.Sprintf(`{"dedup_key":%q,"status":"resolved"}`, key) }

func TestAQuotaOnIncidentsHoldsUpNewIncidentsOnly(t *testing.T) {
	s := startTenants(t)
	s.quota(s.bad, 1)
	s.Expect(s.post(s.bad, firing("first"))).To(HavePrefix("202 "))
	s.Eventually(s.state(s.bad, "first"), "10s", "50ms").Should(Equal(v1alpha1.IncidentOpen))
	s.Expect(s.post(s.bad, firing("second"))).To(HavePrefix("202 "), "nobody knows of the quota yet")
	s.Eventually(s.condition(s.bad, v1alpha1.ConditionAlertsFolded), "10s", "50ms").Should(Equal("False QuotaExceeded"))
	s.Eventually(func() string { return s.post(s.bad, firing("third")) }, "10s", "50ms").Should(ContainSubstring("incident-limit"))
	s.Expect(s.post(s.bad, resolve("first"))).To(HavePrefix("202 "))
	s.Eventually(s.state(s.bad, "first"), "10s", "50ms").Should(Equal(v1alpha1.IncidentResolved))
	s.Expect(s.post(s.good, firing("one"))).To(HavePrefix("202 "))

	s.quota(s.bad, 5)
	s.Eventually(s.state(s.bad, "second"), "60s", "100ms").Should(Equal(v1alpha1.IncidentOpen), "it drains by itself")
	s.Eventually(s.condition(s.bad, v1alpha1.ConditionAlertsFolded), "10s", "100ms").Should(Equal("True Folding"))
	s.Expect(s.post(s.bad, firing("third"))).To(HavePrefix("202 "))
}

func TestIncidentsAreBoundedInEachNamespace(t *testing.T) {
	s := startTenants(t, "--max-incidents=12")
	open := func(key string) {
		s.Eventually(func() string { return s.post(s.bad, firing(key)) }, "10s", "50ms").Should(HavePrefix("202 "), key)
		s.Eventually(s.state(s.bad, key), "10s", "20ms").Should(Equal(v1alpha1.IncidentOpen), key)
	}
	for _, key := range []string{"1", "2", "3", "4"} {
		open(key)
		s.Expect(s.post(s.bad, resolve(key))).To(HavePrefix("202 "))
		s.Eventually(s.state(s.bad, key), "10s", "20ms").Should(Equal(v1alpha1.IncidentResolved))
	}
	s.Eventually(s.state(s.bad, "1"), "30s", "50ms").Should(BeEmpty(), "the oldest resolved one is evicted: the share is 3")
	s.Expect(s.state(s.bad, "2")()).To(Equal(v1alpha1.IncidentResolved), "and no other")
	open("c")
	open("d")
	open("e")

	s.Eventually(func() string { return s.post(s.bad, firing("f")) }, "10s", "50ms").Should(ContainSubstring("incident-limit"))
	s.Eventually(s.condition(s.bad, v1alpha1.ConditionAlertsFolded), "10s", "100ms").Should(Equal("False IncidentsFull"))
	s.Expect(s.condition(s.bad, v1alpha1.ConditionReady)()).To(Equal("True Accepting"))
	s.Expect(s.post(s.bad, firing("c"))).To(HavePrefix("202 "), "a known key")
	s.Expect(s.post(s.good, firing("one"))).To(HavePrefix("202 "), "another namespace")
	s.Expect(s.gathered()).To(And(
		ContainSubstring("tocsin_namespace_incidents_limit_ratio{namespace=%q} 1\n", s.bad),
		MatchRegexp(`tocsin_incidents_evicted_total [1-9]`)))

	s.Expect(s.Create(s.ctx, byHand(s.bad, "by-hand", "f"))).To(Succeed())
	s.Eventually(s.condition(s.bad, v1alpha1.ConditionAlertsFolded), "10s", "100ms").Should(Equal("False IncidentLimit"))
	s.Expect(s.post(s.bad, `[`+firing("g")+`,`+resolve("c")+`]`)).To(And(HavePrefix("503 "), ContainSubstring("incident-limit")))
	s.Eventually(s.state(s.bad, "c"), "10s", "50ms").Should(Equal(v1alpha1.IncidentResolved), "a resolve does not wait for room")
	s.Eventually(s.state(s.bad, "f"), "60s", "100ms").Should(Equal(v1alpha1.IncidentOpen), "c makes way for the one that waits")
	s.Eventually(s.condition(s.bad, v1alpha1.ConditionAlertsFolded), "10s", "100ms").Should(Equal("False IncidentsFull"), "d, e and f")
}

func TestTheShareOfANamespace(t *testing.T) {
	for flags, share := range map[string]float64{
		"":                       0.25,
		"--watch-namespaces=a":   1,
		"--watch-namespaces=a,b": 0.25,
		"--watch-namespaces=a --namespace-share=0.25": 0.25,
		"--namespace-share=0.5":                       0.5,
	} {
		t.Run(flags, func(t *testing.T) {
			g := NewWithT(t)
			o, err := ParseFlags(strings.Fields(flags))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.capacity.Share).To(Equal(share))
		})
	}
	g := NewWithT(t)
	_, err := ParseFlags([]string{"--namespace-share=1.5"})
	g.Expect(err).To(MatchError(ContainSubstring("--namespace-share")))
}
