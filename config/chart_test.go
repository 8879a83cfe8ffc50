package config

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// objectsOf reads a stream of objects, by kind and name. Namespaces are left out: Helm makes its own.
func objectsOf(t *testing.T, stream string) map[string]any {
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
		objects[kind+" "+name] = object
	}
	return objects
}

// helmTemplate renders the chart.
func helmTemplate(t *testing.T, args ...string) map[string]any {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(testenv.Root(), "bin", "tools", "helm"),
		append([]string{"template", "tocsin", filepath.Join(testenv.Root(), "dist", "chart"), "--include-crds"}, args...)...)
	output, err := command.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), "\"make tools\" builds helm: %s", output)
	return objectsOf(t, string(output))
}

// kustomized builds what a user would with components.
func kustomized(t *testing.T, namespace string, components ...string) map[string]any {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(testenv.Assets(), "kubectl"), "kustomize", overlay(t, namespace, components...))
	output, err := command.Output()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return objectsOf(t, string(output))
}

func TestChart(t *testing.T) {
	for sentence, test := range map[string]struct {
		namespace  string
		components []string
		values     []string
	}{
		"it renders what config/default builds":     {systemNamespace, nil, nil},
		"also in another namespace":                 {"elsewhere", nil, nil},
		"with components, what kustomize adds":      {systemNamespace, []string{"network-policy", "flow-control", "admission-policy", "prometheus", "grafana"}, []string{"networkPolicy.enabled=true,flowControl.enabled=true,admissionPolicy.enabled=true,prometheus.enabled=true,grafana.enabled=true"}},
		"with components also in another namespace": {"elsewhere", []string{"flow-control", "admission-policy"}, []string{"flowControl.enabled=true,admissionPolicy.enabled=true"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			args := []string{"--namespace", test.namespace, "--set", "image.tag=dev"}
			for _, value := range test.values {
				args = append(args, "--set", value)
			}
			rendered, built := helmTemplate(t, args...), kustomized(t, test.namespace, test.components...)
			g := NewWithT(t)
			g.Expect(rendered).To(HaveLen(len(built)))
			for name, object := range built {
				g.Expect(rendered[name]).To(Equal(object), name)
			}
		})
	}
	t.Run("the image is that of the chart's version", func(t *testing.T) {
		g := NewWithT(t)
		deployment, err := yaml.Marshal(helmTemplate(t)["Deployment tocsin"])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(deployment)).To(ContainSubstring("image: tocsin:0.1.0\n"))
	})
	t.Run("its values go into the Deployment", func(t *testing.T) {
		g := NewWithT(t)
		deployment, err := yaml.Marshal(helmTemplate(t, "--set", "image.repository=example.com/t,image.tag=v9,replicas=3,goMemoryLimit=5MiB",
			"--set", "extraArgs={--tracing},extraEnv[0].name=A,extraEnv[0].value=B,resources.limits.memory=7Gi",
			"--set", "nodeSelector.disk=fast,tolerations[0].operator=Exists,imagePullSecrets[0].name=pull",
			"--set", "affinity.nodeAffinity.x=y,priorityClassName=high")["Deployment tocsin"])
		g.Expect(err).NotTo(HaveOccurred())
		for _, text := range []string{
			"image: example.com/t:v9", "replicas: 3", "value: 5MiB", "- --leader-elect\n", "- --tracing\n", "- name: A\n", "memory: 7Gi",
			"disk: fast", "operator: Exists", "- name: pull", "x: \"y\"", "priorityClassName: high",
		} {
			g.Expect(string(deployment)).To(ContainSubstring(text))
		}
	})
}
