package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/gen/kustomize"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
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
	if parts["crds"], err = resources(objects); err != nil {
		return err
	}
	if parts["crdsExamples"], err = samples(); err != nil {
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

// resources describes the CustomResourceDefinitions.
func resources(objects []kustomize.Object) (list []map[string]string, err error) {
	for _, o := range objects {
		if o.Kind != "CustomResourceDefinition" {
			continue
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict([]byte(o.Text), &crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", o.Name, err)
		}
		for i := range crd.Spec.Versions {
			list = append(list, map[string]string{
				"kind": crd.Spec.Names.Kind, "name": o.Name, "version": crd.Spec.Versions[i].Name, "displayName": crd.Spec.Names.Kind,
				"description": strings.ReplaceAll(crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Description, "\n", " "),
			})
		}
	}
	return list, nil
}

// samples returns the objects of config/samples.
func samples() (list []map[string]any, err error) {
	paths, err := filepath.Glob(filepath.Join(testenv.Root(), "config", "samples", "*_*.yaml"))
	paths = append(paths, filepath.Join(testenv.Root(), "config", "samples", "webhookintegration.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var sample map[string]any
		if err := yaml.Unmarshal(text, &sample); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		list = append(list, sample)
	}
	return list, nil
}

var (
	section = regexp.MustCompile(`(?m)^## \[?v?([^\s\]]+)`)
	entry   = regexp.MustCompile(`(?m)^### (\w+)$|^- ((?:.|\n  )+)`)
	link    = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
)

// kinds are Artifact Hub's kinds of changes, those of https://keepachangelog.com.
var kinds = map[string]bool{"added": true, "changed": true, "deprecated": true, "removed": true, "fixed": true, "security": true}

// changes returns the entries of a version in the changelog; none if it has no section, as before the release.
func changes(changelog, version string) (list []map[string]string) {
	sections := section.FindAllStringSubmatchIndex(changelog, -1)
	for i, at := range sections {
		if changelog[at[2]:at[3]] != version {
			continue
		}
		text := changelog[at[1]:]
		if i+1 < len(sections) {
			text = changelog[at[1]:sections[i+1][0]]
		}
		kind := "changed"
		for _, match := range entry.FindAllStringSubmatch(text, -1) {
			if match[1] != "" {
				kind = strings.ToLower(match[1])
				continue
			}
			if !kinds[kind] {
				kind = "changed"
			}
			description := link.ReplaceAllString(strings.Join(strings.Fields(match[2]), " "), "$1")
			list = append(list, map[string]string{"kind": kind, "description": description})
		}
	}
	return list
}
