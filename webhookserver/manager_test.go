package webhookserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/queue"
	"github.com/tocsin-dev/tocsin/internal/tokens"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// cluster is a webhook server in a manager that works on the control plane, and a namespace to test in.
type cluster struct {
	client.Client
	*Server
	namespace string
	logs      *logBuffer
}

// startManager starts a manager with nothing but the webhook server and waits until it is ready.
func startManager(t *testing.T, change ...func(*Options)) *cluster {
	t.Helper()
	return startManagerWith(t, restConfig, change...)
}

// limited gives a webhook server other limits.
func limited(limits capacity.Limits) func(*Options) {
	return func(o *Options) { o.Capacity = capacity.New(limits, nil, clock.RealClock{}) }
}

// startManagerWith starts a manager that reaches the API server with a configuration of its own.
func startManagerWith(t *testing.T, config *rest.Config, change ...func(*Options)) *cluster {
	t.Helper()
	g := NewWithT(t)
	c := &cluster{logs: &logBuffer{}}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  testenv.Scheme(),
		Logger:  c.logs.logger(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		NewCache: func(config *rest.Config, options cache.Options) (cache.Cache, error) {
			objects, err := cache.New(config, options)
			return clustercache.NonBlocking{Cache: objects}, err
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	options := Options{BindAddress: "127.0.0.1:0", ShutdownDelay: time.Millisecond}
	for _, f := range change {
		f(&options)
	}
	options = options.withDefaults()
	g.Expect(options.Capacity.Follow(mgr.GetCache())).To(Succeed())
	c.Server, err = New(mgr, options)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(mgr.Add(c.Server)).To(Succeed())
	g.Expect(c.ReadyCheck()).NotTo(Succeed())
	c.Client, err = client.New(restConfig, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	c.namespace = testenv.Namespace(t, c.Client)

	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Eventually(stopped, "20s").Should(Receive(BeNil()))
	})
	g.Eventually(func() error { return c.ReadyCheck() }, "20s", "20ms").Should(Succeed())
	return c
}

// integrate creates an integration and waits until its token works.
func (c *cluster) integrate(t *testing.T, name string) (w *v1alpha1.WebhookIntegration, token string) {
	t.Helper()
	g := NewWithT(t)
	w, token = integration(c.namespace, name), testenv.Token(c.namespace, name)
	g.Expect(c.Create(t.Context(), w)).To(Succeed())
	g.Eventually(func() int { return c.post(t, token+"?dryRun=true", firing) }, "5s", "10ms").Should(Equal(http.StatusOK))
	return w, token
}

// TestNoAlertIsAcceptedThatFindsNoPlace is a storm of new keys while nothing is folded: 64 senders post alerts one by one and in
// groups, some of them twice.
func TestNoAlertIsAcceptedThatFindsNoPlace(t *testing.T) {
	const limit = 25 // the share
	g := NewWithT(t)
	c := startManager(t, limited(capacity.Limits{Incidents: 4 * limit}))
	_, token := c.integrate(t, "prometheus")
	g.Expect(c.Create(t.Context(), &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: v1alpha1.IncidentName("prometheus", "exists")},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "prometheus", DedupKey: "exists"},
	})).To(Succeed())
	g.Eventually(func() bool {
		return c.options.Capacity.HasOpenIncident(c.namespace, v1alpha1.IncidentName("prometheus", "exists"))
	}, "5s", "10ms").Should(BeTrue())

	var senders sync.WaitGroup
	for sender := range 64 {
		senders.Go(func() {
			for n := range 10 {
				body := fmt.Sprintf(`[{"dedup_key":"%d-%d"},{"dedup_key":"%[1]d-%[2]d-b"}]`, sender, n)
				if n%2 == 0 {
					body = fmt.Sprintf(`{"dedup_key":"%d-%d"}`, sender, n)
				}
				c.post(t, token, body)
			}
		})
	}
	senders.Wait()
	waiting := map[string]bool{}
	for _, event := range c.listEvents(t) {
		for i := range event.Alerts {
			waiting[event.Alerts[i].DedupKey] = true
		}
	}
	g.Expect(len(waiting)).To(Equal(limit-1), "and one that exists")
	status, answer := c.send(t, token, `{"dedup_key":"late"}`)
	g.Expect(status.StatusCode).To(Equal(http.StatusServiceUnavailable))
	g.Expect(answer).To(ContainSubstring("incident-limit"))
	for key := range waiting {
		g.Expect(c.post(t, token, fmt.Sprintf(`{"dedup_key":%q}`, key))).To(Equal(http.StatusAccepted), "it waits already")
	}
	g.Expect(c.post(t, token, `{"dedup_key":"exists"}`)).To(Equal(http.StatusAccepted))
	g.Expect(c.options.Capacity.Full(c.namespace)).To(Equal(v1alpha1.ReasonIncidentLimit))
	g.Expect(c.DeleteAllOf(t.Context(), &v1alpha1.AlertEvent{}, client.InNamespace(c.namespace))).To(Succeed())
	g.Eventually(func() int { return c.post(t, token, `{"dedup_key":"later"}`) }, "10s", "100ms").Should(Equal(http.StatusAccepted))
}

