package main

import (
	"bytes"
	"maps"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// The files of the bundle for the Operator Lifecycle Manager (OLM) that say what it is.
const (
	serviceVersionPath = "manifests/tocsin.clusterserviceversion.yaml"
	bundleLabelsPath   = "metadata/annotations.yaml"
)

// bundleName returns the name of the archive of the bundle's image.
func bundleName(version string) string { return "tocsin-bundle_" + version + ".tar" }

// serviceVersionName returns the name of the ClusterServiceVersion. The name of an object cannot have a +.
func serviceVersionName(version string) string {
	return "tocsin." + strings.ReplaceAll(version, "+", "-")
}

// bundle writes the image of the bundle for OLM, with the release's version and the manager's image. It has no program, and
// is the same for each platform; OLM unpacks it with a program of its own.
func (b *builder) bundle(scratch string, digest v1.Hash) error {
	entries, err := folderEntries(filepath.Join(b.root, "bundle"), "")
	if err != nil {
		return err
	}
	image := b.locations.imageByDigest(b.version, digest)
	err = setLines(entries, []setting{
		{serviceVersionPath, regexp.MustCompile(`(?m)^    containerImage: .*$`), "    containerImage: " + image},
		{serviceVersionPath, regexp.MustCompile(`(?m)^                image: .*$`), "                image: " + image},
		{serviceVersionPath, regexp.MustCompile(`(?m)^  name: tocsin\.v.*$`), "  name: " + serviceVersionName(b.version)},
		{serviceVersionPath, regexp.MustCompile(`(?m)^  version: .*$`), "  version: " + strings.TrimPrefix(b.version, "v")},
	})
	if err != nil {
		return err
	}
	labels, err := bundleLabels(entries)
	if err != nil {
		return err
	}
	var files bytes.Buffer
	if err := writeTar(&files, entries, b.date); err != nil {
		return err
	}
	_, err = b.writeIndex(bundleName(b.version), filepath.Join(scratch, "bundle"), func(on platform) (v1.Image, error) {
		return b.layered(on, func(config *v1.Config) { maps.Copy(config.Labels, labels) }, files.Bytes())
	})
	return err
}

// bundleLabels returns what the bundle says of itself, which has to be on its image too.
func bundleLabels(entries []entry) (map[string]string, error) {
	var metadata struct{ Annotations map[string]string }
	_, err := readYAML(entries, bundleLabelsPath, &metadata)
	return metadata.Annotations, err
}
