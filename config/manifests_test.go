// Package config tests the manifests against a real API server.
package config

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const systemNamespace = "tocsin-system"

// cluster is a control plane onto which config/default was applied.
type cluster struct {
	client.Client
	kubeconfig string
}

func TestManifests(t *testing.T) {
	c := startCluster(t)
	t.Run("config/default applies under strict validation, twice", func(t *testing.T) {
		c.kubectl(t, "apply", "--server-side", "--validate=strict", "-k", "default")
		c.kubectl(t, "apply", "--server-side", "--validate=strict", "-k", "default")
	})
	t.Run("the samples apply under strict validation", func(t *testing.T) {
		c.kubectl(t, "create", "namespace", "samples")
		c.kubectl(t, "-n", "samples", "apply", "--server-side", "--validate=strict", "-k", "samples")
		var integration v1alpha1.WebhookIntegration
		NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "samples", Name: "sample"}, &integration)).To(Succeed())
	})
	t.Run("the namespace enforces restricted pods", c.testNamespace)
	t.Run("the pods are restricted, probed, spread and given time to stop", c.testDeployment)
	t.Run("nodes are drained one replica at a time", c.testDisruptionBudget)
	t.Run("the service reaches the webhook port", c.testService)
	t.Run("nobody is allowed anything on Secrets, nor to change AlertEvents", c.testForbidden)
	t.Run("the operator is allowed what it needs and nothing else", c.testOperatorRules)
	t.Run("the manager works with what it is allowed", c.testManager)
	t.Run("the archiver works with what it is allowed", c.testArchiver)
	t.Run("viewers view, editors let senders in and remove incidents", c.testAggregatedRules)
	t.Run("one namespace is enough", c.testSingleNamespace)
	t.Run("several namespaces, as OLM installs Tocsin", c.testInstallModes)
	t.Run("components", c.testComponents)
	t.Run("Helm in one namespace", c.testHelmInNamespace)
	t.Run("Helm", c.testHelm) // the last: it removes what config/default has
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	g := NewWithT(t)
	environment := &envtest.Environment{BinaryAssetsDirectory: testenv.Assets()}
	config, err := environment.Start()
	t.Cleanup(func() { g.Expect(environment.Stop()).To(Succeed()) })
	g.Expect(err).NotTo(HaveOccurred(), `"make control-plane" gets etcd and kube-apiserver`)
	user, err := environment.AddUser(envtest.User{Name: "installer", Groups: []string{"system:masters"}}, config)
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := user.KubeConfig()
	g.Expect(err).NotTo(HaveOccurred())
	c := &cluster{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	g.Expect(os.WriteFile(c.kubeconfig, kubeconfig, 0o600)).To(Succeed())
	c.Client, err = client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

// kubectl runs kubectl in this folder and returns what it prints.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	output, err := c.tryKubectl(t, args...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), output)
	return output
}

func (c *cluster) tryKubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(testenv.Assets(), "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	output, err := command.CombinedOutput()
	return string(output), err
}

func (c *cluster) get(t *testing.T, name string, object client.Object) {
	t.Helper()
	key := client.ObjectKey{Namespace: systemNamespace, Name: name}
	if _, clusterScoped := object.(*rbacv1.ClusterRole); clusterScoped {
		key.Namespace = ""
	}
	NewWithT(t).Expect(c.Get(t.Context(), key, object)).To(Succeed())
}

func (c *cluster) testNamespace(t *testing.T) {
	var namespace corev1.Namespace
	g := NewWithT(t)
	g.Expect(c.Get(t.Context(), client.ObjectKey{Name: systemNamespace}, &namespace)).To(Succeed())
	g.Expect(namespace.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))
}

