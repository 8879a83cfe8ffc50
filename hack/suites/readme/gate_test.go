package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	. "github.com/onsi/gomega"
	lua "github.com/yuin/gopher-lua"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// gatePage has the recipes for rollouts that wait.
const gatePage = "docs/gate.md"

// healthKey is the key by which Argo CD has the health of IncidentSummaries.
const healthKey = "resource.customizations.health.tocsin.dev_IncidentSummary"

// gates are the recipes of gatePage, and what they say of summaries.
type gates struct {
	*WithT
	shell func(script string) string // runs it, and returns what it prints

	policy, manifest string // of Kubernetes, and of the application that Argo CD syncs
	expression       string // of the policy
	lua              string // the health check of Argo CD
	current, failed  string // those of Flux
}

// newGates reads the page.
func newGates(t *testing.T, shell func(string) string) *gates {
	t.Helper()
	g := &gates{WithT: NewWithT(t), shell: shell}
	page, err := os.ReadFile(filepath.Join(testenv.Root(), gatePage))
	g.Expect(err).NotTo(HaveOccurred())
	for _, block := range fence.FindAllStringSubmatch(string(page), -1) {
		switch text := block[3]; {
		case block[1] != "yaml":
		case strings.HasPrefix(text, "apiVersion: admissionregistration.k8s.io/"):
			g.policy = text
			var policy admissionv1.ValidatingAdmissionPolicy
			g.read(text, &policy)
			g.expression = policy.Spec.Validations[0].Expression
		case strings.HasPrefix(text, "apiVersion: tocsin.dev/"):
			g.manifest = text
		case strings.Contains(text, healthKey):
			var config corev1.ConfigMap
			g.read(text, &config)
			g.lua = config.Data[healthKey]
		case strings.HasPrefix(text, "apiVersion: kustomize.toolkit.fluxcd.io/"):
			var kustomization struct {
				Spec struct {
					HealthChecks, HealthCheckExprs []struct{ APIVersion, Kind, Name, Current, Failed string }
				}
			}
			g.read(text, &kustomization)
			check, rule := kustomization.Spec.HealthChecks[0], kustomization.Spec.HealthCheckExprs[0]
			g.Expect(check.Name).To(Equal("current"))
			g.Expect([]string{rule.APIVersion, rule.Kind}).To(Equal([]string{check.APIVersion, check.Kind}))
			g.current, g.failed = rule.Current, rule.Failed
		}
	}
	return g
}

// read reads the first document of a block.
func (g *gates) read(text string, into any) {
	document, _, _ := strings.Cut(text, "\n---\n")
	g.Expect(yaml.Unmarshal([]byte(document), into)).To(Succeed())
}

// evaluate returns the value of a CEL expression, or its error.
func (g *gates) evaluate(expression string, variables map[string]any) string {
	var options []cel.EnvOption
	for name := range variables {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	if variables["status"] == nil {
		options = append(options, cel.Variable("status", cel.DynType))
	}
	environment, err := cel.NewEnv(options...)
	g.Expect(err).NotTo(HaveOccurred())
	ast, issues := environment.Compile(expression)
	g.Expect(issues.Err()).NotTo(HaveOccurred())
	program, err := environment.Program(ast)
	g.Expect(err).NotTo(HaveOccurred())
	value, _, err := program.Eval(variables)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(value.Value())
}

// health returns what the health check of Argo CD says of a summary.
func (g *gates) health(summary map[string]any) string {
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", toLua(state, summary))
	g.Expect(state.DoString(g.lua)).To(Succeed())
	health, ok := state.Get(-1).(*lua.LTable)
	g.Expect(ok).To(BeTrue())
	return fmt.Sprintf("%s: %s", health.RawGetString("status"), health.RawGetString("message"))
}

// toLua returns a JSON value as a script of Argo CD gets it.
func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, item := range value {
			table.RawSetString(key, toLua(state, item))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range value {
			table.Append(toLua(state, item))
		}
		return table
	case string:
		return lua.LString(value)
	case float64:
		return lua.LNumber(value)
	case bool:
		return lua.LBool(value)
	default:
		return lua.LNil
	}
}

// say has the integration of the page get an alert.
func (g *gates) say(status string) {
	g.shell(`kubectl -n shop create -f - <<EOF
apiVersion: tocsin.dev/v1alpha1
kind: AlertEvent
metadata: {generateName: gate-}
spec:
  integrationName: monitoring
  alerts: '[{"status": "` + status + `", "dedupKey": "gate", "severity": "critical", "title": "Checkout fails"}]'
EOF`)
}

