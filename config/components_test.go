package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// component is one of components/ and what has to be true once it is applied.
type component struct {
	name  string
	needs []string // other components that it does nothing without
	check func(c *cluster, t *testing.T, namespace string)
}

// components are in the order in which they may all be listed.
var components = []component{
	{"ingress", nil, (*cluster).checkIngress},
	{"gateway", nil, (*cluster).checkGateway},
	{"envoy-gateway", []string{"gateway"}, (*cluster).checkEnvoyGateway},
	{"archive", nil, (*cluster).checkArchive},
	{"page", nil, (*cluster).checkPage},
	{"network-policy", nil, (*cluster).checkNetworkPolicy},
	{"flow-control", nil, (*cluster).checkFlowControl},
	{"admission-policy", nil, (*cluster).checkAdmissionPolicy},
	{"priority-class", nil, (*cluster).checkPriorityClass},
	{"prometheus", nil, (*cluster).checkPrometheus},
	{"grafana", nil, (*cluster).checkGrafana},
	{"alertmanager", nil, (*cluster).checkAlertmanager},
	{"alive", nil, (*cluster).checkAlive},
	{"single-namespace", nil, (*cluster).checkSingleNamespace},
	{"tls-cert-manager", nil, (*cluster).checkCertificate},
}

func TestEveryComponentIsTested(t *testing.T) {
	g := NewWithT(t)
	folders, err := os.ReadDir("components")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(folders).To(HaveLen(len(components)))
	for _, component := range components {
		g.Expect(filepath.Join("components", component.name)).To(BeADirectory())
	}
}

