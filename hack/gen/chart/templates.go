package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// object is one document of what kustomize builds.
type object struct {
	kind, name, text string
}

// file is where the object goes in the chart.
func (o object) file() string {
	folder := "templates"
	if o.kind == "CustomResourceDefinition" {
		folder = "crds"
	}
	return filepath.Join(folder, strings.ToLower(o.kind)+"-"+strings.ReplaceAll(o.name, ".", "-")+".yaml")
}

// templates returns the files that are made from what kustomize builds.
func templates(kustomize string) (map[string]string, error) {
	objects, err := build(kustomize)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, o := range objects {
		text := template(o.text)
		switch o.kind {
		case "Namespace": // "helm install --create-namespace" makes it
			continue
		case "CustomResourceDefinition": // these are no templates
			text = o.text
		case "Deployment":
			if text, err = parametrise(text); err != nil {
				return nil, err
			}
		}
		files[o.file()] = text
	}
	for _, addOn := range addOns {
		more, err := build(kustomize, addOn.component)
		if err != nil {
			return nil, err
		}
		for _, o := range more {
			if _, known := files[o.file()]; known || o.kind == "Namespace" {
				continue
			}
			files[o.file()] = "{{- if .Values." + addOn.value + ".enabled }}\n" + template(o.text) + "{{- end }}\n"
		}
	}
	return files, nil
}

// build has kustomize build config/default, with components.
func build(kustomize string, components ...string) ([]object, error) {
	folder, err := os.MkdirTemp("", "tocsin-chart-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	config, err := filepath.Rel(folder, filepath.Join(testenv.Root(), "config"))
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "resources:\n  - %s/default\ncomponents:\n", config)
	for _, component := range components {
		fmt.Fprintf(&text, "  - %s/components/%s\n", config, component)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	command := exec.Command(kustomize, "build", folder)
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kustomize: %w: %s", err, stderr.String())
	}
	var objects []object
	for document := range strings.SplitSeq(string(output), "\n---\n") {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return nil, fmt.Errorf("reading what kustomize built: %w", err)
		}
		objects = append(objects, object{head.Kind, head.Metadata.Name, strings.TrimSuffix(document, "\n") + "\n"})
	}
	return objects, nil
}

// template makes a template of an object's text: what looks like an action is none, and the namespace is the release's.
func template(text string) string {
	text = strings.ReplaceAll(text, "{{", `{{ "{{" }}`)
	return strings.ReplaceAll(text, namespace, "{{ .Release.Namespace }}")
}

// podValues are the lines that come before those of the pod in the Deployment.
const podValues = `
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      serviceAccountName: tocsin
`

// parametrise puts the values into the text of the Deployment. It fails when there is nothing to put one into: the
// value would do nothing.
func parametrise(text string) (string, error) {
	for _, change := range []struct{ what, with string }{
		{`(?m)^  replicas: 2$`, "  replicas: {{ .Values.replicas }}"},
		{`(?m)^        image: tocsin:dev$`, "        image: \"{{ .Values.image.repository }}:" +
			"{{ .Values.image.tag | default .Chart.AppVersion }}\""},
		{`(?m)^        - --leader-elect\n`, "        - --leader-elect\n        {{- with .Values.extraArgs }}\n" +
			"        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"},
		{`(?m)^        - name: GOMEMLIMIT\n          value: 900MiB\n`, "        - name: GOMEMLIMIT\n" +
			"          value: {{ .Values.goMemoryLimit }}\n        {{- with .Values.extraEnv }}\n" +
			"        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"},
		{`(?m)^        resources:\n(?:          .*\n)+`, "        resources:\n" +
			"          {{- toYaml .Values.resources | nindent 10 }}\n"},
		{`\n      serviceAccountName: tocsin\n`, podValues},
	} {
		pattern := regexp.MustCompile(change.what)
		if found := pattern.FindAllString(text, -1); len(found) != 1 {
			return "", fmt.Errorf("the Deployment has %d times %s", len(found), change.what)
		}
		text = pattern.ReplaceAllLiteralString(text, change.with)
	}
	return text, nil
}
