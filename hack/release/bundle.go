package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

// bundleName returns the name of the archive of the bundle's image.
func bundleName(version string) string { return "tocsin-bundle_" + version + ".tar" }

// bundleSettings returns what a release sets in the bundle for the Operator Lifecycle Manager (OLM). The name of an object cannot
// have a +.
func bundleSettings(version, image string) []setting {
	const file = "manifests/tocsin.clusterserviceversion.yaml"
	return []setting{
		{file, `^    containerImage: .*\n`, "    containerImage: " + image + "\n"},
		{file, `^                image: .*\n`, "                image: " + image + "\n"},
		{file, `^  name: tocsin\.v.*\n`, "  name: tocsin." + strings.ReplaceAll(version, "+", "-") + "\n"},
		{file, `^  version: .*\n`, "  version: " + strings.TrimPrefix(version, "v") + "\n"},
	}
}

// bundle writes the image of the bundle for OLM, with the release's version and the manager's image. It has no program, and
// is the same for each platform; OLM unpacks it with a program of its own.
func (r *releaser) bundle(image string) error {
	files, err := collect(os.DirFS(filepath.Join(r.root, "bundle")), "")
	if err != nil {
		return err
	}
	if _, err := setLines(files, bundleSettings(r.version, image)); err != nil {
		return err
	}
	metadata, err := find(files, "metadata/annotations.yaml")
	if err != nil {
		return err
	}
	// What the bundle says of itself has to be on its image too.
	var labels struct{ Annotations map[string]string }
	if err := yaml.Unmarshal(metadata.Data, &labels); err != nil {
		return fmt.Errorf("reading the bundle's annotations: %w", err)
	}
	_, err = r.writeIndex(bundleName(r.version), func(on platform) (v1.Image, error) {
		return r.layered(on, func(config *v1.Config) { maps.Copy(config.Labels, labels.Annotations) }, files)
	})
	return err
}
