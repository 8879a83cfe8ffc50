//go:build slow

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// drained waits until all alerts of the first tenant are folded.
func (r *run) drained() {
	_, err := loadgen.Drained(r.Context, r.Client, r.tenants[0].namespace)
	r.Must(err)
}

// incidents returns the Incidents of the first tenant.
func (r *run) incidents() []v1alpha1.Incident {
	var list v1alpha1.IncidentList
	r.Must(r.Client.List(r.Context, &list, client.InNamespace(r.tenants[0].namespace)))
	return list.Items
}

// answer is what the endpoint said.
type answer struct {
	code int
	Type string `json:"type"`
}

// post posts a body to a replica.
func (r *run) post(replica int, token string, body io.Reader, headers map[string]string) (answer, error) {
	request, err := http.NewRequest(http.MethodPost, r.replicas[replica%len(r.replicas)].manager.WebhookURL+token, body)
	if err != nil {
		return answer{}, err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := harnessClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	a := answer{code: response.StatusCode}
	return a, json.NewDecoder(response.Body).Decode(&a)
}

// grants are all that the operator's service account may do to Tocsin's resources and others, in a tenant's
// namespace. Whatever else is granted is one right too many. What is needed shows in all other scenarios,
// where the managers have no more than this.
var grants = map[string]string{
	"events.k8s.io/events":                      "create patch",
	"tocsin.dev/alertevents":                    "create delete get list patch watch",
	"tocsin.dev/heartbeats":                     "create delete get list watch",
	"tocsin.dev/heartbeats/status":              "patch",
	"tocsin.dev/incidents":                      "create delete get list patch watch",
	"tocsin.dev/incidents/status":               "update",
	"tocsin.dev/incidentsummaries":              "create delete get list watch",
	"tocsin.dev/incidentsummaries/status":       "patch",
	"tocsin.dev/maintenancewindows":             "get list watch",
	"tocsin.dev/maintenancewindows/status":      "patch",
	"tocsin.dev/requestcaptures":                "create delete get list update",
	"tocsin.dev/webhookintegrations":            "get list watch",
	"tocsin.dev/webhookintegrations/status":     "patch",
	"authentication.k8s.io/tokenreviews":        "create",
	"authorization.k8s.io/subjectaccessreviews": "create",
	// What every authenticated user may do.
	"authentication.k8s.io/selfsubjectreviews":      "create",
	"authorization.k8s.io/selfsubjectaccessreviews": "create",
	"authorization.k8s.io/selfsubjectrulesreviews":  "create",
}

// newerGrants are what newer versions of Kubernetes let every service account do.
var newerGrants = map[string]string{
	"certificates.k8s.io/clustertrustbundles": "get list watch", // since 1.37
}

// checkPermissions compares the permissions of the operator's service account with grants.
func checkPermissions(r *run) {
	as, err := client.New(&rest.Config{
		Host:        r.direct,
		Impersonate: rest.ImpersonationConfig{UserName: "system:serviceaccount:" + systemNamespace + ":" + serviceAccount},
	}, client.Options{Scheme: testenv.Scheme()})
	r.Must(err)
	review := &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: r.tenants[0].namespace},
	}
	r.Must(as.Create(r.Context, review))
	got := verbsOf(review.Status.ResourceRules)
	for name := range got {
		if got[name] != grants[name] && got[name] != newerGrants[name] {
			r.T.Errorf("F: the service account may %q %s, and should %q", got[name], name, grants[name])
		}
	}
	for name := range grants {
		if got[name] == "" {
			r.T.Errorf("F: the service account may not %s %s", grants[name], name)
		}
	}
	for _, replica := range r.replicas {
		if forbidden := replica.proxy.Forbidden(); len(forbidden) > 0 {
			r.T.Errorf("F: %s was forbidden to %v", replica.name, forbidden)
		}
	}
}

// verbsOf sums rules up: the verbs by group/resource, and by name where one is given.
func verbsOf(rules []authorizationv1.ResourceRule) map[string]string {
	verbs := map[string][]string{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				name := strings.Join(append([]string{group + "/" + resource}, rule.ResourceNames...), " ")
				verbs[name] = append(verbs[name], rule.Verbs...)
			}
		}
	}
	summed := map[string]string{}
	for name := range verbs {
		slices.Sort(verbs[name])
		summed[name] = strings.Join(slices.Compact(verbs[name]), " ")
	}
	return summed
}