// amend changes the spec of an integration.
func (c *cluster) amend(t *testing.T, w *v1alpha1.WebhookIntegration, change func(*v1alpha1.WebhookIntegrationSpec)) {
	t.Helper()
	original := w.DeepCopy()
	change(&w.Spec)
	NewWithT(t).Expect(c.Patch(t.Context(), w, client.MergeFrom(original))).To(Succeed())
}

// send posts a body and returns the answer and its body.
func (c *cluster) send(t *testing.T, token, body string, change ...func(*http.Request)) (*http.Response, string) {
	t.Helper()
	g := NewWithT(t)
	url := "http://" + (*c.listener.Load()).Addr().String() + eventsPath + "/" + token
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	g.Expect(err).NotTo(HaveOccurred())
	for _, f := range change {
		f(request)
	}
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response, string(answer)
}

// post posts a body and returns the status.
func (c *cluster) post(t *testing.T, token, body string, change ...func(*http.Request)) int {
	t.Helper()
	response, _ := c.send(t, token, body, change...)
	return response.StatusCode
}

// listEvents lists the AlertEvents of the namespace.
func (c *cluster) listEvents(t *testing.T) []v1alpha1.AlertEvent {
	t.Helper()
	list := &v1alpha1.AlertEventList{}
	NewWithT(t).Expect(c.List(t.Context(), list, client.InNamespace(c.namespace))).To(Succeed())
	for i := range list.Items {
		NewWithT(t).Expect(queue.Decode(&list.Items[i])).To(Succeed())
	}
	return list.Items
}

func TestAlertsAreStoredInTheCluster(t *testing.T) {
	g := NewWithT(t)
	c := startManager(t)
	w, token := c.integrate(t, "prometheus")
	c.amend(t, w, func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Defaults = &v1alpha1.AlertDefaults{Title: "From the integration"}
	})
	g.Eventually(func() *v1alpha1.AlertDefaults {
		found, _, _ := c.handler.tokens.lookup(token, time.Now())
		return found.Spec.Defaults
	}, "5s", "10ms").ShouldNot(BeNil())

	before := time.Now().Truncate(time.Microsecond)
	response, body := c.send(t, token,
		`{"title":"Disk full","dedup_key":"d","severity":"high","labels":{"a":{"b":[1,2.5,null]}},"starts_at":"2026-01-01T00:00:00Z"}`)
	g.Expect(response.StatusCode).To(Equal(http.StatusAccepted), body)
	stored := c.listEvents(t)
	g.Expect(stored).To(HaveLen(1))
	event := stored[0]
	g.Expect(body).To(ContainSubstring(event.Name))
	g.Expect(event.Spec.IntegrationName).To(Equal("prometheus"))
	g.Expect(event.Spec.Defaults.Title).To(Equal("From the integration"))
	g.Expect(event.Spec.ReceivedTime.Time).To(BeTemporally(">=", before))
	g.Expect(event.Alerts[0].Title).To(Equal("Disk full"))
	g.Expect(event.Alerts[0].Labels["a"]).To(Equal(`{"b":[1,2.5,null]}`))
	g.Expect(event.OwnerReferences).To(BeEmpty())
	g.Expect(event.Finalizers).To(BeEmpty())
	g.Expect(event.ManagedFields).To(HaveLen(1))
	g.Expect(event.ManagedFields[0].Manager).To(Equal("tocsin"))
	g.Expect(len(event.ManagedFields[0].FieldsV1.GetRawBytes())).To(BeNumerically("<", 200), "managed fields stay small")
}

