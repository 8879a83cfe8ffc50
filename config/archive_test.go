package config

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/bucket"
)

// archiverRules are all permissions of the archiver, beside those for its metrics.
var archiverRules = []string{
	"tocsin.dev/incidents/*/get", "tocsin.dev/incidents/*/list", "tocsin.dev/incidents/*/watch", "tocsin.dev/incidents/status/*/patch",
	"coordination.k8s.io/leases/archiver.tocsin.dev/get", "coordination.k8s.io/leases/archiver.tocsin.dev/update",
	"coordination.k8s.io/leases/*/create", "/events/*/create", "/events/*/patch",
}

// archiverMetricsRules authenticate and authorize the readers of its metrics, which needs permissions of the whole cluster.
var archiverMetricsRules = []string{
	"authentication.k8s.io/tokenreviews/*/create", "authorization.k8s.io/subjectaccessreviews/*/create",
}

func (c *cluster) checkArchive(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	manager := c.deployment(t, namespace).Spec.Template.Spec
	g.Expect(manager.Containers[0].Args).To(ContainElement("--archive-required"))
	g.Expect(asYAML(t, manager)).NotTo(MatchRegexp(`--archive=|TOCSIN_ARCHIVE|tocsin-archive|envFrom`), "the manager has neither the URL nor the credentials")
	g.Expect(manager.ServiceAccountName).To(Equal("tocsin"))

	pod := c.archiver(t, namespace).Spec.Template.Spec
	archiver := pod.Containers[0]
	g.Expect(pod.ServiceAccountName).To(Equal("tocsin-archiver"))
	g.Expect(pod.SecurityContext).To(Equal(manager.SecurityContext))
	g.Expect(archiver.SecurityContext).To(Equal(manager.Containers[0].SecurityContext))
	g.Expect(archiver.LivenessProbe).To(Equal(manager.Containers[0].LivenessProbe))
	g.Expect(archiver.ReadinessProbe.HTTPGet).To(Equal(manager.Containers[0].ReadinessProbe.HTTPGet))
	g.Expect(archiver.Resources.Limits).To(HaveKey(corev1.ResourceMemory))
	g.Expect(archiver.Args).To(ContainElements("--leader-elect", "--archive=$(TOCSIN_ARCHIVE)"))
	g.Expect(archiver.Env).To(ContainElement(And(HaveField("Name", "TOCSIN_ARCHIVE"),
		HaveField("ValueFrom.ConfigMapKeyRef.Name", "tocsin-archive"))))
	g.Expect(archiver.EnvFrom).To(ConsistOf(HaveField("SecretRef.Name", "tocsin-archive-credentials")))
	var settings corev1.ConfigMap
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin-archive"}, &settings)).To(Succeed())
	g.Expect(bucket.Check(settings.Data["url"])).To(Succeed())

	var services [2]corev1.Service
	for i, name := range []string{"tocsin-metrics", "tocsin-archiver-metrics"} {
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &services[i])).To(Succeed())
		services[i].Spec.Ports[0].NodePort = 0
	}
	g.Expect(services[1].Labels).To(Equal(services[0].Labels), "Prometheus finds both")
	g.Expect(services[1].Spec.Ports).To(Equal(services[0].Spec.Ports))
	c.checkSelectors(t, namespace)

	expected := archiverRules
	if namespace == systemNamespace {
		expected = append(archiverMetricsRules, expected...)
	}
	g.Expect(spelledOut(c.rulesOf(t, namespace, "tocsin-archiver"))).To(ConsistOf(expected))
}

