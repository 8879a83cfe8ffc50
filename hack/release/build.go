package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

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

// builder builds a release.
type builder struct {
	root      string // of the repository
	out       string
	version   string // with the v
	commit    string
	date      time.Time // of the commit; everything is dated so
	locations locations
	platforms []platform
	ldflags   string
}

func buildCommand(ctx context.Context, args []string, _ io.Writer) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	b := &builder{}
	flags.StringVar(&b.root, "root", ".", "The repository's folder.")
	flags.StringVar(&b.out, "out", "bin/release", "The folder of the artifacts. It is emptied.")
	flags.StringVar(&b.version, "version", "", "The version, such as v0.1.0.")
	flags.StringVar(&b.commit, "commit", "", "The commit's hash.")
	date := flags.String("date", "", "The commit's date in RFC 3339.")
	repository := flags.String("repository", "", "The repository that publishes, such as github.com/OWNER/NAME.")
	platforms := flags.String("platforms", "", "The platforms to build for, such as linux/amd64,linux/arm64.")
	flags.StringVar(&b.ldflags, "ldflags", "", "The linker's flags.")
	if _, err := parse(flags, args, 0); err != nil {
		return err
	}
	var err error
	if b.date, err = time.Parse(time.RFC3339, *date); err != nil {
		return fmt.Errorf("reading the flag date: %w", err)
	}
	if b.locations, err = locate(*repository, b.version); err != nil {
		return err
	}
	for name := range strings.SplitSeq(*platforms, ",") {
		system, arch, _ := strings.Cut(name, "/")
		b.platforms = append(b.platforms, platform{system, arch})
	}
	return b.build(ctx)
}

// build builds everything. The checksums come last.
func (b *builder) build(ctx context.Context) error {
	if err := os.RemoveAll(b.out); err != nil {
		return err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	for _, on := range b.platforms {
		if err := b.programs(ctx, filepath.Join(scratch, on.os, on.arch), on); err != nil {
			return fmt.Errorf("building for %s: %w", on, err)
		}
	}
	digests := map[product]v1.Hash{}
	for _, p := range products {
		if digests[p], err = b.image(scratch, p); err != nil {
			return fmt.Errorf("building the image of the %s: %w", p.executable, err)
		}
	}
	image := b.locations.imageByDigest(b.version, digests[manager])
	if err := b.manifests(image); err != nil {
		return fmt.Errorf("writing the manifests: %w", err)
	}
	if err := b.bundle(scratch, image); err != nil {
		return fmt.Errorf("building the bundle: %w", err)
	}
	if err := b.chart(); err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}
	if err := b.krew(); err != nil {
		return fmt.Errorf("writing the krew manifest: %w", err)
	}
	return b.checksums()
}

// programs builds the programs of a platform into the folder, and packs them.
func (b *builder) programs(ctx context.Context, folder string, on platform) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	// Without what the Go command knows of the repository: it depends on how deep the clone is.
	command := exec.CommandContext(ctx, "go", "build", "-C", b.root, "-trimpath", "-buildvcs=false", "-tags", smallTags,
		"-ldflags", b.ldflags, "-o", folder+string(filepath.Separator))
	for _, p := range products {
		command.Args = append(command.Args, p.pkg)
	}
	// Nor does it depend on the builder's settings.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+on.os, "GOARCH="+on.arch, "GOFLAGS=", "GOEXPERIMENT=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	license, err := os.ReadFile(filepath.Join(b.root, "LICENSE"))
	if err != nil {
		return err
	}
	for _, p := range products {
		binary := filepath.Join(folder, on.executable(p.goName))
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		pack := gzipped
		if on.os == "windows" {
			pack = zipped
		}
		packed, err := pack([]entry{{on.executable(p.executable), 0o755, content}, {"LICENSE", 0o644, license}}, b.date)
		if err != nil {
			return err
		}
		if err := b.write(p.archiveName(b.version, on), packed); err != nil {
			return err
		}
		var bill bytes.Buffer
		if err := writeBill(&bill, binary, b.version); err != nil {
			return err
		}
		if err := b.write(p.sbomName(b.version, on), bill.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// write writes an artifact.
func (b *builder) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(b.out, name), content, 0o644)
}

// checksumsName is the name of the list of checksums, which is what gets signed.
const checksumsName = "checksums.txt"

// checksums writes the list of all artifacts.
func (b *builder) checksums() error {
	sums, err := sumFolder(b.out)
	if err != nil {
		return err
	}
	return b.write(checksumsName, []byte(checksumList(sums)))
}

// checksumList returns the sums as sha256sum prints them.
func checksumList(sums []sum) string {
	var list strings.Builder
	for _, s := range sums {
		fmt.Fprintf(&list, "%s  %s\n", s.digest, s.name)
	}
	return list.String()
}

// sum is an artifact with its SHA-256 in hexadecimal digits.
type sum struct{ name, digest string }

// sumFolder returns the files of the folder in the order of their names, without the list of checksums and its signature.
func sumFolder(folder string) ([]sum, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var sums []sum
	for _, file := range files {
		if strings.HasPrefix(file.Name(), checksumsName) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			return nil, err
		}
		sums = append(sums, sum{file.Name(), fmt.Sprintf("%x", sha256.Sum256(content))})
	}
	return sums, nil
}