// TestEveryComponentHasAValueOfTheChart compares the table in docs/components.md with the chart's values.
func TestEveryComponentHasAValueOfTheChart(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(filepath.Join("..", "docs", "components.md"))
	g.Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(chart(), "values.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var values map[string]any
	g.Expect(yaml.Unmarshal(text, &values)).To(Succeed())
	for _, component := range components {
		row := regexp.MustCompile(`(?m)^\| \[` + component.name + `\]\(#.*\| ([^|]+) \|$`).FindStringSubmatch(string(page))
		g.Expect(row).NotTo(BeNil(), component.name)
		for name := range strings.SplitSeq(row[1], ", ") {
			path := strings.Split(strings.Trim(name, "`"), ".")
			_, found, err := unstructured.NestedFieldNoCopy(values, path...)
			g.Expect(err).NotTo(HaveOccurred(), name)
			g.Expect(found).To(BeTrue(), name)
		}
	}
}

// testComponents applies each component alone, all of them together in another namespace, and makes sure that
// what is wrong in one would not have passed.
func (c *cluster) testComponents(t *testing.T) {
	c.installForeignCRDs(t)
	for _, component := range components {
		t.Run(component.name+" alone", func(t *testing.T) {
			c.applyBesideCRDs(t, overlay(t, systemNamespace, append(component.needs, component.name)...))
			component.check(c, t, systemNamespace)
		})
	}
	t.Run("all together, in another namespace", func(t *testing.T) {
		const namespace = "everything"
		c.kubectl(t, "create", "namespace", namespace)
		names := make([]string, 0, len(components))
		for _, component := range components {
			names = append(names, component.name)
		}
		c.apply(t, overlay(t, namespace, names...))
		for _, component := range components {
			component.check(c, t, namespace)
		}
		c.checkArchiverWithOthers(t, namespace)
		monitor := c.foreign(t, "monitoring.coreos.com/v1", "ServiceMonitor", namespace)
		NewWithT(t).Expect(monitor).To(ContainSubstring(`"scheme":"https"`), "there is a certificate")
		NewWithT(t).Expect(monitor).NotTo(ContainSubstring("bearerTokenFile"), "nobody could verify the token")
	})
	t.Run("a field that does not exist is refused in each of the others' kinds", c.testStrictness)
}

// overlay writes a kustomization as a user would and returns its folder.
func overlay(t *testing.T, namespace string, names ...string) string {
	t.Helper()
	g := NewWithT(t)
	folder := t.TempDir()
	config, err := filepath.Rel(folder, filepath.Join(testenv.Root(), "config"))
	g.Expect(err).NotTo(HaveOccurred())
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: %s\n"+
		"resources:\n  - %s/default\ncomponents:\n", namespace, config)
	for _, name := range names {
		text += fmt.Sprintf("  - %s/components/%s\n", config, name)
	}
	g.Expect(os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
	return folder
}

func (c *cluster) apply(t *testing.T, folder string) {
	t.Helper()
	c.kubectl(t, "apply", "--server-side", "--validate=strict", "-k", folder)
}

// applyBesideCRDs applies all but the CustomResourceDefinitions, which no component changes: they are most of the text, and there
// already.
func (c *cluster) applyBesideCRDs(t *testing.T, folder string) {
	t.Helper()
	documents := strings.Split(c.kubectl(t, "kustomize", folder), "\n---\n")
	documents = slices.DeleteFunc(documents, func(document string) bool {
		return strings.Contains(document, "\nkind: CustomResourceDefinition\n")
	})
	path := filepath.Join(t.TempDir(), "objects.yaml")
	NewWithT(t).Expect(os.WriteFile(path, []byte(strings.Join(documents, "\n---\n")), 0o600)).To(Succeed())
	c.kubectl(t, "apply", "--server-side", "--validate=strict", "-f", path)
}

// foreign is an object named tocsin of somebody else's kind, as JSON.
func (c *cluster) foreign(t *testing.T, apiVersion, kind, namespace string) string {
	t.Helper()
	g := NewWithT(t)
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin"}, object)).To(Succeed())
	object.SetManagedFields(nil)
	encoded, err := json.Marshal(object)
	g.Expect(err).NotTo(HaveOccurred())
	return string(encoded)
}

// deployment returns the manager's.
func (c *cluster) deployment(t *testing.T, namespace string) *appsv1.Deployment {
	t.Helper()
	var deployment appsv1.Deployment
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin"}, &deployment)).To(Succeed())
	return &deployment
}

func (c *cluster) archiver(t *testing.T, namespace string) *appsv1.Deployment {
	t.Helper()
	var deployment appsv1.Deployment
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin-archiver"}, &deployment)).To(Succeed())
	return &deployment
}

func (c *cluster) checkIngress(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	var ingress networkingv1.Ingress
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin"}, &ingress)).To(Succeed())
	path := ingress.Spec.Rules[0].HTTP.Paths[0]
	g.Expect(path.Path).To(Equal("/api/v1/events/webhook"))
	var service corev1.Service
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: path.Backend.Service.Name}, &service)).To(Succeed())
	g.Expect(service.Spec.Ports).To(ContainElement(HaveField("Name", path.Backend.Service.Port.Name)))
	g.Expect(ingress.Annotations).To(HaveKeyWithValue("nginx.ingress.kubernetes.io/enable-access-log", "false"))
	g.Expect(ingress.Annotations).To(HaveKeyWithValue("traefik.ingress.kubernetes.io/router.observability.accesslogs", "false"))
}

func (c *cluster) checkGateway(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	route := c.foreign(t, "gateway.networking.k8s.io/v1", "HTTPRoute", namespace)
	g.Expect(route).To(ContainSubstring(`"value":"/api/v1/events/webhook"`))
	var service corev1.Service
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin-webhook"}, &service)).To(Succeed())
	g.Expect(route).To(ContainSubstring(`"name":"tocsin-webhook","port":%d`, service.Spec.Ports[0].Port))
	gateway := c.foreign(t, "gateway.networking.k8s.io/v1", "Gateway", namespace)
	g.Expect(gateway).To(ContainSubstring(`"protocol":"HTTPS"`))
}

