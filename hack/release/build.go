package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// platform is an operating system and an architecture, by Go's names.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// executable returns the name of a program's file.
func (p platform) executable(name string) string {
	if p.os == "windows" {
		return name + ".exe"
	}
	return name
}

// product is a program that users get.
type product struct {
	pkg        string // the package, from the root
	goName     string // the name that the Go command gives it
	executable string // its name in the archive
	archive    string // the beginning of the archive's name
	image      string // the name of its image
}

var (
	manager  = product{".", "tocsin", "manager", "tocsin-manager", "tocsin"}
	archiver = product{"./cmd/tocsin-archiver", "tocsin-archiver", "archiver", "tocsin-archiver", "tocsin-archiver"}
	page     = product{"./cmd/tocsin-page", "tocsin-page", "page", "tocsin-page", "tocsin-page"}
	plugin   = product{"./cmd/kubectl-tocsin", "kubectl-tocsin", "kubectl-tocsin", "kubectl-tocsin", "tocsin-plugin"}

	products = []product{manager, archiver, page, plugin}
)

// smallTags are the build tags that leave out what no product uses: see the Makefile.
const smallTags = "disable_grpc_modules"

// archiveName returns the name of the product's archive.
func (p product) archiveName(version string, on platform) string {
	extension := ".tar.gz"
	if on.os == "windows" {
		extension = ".zip"
	}
	return p.base(version, on) + extension
}

// sbomName returns the name of the bill of materials of the product's binary.
func (p product) sbomName(version string, on platform) string {
	return p.base(version, on) + ".cdx.json"
}

func (p product) base(version string, on platform) string {
	return fmt.Sprintf("%s_%s_%s_%s", p.archive, version, on.os, on.arch)
}

// build builds everything. The checksums come last.
func (r *releaser) build(ctx context.Context, _ string) (err error) {
	if r.locations, err = locate(r.repository, r.version); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(r.folder), os.MkdirAll(r.folder, 0o755)); err != nil {
		return err
	}
	for _, on := range r.platforms {
		if err := r.programs(ctx, filepath.Join(r.scratch, on.os, on.arch), on); err != nil {
			return fmt.Errorf("building for %s: %w", on, err)
		}
	}
	digests := map[product]v1.Hash{}
	for _, p := range products {
		if digests[p], err = r.image(p); err != nil {
			return fmt.Errorf("building the image of the %s: %w", p.executable, err)
		}
	}
	image := r.locations.imageByDigest(r.version, digests[manager])
	if err := r.manifests(image); err != nil {
		return fmt.Errorf("writing the manifests: %w", err)
	}
	if err := r.bundle(image); err != nil {
		return fmt.Errorf("building the bundle: %w", err)
	}
	if err := r.chart(); err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}
	if err := r.krew(); err != nil {
		return fmt.Errorf("writing the krew manifest: %w", err)
	}
	return r.checksums()
}

// programs builds the programs of a platform into the folder, and packs them.
func (r *releaser) programs(ctx context.Context, folder string, on platform) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	// Without what the Go command knows of the repository: it depends on how deep the clone is.
	command := exec.CommandContext(ctx, "go", "build", "-C", r.root, "-trimpath", "-buildvcs=false", "-tags", smallTags,
		"-ldflags", r.ldflags, "-o", folder+string(filepath.Separator))
	for _, p := range products {
		command.Args = append(command.Args, p.pkg)
	}
	// Nor does it depend on the builder's settings.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+on.os, "GOARCH="+on.arch, "GOFLAGS=", "GOEXPERIMENT=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	pack := gzipped
	if on.os == "windows" {
		pack = zipped
	}
	for _, p := range products {
		binary := filepath.Join(folder, on.executable(p.goName))
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		packed, err := pack(fstest.MapFS{
			on.executable(p.executable): {Mode: 0o755, Data: content}, "LICENSE": {Mode: 0o644, Data: license},
		}, r.date)
		if err != nil {
			return err
		}
		bill, err := billOf(binary, r.version)
		err = errors.Join(err, r.write(p.archiveName(r.version, on), packed), r.write(p.sbomName(r.version, on), bill))
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes an artifact.
func (r *releaser) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.folder, name), content, 0o644)
}

// checksumsName is the name of the list of checksums, which is what gets signed.
const checksumsName = "checksums.txt"

// checksums writes the list of all artifacts.
func (r *releaser) checksums() error {
	sums, err := sumFolder(r.folder)
	if err != nil {
		return err
	}
	return r.write(checksumsName, checksumList(sums))
}

// checksumList returns the sums as sha256sum prints them.
func checksumList(sums map[string]string) []byte {
	var list []byte
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		list = fmt.Appendf(list, "%s  %s\n", sums[name], name)
	}
	return list
}

// sumFolder returns the SHA-256 of the folder's files in hexadecimal digits, by their names, without the list of checksums and
// its signature.
func sumFolder(folder string) (map[string]string, error) {
	files, err := os.ReadDir(folder)
	sums := map[string]string{}
	for _, file := range files {
		if strings.HasPrefix(file.Name(), checksumsName) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			return nil, err
		}
		sums[file.Name()] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	return sums, err
}
