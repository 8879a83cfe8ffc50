package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing/fstest"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user of the images, by the number that the security context requires.
const imageUser = "65532:65532"

// image builds a product's image for the Linux platforms, and writes it as an archive of an OCI layout. It returns the digest
// of the image index. The image has no base: the program is static, and needs only the root certificates.
func (r *releaser) image(p product) (v1.Hash, error) {
	return r.writeIndex(p.imageName(r.version), func(on platform) (v1.Image, error) {
		binary, err := os.ReadFile(filepath.Join(r.scratch, on.os, on.arch, p.goName))
		if err != nil {
			return nil, err
		}
		return r.layered(on, func(config *v1.Config) {
			config.User, config.Entrypoint, config.WorkingDir = imageUser, []string{"/" + p.executable}, "/"
			config.Labels["org.opencontainers.image.title"] = p.image
			config.Env = []string{"PATH=/", "SSL_CERT_FILE=/" + certificatesPath}
		}, systemFiles(), fstest.MapFS{p.executable: {Mode: 0o755, Data: binary}})
	})
}

// imageName returns the name of the archive of the product's image.
func (p product) imageName(version string) string { return p.image + "-image_" + version + ".tar" }

// writeIndex writes the images of the Linux platforms as the only index of an OCI layout, packed into an archive. It returns
// the digest of the index.
func (r *releaser) writeIndex(name string, imageOf func(platform) (v1.Image, error)) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, on := range r.platforms {
		if on.os != "linux" {
			continue
		}
		image, err := imageOf(on)
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: on.os, Architecture: on.arch}},
		})
	}
	folder := filepath.Join(r.scratch, name)
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	annotations := map[string]string{"org.opencontainers.image.ref.name": tag(r.version)}
	if err := path.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return v1.Hash{}, err
	}
	files, err := collect(os.DirFS(folder), "")
	if err != nil {
		return v1.Hash{}, err
	}
	packed, err := tarred(files, r.date)
	if err := errors.Join(err, r.write(name, packed)); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// layered returns an image with a layer for each of these sets of files. configure completes its configuration.
func (r *releaser) layered(on platform, configure func(*v1.Config), layers ...fstest.MapFS) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, files := range layers {
		content, err := tarred(files, r.date)
		if err != nil {
			return nil, err
		}
		opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
		layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if image, err = mutate.Append(image, mutate.Addendum{
			Layer: layer, History: v1.History{Created: v1.Time{Time: r.date.UTC()}, CreatedBy: "hack/release"},
		}); err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = on.os, on.arch
	config.Created = v1.Time{Time: r.date.UTC()}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title":    "tocsin",
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.source":   r.locations.source,
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.created":  r.date.UTC().Format("2006-01-02T15:04:05Z"),
	}
	configure(&config.Config)
	return mutate.ConfigFile(image, config)
}

const certificatesPath = "etc/ssl/certs/ca-certificates.crt"

// systemFiles returns what an image has beside the program: the user, and Mozilla's root certificates as the Go
// project publishes them. Roots that are trusted under conditions only are left out; a PEM file cannot tell those.
func systemFiles() fstest.MapFS {
	var roots []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			roots = append(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return fstest.MapFS{
		certificatesPath: {Mode: 0o644, Data: roots},
		"etc/group":      {Mode: 0o644, Data: []byte("nonroot:x:65532:\n")},
		"etc/passwd":     {Mode: 0o644, Data: []byte("nonroot:x:65532:65532::/:/sbin/nologin\n")},
	}
}
