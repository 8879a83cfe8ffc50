package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
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

// startTrial prepares a rig with two replicas and two tenants.
func (s *suite) startTrial(ctx context.Context) (*run, error) {
	if err := s.prepareRig(ctx, &scenario{}); err != nil {
		return nil, err
	}
	return s.rig.prepare(ctx)
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
func checkPermissions(ctx context.Context, s *suite) (*report, error) {
	s.dropRig() // An API server that restarts forbids everything until it has read the roles.
	run, err := s.startTrial(ctx)
	if err != nil {
		return nil, err
	}
	as, err := client.New(&rest.Config{
		Host:        run.direct.URL,
		Impersonate: rest.ImpersonationConfig{UserName: "system:serviceaccount:" + systemNamespace + ":" + serviceAccount},
	}, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		return nil, err
	}
	review := &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: run.tenants[0].namespace},
	}
	if err := as.Create(ctx, review); err != nil {
		return nil, err
	}
	got := verbsOf(review.Status.ResourceRules)
	for name := range got {
		if got[name] != grants[name] && got[name] != newerGrants[name] {
			run.findings.Add("F: the service account may %q %s, and should %q", got[name], name, grants[name])
		}
	}
	for name := range grants {
		if got[name] == "" {
			run.findings.Add("F: the service account may not %s %s", grants[name], name)
		}
	}
	for _, replica := range run.replicas {
		if forbidden := replica.proxy.Forbidden(); len(forbidden) > 0 {
			run.findings.Add("F: %s was forbidden to %v", replica.name, forbidden)
		}
	}
	slices.Sort(run.findings)
	run.note("%d rules", len(got))
	return &run.report, nil
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
func checkFlows(ctx context.Context, s *suite) (*report, error) {
	run, err := s.startTrial(ctx)
	if err != nil {
		return nil, err
	}
	uids := map[string]string{}
	var schemas flowcontrolv1.FlowSchemaList
	if err := run.Client.List(ctx, &schemas); err != nil {
		return nil, err
	}
	for i := range schemas.Items {
		uids[string(schemas.Items[i].UID)] = schemas.Items[i].Name
	}
	for n := range 4 {
		if _, err := run.post(n, run.tenants[0].token, strings.NewReader(`{"title":"flow","dedup_key":"flow"}`), nil); err != nil {
			return nil, err
		}
	}
	if _, err := loadgen.Drained(ctx, run.Client, run.tenants[0].namespace); err != nil {
		return nil, err
	}
	for call, want := range flows {
		var got []string
		_ = testenv.AwaitThat(ctx, 10*time.Second, "", func(context.Context) bool {
			got = run.flows(call, uids)
			return len(got) > 0 // the leader creates its lease, and updates it a second later
		})
		if len(got) == 0 || slices.ContainsFunc(got, func(name string) bool { return name != want }) {
			run.findings.Add("E: %s comes under %v and should come under %s", call, got, want)
		}
	}
	slices.Sort(run.findings)
	return &run.report, nil
}

// lives is how many alerts postLives posts.
const lives = 20

// postLives posts alerts of all kinds for a few keys, and waits until they are folded.
func (r *run) postLives(ctx context.Context) error {
	for n := range lives {
		status := []string{"firing", "resolved", "firing", "acknowledged"}[n%4]
		body := fmt.Sprintf(`{"title":"n %d","status":%q,"dedup_key":"key-%d"}`, n, status, n%3)
		a, err := r.post(n, r.tenants[0].token, strings.NewReader(body), nil)
		if err != nil {
			return err
		}
		if a.code != http.StatusAccepted {
			return fmt.Errorf("an alert is answered %d", a.code)
		}
	}
	_, err := loadgen.Drained(ctx, r.Client, r.tenants[0].namespace)
	return err
}

// restoreIncidents makes Incidents of another cluster here, status included.
func (r *run) restoreIncidents(ctx context.Context, incidents []v1alpha1.Incident) error {
	for _, incident := range incidents {
		imported := &v1alpha1.Incident{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.tenants[0].namespace, Name: incident.Name}, Spec: incident.Spec,
		}
		if err := r.Client.Create(ctx, imported); err != nil {
			return err
		}
		imported.Status = incident.Status
		if err := r.Client.Status().Update(ctx, imported); err != nil {
			return err
		}
	}
	return nil
}

// importIncidents moves Incidents with their status to a fresh cluster, where resourceVersions are smaller,
// and has more alerts folded into them there.
func importIncidents(ctx context.Context, s *suite) (*report, error) {
	old, err := s.startTrial(ctx)
	if err != nil {
		return nil, err
	}
	if err := old.postLives(ctx); err != nil {
		return nil, err
	}
	var exported v1alpha1.IncidentList
	if err := old.Client.List(ctx, &exported, client.InNamespace(old.tenants[0].namespace)); err != nil {
		return nil, err
	}
	s.dropRig()

	fresh, err := s.startTrial(ctx)
	if err != nil {
		return nil, err
	}
	if err := fresh.restoreIncidents(ctx, exported.Items); err != nil {
		return nil, err
	}
	if err := fresh.postLives(ctx); err != nil {
		return nil, err
	}
	fresh.acknowledged = 2 * lives
	for _, before := range exported.Items {
		var after v1alpha1.Incident
		key := client.ObjectKey{Namespace: fresh.tenants[0].namespace, Name: before.Name}
		if err := fresh.Client.Get(ctx, key, &after); err != nil {
			return nil, err
		}
		// The same posts again: the same count once more, and the same state at the end. A report that came
		// first counted for nothing in the old cluster, and counts in the new one.
		if n := after.Status.AlertCount - before.Status.AlertCount; n < before.Status.AlertCount || n > before.Status.AlertCount+2 {
			fresh.findings.Add("A: %s had counted %d alerts and counts %d after the same ones came again",
				before.Spec.DedupKey, before.Status.AlertCount, after.Status.AlertCount)
		}
		if after.Status.State != before.Status.State || after.Status.Alert.Title != before.Status.Alert.Title {
			fresh.findings.Add("B: %s is %s %q, was %s %q", before.Spec.DedupKey, after.Status.State, after.Status.Alert.Title,
				before.Status.State, before.Status.Alert.Title)
		}
		if after.Status.Ledger.ResourceVersion == before.Status.Ledger.ResourceVersion {
			fresh.findings.Add("B: %s still has the old cluster's stamp", before.Spec.DedupKey)
		}
	}
	return &fresh.report, nil
}
