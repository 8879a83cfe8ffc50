//go:build slow

package monitoring

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	namespace = "shop"

	// The integrations: one for the load, one whose mapping does not compile, and one whose mapping fails.
	loaded, unmapped, failing = "loaded", "unmapped", "failing"

	// rate is how many alerts are posted a second, and keys of how many Incidents.
	rate, keys = 50, 20

	// unwanted is the title of an Incident that the Alertmanager rejects.
	unwanted = "Unwanted"

	// oddities is how often a second requests come that are refused, or read without their mapping.
	oddities = 2
)

// rig is a control plane with a manager and an archiver on it.
type rig struct {
	*testenv.Rig
	manager, archiver *testenv.Manager
}

// startRig starts both as their Deployments do, with leader election, and makes the integrations.
func startRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Rig: testenv.NewRig(t, testenv.Program("manager"), testenv.Program("archiver"))}
	alertmanager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if body, _ := io.ReadAll(request.Body); bytes.Contains(body, []byte(unwanted)) {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(alertmanager.Close)
	file := r.Write("alertmanager.yaml", "alertmanagers: [{url: '"+alertmanager.URL+"'}]")
	r.createIntegrations()
	r.manager = r.Manager("manager", testenv.ManagerOptions{
		Args: slices.Concat(testenv.Elect, limits, []string{"--alertmanager-config=" + file, "--archive-required"}),
	})
	r.archiver = r.Manager("archiver", testenv.ManagerOptions{
		Binary: testenv.Program("archiver"), Args: testenv.Elect,
		Archive: "file://" + filepath.Join(r.Folder, "archive") + "?create_dir=true",
	})
	return r
}

func (r *rig) createIntegrations() {
	r.Must(r.Client.Create(r.Context, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	r.createClosed()
	for name, namespace := range map[string]string{loaded: namespace, unmapped: namespace, failing: namespace, closed: closed} {
		integration := &v1alpha1.WebhookIntegration{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1alpha1.WebhookIntegrationSpec{Tokens: testenv.Tokens(namespace, name)},
		}
		switch name {
		case unmapped:
			integration.Spec.Mapping = &v1alpha1.Mapping{Drop: "this is no expression"}
		case loaded: // its token expires, but not within the test
			expires := v1alpha1.NewTimestamp(time.Now().Add(24 * time.Hour))
			integration.Spec.Tokens[0].ExpirationTime = &expires
			r.Must(r.Client.Create(r.Context, testenv.Heartbeat(namespace, "requests", name, 10*time.Minute, testenv.AnyRequest())))
		case failing:
			integration.Spec.Mapping = &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: "alert.check.name"}}
		}
		r.Must(r.Client.Create(r.Context, integration))
	}
}

// closed is a namespace, and its integration, whose AlertEvents stay in the queue and whose quota lets no more in.
const closed = "closed"

// kept is how many AlertEvents stay: more than half of the share of a namespace under limits.
const kept = 300

// limits bring the namespaces near their shares: 500 AlertEvents and 30 Incidents.
var limits = []string{"--max-pending-events=2000", "--max-incidents=120"}

// createClosed makes the namespace, with what is in it.
func (r *rig) createClosed() {
	r.Must(r.Client.Create(r.Context, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: closed}}))
	for n := range kept {
		event := &v1alpha1.AlertEvent{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: closed, Name: fmt.Sprintf("kept-%d", n), Finalizers: []string{"example.com/kept"},
			},
			Spec: v1alpha1.AlertEventSpec{
				IntegrationName: closed,
				Alerts:          testenv.Text(v1alpha1.Alert{DedupKey: "kept", Status: v1alpha1.AlertFiring}),
			},
		}
		r.Must(r.Client.Create(r.Context, event))
	}
	hard := corev1.ResourceList{"count/alertevents.tocsin.dev": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: closed, Name: closed},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	}
	r.Must(r.Client.Create(r.Context, quota))
	// There is no controller that would fill in the status, which is what counts.
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard}
	r.Must(r.Client.Status().Update(r.Context, quota))
}

// load posts alerts until ctx ends: those of a good sender, and now and then what is refused.
func (r *rig) load(ctx context.Context) {
	go func() {
		for testenv.Pause(ctx, time.Second/oddities) {
			// What they are answered shows on the dashboard, or its test fails.
			r.post(ctx, namespace, loaded, "[")
			r.post(ctx, namespace, loaded, `{"labels":{"`+v1alpha1.ForwardedLabel+`":"returned"}}`)
			r.post(ctx, namespace, loaded, `{"dedup_key":"unwanted","severity":"critical","title":"`+unwanted+`"}`)
			for _, status := range []string{"firing", "resolved"} {
				r.post(ctx, namespace, loaded, `{"dedup_key":"flapping","status":"`+status+`"}`)
			}
			for _, integration := range []string{unmapped, failing, "unknown"} {
				r.post(ctx, namespace, integration, `{"dedup_key":"odd"}`)
			}
			r.post(ctx, closed, closed, `{"dedup_key":"odd"}`)
		}
	}()
	loadgen.Run(ctx, loadgen.Load{
		URLs: []string{r.manager.WebhookURL + testenv.Token(namespace, loaded)}, Senders: 4, Rate: rate,
		Key: loadgen.RotatingKeys(keys),
	})
}

func (r *rig) post(ctx context.Context, namespace, integration, body string) {
	_, _, _ = testenv.Send(ctx, http.MethodPost, r.manager.WebhookURL+testenv.Token(namespace, integration), body)
}