func (c *cluster) testDeployment(t *testing.T) {
	g := NewWithT(t)
	var deployment appsv1.Deployment
	c.get(t, "tocsin", &deployment)
	g.Expect(*deployment.Spec.Replicas).To(BeEquivalentTo(2))
	pod := deployment.Spec.Template.Spec
	g.Expect(*pod.TerminationGracePeriodSeconds).To(BeEquivalentTo(45))
	g.Expect(*pod.SecurityContext.RunAsNonRoot).To(BeTrue())
	g.Expect(pod.SecurityContext.SeccompProfile.Type).To(Equal(corev1.SeccompProfileTypeRuntimeDefault))
	g.Expect(pod.TopologySpreadConstraints).NotTo(BeEmpty())
	g.Expect(pod.Containers).To(HaveLen(1))
	container := pod.Containers[0]
	g.Expect(container.Args).To(ContainElement("--leader-elect"))
	g.Expect(*container.SecurityContext.AllowPrivilegeEscalation).To(BeFalse())
	g.Expect(*container.SecurityContext.ReadOnlyRootFilesystem).To(BeTrue())
	g.Expect(container.SecurityContext.Capabilities.Drop).To(ConsistOf(corev1.Capability("ALL")))
	g.Expect(container.ReadinessProbe.HTTPGet.Path).To(Equal("/readyz"))
	g.Expect(container.LivenessProbe.HTTPGet.Path).To(Equal("/healthz"))
	g.Expect(container.Resources.Requests).To(HaveKey(corev1.ResourceCPU))
	g.Expect(container.Resources.Limits).To(HaveKey(corev1.ResourceMemory))
	// What the pods of the Deployment are made from passes the namespace's own admission.
	created := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "restricted", Labels: deployment.Spec.Template.Labels},
		Spec:       pod,
	}
	g.Expect(c.Create(t.Context(), created, client.DryRunAll)).To(Succeed())
	privileged := true
	created.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = &privileged
	created.ResourceVersion = ""
	g.Expect(c.Create(t.Context(), created, client.DryRunAll)).To(MatchError(ContainSubstring("violates PodSecurity")))
}

func (c *cluster) testDisruptionBudget(t *testing.T) {
	var budget policyv1.PodDisruptionBudget
	c.get(t, "tocsin", &budget)
	g := NewWithT(t)
	g.Expect(budget.Spec.MinAvailable).To(BeNil(), "a single replica must not keep its node from being drained")
	g.Expect(budget.Spec.MaxUnavailable.IntValue()).To(Equal(1))
	g.Expect(*budget.Spec.UnhealthyPodEvictionPolicy).To(Equal(policyv1.AlwaysAllow))
}

func (c *cluster) testService(t *testing.T) {
	g := NewWithT(t)
	var deployment appsv1.Deployment
	c.get(t, "tocsin", &deployment)
	for name, port := range map[string]string{"tocsin-webhook": "webhook", "tocsin-metrics": "metrics"} {
		var service corev1.Service
		c.get(t, name, &service)
		g.Expect(service.Spec.Ports[0].TargetPort.StrVal).To(Equal(port))
		for label, value := range service.Spec.Selector {
			g.Expect(deployment.Spec.Template.Labels).To(HaveKeyWithValue(label, value))
		}
		g.Expect(deployment.Spec.Template.Spec.Containers[0].Ports).To(ContainElement(HaveField("Name", port)))
	}
}

// ourRules are the rules of all roles that the manifests bring, by the role's name.
func (c *cluster) ourRules(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	g := NewWithT(t)
	rules := map[string][]rbacv1.PolicyRule{}
	var clusterRoles rbacv1.ClusterRoleList
	g.Expect(c.List(context.Background(), &clusterRoles, client.MatchingLabels{"app.kubernetes.io/part-of": "tocsin"})).To(Succeed())
	for i := range clusterRoles.Items {
		rules[clusterRoles.Items[i].Name] = clusterRoles.Items[i].Rules
	}
	var roles rbacv1.RoleList
	g.Expect(c.List(context.Background(), &roles, client.MatchingLabels{"app.kubernetes.io/part-of": "tocsin"})).To(Succeed())
	for i := range roles.Items {
		rules[roles.Items[i].Name] = roles.Items[i].Rules
	}
	g.Expect(rules).NotTo(BeEmpty())
	return rules
}