func TestTokensFollowTheCluster(t *testing.T) {
	g := NewWithT(t)
	c := startManager(t)
	const within = "2s"
	status := func(token string) func() int {
		return func() int { return c.post(t, token, firing) }
	}
	w, oldToken := c.integrate(t, "rotating")
	newToken := tokens.New(c.namespace, "rotating")

	c.amend(t, w, func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = append(spec.Tokens, v1alpha1.Token{Name: "new", SHA256: tokens.Hash(newToken)})
	})
	g.Eventually(status(newToken), within, "10ms").Should(Equal(http.StatusAccepted))
	g.Expect(status(oldToken)()).To(Equal(http.StatusAccepted), "both work during a rotation")

	c.amend(t, w, func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Tokens = spec.Tokens[1:] })
	g.Eventually(status(oldToken), within, "10ms").Should(Equal(http.StatusUnauthorized), "revoked")
	g.Expect(status(newToken)()).To(Equal(http.StatusAccepted))

	soon := v1alpha1.NewTimestamp(time.Now().Add(500 * time.Millisecond))
	c.amend(t, w, func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Tokens[0].ExpirationTime = &soon })
	g.Eventually(status(newToken), within, "10ms").Should(Equal(http.StatusUnauthorized), "expired")

	c.amend(t, w, func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Tokens[0].ExpirationTime, spec.Suspend = nil, true })
	g.Eventually(status(newToken), within, "10ms").Should(Equal(http.StatusForbidden), "suspended")

	c.amend(t, w, func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Suspend = false })
	g.Eventually(status(newToken), within, "10ms").Should(Equal(http.StatusAccepted), "and resumed")

	g.Expect(c.Delete(t.Context(), w)).To(Succeed())
	g.Eventually(status(newToken), within, "10ms").Should(Equal(http.StatusUnauthorized), "deleted")
}

func TestCopiesOfARequestGiveOneEventInTheCluster(t *testing.T) {
	g := NewWithT(t)
	c := startManager(t)
	_, token := c.integrate(t, "prometheus")
	var wait sync.WaitGroup
	answers := make([]string, 100)
	for i := range answers {
		wait.Go(func() {
			response, body := c.send(t, token, `{"title":"x"}`, with("Idempotency-Key", "k"))
			for response.StatusCode == http.StatusServiceUnavailable { // on a busy machine; senders try again too
				response, body = c.send(t, token, `{"title":"x"}`, with("Idempotency-Key", "k"))
			}
			answers[i] = fmt.Sprint(response.StatusCode, body)
		})
	}
	wait.Wait()
	slices.Sort(answers)
	g.Expect(slices.Compact(answers)).To(HaveLen(1))
	g.Expect(answers[0]).To(HavePrefix("202"))
	g.Expect(c.listEvents(t)).To(HaveLen(1))
	g.Expect(c.post(t, token, `{"title":"y"}`, with("Idempotency-Key", "k"))).To(Equal(http.StatusUnprocessableEntity))
}

func TestPendingLimitRecoversByItself(t *testing.T) {
	g := NewWithT(t)
	c := startManager(t, limited(capacity.Limits{Events: 2, Share: 1}))
	_, token := c.integrate(t, "prometheus")
	g.Eventually(func() int { return c.post(t, token, firing) }, "5s", "10ms").Should(Equal(http.StatusServiceUnavailable))
	for _, event := range c.listEvents(t) {
		g.Expect(c.Delete(t.Context(), &event)).To(Succeed())
	}
	g.Eventually(func() int { return c.post(t, token, firing) }, "5s", "10ms").Should(Equal(http.StatusAccepted))
}

func TestTerminatingNamespaceIsUnavailable(t *testing.T) {
	g := NewWithT(t)
	c := startManager(t)
	_, token := c.integrate(t, "prometheus")
	g.Expect(c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}})).To(Succeed())
	g.Eventually(func() string {
		_, body := c.send(t, token, firing)
		return body
	}, "10s", "50ms").Should(ContainSubstring("not-stored"))
}

