//go:build slow

package federation

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const missing = "The Tocsin of leaf-1 does not report critical "

// scenarios are run one after the other.
var scenarios = []struct {
	name  string
	short bool
	run   func(r *rig)
}{
	{"an Incident begins, is acknowledged, changes its severity and ends", true, lifecycle},
	{"the link is cut for a moment", true, briefCut},
	{"a tenant of the hub federates himself", true, tenant},
	{"the token of another leaf", false, otherToken},
	{"the link swallows everything for longer than an expiry, and both leaders are killed", false, outage},
	{"the leaf is down for longer than an expiry", false, leafDown},
	{"the hub is down for longer than an expiry", false, hubDown},
	{"a token that is not valid", false, noToken},
	{"the hub forwards to the leaf", false, loop},
}

// TestFederation runs the scenarios, with -short some of those that take seconds, with one manager in each cluster.
func TestFederation(t *testing.T) {
	replicas := 2
	if testing.Short() {
		replicas = 1
	}
	r := startRig(t, replicas)
	for _, s := range scenarios {
		if s.short || !testing.Short() {
			r.leaf.Run(s.name, func() {
				r.hub.T = r.leaf.T
				s.run(r)
			})
		}
	}
}

func lifecycle(r *rig) {
	r.post("life", "warning", "firing")
	r.shows(testenv.WaitTimeout, "life warning Open")
	incidents, err := r.hub.incidents(r.hub.Context, clusters)
	r.hub.Must(err)
	for name, want := range map[string]string{
		"cluster": "leaf-1", "namespace": shop, "integration": shop, v1alpha1.ForwardedLabel: v1alpha1.IncidentName(shop, "life"),
		v1alpha1.HopsLabel: "1",
	} {
		if got := incidents[0].Status.Alert.Labels[name]; got != want {
			r.hub.T.Errorf("the label %s is %q, not %q", name, got, want)
		}
	}
	if got := incidents[0].Labels["alert.tocsin.dev/cluster"]; got != "leaf-1" {
		r.hub.T.Errorf("the object's label is %q", got)
	}
	r.act("life", v1alpha1.AlertAcknowledged)
	r.annotated("life", "acknowledged_by", "maria")
	r.act("life", v1alpha1.AlertUnacknowledged)
	r.annotated("life", "acknowledged_by", "")
	r.post("life", "critical", "firing")
	r.shows(testenv.WaitTimeout, "life critical Open", "life warning Resolved ResolvedByAlert")
	r.post("life", "critical", "resolved")
	r.shows(testenv.WaitTimeout, "life critical Resolved ResolvedByAlert", "life warning Resolved ResolvedByAlert")
	r.forget()
}

// forget deletes the hub's Incidents, so that the next scenario has its own, once all of the leaf have ended.
func (r *rig) forget() {
	r.hub.T.Helper()
	r.hub.AwaitThat("Incidents do not go", func(ctx context.Context) bool {
		_ = r.hub.Client.DeleteAllOf(ctx, &v1alpha1.Incident{}, client.InNamespace(clusters))
		incidents, err := r.hub.incidents(ctx, clusters)
		return err == nil && len(incidents) == 0
	})
}

func briefCut(r *rig) {
	r.post("ends", "error", "firing")
	r.post("stays", "error", "firing")
	r.shows(testenv.WaitTimeout, "ends error Open", "stays error Open")
	r.link.set(cut)
	r.post("ends", "error", "resolved")
	r.post("begins", "error", "firing")
	r.stays(2*time.Second, "ends error Open", "stays error Open")
	r.link.set(up)
	r.shows(testenv.WaitTimeout, "begins error Open", "ends error Resolved ResolvedByAlert", "stays error Open")
	r.end("begins", "stays")
}

