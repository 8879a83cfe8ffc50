package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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
	type index struct{ repository, file string }
	var indexes []index
	for _, p := range products {
		indexes = append(indexes, index{at.imageRepository(p), p.imageName(version)})
	}
	for _, i := range append(indexes, index{at.bundleRepository(), bundleName(version)}) {
		reference, err := pushIndex(i.repository+":"+tag(version), filepath.Join(folder, i.file), options)
		if err != nil {
			return nil, fmt.Errorf("pushing %s: %w", i.file, err)
		}
		references = append(references, reference)
	}
	chart, err := chartArtifact(filepath.Join(folder, chartName(version)))
	if err != nil {
		return nil, err
	}
	chartTag, err := name.NewTag(at.registry + "/charts/tocsin:" + tag(version)[1:])
	if err != nil {
		return nil, err
	}
	if err := remote.Write(chartTag, chart, options...); err != nil {
		return nil, fmt.Errorf("pushing the chart: %w", err)
	}
	digest, err := chart.Digest()
	return append(references, chartTag.Context().Digest(digest.String()).String()), err
}

// pushIndex pushes the index of the OCI layout in the archive, and returns its name with its digest.
func pushIndex(reference, archive string, options []remote.Option) (string, error) {
	to, err := name.NewTag(reference)
	if err != nil {
		return "", err
	}
	index, cleanup, err := readLayout(archive)
	if err != nil {
		return "", err
	}
	defer cleanup()
	if err := remote.WriteIndex(to, index, options...); err != nil {
		return "", err
	}
	digest, err := index.Digest()
	return to.Context().Digest(digest.String()).String(), err
}

// readLayout returns the only index of the OCI layout in the archive. cleanup removes the temporary files.
func readLayout(archive string) (index v1.ImageIndex, cleanup func(), err error) {
	entries, err := unpack(archive)
	if err != nil {
		return nil, nil, err
	}
	scratch, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return nil, nil, err
	}
	cleanup = func() { _ = os.RemoveAll(scratch) }
	index, err = func() (v1.ImageIndex, error) {
		if err := unpackTo(scratch, entries); err != nil {
			return nil, err
		}
		root, err := layout.ImageIndexFromPath(scratch)
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
	}()
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	return index, cleanup, nil
}

// chartArtifact returns the chart as Helm stores it in a registry. "helm push" would add the time of day to it.
func chartArtifact(archive string) (v1.Image, error) {
	entries, err := unpack(archive)
	if err != nil {
		return nil, err
	}
	chart, err := find(entries, chartPath)
	if err != nil {
		return nil, err
	}
	metadata, err := yaml.YAMLToJSON(chart.content)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		return nil, err
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image, err = mutate.AppendLayers(image, static.NewLayer(content, chartContentType))
	if err != nil {
		return nil, err
	}
	return withConfig{image, metadata}, nil
}

// withConfig is an image whose configuration is another document than an image's.
type withConfig struct {
	v1.Image
	config []byte
}

func (c withConfig) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (c withConfig) RawConfigFile() ([]byte, error)      { return c.config, nil }
func (c withConfig) ConfigFile() (*v1.ConfigFile, error) {
	return nil, errors.New("a chart is no image")
}
func (c withConfig) ConfigName() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(c.config))
	return h, err
}
func (c withConfig) Digest() (v1.Hash, error) { return digestOf(c) }
func (c withConfig) Size() (int64, error)     { raw, err := c.RawManifest(); return int64(len(raw)), err }
func (c withConfig) RawManifest() ([]byte, error) {
	manifest, err := c.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(manifest)
}

// Manifest implements v1.Image.
func (c withConfig) Manifest() (*v1.Manifest, error) {
	manifest, err := c.Image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	digest, err := c.ConfigName()
	manifest.Config = v1.Descriptor{MediaType: chartConfigType, Digest: digest, Size: int64(len(c.config))}
	return manifest, err
}

func digestOf(c withConfig) (v1.Hash, error) {
	raw, err := c.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	digest, _, err := v1.SHA256(bytes.NewReader(raw))
	return digest, err
}
