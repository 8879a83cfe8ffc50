package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// newServer returns a server in memory with the project's resources.
func newServer(tb testing.TB, options apiserver.Options) *apiserver.Server {
	tb.Helper()
	options.Definitions = definitions(tb)
	server, err := apiserver.New(options)
	if err != nil {
		tb.Fatal(err)
	}
	return server
}

func newMemory(t *testing.T) provider {
	t.Helper()
	server := newServer(t, apiserver.Options{})
	return provider{
		name:    "in memory",
		config:  server.Config("conformance", nil),
		compact: func(string) { server.Expire() },
		quota: func(s *site, hard int) {
			server.SetQuota(s.namespace, "few", map[string]int64{"count/incidents.tocsin.dev": int64(hard)})
		},
		deny: func(s *site) {
			server.Deny("no-denied", func(call *apiserver.Call, object map[string]any) string {
				if call.Namespace == s.namespace && at(object, "spec", "dedupKey") == "denied" {
					return "this key is denied"
				}
				return ""
			})
			t.Cleanup(func() { server.Deny("no-denied", nil) })
		},
	}
}

func newReal(t *testing.T) provider {
	t.Helper()
	if environment == nil {
		environment = testenv.Environment()
		var err error
		if realConfig, err = environment.Start(); err != nil {
			environment = nil
			t.Fatalf("starting the control plane (\"make control-plane\" gets one): %v", err)
		}
		realConfig.QPS = -1
	}
	p := provider{
		name: "real", config: realConfig, compact: func(revision string) { compactEtcd(t, revision) }, quota: realQuota,
		deny: realDenial,
	}
	s := newSite(t, p)
	for _, plural := range []string{"alertevents", "incidents", "webhookintegrations"} { // 429 until the resource is ready
		s.await(http.StatusOK, func() answer { return s.send("GET", s.path(plural)+"?resourceVersion=0", nil) })
	}
	return p
}

func compactEtcd(t *testing.T, revision string) {
	t.Helper()
	response, err := http.Post(environment.ControlPlane.Etcd.URL.String()+"/v3/kv/compaction", "application/json",
		strings.NewReader(fmt.Sprintf(`{"revision": %q, "physical": true}`, revision)))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
}

// realQuota counts for the controller manager, which does not run.
func realQuota(s *site, hard int) {
	const name = "count/incidents.tocsin.dev"
	number := fmt.Sprint(hard)
	path := "/api/v1/namespaces/" + s.namespace + "/resourcequotas"
	created := s.send("POST", path, object{"kind": "ResourceQuota", "apiVersion": "v1", "metadata": object{"name": "few"},
		"spec": object{"hard": object{name: number}}})
	status := object{"hard": object{name: number}, "used": object{name: number}}
	if counted := s.send("PUT", path+"/few/status", with(created.body, status, "status")); counted.code != http.StatusOK {
		s.t.Fatal(counted.body)
	}
	s.await(http.StatusForbidden, func() answer { return s.send("POST", s.path("incidents")+"?dryRun=All", incident("probe")) })
}

func realDenial(s *site) {
	const group = "/apis/admissionregistration.k8s.io/v1/"
	for plural, o := range map[string]object{
		"validatingadmissionpolicies": {"kind": "ValidatingAdmissionPolicy", "spec": object{
			"failurePolicy": "Fail",
			"matchConstraints": object{"resourceRules": []any{object{"apiGroups": []any{"tocsin.dev"}, "apiVersions": []any{"*"},
				"operations": []any{"CREATE"}, "resources": []any{"incidents"}}}},
			"validations": []any{object{"expression": "object.spec.dedupKey != 'denied'", "message": "this key is denied",
				"reason": "Forbidden"}},
		}},
		"validatingadmissionpolicybindings": {"kind": "ValidatingAdmissionPolicyBinding", "spec": object{
			"policyName": "no-denied", "validationActions": []any{"Deny"},
			"matchResources": object{"namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": s.namespace}}},
		}},
	} {
		o["apiVersion"], o["metadata"] = "admissionregistration.k8s.io/v1", object{"name": "no-denied"}
		if created := s.send("POST", group+plural, o); created.code != http.StatusCreated {
			s.t.Fatal(created.body)
		}
	}
	s.await(http.StatusForbidden, func() answer {
		return s.send("POST", s.path("incidents")+"?dryRun=All", with(incident("probe"), "denied", "spec", "dedupKey"))
	})
}