// end ends Incidents of the leaf, and forgets all.
func (r *rig) end(keys ...string) {
	r.leaf.T.Helper()
	for _, key := range keys {
		r.post(key, "error", "resolved")
	}
	r.leaf.AwaitThat("Incidents do not end", func(ctx context.Context) bool {
		states, err := r.states(ctx)
		return err == nil && !slices.ContainsFunc(states, func(state string) bool { return strings.HasSuffix(state, " Open") })
	})
	r.forget()
}

// tenant has somebody with a namespace on the hub make an integration, and imitate the leaf with its token.
func tenant(r *rig) {
	const namespace = "mallory"
	r.hub.Must(r.hub.Client.Create(r.hub.Context, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "leaf-1"}}
	integration.Spec = v1alpha1.WebhookIntegrationSpec{Federate: true, Tokens: testenv.Tokens(namespace, "leaf-1")}
	r.hub.Must(r.hub.Client.Create(r.hub.Context, integration))
	r.hub.Await(testenv.WaitTimeout, func(ctx context.Context) error { // Tocsin makes the heartbeat of the link
		return r.hub.Client.Get(ctx, client.ObjectKeyFromObject(integration), &v1alpha1.Heartbeat{})
	})

	r.post("real", "error", "firing")
	r.shows(testenv.WaitTimeout, "real error Open")
	incidents, err := r.hub.incidents(r.hub.Context, clusters)
	r.hub.Must(err)
	labels := incidents[0].Status.Alert.Labels
	var pairs []string
	for name, value := range labels {
		if name != v1alpha1.HopsLabel {
			pairs = append(pairs, fmt.Sprintf("%q:%q", name, value))
		}
	}
	send := func(more, ends string) {
		body := fmt.Sprintf(`[{"labels":{%s%s},"annotations":{"summary":"forged"},"startsAt":"2026-01-01T00:00:00Z","endsAt":%q}]`,
			strings.Join(pairs, ","), more, ends)
		r.hub.Await(testenv.WaitTimeout, func(ctx context.Context) error {
			_, err := testenv.Call(ctx, http.MethodPost, "http://"+r.link.address()+"/api/v1/events/webhook/"+
				testenv.Token(namespace, "leaf-1")+"/api/v2/alerts", body)
			return err
		})
	}
	send("", "2027-01-01T00:00:00Z")
	send("", "2026-01-02T00:00:00Z")
	send(`,"tocsin_hops":"4"`, "2099-01-01T00:00:00Z")
	send(`,"tocsin_hops":"-1"`, "2099-01-01T00:00:00Z")
	send(`,"tocsin_hops":"3"`, "2099-01-01T00:00:00Z")
	r.hub.Await(testenv.WaitTimeout, func(ctx context.Context) error {
		found, err := r.hub.incidents(ctx, namespace)
		var hops []string
		for i := range found {
			hops = append(hops, string(found[i].Status.State)+" "+found[i].Status.Alert.Labels[v1alpha1.HopsLabel])
		}
		slices.Sort(hops)
		if want := []string{"Open 3", "Resolved 1"}; err == nil && !slices.Equal(hops, want) {
			err = fmt.Errorf("the tenant has %q, not %q", hops, want)
		}
		return err
	})
	r.stays(time.Second, "real error Open")
	r.hub.Must(r.hub.Client.Delete(r.hub.Context, integration))
	r.end("real")
}

