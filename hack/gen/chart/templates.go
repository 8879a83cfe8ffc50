package main

import (
	"fmt"
	"strings"

	"github.com/tocsin-dev/tocsin/hack/gen/kustomize"
)

// namespace is the one of config/default.
const namespace = "tocsin-system"

// handWritten are the kinds whose templates are written by hand, because values change them. So is the ConfigMap tocsin-archive:
// the chart has its URL as a value.
var handWritten = map[string]bool{
	"Deployment": true, "Service": true, "ServiceAccount": true, "ServiceMonitor": true,
	"RoleBinding": true, "ClusterRoleBinding": true, "Namespace": true, "Gateway": true, "HTTPRoute": true,
}

// switches are the values that switch the objects of a component on, by kind.
var switches = map[string]string{
	"CustomResourceDefinition":         ".Values.crds.enabled",
	"EnvoyProxy":                       "and .Values.gateway.enabled .Values.gateway.envoyProxy",
	"FlowSchema":                       ".Values.flowControl.enabled",
	"PriorityLevelConfiguration":       ".Values.flowControl.enabled",
	"ValidatingAdmissionPolicy":        ".Values.admissionPolicy.enabled",
	"ValidatingAdmissionPolicyBinding": ".Values.admissionPolicy.enabled",
}

// addObjects adds what the chart takes over from kustomize: whole objects as templates, and the parts that are long as
// named templates and files, which the hand-written templates include.
func addObjects(files map[string]string, objects []kustomize.Object) {
	for _, o := range objects {
		switch {
		case handWritten[o.Kind], o.Name == "tocsin-archive", o.Content["apiVersion"] == "tocsin.dev/v1alpha1": // the last are samples
		case o.Kind == "Role" || o.Kind == "ClusterRole":
			_, rules, _ := strings.Cut(o.Text, "\nrules:\n")
			name := strings.TrimPrefix(o.Name, "tocsin-")
			files["templates/_rules.tpl"] += fmt.Sprintf("{{- define \"tocsin.rules.%s\" -}}\n%s{{- end }}\n", name, rules)
		case o.Kind == "PrometheusRule":
			_, spec, _ := strings.Cut(o.Text, "\nspec:\n")
			files["files/rules.yaml"] = strings.ReplaceAll(strings.TrimPrefix(spec, "  "), "\n  ", "\n")
		case o.Kind == "ConfigMap":
			dashboard, _ := o.Content["data"].(map[string]any)
			for name, text := range dashboard {
				files["files/"+name] = fmt.Sprint(text)
			}
		default:
			files[fileOf(o)] += template(o)
		}
	}
}

// fileOf returns where an object goes in the chart.
func fileOf(o kustomize.Object) string {
	if o.Kind == "CustomResourceDefinition" {
		return "templates/crds/" + o.Name + ".yaml"
	}
	return "templates/" + strings.ToLower(o.Kind) + ".yaml"
}

// template makes a template of an object: existing braces are quoted, the namespace is the release's, and a switch
// decides whether it is rendered. Helm never deletes a CustomResourceDefinition, and with it all Incidents.
func template(o kustomize.Object) string {
	text := strings.ReplaceAll(o.Text, "{{", `{{ "{{" }}`)
	text = strings.ReplaceAll(text, namespace, "{{ .Release.Namespace }}")
	if o.Kind == "CustomResourceDefinition" {
		text = strings.Replace(text, "\n  annotations:\n", "\n  annotations:\n    helm.sh/resource-policy: keep\n", 1)
	}
	if condition, ok := switches[o.Kind]; ok {
		text = "{{- if " + condition + " }}\n---\n" + text + "{{- end }}\n"
	}
	return text
}