func TestTokenAppearsNowhere(t *testing.T) {
	g := NewWithT(t)
	const unknown = "canary-that-nobody-knows"
	registry := prometheus.NewRegistry()
	RegisterMetrics(registry)
	c := startManager(t)
	w, canary := c.integrate(t, "watched")
	var answers bytes.Buffer
	try := func(token, body string, want int, change ...func(*http.Request)) {
		t.Helper()
		response, answer := c.send(t, token, body, change...)
		g.Expect(response.StatusCode).To(Equal(want), answer)
		g.Expect(response.Header.Write(&answers)).To(Succeed())
		answers.WriteString(answer)
	}
	method := func(r *http.Request) { r.Method = http.MethodGet }
	bearer := func(r *http.Request) {
		r.URL.Path = eventsPath
		r.Header.Set("Authorization", "Bearer "+canary)
	}

	try(canary, firing, http.StatusAccepted)
	try("", firing, http.StatusAccepted, bearer)
	try(canary+"?dryRun=true", firing, http.StatusOK)
	try(canary+"?dryRun="+canary, firing, http.StatusBadRequest)
	try(unknown, firing, http.StatusUnauthorized)
	try(canary, "", http.StatusMethodNotAllowed, method)
	try(canary+"/more", firing, http.StatusNotFound)
	try(canary, `{"a":`, http.StatusBadRequest)
	try(canary, "[1]", http.StatusBadRequest)
	try(canary, strings.Repeat(" ", DefaultMaxBodyBytes+1), http.StatusRequestEntityTooLarge)
	try(canary, firing, http.StatusUnsupportedMediaType, with("Content-Encoding", "br"))
	try(canary, firing, http.StatusAccepted, with("Idempotency-Key", "k"))
	try(canary, "{}", http.StatusUnprocessableEntity, with("Idempotency-Key", "k"))
	working := c.handler.committer
	for _, err := range []error{commit.ErrOverloaded, commit.ErrUnavailable, commit.ErrOutcomeUnknown, &commit.InvalidError{Message: "no"}} {
		c.handler.committer = committerFunc(func(context.Context, commit.Submission) (commit.Receipt, error) { return commit.Receipt{}, err })
		try(canary, firing, commitProblem(err, canary).Status)
	}
	c.handler.committer = committerFunc(func(context.Context, commit.Submission) (commit.Receipt, error) { panic(canary) })
	try(canary, firing, http.StatusInternalServerError)
	c.handler.committer = working
	c.amend(t, w, func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Suspend = true })
	g.Eventually(func() int { return c.post(t, canary, firing) }, "2s", "10ms").Should(Equal(http.StatusForbidden))

	g.Eventually(func() []v1alpha1.TokenUse {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(w), w)).To(Succeed())
		return w.Status.Tokens
	}, "10s", "10ms").Should(ConsistOf(HaveField("Name", w.Spec.Tokens[0].Name)), "the use of the token")

	found := c.gather(t, registry)
	found["answers"] = answers.String()
	for where, text := range found {
		g.Expect(text).NotTo(BeEmpty(), where)
		g.Expect(text).NotTo(ContainSubstring(canary), where)
		g.Expect(text).NotTo(ContainSubstring(unknown), where)
	}
	g.Expect(found["metrics"]).To(ContainSubstring(
		fmt.Sprintf(`tocsin_webhook_requests_total{code="422",integration="watched",namespace=%q,route="/api/v1/events/webhook/{token}"} 2`, c.namespace)))
}

// gather returns all that the operator has put out: logs, metrics, and what is in the cluster.
func (c *cluster) gather(t *testing.T, registry *prometheus.Registry) map[string]string {
	t.Helper()
	g := NewWithT(t)
	kubernetesEvents := &eventsv1.EventList{}
	g.Eventually(func() []eventsv1.Event {
		g.Expect(c.List(t.Context(), kubernetesEvents, client.InNamespace(c.namespace))).To(Succeed())
		return kubernetesEvents.Items
	}, "10s", "100ms").ShouldNot(BeEmpty())
	g.Expect(kubernetesEvents.Items[0].Reason).To(Equal("Rejected"))
	integrations := &v1alpha1.WebhookIntegrationList{}
	g.Expect(c.List(t.Context(), integrations, client.InNamespace(c.namespace))).To(Succeed())
	g.Expect(integrations.Items[0].Status.LastRejection).NotTo(BeNil())
	metrics := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(metrics, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	g.Expect(metrics.Code).To(Equal(http.StatusOK))
	inCluster := func(object any) string {
		text, err := json.Marshal(object)
		g.Expect(err).NotTo(HaveOccurred())
		return string(text)
	}
	return map[string]string{
		"logs":         c.logs.String() + libraryLogs.String(),
		"metrics":      metrics.Body.String(),
		"Events":       inCluster(kubernetesEvents),
		"integrations": inCluster(integrations),
		"AlertEvents":  inCluster(c.listEvents(t)),
	}
}