// otherToken gives the leaf the token of another one. What it posts then counts for that one, and ends nothing of its own.
func otherToken(r *rig) {
	r.post("own", "error", "firing")
	r.shows(testenv.WaitTimeout, "own error Open")
	other := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: clusters, Name: "leaf-2"}}
	other.Spec = v1alpha1.WebhookIntegrationSpec{Federate: true, Tokens: testenv.Tokens(clusters, "leaf-2")}
	r.hub.Must(r.hub.Client.Create(r.hub.Context, testenv.Heartbeat(clusters, "leaf-2", "leaf-2", 4*time.Minute, testenv.AnyRequest())))
	r.hub.Must(r.hub.Client.Create(r.hub.Context, other))
	r.present(testenv.Token(clusters, "leaf-2"))
	r.post("later", "error", "firing")
	byIntegration := func(want ...string) {
		r.hub.T.Helper()
		r.hub.Await(testenv.WaitTimeout, func(ctx context.Context) error {
			found, err := r.hub.incidents(ctx, clusters)
			var texts []string
			for i := range found {
				texts = append(texts, fmt.Sprintf("%s %s of %s", found[i].Status.Alert.Title, found[i].Status.State, found[i].Spec.IntegrationName))
			}
			slices.Sort(texts)
			if err == nil && !slices.Equal(texts, want) {
				err = fmt.Errorf("the hub has %q, not %q", texts, want)
			}
			return err
		})
	}
	byIntegration("later Open of leaf-2", "own Open of leaf-1")
	r.post("own", "error", "resolved")
	r.post("later", "error", "resolved")
	byIntegration("later Resolved of leaf-2", "own Open of leaf-1")
	r.present(testenv.Token(clusters, "leaf-1"))
	r.shows(backTime, "later error Resolved ResolvedByAlert", "own error Resolved ResolvedByAlert")
	r.hub.Must(r.hub.Client.Delete(r.hub.Context, other))
	r.forget()
}

// present sets the token of the leaf. It is read for each request.
func (r *rig) present(token string) {
	r.leaf.Must(os.WriteFile(r.tokenFile, []byte(token), 0o600))
}

func outage(r *rig) {
	for _, key := range []string{"ends", "stays"} {
		r.post(key, "error", "firing")
	}
	r.shows(testenv.WaitTimeout, "ends error Open", "stays error Open")
	r.link.set(stuck)
	r.shows(missTime, missing+"Open", "ends error Open", "stays error Open")
	r.post("begins", "error", "firing")
	r.act("stays", v1alpha1.AlertAcknowledged)
	r.leaf.failOver()
	r.hub.failOver()
	r.post("ends", "error", "resolved")
	r.stays(afterMiss, missing+"Open", "ends error Open", "stays error Open")
	r.link.set(up)
	r.shows(backTime, missing+"Resolved ResolvedByAlert", "begins error Open", "ends error Resolved ResolvedByAlert", "stays error Open")
	r.annotated("stays", "acknowledged_by", "maria")
	r.stays(hubExpiry+30*time.Second,
		missing+"Resolved ResolvedByAlert", "begins error Open", "ends error Resolved ResolvedByAlert", "stays error Open")
	r.asksForSilences()
	r.end("begins", "stays")
}

// asksForSilences makes sure that the requests of the leaf about silences, which the hub does not have, are failures for neither.
func (r *rig) asksForSilences() {
	leader := r.leaf.managers[r.leaf.Leader(r.leaf.managers)]
	synced, n, err := testenv.Metric(r.leaf.Context, leader.MetricsURL, `tocsin_forward_silences_last_success_timestamp_seconds{.*}`)
	r.leaf.Must(err)
	if age := time.Since(time.Unix(int64(synced), 0)); n != 1 || age > time.Minute {
		r.leaf.T.Errorf("the leaf has read the silences of %d hubs, %s ago", n, age)
	}
	integration := &v1alpha1.WebhookIntegration{}
	r.hub.Must(r.hub.Client.Get(r.hub.Context, client.ObjectKey{Namespace: clusters, Name: "leaf-1"}, integration))
	if rejection := integration.Status.LastRejection; rejection != nil {
		r.hub.T.Errorf("the hub has rejected a request: %+v", rejection)
	}
}

func leafDown(r *rig) {
	r.post("stays", "error", "firing")
	r.shows(testenv.WaitTimeout, "stays error Open")
	for _, m := range r.leaf.managers {
		m.Kill()
	}
	r.shows(missTime, missing+"Open", "stays error Open")
	r.stays(afterMiss, missing+"Open", "stays error Open")
	for _, m := range r.leaf.managers {
		r.leaf.Start(m.Process)
	}
	r.shows(backTime, missing+"Resolved ResolvedByAlert", "stays error Open")
	r.stays(30*time.Second, missing+"Resolved ResolvedByAlert", "stays error Open")
	r.end("stays")
}

