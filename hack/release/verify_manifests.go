package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

// imageLine names an image in a manifest.
var imageLine = regexp.MustCompile(`(?m)^ *image: (.*)$`)

// installedImage returns the image that install.yaml names.
func (v verifier) installedImage() (string, error) {
	install, err := os.ReadFile(filepath.Join(v.folder, "install.yaml"))
	if err != nil {
		return "", err
	}
	images := imageLine.FindAllStringSubmatch(string(install), -1)
	if len(images) != 1 {
		return "", fmt.Errorf("install.yaml names %d images instead of one", len(images))
	}
	return images[0][1], nil
}

// bundle checks that the bundle for OLM has the release's version, the image of install.yaml and the
// CustomResourceDefinitions of crds.yaml.
func (v verifier) bundle() error {
	index, cleanup, err := readLayout(filepath.Join(v.folder, bundleName(v.version)))
	if err != nil {
		return err
	}
	defer cleanup()
	list, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range list.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		if err := v.platformBundle(image); err != nil {
			return fmt.Errorf("%s: %w", m.Platform, err)
		}
	}
	v.say("the bundle for OLM")
	return nil
}

// platformBundle checks the bundle's image of a platform.
func (v verifier) platformBundle(image v1.Image) error {
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	if len(layers) != 1 {
		return fmt.Errorf("it has %d layers", len(layers))
	}
	entries, err := imageEntries(image)
	if err != nil {
		return err
	}
	labels, err := bundleLabels(entries)
	if err != nil {
		return err
	}
	for name, value := range labels {
		if config.Config.Labels[name] != value {
			return fmt.Errorf("the image has not the label %s=%s", name, value)
		}
	}
	return errors.Join(v.serviceVersion(entries), v.definitions(entries))
}

// serviceVersion checks the ClusterServiceVersion of the bundle.
func (v verifier) serviceVersion(entries []entry) error {
	var csv struct {
		Metadata struct {
			Name        string
			Annotations map[string]string
		}
		Spec struct{ Version string }
	}
	content, err := readYAML(entries, serviceVersionPath, &csv)
	if err != nil {
		return err
	}
	if csv.Metadata.Name != serviceVersionName(v.version) || "v"+csv.Spec.Version != v.version {
		return fmt.Errorf("its ClusterServiceVersion is %s of the version %s", csv.Metadata.Name, csv.Spec.Version)
	}
	image, err := v.installedImage()
	if err != nil {
		return err
	}
	found := imageLine.FindAllStringSubmatch(content, -1)
	if len(found) != 1 || found[0][1] != image || csv.Metadata.Annotations["containerImage"] != image {
		return fmt.Errorf("it does not name the image of install.yaml, %s", image)
	}
	return nil
}

// definition is a CustomResourceDefinition, or another object, as far as it matters here.
type definition struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     map[string]any
}

// definitions compares the CustomResourceDefinitions of the bundle with those of crds.yaml.
func (v verifier) definitions(entries []entry) error {
	text, err := os.ReadFile(filepath.Join(v.folder, "crds.yaml"))
	if err != nil {
		return err
	}
	bundled := map[string]map[string]any{}
	for _, e := range entries {
		var d definition
		if err := yaml.Unmarshal(e.content, &d); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if d.Kind == "CustomResourceDefinition" {
			bundled[d.Metadata.Name] = d.Spec
		}
	}
	documents := strings.Split(string(text), "\n---\n")
	for _, document := range documents {
		var d definition
		if err := yaml.Unmarshal([]byte(document), &d); err != nil {
			return fmt.Errorf("crds.yaml: %w", err)
		}
		if !reflect.DeepEqual(bundled[d.Metadata.Name], d.Spec) {
			return fmt.Errorf("its CustomResourceDefinition %s is not that of crds.yaml", d.Metadata.Name)
		}
	}
	if len(documents) != len(bundled) {
		return fmt.Errorf("it has %d CustomResourceDefinitions, crds.yaml has %d", len(bundled), len(documents))
	}
	return nil
}

// chart checks that the chart has the release's version, and that its values and the annotation for Artifact Hub name the
// image of install.yaml. The annotation names those of the other programs, too.
func (v verifier) chart() error {
	image, err := v.installedImage()
	if err != nil {
		return err
	}
	image, _, _ = strings.Cut(image, "@")
	entries, err := unpack(filepath.Join(v.folder, chartName(v.version)))
	if err != nil {
		return err
	}
	var chart struct {
		Version, AppVersion string
		Annotations         map[string]string
	}
	if _, err := readYAML(entries, chartPath, &chart); err != nil {
		return err
	}
	var values struct {
		Image struct{ Repository, Tag, Digest string }
	}
	if _, err := readYAML(entries, "tocsin/values.yaml", &values); err != nil {
		return err
	}
	type namedImage struct{ Image string }
	var named []namedImage
	if err := yaml.Unmarshal([]byte(chart.Annotations["artifacthub.io/images"]), &named); err != nil {
		return fmt.Errorf("the annotation artifacthub.io/images: %w", err)
	}
	if "v"+chart.Version != v.version {
		return fmt.Errorf("it has the version %s", chart.Version)
	}
	if set := values.Image.Repository + ":" + chart.AppVersion; set != image || values.Image.Tag+values.Image.Digest != "" {
		return fmt.Errorf("its values name the image %s instead of %s", set, image)
	}
	repository, _ := strings.CutSuffix(image, ":"+chart.AppVersion)
	var want []namedImage
	for _, p := range products {
		want = append(want, namedImage{repository + strings.TrimPrefix(p.image, manager.image) + ":" + chart.AppVersion})
	}
	if !slices.Equal(named, want) {
		return fmt.Errorf("the annotation artifacthub.io/images names %v instead of %v", named, want)
	}
	v.say("the chart, with the image %s", image)
	return nil
}

// readYAML reads an entry into the object, and returns its text.
func readYAML(entries []entry, name string, object any) (string, error) {
	e, err := find(entries, name)
	if err != nil {
		return "", err
	}
	return string(e.content), yaml.Unmarshal(e.content, object)
}