func (c *cluster) checkEnvoyGateway(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	gateway := c.foreign(t, "gateway.networking.k8s.io/v1", "Gateway", namespace)
	g.Expect(gateway).To(ContainSubstring(`"parametersRef":{"group":"gateway.envoyproxy.io","kind":"EnvoyProxy","name":"tocsin"}`))
	var proxy struct {
		Spec struct {
			Telemetry struct{ AccessLog json.RawMessage }
		}
	}
	g.Expect(json.Unmarshal([]byte(c.foreign(t, "gateway.envoyproxy.io/v1alpha1", "EnvoyProxy", namespace)), &proxy)).To(Succeed())
	log := string(proxy.Spec.Telemetry.AccessLog)
	g.Expect(log).To(ContainSubstring("%RESPONSE_CODE%"), "Envoy Gateway's own format, which has the path, is not in use")
	g.Expect(strings.ToLower(log)).NotTo(MatchRegexp(`:path|original-path|%path|authorization|referer`), "the token is there")
}

func (c *cluster) checkNetworkPolicy(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	var policy networkingv1.NetworkPolicy
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin"}, &policy)).To(Succeed())
	template := c.deployment(t, namespace).Spec.Template
	selector := labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels)
	g.Expect(selector.Matches(labels.Set(template.Labels))).To(BeTrue())
	open := map[string]int{} // of each port, how many kinds of peers it is open to, 0 for all
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			g.Expect(template.Spec.Containers[0].Ports).To(ContainElement(HaveField("Name", port.Port.StrVal)))
			open[port.Port.StrVal] = len(rule.From)
		}
	}
	g.Expect(open).To(Equal(map[string]int{"webhook": 0, "metrics": 1}))
}

func (c *cluster) checkFlowControl(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	for _, name := range []string{"tocsin-leader-election", "tocsin-ingest", "tocsin-fold", "tocsin-summary"} {
		var flow flowcontrolv1.FlowSchema
		g.Expect(c.Get(t.Context(), client.ObjectKey{Name: name}, &flow)).To(Succeed())
		for _, rule := range flow.Spec.Rules {
			for _, subject := range rule.Subjects {
				var account corev1.ServiceAccount
				key := client.ObjectKey{Namespace: subject.ServiceAccount.Namespace, Name: subject.ServiceAccount.Name}
				g.Expect(c.Get(t.Context(), key, &account)).To(Succeed(), "flow schema %s is about a service account that exists", name)
				g.Expect(key).To(Equal(client.ObjectKey{Namespace: namespace, Name: "tocsin"}), "the archiver's requests are not urgent")
			}
		}
	}
}

func (c *cluster) checkPriorityClass(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	var class schedulingv1.PriorityClass
	g.Expect(c.Get(t.Context(), client.ObjectKey{Name: c.deployment(t, namespace).Spec.Template.Spec.PriorityClassName}, &class)).To(Succeed())
	g.Expect(class.GlobalDefault).To(BeFalse())
	g.Expect(class.Value).To(BeNumerically("<=", 1_000_000_000), "what is above is the system's")
}

func (c *cluster) checkPrometheus(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	var monitor struct {
		Spec struct {
			Endpoints []struct {
				Port string
			}
			Selector struct{ MatchLabels map[string]string }
		}
	}
	g.Expect(json.Unmarshal([]byte(c.foreign(t, "monitoring.coreos.com/v1", "ServiceMonitor", namespace)), &monitor)).To(Succeed())
	var services corev1.ServiceList
	g.Expect(c.List(t.Context(), &services, client.InNamespace(namespace), client.MatchingLabels(monitor.Spec.Selector.MatchLabels))).To(Succeed())
	g.Expect(services.Items).To(ContainElement(HaveField("Name", "tocsin-metrics")))
	g.Expect(services.Items).To(HaveEach(HaveField("Spec.Ports", ConsistOf(HaveField("Name", monitor.Spec.Endpoints[0].Port)))))
	g.Expect(c.foreign(t, "monitoring.coreos.com/v1", "PrometheusRule", namespace)).To(ContainSubstring("TocsinNoLeader"))
}

func (c *cluster) checkGrafana(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	var stored corev1.ConfigMap
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin-dashboard"}, &stored)).To(Succeed())
	g.Expect(stored.Labels).To(HaveKeyWithValue("grafana_dashboard", "1"))
	g.Expect(json.Valid([]byte(stored.Data["tocsin.json"]))).To(BeTrue())
}