func hubDown(r *rig) {
	r.post("ends", "error", "firing")
	r.post("stays", "error", "firing")
	r.shows(testenv.WaitTimeout, "ends error Open", "stays error Open")
	for _, m := range r.hub.managers {
		m.Kill()
	}
	r.post("ends", "error", "resolved")
	r.leaf.Pause(hubExpiry + 30*time.Second)
	for _, m := range r.hub.managers {
		r.hub.Start(m.Process)
	}
	r.shows(backTime, "ends error Resolved ResolvedByAlert", "stays error Open")
	r.stays(30*time.Second, "ends error Resolved ResolvedByAlert", "stays error Open")
	r.end("stays")
}

// noToken gives the leaf a token that nobody knows. Its integration says so, and the hub that the leaf is quiet.
func noToken(r *rig) {
	r.post("stays", "error", "firing")
	r.shows(testenv.WaitTimeout, "stays error Open")
	r.present(testenv.Token(clusters, "nobody"))
	forwarded := func(want string) {
		r.leaf.T.Helper()
		r.leaf.Await(2*time.Minute, func(ctx context.Context) error {
			integration := &v1alpha1.WebhookIntegration{}
			err := r.leaf.Client.Get(ctx, client.ObjectKey{Namespace: shop, Name: shop}, integration)
			has := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionForwarded)
			if err == nil && (has == nil || !strings.Contains(has.Message, want)) {
				err = fmt.Errorf("the condition is %+v, without %q", has, want)
			}
			return err
		})
	}
	r.shows(missTime, missing+"Open", "stays error Open")
	forwarded("HTTP 401")
	r.present(testenv.Token(clusters, "leaf-1"))
	r.shows(backTime, missing+"Resolved ResolvedByAlert", "stays error Open")
	forwarded("Incidents are posted")
	r.end("stays")
}

// loop has the hub forward to the leaf, which forwards everything to the hub.
func loop(r *rig) {
	_, err := r.leaf.Cluster.Integrate(r.leaf.Context, clusters, "hub", v1alpha1.WebhookIntegrationSpec{Federate: true})
	r.leaf.Must(err)
	integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: clusters, Name: "leaf-1"}}
	r.hub.Must(r.hub.Client.Patch(r.hub.Context, integration,
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"loop":"yes"}}}`))))
	r.post("round", "error", "firing")
	hops := func(ctx context.Context, c *cluster) (found []string, err error) {
		incidents, err := c.incidents(ctx, clusters)
		for i := range incidents {
			found = append(found, string(incidents[i].Status.State)+" "+incidents[i].Status.Alert.Labels[v1alpha1.HopsLabel])
		}
		slices.Sort(found)
		return found, err
	}
	compare := func(ctx context.Context, state string) error {
		onLeaf, err := hops(ctx, r.leaf)
		if err != nil {
			return err
		}
		onHub, err := hops(ctx, r.hub)
		if want := []string{state + " 1", state + " 3"}; err == nil && (!slices.Equal(onLeaf, []string{state + " 2"}) || !slices.Equal(onHub, want)) {
			err = fmt.Errorf("the leaf has %q, and the hub %q", onLeaf, onHub)
		}
		return err
	}
	r.leaf.Await(testenv.WaitTimeout, func(ctx context.Context) error { return compare(ctx, "Open") })
	for range 3 {
		r.leaf.Pause(time.Second)
		r.leaf.Must(compare(r.leaf.Context, "Open"))
	}
	r.post("round", "error", "resolved")
	r.leaf.Await(testenv.WaitTimeout, func(ctx context.Context) error { return compare(ctx, "Resolved") })
}
