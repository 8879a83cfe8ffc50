package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing/fstest"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// verify checks the artifacts in a folder, with nothing but what the folder has.
func (r *releaser) verify(ctx context.Context, folder string) error {
	r.folder = folder
	if err := r.verifyChecksums(); err != nil {
		return fmt.Errorf("checksums: %w", err)
	}
	bills, err := filepath.Glob(filepath.Join(folder, "*.cdx.json"))
	if err != nil {
		return err
	}
	if len(bills) == 0 {
		return errors.New("there are no programs")
	}
	for _, bill := range bills {
		if err := r.verifyProgram(ctx, bill); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(bill), err)
		}
	}
	installed, err := r.installedImage()
	if err != nil {
		return err
	}
	for _, p := range products {
		if err := r.verifyImage(ctx, p, installed); err != nil {
			return fmt.Errorf("image of the %s: %w", p.executable, err)
		}
	}
	if err := r.verifyBundle(installed); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if err := r.verifyChart(installed); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return nil
}

func (r *releaser) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.stdout, "verified: "+format+"\n", args...)
}

// verifyChecksums compares the folder with its list of checksums. A file that is not listed is an error too.
func (r *releaser) verifyChecksums() error {
	list, err := os.ReadFile(filepath.Join(r.folder, checksumsName))
	if err != nil {
		return err
	}
	sums, err := sumFolder(r.folder)
	if err != nil {
		return err
	}
	if want := checksumList(sums); !bytes.Equal(list, want) {
		return fmt.Errorf("the list is not that of the files, which is:\n%s", want)
	}
	r.say("the checksums of %d artifacts", len(sums))
	return nil
}

// verifyProgram checks the archive beside a bill of materials: its files, what the binary was built for and from, and, if it
// runs on this machine, its version.
func (r *releaser) verifyProgram(ctx context.Context, bill string) error {
	base := strings.TrimSuffix(filepath.Base(bill), ".cdx.json")
	parts := strings.Split(base, "_")
	on := platform{parts[len(parts)-2], parts[len(parts)-1]}
	i := slices.IndexFunc(products, func(p product) bool { return p.archive == parts[0] })
	if i < 0 {
		return errors.New("it is of no product")
	}
	p := products[i]
	files, err := unpack(filepath.Join(r.folder, p.archiveName(r.version, on)))
	if err != nil {
		return err
	}
	binary, err := find(files, on.executable(p.executable))
	if _, unlicensed := find(files, "LICENSE"); err != nil || unlicensed != nil || binary.Mode.Perm() != 0o755 {
		return errors.Join(errors.New("the archive has not the program with mode 755 and the license"), err, unlicensed)
	}
	folder := filepath.Join(r.scratch, base)
	if err := os.CopyFS(folder, files); err != nil {
		return err
	}
	program := filepath.Join(folder, on.executable(p.executable))
	if err := r.verifyBinary(program, bill, on); err != nil {
		return err
	}
	r.say("%s: its bill of materials", base)
	if !on.isHere() {
		return nil
	}
	argument := "--version"
	if p == plugin {
		argument = "version"
	}
	output, err := exec.CommandContext(ctx, program, argument).CombinedOutput() //nolint:gosec // to run it is the check
	return r.saysVersion(base, output, err)
}

// isHere reports whether programs for the platform run on this machine.
func (p platform) isHere() bool { return p == platform{runtime.GOOS, runtime.GOARCH} }

// verifyBinary checks the platform and the settings of a build, and compares a bill of materials with what it was built from.
func (r *releaser) verifyBinary(program, bill string, on platform) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	for key, value := range map[string]string{"GOOS": on.os, "GOARCH": on.arch, "-trimpath": "true", "CGO_ENABLED": "0"} {
		if !slices.Contains(info.Settings, debug.BuildSetting{Key: key, Value: value}) {
			return fmt.Errorf("it was not built with %s=%s", key, value)
		}
	}
	written, err := os.ReadFile(bill)
	if err != nil {
		return err
	}
	want, err := billOf(program, r.version)
	if err == nil && !bytes.Equal(written, want) {
		return fmt.Errorf("it is not that of the binary, which is:\n%s", want)
	}
	return err
}

