package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

func verifyCommand(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("verify", flag.ContinueOnError)
	version := flags.String("version", "", "The version that the artifacts should have.")
	commit := flags.String("commit", "", "The commit that the binaries should tell.")
	folders, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	return verifier{folders[0], *version, *commit, stdout}.verify(ctx)
}

// verifier checks the artifacts in a folder, with nothing but what the folder has.
type verifier struct {
	folder, version, commit string
	stdout                  io.Writer
}

func (v verifier) verify(ctx context.Context) error {
	scratch, err := os.MkdirTemp("", "verify-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if err := v.checksums(); err != nil {
		return fmt.Errorf("checksums: %w", err)
	}
	boms, err := filepath.Glob(filepath.Join(v.folder, "*.cdx.json"))
	if err != nil {
		return err
	}
	if len(boms) == 0 {
		return errors.New("there are no programs")
	}
	for _, bom := range boms {
		if err := v.program(ctx, bom, scratch); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(bom), err)
		}
	}
	for _, p := range products {
		if err := v.image(ctx, p, scratch); err != nil {
			return fmt.Errorf("image of the %s: %w", p.executable, err)
		}
	}
	if err := v.bundle(); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if err := v.chart(); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return nil
}

func (v verifier) say(format string, args ...any) {
	_, _ = fmt.Fprintf(v.stdout, "verified: "+format+"\n", args...)
}

// checksums compares the folder with its list of checksums. A file that is not listed is an error too.
func (v verifier) checksums() error {
	list, err := os.ReadFile(filepath.Join(v.folder, checksumsName))
	if err != nil {
		return err
	}
	sums, err := sumFolder(v.folder)
	if err != nil {
		return err
	}
	lines := slices.Collect(strings.Lines(string(list)))
	if len(lines) != len(sums) {
		return fmt.Errorf("%d files are listed, and there are %d", len(lines), len(sums))
	}
	for i, s := range sums {
		if want := s.digest + "  " + s.name + "\n"; lines[i] != want {
			return fmt.Errorf("%s: the file is %q, the list has %q", s.name, want, lines[i])
		}
	}
	v.say("the checksums of %d artifacts", len(sums))
	return nil
}

// program checks the archive beside a bill of materials: its files, what the binary was built for and from, and, if it
// runs on this machine, its version.
func (v verifier) program(ctx context.Context, bom, scratch string) error {
	base := strings.TrimSuffix(filepath.Base(bom), ".cdx.json")
	parts := strings.Split(base, "_")
	on := platform{parts[len(parts)-2], parts[len(parts)-1]}
	i := slices.IndexFunc(products, func(p product) bool { return p.archive == parts[0] })
	if i < 0 {
		return errors.New("it is of no product")
	}
	p := products[i]
	entries, err := unpack(filepath.Join(v.folder, p.archiveName(v.version, on)))
	if err != nil {
		return err
	}
	binary, err := find(entries, on.executable(p.executable))
	if _, unlicensed := find(entries, "LICENSE"); err != nil || unlicensed != nil || binary.mode.Perm() != 0o755 {
		return errors.Join(errors.New("the archive has not the program with mode 755 and the license"), err, unlicensed)
	}
	folder := filepath.Join(scratch, base)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := unpackTo(folder, entries); err != nil {
		return err
	}
	path := filepath.Join(folder, binary.name)
	if err := verifyBinary(path, on); err != nil {
		return err
	}
	modules, err := verifyBillOfMaterials(bom, path)
	if err != nil {
		return err
	}
	v.say("%s: %d modules as its bill of materials says", base, modules)
	if on.os != runtime.GOOS || on.arch != runtime.GOARCH {
		return nil
	}
	argument := "--version"
	if p == plugin {
		argument = "version"
	}
	output, err := exec.CommandContext(ctx, path, argument).CombinedOutput()
	return v.saysVersion(base, output, err)
}

// verifyBinary checks the platform and the settings of a build.
func verifyBinary(path string, on platform) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	for key, want := range map[string]string{"GOOS": on.os, "GOARCH": on.arch, "-trimpath": "true", "CGO_ENABLED": "0"} {
		if settings[key] != want {
			return fmt.Errorf("it was built with %s=%q instead of %q", key, settings[key], want)
		}
	}
	return nil
}