func (c *cluster) testForbidden(t *testing.T) {
	g := NewWithT(t)
	for name, rules := range c.ourRules(t) {
		for _, rule := range rules {
			g.Expect(rule.Verbs).NotTo(ContainElement("*"), name)
			g.Expect(rule.Resources).NotTo(ContainElements(HavePrefix("secrets")), name)
			g.Expect(rule.Resources).NotTo(ContainElement("*"), name)
			if slices.Contains(rule.Resources, "alertevents") {
				g.Expect(rule.Verbs).NotTo(ContainElement(BeElementOf("update", "deletecollection")), name)
				g.Expect(slices.Contains(rule.Verbs, "patch")).To(Equal(name == "tocsin-manager"), "only the mark of one that is settled is patched")
			}
		}
	}
}

// granted spells rules out, a line a resource and verb.
func granted(rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, rule := range rules {
		for _, resource := range append(slices.Clone(rule.Resources), rule.NonResourceURLs...) {
			for _, verb := range rule.Verbs {
				lines = append(lines, strings.Join([]string{verb, resource}, " "))
			}
		}
	}
	return lines
}

func (c *cluster) testOperatorRules(t *testing.T) {
	NewWithT(t).Expect(granted(c.ourRules(t)["tocsin-manager"])).To(ConsistOf(
		"create alertevents", "get alertevents", "list alertevents", "watch alertevents", "delete alertevents", "patch alertevents",
		"create incidents", "get incidents", "list incidents", "watch incidents", "delete incidents", "patch incidents",
		"update incidents/status",
		"get webhookintegrations", "list webhookintegrations", "watch webhookintegrations", "patch webhookintegrations/status",
		"get maintenancewindows", "list maintenancewindows", "watch maintenancewindows", "patch maintenancewindows/status",
		"create heartbeats", "delete heartbeats", "get heartbeats", "list heartbeats", "watch heartbeats", "patch heartbeats/status",
		"create requestcaptures", "delete requestcaptures", "get requestcaptures", "list requestcaptures", "update requestcaptures",
		"create incidentsummaries", "delete incidentsummaries", "get incidentsummaries", "list incidentsummaries",
		"watch incidentsummaries", "patch incidentsummaries/status",
		"create events", "patch events",
	))
}

func (c *cluster) testAggregatedRules(t *testing.T) {
	g := NewWithT(t)
	g.Expect(granted(c.ourRules(t)["tocsin-viewer"])).To(ConsistOf(
		"get alertevents", "list alertevents", "watch alertevents",
		"get incidents", "list incidents", "watch incidents",
		"get webhookintegrations", "list webhookintegrations", "watch webhookintegrations",
		"get maintenancewindows", "list maintenancewindows", "watch maintenancewindows",
		"get heartbeats", "list heartbeats", "watch heartbeats",
		"get incidentsummaries", "list incidentsummaries", "watch incidentsummaries",
	))
	g.Expect(granted(c.ourRules(t)["tocsin-editor"])).To(ContainElements("get requestcaptures", "delete requestcaptures"))
	g.Expect(granted(c.ourRules(t)["tocsin-editor"])).NotTo(ContainElements("create requestcaptures", "update requestcaptures"))
	g.Expect(granted(c.ourRules(t)["tocsin-editor"])).NotTo(ContainElement(ContainSubstring("incidentsummaries")),
		"whoever edits a namespace cannot open its gate")
	var viewer, editor rbacv1.ClusterRole
	c.get(t, "tocsin-viewer", &viewer)
	c.get(t, "tocsin-editor", &editor)
	for _, role := range []string{"view", "edit", "admin"} {
		g.Expect(viewer.Labels).To(HaveKeyWithValue("rbac.authorization.k8s.io/aggregate-to-"+role, "true"))
	}
	for _, role := range []string{"edit", "admin"} {
		g.Expect(editor.Labels).To(HaveKeyWithValue("rbac.authorization.k8s.io/aggregate-to-"+role, "true"))
	}
	g.Expect(editor.Labels).NotTo(HaveKey("rbac.authorization.k8s.io/aggregate-to-view"))
}