// installedImage returns the image that install.yaml names.
func (r *releaser) installedImage() (string, error) {
	install, err := os.ReadFile(filepath.Join(r.folder, "install.yaml"))
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

// verifyImages calls a function for the image of each platform in the archive, and returns the digest of their index.
func (r *releaser) verifyImages(archive string, check func(platform, v1.Image, fstest.MapFS) error) (v1.Hash, error) {
	index, err := r.readLayout(filepath.Join(r.folder, archive))
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
		files, err := untar(mutate.Extract(image))
		if err != nil {
			return v1.Hash{}, err
		}
		if err := check(platform{m.Platform.OS, m.Platform.Architecture}, image, files); err != nil {
			return v1.Hash{}, fmt.Errorf("%s: %w", m.Platform, err)
		}
	}
	return index.Digest()
}

// verifyImage checks that a product's image has the program of the archive and starts, and that install.yaml names the manager's.
func (r *releaser) verifyImage(ctx context.Context, p product, installed string) error {
	digest, err := r.verifyImages(p.imageName(r.version), func(on platform, image v1.Image, files fstest.MapFS) error {
		return r.verifyPlatformImage(ctx, image, files, p, on)
	})
	if err != nil {
		return err
	}
	if want := registryOf(installed).imageByDigest(r.version, digest); p == manager && installed != want {
		return fmt.Errorf("install.yaml does not name the image as %s", want)
	}
	r.say("the image %s of the %s", digest, p.executable)
	return nil
}

// verifyPlatformImage compares the image's program with the archive's, and runs it as the runtime would.
func (r *releaser) verifyPlatformImage(ctx context.Context, image v1.Image, files fstest.MapFS, p product, on platform) error {
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	if config.OS != on.os || config.Architecture != on.arch || config.Config.User != imageUser {
		return fmt.Errorf("the configuration is of %s/%s and the user %q", config.OS, config.Architecture, config.Config.User)
	}
	archived, err := os.ReadFile(filepath.Join(r.scratch, p.base(r.version, on), p.executable))
	if err != nil {
		return err
	}
	if packed, err := find(files, p.executable); err != nil || !bytes.Equal(packed.Data, archived) {
		return errors.Join(errors.New("its program is another one than the archive's"), err)
	}
	if !on.isHere() {
		return nil
	}
	root := filepath.Join(r.scratch, p.image+"-image")
	if err := os.CopyFS(root, files); err != nil {
		return err
	}
	output, err := runInside(ctx, root, config.Config)
	return r.saysVersion("the image "+p.image, output, err)
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

// saysVersion checks what a program printed as its version.
func (r *releaser) saysVersion(name string, output []byte, err error) error {
	text := strings.TrimSpace(string(output))
	if err != nil || !strings.Contains(text, " "+r.version+" ") || !strings.Contains(text, r.commit) {
		return fmt.Errorf("%s: running it: %w: it printed %q", name, errors.Join(err, errors.New("wrong version")), text)
	}
	r.say("%s runs: %s", name, text)
	return nil
}

// verifyBundle checks that the bundle for OLM has the release's version and the image of install.yaml.
func (r *releaser) verifyBundle(installed string) error {
	_, err := r.verifyImages(bundleName(r.version), func(_ platform, _ v1.Image, files fstest.MapFS) error {
		return checkLines(files, bundleSettings(r.version, installed))
	})
	if err == nil {
		r.say("the bundle for OLM")
	}
	return err
}

// verifyChart checks that the chart has the release's version, and names the image of install.yaml and those of other programs.
func (r *releaser) verifyChart(installed string) error {
	files, err := unpack(filepath.Join(r.folder, chartName(r.version)))
	if err != nil {
		return err
	}
	if err := checkLines(files, chartSettings(r.version, registryOf(installed))); err != nil {
		return err
	}
	r.say("the chart, with the image %s", installed)
	return nil
}