// flows are the FlowSchemas that calls have to come under.
var flows = map[string]string{
	"update leases":           "tocsin-leader-election",
	"create alertevents":      "tocsin-ingest",
	"list alertevents":        "tocsin-fold",
	"update incidents/status": "tocsin-fold",
	"delete alertevents":      "tocsin-fold",
}

// flows returns the names of the FlowSchemas, by their UIDs, under which a call of the managers came.
func (r *run) flows(call string, names map[string]string) (came []string) {
	for _, replica := range r.replicas {
		if uid := replica.proxy.Flows()[call]; uid != "" {
			came = append(came, names[uid])
		}
	}
	return came
}

// checkFlows checks that the API server assigns the managers' calls to the FlowSchemas of config/components/flow-control.
func checkFlows(r *run) {
	uids := map[string]string{}
	var schemas flowcontrolv1.FlowSchemaList
	r.Must(r.Client.List(r.Context, &schemas))
	for i := range schemas.Items {
		uids[string(schemas.Items[i].UID)] = schemas.Items[i].Name
	}
	for n := range 4 {
		_, err := r.post(n, r.tenants[0].token, strings.NewReader(`{"title":"flow","dedup_key":"flow"}`), nil)
		r.Must(err)
	}
	r.drained()
	for call, want := range flows {
		var got []string
		_ = testenv.AwaitThat(r.Context, 10*time.Second, "", func(context.Context) bool {
			got = r.flows(call, uids)
			return len(got) > 0 // the leader creates its lease, and updates it a second later
		})
		if len(got) == 0 || slices.ContainsFunc(got, func(name string) bool { return name != want }) {
			r.T.Errorf("E: %s comes under %v and should come under %s", call, got, want)
		}
	}
}

// lives is how many alerts postLives posts.
const lives = 20

// postLives posts alerts of all kinds for a few keys, and waits until they are folded.
func (r *run) postLives() {
	for n := range lives {
		status := []string{"firing", "resolved", "firing", "acknowledged"}[n%4]
		body := fmt.Sprintf(`{"title":"n %d","status":%q,"dedup_key":"key-%d"}`, n, status, n%3)
		a, err := r.post(n, r.tenants[0].token, strings.NewReader(body), nil)
		r.Must(err)
		if a.code != http.StatusAccepted {
			r.T.Fatalf("an alert is answered %d", a.code)
		}
	}
	r.drained()
}

// importIncidents moves Incidents with their status to a fresh cluster, where resourceVersions are smaller,
// and has more alerts folded into them there.
func importIncidents(t *testing.T) {
	t.Helper()
	old := startRig(t, 0)
	old.startReplicas(2, nil)
	run := old.prepare()
	run.postLives()
	exported := run.incidents()
	for _, replica := range old.replicas {
		replica.close()
	}
	old.Stop()

	fresh := startRig(t, 0)
	fresh.startReplicas(2, nil)
	run = fresh.prepare()
	for _, incident := range exported {
		imported := &v1alpha1.Incident{
			ObjectMeta: metav1.ObjectMeta{Namespace: run.tenants[0].namespace, Name: incident.Name}, Spec: incident.Spec,
		}
		run.Must(run.Client.Create(run.Context, imported))
		imported.Status = incident.Status
		run.Must(run.Client.Status().Update(run.Context, imported))
	}
	run.postLives()
	for _, before := range exported {
		var after v1alpha1.Incident
		key := client.ObjectKey{Namespace: run.tenants[0].namespace, Name: before.Name}
		run.Must(run.Client.Get(run.Context, key, &after))
		// The same posts again: the same count once more, and the same state at the end. A report that came
		// first counted for nothing in the old cluster, and counts in the new one.
		if n := after.Status.AlertCount - before.Status.AlertCount; n < before.Status.AlertCount || n > before.Status.AlertCount+2 {
			t.Errorf("A: %s had counted %d alerts and counts %d after the same ones came again",
				before.Spec.DedupKey, before.Status.AlertCount, after.Status.AlertCount)
		}
		if after.Status.State != before.Status.State || after.Status.Alert.Title != before.Status.Alert.Title {
			t.Errorf("B: %s is %s %q, was %s %q", before.Spec.DedupKey, after.Status.State, after.Status.Alert.Title,
				before.Status.State, before.Status.Alert.Title)
		}
		if after.Status.Ledger.ResourceVersion == before.Status.Ledger.ResourceVersion {
			t.Errorf("B: %s still has the old cluster's stamp", before.Spec.DedupKey)
		}
	}
}