// verifyBillOfMaterials compares a bill of materials with what the binary was built from, as "go version -m" prints it.
// It returns the number of modules.
func verifyBillOfMaterials(bom, path string) (int, error) {
	file, err := os.Open(bom)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	var bill cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(file, cyclonedx.BOMFileFormatJSON).Decode(&bill); err != nil {
		return 0, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	if hashes := bill.Metadata.Component.Hashes; hashes == nil || (*hashes)[0].Value != digest {
		return 0, fmt.Errorf("it is of another binary than the one with the digest %s", digest)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return 0, err
	}
	listed := map[string]string{}
	for _, c := range *bill.Components {
		listed[c.Name] = c.Version
	}
	linked := map[string]string{"std": info.GoVersion}
	for _, m := range info.Deps {
		linked[m.Path] = m.Version
	}
	for name, version := range linked {
		if listed[name] != version {
			return 0, fmt.Errorf("the binary has %s %s, the bill has %q", name, version, listed[name])
		}
	}
	if len(listed) != len(linked) {
		return 0, fmt.Errorf("the binary has %d modules, the bill has %d", len(linked), len(listed))
	}
	return len(linked), nil
}

// image checks that a product's image has the programs of the archives and starts, and that install.yaml names the manager's.
func (v verifier) image(ctx context.Context, p product, scratch string) error {
	index, cleanup, err := readLayout(filepath.Join(v.folder, p.imageName(v.version)))
	if err != nil {
		return err
	}
	defer cleanup()
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	install, err := os.ReadFile(filepath.Join(v.folder, "install.yaml"))
	if err != nil {
		return err
	}
	if p == manager && !strings.Contains(string(install), "@"+digest.String()+"\n") {
		return fmt.Errorf("install.yaml does not name the image by its digest %s", digest)
	}
	list, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range list.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		on := platform{m.Platform.OS, m.Platform.Architecture}
		if err := v.platformImage(ctx, image, p, on, scratch); err != nil {
			return fmt.Errorf("%s: %w", on, err)
		}
	}
	v.say("the image %s of the %s for %d platforms", digest, p.executable, len(list.Manifests))
	return nil
}

// platformImage unpacks the image, compares its program with the archive's, and runs it as the runtime would.
func (v verifier) platformImage(ctx context.Context, image v1.Image, p product, on platform, scratch string) error {
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	if config.OS != on.os || config.Architecture != on.arch || config.Config.User != imageUser {
		return fmt.Errorf("the configuration is of %s/%s and the user %q", config.OS, config.Architecture, config.Config.User)
	}
	root := filepath.Join(scratch, p.image+"-image-"+on.arch)
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	entries, err := imageEntries(image)
	if err != nil {
		return err
	}
	if err := unpackTo(root, entries); err != nil {
		return err
	}
	archived, err := os.ReadFile(filepath.Join(scratch, p.base(v.version, on), p.executable))
	if err != nil {
		return err
	}
	packed, err := os.ReadFile(filepath.Join(root, p.executable))
	if err != nil {
		return err
	}
	if sha256.Sum256(archived) != sha256.Sum256(packed) {
		return errors.New("its program is another one than the archive's")
	}
	if on.os != runtime.GOOS || on.arch != runtime.GOARCH {
		return nil
	}
	output, err := runInside(ctx, root, config.Config)
	return v.saysVersion("the image "+p.image, output, err)
}

// imageEntries returns the files of the image.
func imageEntries(image v1.Image) ([]entry, error) {
	reader := mutate.Extract(image)
	defer func() { _ = reader.Close() }()
	return untar(reader)
}

// saysVersion checks what a program printed as its version.
func (v verifier) saysVersion(name string, output []byte, err error) error {
	text := strings.TrimSpace(string(output))
	if err != nil || !strings.Contains(text, " "+v.version+" ") || !strings.Contains(text, v.commit) {
		return fmt.Errorf("%s: running it: %w: it printed %q", name, errors.Join(err, errors.New("wrong version")), text)
	}
	v.say("%s runs: %s", name, text)
	return nil
}
