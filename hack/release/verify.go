package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

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
	installed, err := v.installedImage()
	if err != nil {
		return err
	}
	for _, p := range products {
		if err := v.image(ctx, p, installed, scratch); err != nil {
			return fmt.Errorf("image of the %s: %w", p.executable, err)
		}
	}
	if err := v.bundle(installed, scratch); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if err := v.chart(installed); err != nil {
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
	if want := checksumList(sums); string(list) != want {
		return fmt.Errorf("the list is not that of the files, which is:\n%s", want)
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
	program := filepath.Join(folder, binary.name)
	if err := verifyBinary(program, on); err != nil {
		return err
	}
	if err := v.billOfMaterials(bom, program); err != nil {
		return err
	}
	v.say("%s: its bill of materials", base)
	if on.os != runtime.GOOS || on.arch != runtime.GOARCH {
		return nil
	}
	argument := "--version"
	if p == plugin {
		argument = "version"
	}
	output, err := exec.CommandContext(ctx, program, argument).CombinedOutput()
	return v.saysVersion(base, output, err)
}

// verifyBinary checks the platform and the settings of a build.
func verifyBinary(program string, on platform) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	var settings []string
	for _, s := range info.Settings {
		settings = append(settings, s.Key+"="+s.Value)
	}
	for _, want := range []string{"GOOS=" + on.os, "GOARCH=" + on.arch, "-trimpath=true", "CGO_ENABLED=0"} {
		if !slices.Contains(settings, want) {
			return fmt.Errorf("it was not built with %s", want)
		}
	}
	return nil
}

// billOfMaterials compares a bill of materials with what the binary was built from.
func (v verifier) billOfMaterials(bom, program string) error {
	bill, err := os.ReadFile(bom)
	if err != nil {
		return err
	}
	var want bytes.Buffer
	if err := writeBill(&want, program, v.version); err != nil {
		return err
	}
	if !bytes.Equal(bill, want.Bytes()) {
		return fmt.Errorf("it is not that of the binary, which is:\n%s", &want)
	}
	return nil
}

// installedImage returns the image that install.yaml names.
func (v verifier) installedImage() (string, error) {
	install, err := os.ReadFile(filepath.Join(v.folder, "install.yaml"))
	if err != nil {
		return "", err
	}
	images := regexp.MustCompile(`(?m)^ *image: (.*)$`).FindAllSubmatch(install, -1)
	if len(images) != 1 {
		return "", fmt.Errorf("install.yaml names %d images instead of one", len(images))
	}
	return string(images[0][1]), nil
}

// registryOf returns the locations in the registry of an image.
func registryOf(image string) locations { return locations{registry: path.Dir(image)} }

// images calls a function for the image of each platform in the archive, and returns the digest of their index.
func (v verifier) images(archive, scratch string, check func(platform, v1.Image) error) (v1.Hash, error) {
	index, err := readLayout(filepath.Join(v.folder, archive), scratch)
	if err != nil {
		return v1.Hash{}, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	for _, m := range list.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			return v1.Hash{}, err
		}
		if err := check(platform{m.Platform.OS, m.Platform.Architecture}, image); err != nil {
			return v1.Hash{}, fmt.Errorf("%s: %w", m.Platform, err)
		}
	}
	return index.Digest()
}

// image checks that a product's image has the programs of the archives and starts, and that install.yaml names the manager's.
func (v verifier) image(ctx context.Context, p product, installed, scratch string) error {
	digest, err := v.images(p.imageName(v.version), scratch, func(on platform, image v1.Image) error {
		return v.platformImage(ctx, image, p, on, scratch)
	})
	if err != nil {
		return err
	}
	if want := registryOf(installed).imageByDigest(v.version, digest); p == manager && installed != want {
		return fmt.Errorf("install.yaml does not name the image as %s", want)
	}
	v.say("the image %s of the %s", digest, p.executable)
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
	entries, err := imageEntries(image)
	if err != nil {
		return err
	}
	archived, err := os.ReadFile(filepath.Join(scratch, p.base(v.version, on), p.executable))
	if err != nil {
		return err
	}
	if packed, err := find(entries, p.executable); err != nil || !bytes.Equal(packed.content, archived) {
		return errors.Join(errors.New("its program is another one than the archive's"), err)
	}
	if on.os != runtime.GOOS || on.arch != runtime.GOARCH {
		return nil
	}
	root := filepath.Join(scratch, p.image+"-image")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := unpackTo(root, entries); err != nil {
		return err
	}
	output, err := runInside(ctx, root, config.Config)
	return v.saysVersion("the image "+p.image, output, err)
}

// runInside runs the entry point of an unpacked image with --version. As root it sees nothing but the image's files and
// is the image's user, so that it shows whether it needs more.
func runInside(ctx context.Context, root string, config v1.Config) ([]byte, error) {
	command := exec.CommandContext(ctx, filepath.Join(root, config.Entrypoint[0]), "--version")
	if os.Geteuid() == 0 {
		command = exec.CommandContext(ctx, "chroot", "--userspec="+imageUser, root, config.Entrypoint[0], "--version")
	}
	command.Env = config.Env
	return command.CombinedOutput()
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

// bundle checks that the bundle for OLM has the release's version and the image of install.yaml.
func (v verifier) bundle(installed, scratch string) error {
	_, err := v.images(bundleName(v.version), scratch, func(_ platform, image v1.Image) error {
		entries, err := imageEntries(image)
		if err != nil {
			return err
		}
		return checkLines(entries, bundleSettings(v.version, installed))
	})
	if err == nil {
		v.say("the bundle for OLM")
	}
	return err
}

// chart checks that the chart has the release's version, and names the image of install.yaml and those of the other programs.
func (v verifier) chart(installed string) error {
	entries, err := unpack(filepath.Join(v.folder, chartName(v.version)))
	if err != nil {
		return err
	}
	if err := checkLines(entries, chartSettings(v.version, registryOf(installed))); err != nil {
		return err
	}
	v.say("the chart, with the image %s", installed)
	return nil
}
