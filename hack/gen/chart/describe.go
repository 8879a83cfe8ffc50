package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/gen/kustomize"
)

// describe sets the version of the application in Chart.yaml, and adds the annotations of Artifact Hub that follow from other
// files: the CustomResourceDefinitions, examples of them, the image and the changes.
func (o options) describe(files map[string]string, objects []kustomize.Object) error {
	chart := map[string]any{}
	if err := yaml.Unmarshal([]byte(files["Chart.yaml"]), &chart); err != nil {
		return fmt.Errorf("reading Chart.yaml: %w", err)
	}
	repository, tag, err := kustomize.SplitImage(o.image)
	if err != nil {
		return err
	}
	chart["appVersion"] = tag
	annotations, _ := chart["annotations"].(map[string]any)
	parts := map[string]any{"images": []map[string]string{
		{"name": "manager", "image": o.image}, {"name": "archiver", "image": repository + "-archiver:" + tag},
		{"name": "page", "image": repository + "-page:" + tag}, {"name": "plugin", "image": repository + "-plugin:" + tag},
	}}
	if parts["crds"], parts["crdsExamples"], err = resources(objects); err != nil {
		return err
	}
	changelog, err := os.ReadFile(o.changelog)
	if err != nil {
		return err
	}
	if list := changes(string(changelog), fmt.Sprint(chart["version"])); len(list) > 0 {
		parts["changes"] = list
	}
	for name, part := range parts {
		text, err := yaml.Marshal(part)
		if err != nil {
			return err
		}
		annotations["artifacthub.io/"+name] = string(text)
	}
	text, err := yaml.Marshal(chart)
	files["Chart.yaml"] = string(text)
	version, _ := chart["kubeVersion"].(string)
	version = strings.TrimSuffix(strings.TrimPrefix(version, ">="), ".0-0")
	files["README.md"] = strings.Replace(files["README.md"], "KUBE_VERSION", version+" or newer", 1)
	return err
}

// resources describes the CustomResourceDefinitions, and returns examples of them.
func resources(objects []kustomize.Object) (list []map[string]string, examples []map[string]any, err error) {
	for _, o := range objects {
		switch o.Kind {
		case "AlertEvent", "WebhookIntegration":
			examples = append(examples, o.Content)
		case "CustomResourceDefinition":
			var crd apiextensionsv1.CustomResourceDefinition
			if err := yaml.UnmarshalStrict([]byte(o.Text), &crd); err != nil {
				return nil, nil, fmt.Errorf("reading %s: %w", o.Name, err)
			}
			for i := range crd.Spec.Versions {
				list = append(list, map[string]string{
					"kind": crd.Spec.Names.Kind, "name": o.Name, "version": crd.Spec.Versions[i].Name, "displayName": crd.Spec.Names.Kind,
					"description": strings.ReplaceAll(crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Description, "\n", " "),
				})
			}
		}
	}
	return list, examples, nil
}

var (
	entry = regexp.MustCompile(`(?m)^### (\w+)$|^- ((?:.|\n  )+)`)
	link  = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
)

// changes returns the entries of a version in the changelog; none if it has no section, as before the release. The headings are
// Artifact Hub's kinds of changes, those of https://keepachangelog.com.
func changes(changelog, version string) (list []map[string]string) {
	section := regexp.MustCompile(`(?s)\n## \[?v?` + regexp.QuoteMeta(version) + `[\]\s].*?(\n## |$)`).FindString(changelog)
	kind := "changed"
	for _, match := range entry.FindAllStringSubmatch(section, -1) {
		if match[1] != "" {
			kind = strings.ToLower(match[1])
			continue
		}
		description := link.ReplaceAllString(strings.Join(strings.Fields(match[2]), " "), "$1")
		list = append(list, map[string]string{"kind": kind, "description": description})
	}
	return list
}
