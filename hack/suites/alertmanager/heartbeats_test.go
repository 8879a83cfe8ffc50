//go:build slow

package alertmanager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// minutes finds the durations in the routes of docs/heartbeats.md that are scaled down.
var minutes = regexp.MustCompile(`(group|repeat)_interval: \S+`)

// heartbeatConfig is a configuration of Alertmanager in docs/heartbeats.md, with this address in place of another one. Minutes are
// scaled down to groupInterval.
func (r *rig) heartbeatConfig(number int, placeholder, address string) string {
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "heartbeats.md"))
	r.Must(err)
	blocks := configBlock.FindAllSubmatch(page, -1)
	if len(blocks) <= number || !strings.Contains(string(blocks[number][2]), placeholder) {
		r.T.Fatalf("docs/heartbeats.md has another form: %q", blocks)
	}
	return minutes.ReplaceAllStringFunc(strings.ReplaceAll(string(blocks[number][2]), placeholder, address), func(text string) string {
		name, value, _ := strings.Cut(text, " ")
		length, err := time.ParseDuration(value)
		r.Must(err)
		return name + " " + (length / (time.Minute / groupInterval)).String()
	})
}

// prometheusWatchdog has the Watchdog of a Prometheus pass through the Alertmanager of the guide to a heartbeat.
func prometheusWatchdog(r *rig) {
	const name = "watched"
	token := r.Integrate(name, v1alpha1.WebhookIntegrationSpec{})
	r.Must(r.Client.Create(r.Context, testenv.Heartbeat(name, "watchdog", name, 2*time.Minute, nil)))
	address := r.Addresses(1)[0]
	alertmanager := r.Alertmanager("watchdog", *program, address,
		r.heartbeatConfig(0, "https://tocsin.example.com/api/v1/events/webhook/TOKEN", r.managers[0].WebhookURL+token), "--cluster.listen-address=")
	r.Start(alertmanager)
	defer alertmanager.Kill()
	_, err := testenv.Call(r.Context, http.MethodPost, "http://"+address+"/api/v2/alerts", `[{"labels":{"alertname":"Watchdog"}}]`)
	r.Must(err)
	r.Await(testenv.WaitTimeout, func(ctx context.Context) error {
		beat := &v1alpha1.Heartbeat{}
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: "watchdog"}, beat); err != nil {
			return err
		}
		if beat.Status.LastSignalTime == nil {
			return fmt.Errorf("the Watchdog was not heard: %+v", beat.Status)
		}
		return nil
	})
}

// aliveSignal has the alert of the component alive pass through Tocsin and the Alertmanager of the guide to a watchdog outside,
// which hears nothing while the leader cannot fold, whether the Incident is open then or not.
func aliveSignal(r *rig) {
	const integration = "alive"
	token := r.Integrate(integration, v1alpha1.WebhookIntegrationSpec{AutoResolveAfter: &metav1.Duration{Duration: 2 * time.Minute}})
	var heard atomic.Int64
	watchdog := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard.Add(1) }))
	defer watchdog.Close()
	address := r.Addresses(1)[0]
	alertmanager := r.Alertmanager("alive", *program, address,
		r.heartbeatConfig(1, "https://watchdog.example.com/heartbeat", watchdog.URL), "--cluster.listen-address=")
	r.Start(alertmanager)
	defer alertmanager.Kill()
	r.configure("- url: http://" + address + "\n")
	defer r.configure("")

	about := subject{v1alpha1.IncidentName(integration, integration), string(v1alpha1.SeverityInfo)}
	send := func(status string) {
		r.T.Helper()
		r.Post(2*time.Second, r.managers, token, fmt.Sprintf(
			`{"title":"Tocsin is alive","dedup_key":%q,"severity":"info","status":%q}`, integration, status))
	}
	hears := func(times int64) {
		r.T.Helper()
		r.Await(testenv.WaitTimeout, func(context.Context) error {
			if n := heard.Load(); n != times {
				return fmt.Errorf("the watchdog heard %d signals, not %d", n, times)
			}
			return nil
		})
		r.story[about] = append(r.story[about], firing) // the other Alertmanagers notify as well
		r.told()
	}
	ends := func() {
		r.T.Helper()
		r.Await(testenv.WaitTimeout, func(ctx context.Context) error {
			list, err := testenv.Call(ctx, http.MethodGet, "http://"+address+"/api/v2/alerts", "")
			if err == nil && strings.Contains(list, about.incident) {
				err = errors.New("the alert goes on in Alertmanager")
			}
			return err
		})
		r.story[about] = append(r.story[about], resolved)
		r.told()
		r.Pause(2 * groupInterval) // it looks at its groups
	}
	quiet := func(d time.Duration, times int64) {
		r.T.Helper()
		r.Pause(d)
		if n := heard.Load(); n != times {
			r.T.Fatalf("the watchdog heard %d signals while nothing was folded", n-times)
		}
	}

	send(firing)
	hears(1)
	send(resolved)
	ends()
	send(firing)
	hears(2)
	allow := r.forbidFolding(client.ObjectKey{Namespace: integration, Name: about.incident})
	send(resolved)
	quiet(5*groupInterval+5*time.Second, 2) // longer than five minutes: no repetition makes the watchdog believe in a dead Tocsin
	allow()
	ends()
	allow = r.forbidFolding(client.ObjectKey{Namespace: integration, Name: about.incident})
	send(firing)
	quiet(3*groupInterval, 2)
	allow()
	hears(3)
	send(resolved)
	ends()
}

// forbidFolding has the API server deny every write of an Incident's status, until allow is called. It waits for both with an
// Incident, which it does not change.
func (r *rig) forbidFolding(incident client.ObjectKey) (allow func()) {
	const name = "nothing-is-folded"
	meta := metav1.ObjectMeta{Name: name}
	fail := admissionv1.Fail
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{"tocsin.dev"}, APIVersions: []string{"*"}, Resources: []string{"incidents/status"}},
	}}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    &fail,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
		Validations:      []admissionv1.Validation{{Expression: "false", Message: "nothing is folded"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	r.Must(r.Client.Create(r.Context, policy))
	r.Must(r.Client.Create(r.Context, binding))
	probe := func(ctx context.Context) error {
		object := &v1alpha1.Incident{}
		if err := r.Client.Get(ctx, incident, object); err != nil {
			return err
		}
		return r.Client.Status().Update(ctx, object, client.DryRunAll)
	}
	r.AwaitThat("the API server denies it", func(ctx context.Context) bool {
		err := probe(ctx)
		return err != nil && strings.Contains(err.Error(), "nothing is folded")
	})
	return func() {
		r.Must(r.Client.Delete(r.Context, binding))
		r.Must(r.Client.Delete(r.Context, policy))
		r.AwaitThat("the API server allows it", func(ctx context.Context) bool { return probe(ctx) == nil })
	}
}
