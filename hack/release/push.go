package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// push pushes the images, the bundle and the chart in the folder, with the credentials that "docker login" and the like have
// stored. It prints their names with their digests, which is what gets signed.
func (r *releaser) push(ctx context.Context, folder string) error {
	at, err := locate(r.repository, r.version)
	if err != nil {
		return err
	}
	at.registry = cmp.Or(r.registry, at.registry)
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	type artifact struct {
		reference, file string
		push            func(to name.Tag, file string, options []remote.Option) (v1.Hash, error)
	}
	var artifacts []artifact
	for _, p := range products {
		artifacts = append(artifacts, artifact{at.imageRepository(p) + ":" + tag(r.version), p.imageName(r.version), r.pushIndex})
	}
	artifacts = append(artifacts,
		artifact{at.registry + "/tocsin-bundle:" + tag(r.version), bundleName(r.version), r.pushIndex},
		artifact{at.registry + "/charts/tocsin:" + tag(r.version)[1:], chartName(r.version), pushChart})
	for _, a := range artifacts {
		to, err := name.NewTag(a.reference)
		if err != nil {
			return err
		}
		digest, err := a.push(to, filepath.Join(folder, a.file), options)
		if err != nil {
			return fmt.Errorf("pushing %s: %w", a.file, err)
		}
		if _, err := fmt.Fprintln(r.stdout, to.Context().Digest(digest.String())); err != nil {
			return err
		}
	}
	return nil
}

// pushIndex pushes the index of the OCI layout in the archive, and returns its digest.
func (r *releaser) pushIndex(to name.Tag, archive string, options []remote.Option) (v1.Hash, error) {
	index, err := r.readLayout(archive)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := remote.WriteIndex(to, index, options...); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// readLayout unpacks the OCI layout in the archive, and returns its only index.
func (r *releaser) readLayout(archive string) (v1.ImageIndex, error) {
	files, err := unpack(archive)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(r.scratch, filepath.Base(archive))
	if err := os.CopyFS(folder, files); err != nil {
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

// pushChart pushes the chart as Helm stores it in a registry, and returns its digest. "helm push" would add the time of day.
func pushChart(to name.Tag, archive string, options []remote.Option) (v1.Hash, error) {
	content, err := os.ReadFile(archive)
	if err != nil {
		return v1.Hash{}, err
	}
	files, err := unpack(archive)
	if err != nil {
		return v1.Hash{}, err
	}
	chart, err := find(files, chartPath)
	if err != nil {
		return v1.Hash{}, err
	}
	metadata, err := yaml.YAMLToJSON(chart.Data)
	if err != nil {
		return v1.Hash{}, err
	}
	var parts []v1.Descriptor
	for _, blob := range []v1.Layer{static.NewLayer(metadata, chartConfigType), static.NewLayer(content, chartContentType)} {
		part, err := partial.Descriptor(blob)
		if err := errors.Join(err, remote.WriteLayer(to.Context(), blob, options...)); err != nil {
			return v1.Hash{}, err
		}
		parts = append(parts, *part)
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: parts[0], Layers: parts[1:],
	})
	if err != nil {
		return v1.Hash{}, err
	}
	of, err := partial.Descriptor(static.NewLayer(manifest, types.OCIManifestSchema1))
	if err != nil {
		return v1.Hash{}, err
	}
	return of.Digest, remote.Put(to, &remote.Descriptor{Descriptor: *of, Manifest: manifest}, options...)
}