func (c *cluster) checkAlertmanager(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	pod := c.deployment(t, namespace).Spec.Template.Spec
	g.Expect(pod.Volumes).To(ContainElement(HaveField("Name", "alertmanager")))
	g.Expect(pod.Containers[0].Args).To(ContainElement("--alertmanager-config=" + mountPath(pod, "alertmanager") + "/alertmanager.yaml"))
	var file corev1.ConfigMap
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tocsin-alertmanager"}, &file)).To(Succeed())
	g.Expect(file.Data).To(HaveKeyWithValue("alertmanager.yaml", ContainSubstring("url: http://alertmanager-operated.monitoring.svc:9093")))
}

// mountPath returns where the manager has a volume.
func mountPath(pod corev1.PodSpec, volume string) string {
	for _, mount := range pod.Containers[0].VolumeMounts {
		if mount.Name == volume {
			return mount.MountPath
		}
	}
	return ""
}

func (c *cluster) checkCertificate(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	certificate := c.foreign(t, "cert-manager.io/v1", "Certificate", namespace)
	pod := c.deployment(t, namespace).Spec.Template.Spec
	g.Expect(pod.Volumes).To(ContainElement(And(HaveField("Name", "tls"),
		HaveField("Secret", HaveField("SecretName", "tocsin-tls")))))
	g.Expect(certificate).To(ContainSubstring(`"secretName":"tocsin-tls"`))
	g.Expect(certificate).To(ContainSubstring(`"issuerRef":{"group":"cert-manager.io","kind":"Issuer","name":"tocsin"}`))
	c.foreign(t, "cert-manager.io/v1", "Issuer", namespace)
	g.Expect(pod.SecurityContext.FSGroup).To(Equal(pod.SecurityContext.RunAsGroup), "the manager can read the files")
	path := mountPath(pod, "tls")
	g.Expect(pod.Containers[0].Args).To(ContainElements("--webhook-tls-cert-path="+path, "--metrics-cert-path="+path))
	var services corev1.ServiceList
	g.Expect(c.List(t.Context(), &services, client.InNamespace(namespace))).To(Succeed())
	for _, service := range services.Items {
		if service.Name == "tocsin-page" {
			continue // a proxy passes requests to it
		}
		g.Expect(*service.Spec.Ports[0].AppProtocol).To(Equal("https"), service.Name)
		g.Expect(certificate).To(ContainSubstring("%q", service.Name))
	}
}

// testStrictness puts a field that does not exist into each object of somebody else's kind: if the API server
// let it pass, it would let anything pass.
func (c *cluster) testStrictness(t *testing.T) {
	g := NewWithT(t)
	output := c.kubectl(t, "kustomize", overlay(t, systemNamespace, "gateway", "envoy-gateway", "prometheus", "tls-cert-manager"))
	refused := map[string]bool{}
	for document := range strings.SplitSeq(output, "\n---\n") {
		var object map[string]any
		g.Expect(yaml.Unmarshal([]byte(document), &object)).To(Succeed())
		group, _, _ := strings.Cut(object["apiVersion"].(string), "/")
		spec, ok := object["spec"].(map[string]any)
		if !ok || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") && group != "gateway.networking.k8s.io" {
			continue
		}
		spec["notAField"] = true
		encoded, err := yaml.Marshal(object)
		g.Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(t.TempDir(), "object.yaml")
		g.Expect(os.WriteFile(file, encoded, 0o600)).To(Succeed())
		message, err := c.tryKubectl(t, "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", file)
		kind, _ := object["kind"].(string)
		g.Expect(err).To(HaveOccurred(), kind)
		g.Expect(message).To(ContainSubstring(".spec.notAField"), kind)
		refused[kind] = true
	}
	for _, kind := range []string{
		"Gateway", "HTTPRoute", "EnvoyProxy", "ServiceMonitor", "PrometheusRule", "Certificate", "Issuer",
	} {
		g.Expect(refused).To(HaveKey(kind))
	}
}