// testArchiver runs the manager and the archiver with the rights that the manifests give them: they suffice.
func (c *cluster) testArchiver(t *testing.T) {
	g := NewWithT(t)
	const namespace = "archiver"
	c.apply(t, overlay(t, systemNamespace, "archive"))
	c.kubectl(t, "create", "namespace", namespace)
	folder := t.TempDir()
	manager := c.startManager(t, filepath.Join(folder, "manager.log"), systemNamespace, "--archive-required")
	token := testenv.Token(namespace, "test")
	g.Expect(c.Create(t.Context(), &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"},
		Spec:       v1alpha1.WebhookIntegrationSpec{Tokens: testenv.Tokens(namespace, "test")},
	})).To(Succeed())
	for _, body := range []string{`{"dedup_key":"a"}`, `{"dedup_key":"a","status":"resolved"}`} {
		g.Eventually(post).WithArguments(t.Context(), manager.WebhookURL+token, body).
			WithTimeout(asLongAsItTakes).Should(Equal(http.StatusAccepted))
	}
	var incident v1alpha1.Incident
	archived := func() (*v1alpha1.ArchiveStatus, error) {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.IncidentName("test", "a")}, &incident)
		return incident.Status.Archive, client.IgnoreNotFound(err)
	}
	g.Eventually(archived, asLongAsItTakes, "50ms").Should(HaveValue(HaveField("State", v1alpha1.ArchiveWaiting)))

	addresses, err := testenv.FreeAddresses(2)
	g.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(folder, "archiver.log")
	log, err := os.Create(path)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(log.Close()).To(Succeed()) }()
	bucketFolder := filepath.Join(folder, "bucket")
	g.Expect(os.Mkdir(bucketFolder, 0o700)).To(Succeed())
	archiver := testenv.NewProcess(log, "env", "KUBECONFIG="+c.accountKubeconfig(t, systemNamespace, "tocsin-archiver"),
		c.program(t, "archiver", "./cmd/tocsin-archiver"), "--archive=file://"+bucketFolder, "--leader-elect",
		"--leader-election-namespace="+systemNamespace, "--metrics-bind-address="+addresses[0], "--health-probe-bind-address="+addresses[1])
	g.Expect(archiver.Start()).To(Succeed())
	t.Cleanup(archiver.Kill)
	g.Eventually(archived, asLongAsItTakes, "50ms").Should(HaveValue(And(HaveField("State", v1alpha1.ArchiveComplete), HaveField("Episode", BeEquivalentTo(1)))))
	g.Expect(filepath.Glob(filepath.Join(bucketFolder, "v1", "*", "*.ndjson.gz"))).To(HaveLen(1))
	c.get(t, "archiver.tocsin.dev", &coordinationv1.Lease{})
	g.Eventually(scrape).WithArguments(t.Context(), "https://"+addresses[0]+"/metrics", c.accountToken(t, managerNamespace, "prometheus")).
		WithTimeout(asLongAsItTakes).Should(ContainSubstring("\ntocsin_archive_"))
	g.Expect(scrape(t.Context(), "https://"+addresses[0]+"/metrics", c.accountToken(t, managerNamespace, "stranger"))).To(HavePrefix("403"))
	for _, url := range []string{"/healthz", "/readyz"} {
		g.Expect(scrape(t.Context(), "http://"+addresses[1]+url, "")).To(HavePrefix("200"))
	}

	g.Expect(archiver.Stop()).To(Succeed())
	g.Expect(manager.Stop()).To(Succeed())
	for _, path := range []string{path, filepath.Join(folder, "manager.log")} {
		output, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(output)).NotTo(MatchRegexp("(?i)forbidden"))
	}
}

