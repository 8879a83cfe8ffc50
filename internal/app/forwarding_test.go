package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/utils/clock"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/process"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// TestForwarding runs a manager with two Alertmanagers, one of them down, and changes its configuration.
func TestForwarding(t *testing.T) {
	g := NewWithT(t)
	c, integration, token := integrate(t, v1alpha1.WebhookIntegrationSpec{})
	namespace := integration.Namespace

	first, second := fakeAlertmanager(t), fakeAlertmanager(t)
	file := filepath.Join(t.TempDir(), "alertmanager.yaml")
	write := func(text string) { g.Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed()) }
	entries := "alertmanagers: [{url: '" + first.URL + "'}, {url: 'http://" + freeAddress(t) + "'}]\n"
	write(entries)
	address, stop := startManager(t, "--watch-namespaces="+namespace, "--alertmanager-config="+file)

	g.Eventually(func() int { return postTo(t, address, token) }, "30s", "50ms").Should(Equal(http.StatusAccepted))
	name := v1alpha1.IncidentName("test", "x")
	g.Eventually(first.firing, "5s", "10ms").Should(ConsistOf(map[string]string{
		"alertname": "x", "namespace": namespace, "integration": "test", "severity": "warning", "tocsin_incident": name,
	}))

	t.Log("an invalid file changes nothing; a valid one is used, and the old label set ends")
	write("alertmanagers: []")
	write(entries + "external_labels: {cluster: prod-1}")
	g.Eventually(first.firing, "20s", "50ms").Should(ConsistOf(HaveKeyWithValue("cluster", "prod-1")))

	t.Log("another Alertmanager gets what exists")
	write("alertmanagers: [{url: '" + first.URL + "'}, {url: '" + second.URL + "'}]")
	g.Eventually(second.firing, "20s", "50ms").Should(HaveLen(1))
	g.Eventually(forwardedReason(t, c, integration), "20s", "50ms").Should(Equal(v1alpha1.ReasonForwarding))

	t.Log("a resolve ends the alert; an integration that is not forwarded says so")
	g.Expect(c.Create(t.Context(), &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "resolve-"},
		Spec:       v1alpha1.AlertEventSpec{Report: &v1alpha1.Report{IncidentName: name, Status: v1alpha1.AlertResolved}},
	})).To(Succeed())
	g.Eventually(func() int { return len(first.firing()) + len(second.firing()) }, "20s", "50ms").Should(BeZero())
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"forward":"Never"}}`))
	g.Expect(c.Patch(t.Context(), integration, patch)).To(Succeed())
	g.Eventually(forwardedReason(t, c, integration), "20s", "50ms").Should(Equal(v1alpha1.ReasonForwardNever))

	t.Log("a manager without the flag removes the condition")
	stop()
	_, stop = startRun(t, namespace)
	defer stop()
	g.Eventually(forwardedReason(t, c, integration), "20s", "50ms").Should(BeEmpty())
}

// TestInstallation compares what installations are told from each other by.
func TestInstallation(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	identify := func(o Options) string {
		mgr, _, err := newManager(rest.CopyConfig(config), o, ctrl.Log, informersOf(), queue.NewMemory(clock.RealClock{}))
		g.Expect(err).NotTo(HaveOccurred())
		lease, err := newLease(mgr, o)
		g.Expect(err).NotTo(HaveOccurred())
		if lease != nil {
			object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}}
			g.Expect(client.IgnoreAlreadyExists(c.Create(t.Context(), object))).To(Succeed())
		}
		id, err := forward.Identify(mgr, lease, o.process.WatchNamespaces).ID(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(id).To(MatchRegexp(`^[0-9a-f-]{36}$`))
		return id
	}
	namespaces := []string{testenv.Namespace(t, c), testenv.Namespace(t, c)}
	var ids []string
	for _, namespace := range namespaces {
		elected := Options{process: process.Options{LeaderElect: true, LeaseNamespace: namespace, MetricsAddress: "0"}}
		alone := Options{process: process.Options{WatchNamespaces: []string{namespace}, MetricsAddress: "0"}}
		ids = append(ids, identify(elected), identify(alone))
		g.Expect(identify(elected)).To(Equal(ids[len(ids)-2]), "after a restart")
		g.Expect(identify(alone)).To(Equal(ids[len(ids)-1]), "after a restart")
	}
	slices.Sort(ids)
	g.Expect(slices.Compact(ids)).To(HaveLen(2 * len(namespaces)))
}

// forwardedReason returns a function that returns the reason of an integration's condition Forwarded.
func forwardedReason(t *testing.T, c client.Client, integration *v1alpha1.WebhookIntegration) func() string {
	t.Helper()
	return func() string {
		NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKeyFromObject(integration), integration)).To(Succeed())
		if condition := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionForwarded); condition != nil {
			return condition.Reason
		}
		return ""
	}
}

// receiver is an Alertmanager that only stores what is posted to it.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	labels map[string]map[string]string
	ends   map[string]time.Time
}

func fakeAlertmanager(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{labels: map[string]map[string]string{}, ends: map[string]time.Time{}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) serve(w http.ResponseWriter, request *http.Request) {
	var alerts []struct {
		Labels map[string]string
		EndsAt time.Time
	}
	if err := json.NewDecoder(request.Body).Decode(&alerts); err != nil || request.URL.Path != "/api/v2/alerts" {
		http.Error(w, "no alerts", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, alert := range alerts {
		key, _ := json.Marshal(alert.Labels)
		r.labels[string(key)], r.ends[string(key)] = alert.Labels, alert.EndsAt
	}
}

// firing returns the labels of the alerts that fire.
func (r *receiver) firing() []map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var firing []map[string]string
	for key, ends := range r.ends {
		if ends.After(time.Now()) {
			firing = append(firing, r.labels[key])
		}
	}
	return firing
}
