package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The media types of a chart, see https://helm.sh/docs/topics/registries.
const (
	chartConfigType  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContentType types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

func pushCommand(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("push", flag.ContinueOnError)
	version := flags.String("version", "", "The version, such as v0.1.0.")
	repository := flags.String("repository", "", "The repository that publishes, such as github.com/OWNER/NAME.")
	registry := flags.String("registry", "", "Another registry than the repository's.")
	folders, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	at, err := locate(*repository, *version)
	if err != nil {
		return err
	}
	if *registry != "" {
		at.registry = *registry
	}
	references, err := push(ctx, folders[0], *version, at)
	for _, reference := range references {
		if _, err := fmt.Fprintln(stdout, reference); err != nil {
			return err
		}
	}
	return err
}

// push pushes the images, the bundle and the chart in the folder, with the credentials that "docker login" and the like have
// stored. It returns their names with their digests, which is what gets signed.
func push(ctx context.Context, folder, version string, at locations) (references []string, err error) {
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	scratch, err := os.MkdirTemp("", "push-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	type index struct{ repository, file string }
	var indexes []index
	for _, p := range products {
		indexes = append(indexes, index{at.imageRepository(p), p.imageName(version)})
	}
	for _, i := range append(indexes, index{at.registry + "/tocsin-bundle", bundleName(version)}) {
		reference, err := pushIndex(i.repository+":"+tag(version), filepath.Join(folder, i.file), scratch, options)
		if err != nil {
			return nil, fmt.Errorf("pushing %s: %w", i.file, err)
		}
		references = append(references, reference)
	}
	chart, err := pushChart(at.registry+"/charts/tocsin:"+tag(version)[1:], filepath.Join(folder, chartName(version)), options)
	if err != nil {
		return nil, fmt.Errorf("pushing the chart: %w", err)
	}
	return append(references, chart), nil
}

// pushIndex pushes the index of the OCI layout in the archive, and returns its name with its digest.
func pushIndex(reference, archive, scratch string, options []remote.Option) (string, error) {
	to, err := name.NewTag(reference)
	if err != nil {
		return "", err
	}
	index, err := readLayout(archive, scratch)
	if err != nil {
		return "", err
	}
	if err := remote.WriteIndex(to, index, options...); err != nil {
		return "", err
	}
	digest, err := index.Digest()
	return to.Context().Digest(digest.String()).String(), err
}

// readLayout unpacks the OCI layout in the archive below the folder scratch, and returns its only index.
func readLayout(archive, scratch string) (v1.ImageIndex, error) {
	entries, err := unpack(archive)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(scratch, "layout-")
	if err != nil {
		return nil, err
	}
	if err := unpackTo(folder, entries); err != nil {
		return nil, err
	}
	root, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, err
	}
	list, err := root.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(list.Manifests) != 1 {
		return nil, fmt.Errorf("%s has %d images instead of one", archive, len(list.Manifests))
	}
	return root.ImageIndex(list.Manifests[0].Digest)
}

// pushChart pushes the chart as Helm stores it in a registry, and returns its name with its digest. "helm push" would add the
// time of day to it.
func pushChart(reference, archive string, options []remote.Option) (string, error) {
	to, err := name.NewTag(reference)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		return "", err
	}
	metadata, err := chartMetadata(archive)
	if err != nil {
		return "", err
	}
	var parts []v1.Descriptor
	for _, blob := range []v1.Layer{static.NewLayer(metadata, chartConfigType), static.NewLayer(content, chartContentType)} {
		if err := remote.WriteLayer(to.Context(), blob, options...); err != nil {
			return "", err
		}
		part, err := partial.Descriptor(blob)
		if err != nil {
			return "", err
		}
		parts = append(parts, *part)
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: parts[0], Layers: parts[1:],
	})
	if err != nil {
		return "", err
	}
	of, err := partial.Descriptor(static.NewLayer(manifest, types.OCIManifestSchema1))
	if err != nil {
		return "", err
	}
	err = remote.Put(to, &remote.Descriptor{Descriptor: *of, Manifest: manifest}, options...)
	return to.Context().Digest(of.Digest.String()).String(), err
}

// chartMetadata returns the Chart.yaml of the archive as JSON.
func chartMetadata(archive string) ([]byte, error) {
	entries, err := unpack(archive)
	if err != nil {
		return nil, err
	}
	chart, err := find(entries, chartPath)
	if err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(chart.content)
}