// checkSelectors checks that each object selects the pods of one program.
func (c *cluster) checkSelectors(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	selectors := map[string]*metav1.LabelSelector{}
	var deployments appsv1.DeploymentList
	var services corev1.ServiceList
	var budgets policyv1.PodDisruptionBudgetList
	var policies networkingv1.NetworkPolicyList
	for _, list := range []client.ObjectList{&deployments, &services, &budgets, &policies} {
		g.Expect(c.List(t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	}
	for i := range deployments.Items {
		selectors["Deployment "+deployments.Items[i].Name] = deployments.Items[i].Spec.Selector
	}
	for i := range services.Items {
		selectors["Service "+services.Items[i].Name] = &metav1.LabelSelector{MatchLabels: services.Items[i].Spec.Selector}
	}
	for i := range budgets.Items {
		selectors["PodDisruptionBudget "+budgets.Items[i].Name] = budgets.Items[i].Spec.Selector
	}
	for i := range policies.Items {
		selectors["NetworkPolicy "+policies.Items[i].Name] = &policies.Items[i].Spec.PodSelector
	}
	programs := []map[string]string{c.deployment(t, namespace).Spec.Template.Labels, c.archiver(t, namespace).Spec.Template.Labels,
		{"app.kubernetes.io/name": "tocsin", "app.kubernetes.io/component": "page"}}
	for name, selector := range selectors {
		matcher, err := metav1.LabelSelectorAsSelector(selector)
		g.Expect(err).NotTo(HaveOccurred())
		selected := 0
		for _, program := range programs {
			if matcher.Matches(labels.Set(program)) {
				selected++
			}
		}
		g.Expect(selected).To(Equal(1), name)
	}
}

// rulesOf returns the rules of all roles that are bound to a service account.
func (c *cluster) rulesOf(t *testing.T, namespace, account string) (rules []rbacv1.PolicyRule) {
	t.Helper()
	g := NewWithT(t)
	subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: account}
	var clusterBindings rbacv1.ClusterRoleBindingList
	var bindings rbacv1.RoleBindingList
	g.Expect(c.List(t.Context(), &clusterBindings)).To(Succeed())
	g.Expect(c.List(t.Context(), &bindings)).To(Succeed())
	for i := range clusterBindings.Items {
		bindings.Items = append(bindings.Items, rbacv1.RoleBinding{
			Subjects: clusterBindings.Items[i].Subjects, RoleRef: clusterBindings.Items[i].RoleRef,
		})
	}
	for i := range bindings.Items {
		for _, bound := range bindings.Items[i].Subjects {
			if bound != subject {
				continue
			}
			var role rbacv1.Role
			var clusterRole rbacv1.ClusterRole
			if name := bindings.Items[i].RoleRef.Name; bindings.Items[i].RoleRef.Kind == "Role" {
				g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: bindings.Items[i].Namespace, Name: name}, &role)).To(Succeed())
			} else {
				g.Expect(c.Get(t.Context(), client.ObjectKey{Name: name}, &clusterRole)).To(Succeed())
			}
			rules = append(append(rules, role.Rules...), clusterRole.Rules...)
		}
	}
	return rules
}

// checkArchiverWithOthers checks what the other components give the archiver.
func (c *cluster) checkArchiverWithOthers(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	manager, deployment := c.deployment(t, namespace).Spec.Template.Spec, c.archiver(t, namespace)
	archiver := deployment.Spec.Template.Spec
	g.Expect(archiver.PriorityClassName).To(Equal(manager.PriorityClassName))
	g.Expect(archiver.Containers[0].Args).To(ConsistOf("--leader-elect", "--archive=$(TOCSIN_ARCHIVE)",
		"--watch-namespaces=$(POD_NAMESPACE)", "--metrics-secure=false", "--metrics-cert-path="+mountPath(archiver, "tls")))
	g.Expect(archiver.Containers[0].Env).To(ContainElement(HaveField("Name", "POD_NAMESPACE")))
	g.Expect(archiver.Volumes).To(ConsistOf(HaveField("Secret.SecretName", "tocsin-tls")))
	var policy networkingv1.NetworkPolicy
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin-archiver"}, &policy)).To(Succeed())
	g.Expect(labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels).Matches(labels.Set(deployment.Spec.Template.Labels))).To(BeTrue())
	g.Expect(policy.Spec.Ingress).To(ConsistOf(And(HaveField("From", HaveLen(1)),
		HaveField("Ports", ConsistOf(HaveField("Port.StrVal", "metrics"))))))
	g.Expect(policy.Spec.Egress).To(ContainElement(And(HaveField("To", BeEmpty()),
		HaveField("Ports", ConsistOf(HaveField("Port.IntVal", BeEquivalentTo(443)))))), "the store")
}