// deploy tries to give the Deployment of a namespace new pods, and returns what kubectl prints.
func (g *gates) deploy(namespace string) func() string {
	return func() string {
		return g.shell("kubectl -n " + namespace + " set image deployment/shop shop=example.com/shop:2 --dry-run=server 2>&1 || true")
	}
}

// summary returns the one of the namespace shop.
func (g *gates) summary() (summary map[string]any) {
	g.Expect(json.Unmarshal([]byte(g.shell("kubectl -n shop get incidentsummary current -o json")), &summary)).To(Succeed())
	return summary
}

// runGates opens and closes the gates of the page, on a cluster with the namespace shop and its integration.
func runGates(t *testing.T, kubeconfig, folder string) {
	t.Helper()
	g := newGates(t, func(script string) string { return runIn(t, kubeconfig, folder, script) })
	const wait, opened, denied = "20s", "image updated", "an Incident is open: see kubectl get incidentsummary current"
	for name, text := range map[string]string{"policy.yaml": g.policy, "current.yaml": g.manifest} {
		g.Expect(text).NotTo(BeEmpty(), name)
		g.Expect(os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)).To(Succeed())
	}
	g.shell(`kubectl apply -f policy.yaml
kubectl create namespace bare
for namespace in shop bare; do
  kubectl -n $namespace create deployment shop --image=example.com/shop:1
  kubectl -n $namespace label deployment/shop gate=tocsin
done`)
	defer g.shell("kubectl delete -f policy.yaml\nkubectl delete namespace bare\nkubectl -n shop delete deployment/shop\n" +
		"kubectl -n shop delete incidents --all")
	open := g.summary()

	g.say("firing")
	g.shell("kubectl -n shop wait --for=condition=Clear=False incidentsummary/current --timeout=20s")
	g.Eventually(g.deploy("shop"), wait, "200ms").Should(ContainSubstring(denied))
	g.Expect(g.deploy("bare")()).To(ContainSubstring(opened), "it has no summary")
	closed := g.summary()
	g.shell("kubectl -n shop scale deployment/shop --replicas=3 && kubectl -n shop annotate deployment/shop note=x")
	g.shell("kubectl -n shop label deployment/shop gate-\nkubectl -n shop set image deployment/shop shop=example.com/shop:fixed\n" +
		"kubectl -n shop label deployment/shop gate=tocsin")
	g.Expect(g.deploy("shop")()).To(ContainSubstring(denied))

	g.shell("kubectl -n shop apply --server-side --force-conflicts -f current.yaml") // as Argo CD does
	g.say("resolved")
	g.shell("kubectl -n shop wait --for=condition=Clear incidentsummary/current --timeout=20s")
	g.Eventually(g.deploy("shop"), wait, "200ms").Should(ContainSubstring(opened))
	g.shell("kubectl patch validatingadmissionpolicybinding tocsin-gate --type=merge " +
		`-p '{"spec":{"paramRef":{"parameterNotFoundAction":"Deny"}}}'`)
	g.Eventually(g.deploy("bare"), wait, "200ms").Should(ContainSubstring("no params found"))
	g.Expect(g.shell("kubectl -n bare label deployment/shop gate- 2>&1 || true")).To(ContainSubstring("denied request"))
	g.Expect(g.deploy("shop")()).To(ContainSubstring(opened))

	const uncounted = "Progressing: The Incidents are not counted yet."
	for _, test := range []struct {
		what                    string
		summary                 map[string]any
		policy, current, failed string
		health                  string
	}{
		{"clear", open, "true", "true", "false", "Healthy: No Incident is Open."},
		{"not clear", closed, "false", "false", "true", "Progressing: Open: 1 critical."},
		{"without conditions", map[string]any{"status": map[string]any{}},
			"false", "no such key: conditions", "no such key: conditions", uncounted},
		{"without a status", map[string]any{},
			"false", "no such attribute(s): status", "no such attribute(s): status", uncounted},
	} {
		g.Expect(g.evaluate(g.expression, map[string]any{"params": test.summary})).To(Equal(test.policy), test.what)
		g.Expect(g.evaluate(g.current, test.summary)).To(Equal(test.current), test.what)
		g.Expect(g.evaluate(g.failed, test.summary)).To(Equal(test.failed), test.what)
		g.Expect(g.health(test.summary)).To(Equal(test.health), test.what)
	}
}
