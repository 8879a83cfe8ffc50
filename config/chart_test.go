package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// objectsOf reads a stream of objects, by kind, name and, for those of another than the installation's, namespace. Namespaces
// are left out: Helm makes its own.
func objectsOf(t *testing.T, stream, namespace string) map[string]any {
	t.Helper()
	g := NewWithT(t)
	objects := map[string]any{}
	for document := range strings.SplitSeq("\n"+stream, "\n---\n") {
		var object map[string]any
		g.Expect(yaml.Unmarshal([]byte(document), &object)).To(Succeed())
		if object == nil || object["kind"] == "Namespace" {
			continue
		}
		kind, _ := object["kind"].(string)
		metadata, _ := object["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		if apiVersion, _ := object["apiVersion"].(string); strings.HasPrefix(apiVersion, "flowcontrol.") ||
			strings.HasPrefix(apiVersion, "admissionregistration.") {
			delete(metadata, "namespace") // kustomize does not know that these have none; kubectl and Helm do
		}
		if in, is := metadata["namespace"].(string); is && in != namespace {
			name = in + "/" + name
		}
		g.Expect(objects).NotTo(HaveKey(kind + " " + name))
		objects[kind+" "+name] = object
	}
	return objects
}

// chart is the folder of the chart.
func chart() string { return filepath.Join(testenv.Root(), "dist", "chart") }

// tryHelm runs Helm and returns what it prints.
func tryHelm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program := filepath.Join(testenv.Root(), "bin", "tools", "helm")
	if _, err := os.Stat(program); err != nil {
		testenv.SkipOrFail(t, "there is no helm, which make test-all builds: %v", err)
	}
	command := exec.CommandContext(t.Context(), program, args...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// helmTemplate renders the chart without its test.
func helmTemplate(t *testing.T, namespace string, args ...string) map[string]any {
	t.Helper()
	output, err := tryHelm(t, append([]string{"template", "tocsin", chart(), "--skip-tests", "--namespace", namespace}, args...)...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), output)
	return objectsOf(t, output, namespace)
}

// decodeConfig replaces the file in the ConfigMap of the component alertmanager by its content, which may be written in
// several ways.
func decodeConfig(t *testing.T, objects map[string]any) {
	t.Helper()
	configMap, ok := objects["ConfigMap tocsin-alertmanager"].(map[string]any)
	if !ok {
		return
	}
	files, _ := configMap["data"].(map[string]any)
	text, _ := files["alertmanager.yaml"].(string)
	var content map[string]any
	NewWithT(t).Expect(yaml.Unmarshal([]byte(text), &content)).To(Succeed())
	NewWithT(t).Expect(content).NotTo(BeEmpty())
	files["alertmanager.yaml"] = content
}

// kustomized builds what a user would with components.
func kustomized(t *testing.T, namespace string, components ...string) map[string]any {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(testenv.Assets(), "kubectl"), "kustomize", overlay(t, namespace, components...))
	output, err := command.Output()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return objectsOf(t, string(output), namespace)
}

// keepAnnotation has Helm keep an object when the release is uninstalled.
const keepAnnotation = "helm.sh/resource-policy"

func TestChartEqualsKustomize(t *testing.T) {
	const elsewhere = "elsewhere"
	for sentence, test := range map[string]struct {
		namespace  string
		components []string
		values     string
	}{
		"the defaults are config/default":    {systemNamespace, nil, "replicas=2"},
		"also in another namespace":          {elsewhere, nil, "replicas=2"},
		"each component has a value":         {systemNamespace, []string{"archive", "page", "network-policy", "flow-control", "admission-policy", "priority-class", "prometheus", "grafana", "alive"}, archiveURL + ",page.enabled=true,alive.enabled=true,networkPolicy.enabled=true,flowControl.enabled=true,admissionPolicy.enabled=true,priorityClass.enabled=true,serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true"},
		"also those for senders outside":     {systemNamespace, []string{"ingress", "gateway", "envoy-gateway"}, "ingress.enabled=true,gateway.enabled=true,gateway.envoyProxy=true"},
		"alertmanager":                       {systemNamespace, []string{"alertmanager"}, "alertmanagerConfig.alertmanagers[0].url=http://alertmanager-operated.monitoring.svc:9093"},
		"tls-cert-manager":                   {systemNamespace, []string{"ingress", "prometheus", "alive", "tls-cert-manager"}, "alive.enabled=true,ingress.enabled=true,serviceMonitor.enabled=true,prometheusRule.enabled=true,tls.enabled=true"},
		"single-namespace":                   {elsewhere, []string{"prometheus", "single-namespace"}, "serviceMonitor.enabled=true,prometheusRule.enabled=true,watchNamespaces={elsewhere},metrics.secure=false,crds.enabled=false"},
		"components, also in another":        {elsewhere, []string{"archive", "flow-control", "admission-policy"}, archiveURL + ",flowControl.enabled=true,admissionPolicy.enabled=true"},
		"single-namespace with certificates": {systemNamespace, []string{"archive", "prometheus", "single-namespace", "tls-cert-manager"}, archiveURL + ",serviceMonitor.enabled=true,prometheusRule.enabled=true,watchNamespaces={tocsin-system},metrics.secure=false,crds.enabled=false,tls.enabled=true"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			rendered, built := helmTemplate(t, test.namespace, "--set", test.values), kustomized(t, test.namespace, test.components...)
			decodeConfig(t, rendered)
			decodeConfig(t, built)
			expandVariables(built, test.namespace)
			g.Expect(rendered).To(HaveLen(len(built)))
			for name, object := range built {
				if strings.HasPrefix(name, "CustomResourceDefinition ") {
					g.Expect(rendered).To(HaveKey(name))
					metadata := field(rendered[name], "metadata", "annotations").(map[string]any)
					g.Expect(metadata).To(HaveKeyWithValue(keepAnnotation, "keep"), "uninstalling must not delete Incidents")
					delete(metadata, keepAnnotation)
				}
				g.Expect(rendered[name]).To(Equal(object), name)
			}
		})
	}
}

// expandVariables replaces the variables by which components give a Deployment its namespace and the URL of the archive by their
// values, which the chart writes.
func expandVariables(objects map[string]any, namespace string) {
	values := map[string]any{"POD_NAMESPACE": namespace}
	if settings := objects["ConfigMap tocsin-archive"]; settings != nil {
		values["TOCSIN_ARCHIVE"] = field(settings, "data", "url")
		delete(objects, "ConfigMap tocsin-archive")
	}
	for _, name := range []string{theDeployment, theArchiver} {
		if objects[name] == nil {
			continue
		}
		container := field(objects[name], "spec", "template", "spec", "containers").([]any)[0].(map[string]any)
		args := container["args"].([]any)
		for variable, value := range values {
			for i := range args {
				args[i] = strings.ReplaceAll(args[i].(string), "$("+variable+")", value.(string))
			}
		}
		delete(container, "env") // it has no other variable
	}
}

// field returns a field of an object.
func field(object any, path ...string) any {
	for _, name := range path {
		object = object.(map[string]any)[name]
	}
	return object
}
