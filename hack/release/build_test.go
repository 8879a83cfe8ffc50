package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	. "github.com/onsi/gomega"
)

const testVersion = "v1.2.3"

// write writes a file below the folder. A script can be run.
func write(t *testing.T, folder, name, text string) {
	t.Helper()
	path := filepath.Join(folder, name)
	NewWithT(t).Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	mode := os.FileMode(0o644)
	if strings.HasPrefix(text, "#!") {
		mode = 0o755
	}
	NewWithT(t).Expect(os.WriteFile(path, []byte(text), mode)).To(Succeed())
}

// repository returns a small repository of the project's form, whose programs build fast.
func repository(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	const program = `package main

import "os"

var version string

func main() { os.Stdout.WriteString("it " + version + " (commit abc)\n") }
`
	write(t, folder, "go.mod", "module github.com/tocsin-dev/tocsin\n\ngo 1.26.0\n")
	write(t, folder, "main.go", program)
	write(t, folder, "cmd/kubectl-tocsin/main.go", program)
	write(t, folder, "cmd/tocsin-archiver/main.go", program)
	write(t, folder, "cmd/tocsin-page/main.go", program)
	write(t, folder, "LICENSE", "license")
	for _, name := range []string{"dist/install.yaml", ".krew.yaml"} {
		content, err := os.ReadFile(filepath.Join("..", "..", name))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		write(t, folder, name, string(content))
	}
	for _, name := range []string{"dist/chart", "bundle"} {
		NewWithT(t).Expect(os.CopyFS(filepath.Join(folder, name), os.DirFS(filepath.Join("..", "..", name)))).To(Succeed())
	}
	return folder
}

// other is a platform with an image that cannot run here.
var other = func() platform {
	if runtime.GOARCH == "amd64" {
		return platform{"linux", "arm64"}
	}
	return platform{"linux", "amd64"}
}()

// release builds the repository for this platform and two others, and returns the folder of the artifacts.
func release(t *testing.T, root string) string {
	t.Helper()
	r := releaserOf(t, root)
	NewWithT(t).Expect(r.build(t.Context(), "")).To(Succeed())
	return r.folder
}

// releaserOf returns a releaser for the repository.
func releaserOf(t *testing.T, root string) *releaser {
	t.Helper()
	return &releaser{
		root: root, folder: filepath.Join(t.TempDir(), "artifacts"), scratch: t.TempDir(), version: testVersion, commit: "abc",
		date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)), repository: "github.com/Somebody/fork",
		platforms: []platform{{"linux", runtime.GOARCH}, other, {"windows", "amd64"}},
		ldflags:   "-s -w -X main.version=" + testVersion,
	}
}

// verify verifies a folder of artifacts, and returns what it says.
func verify(t *testing.T, folder, commit string) (said string, err error) {
	t.Helper()
	var stdout bytes.Buffer
	r := &releaser{version: testVersion, commit: commit, scratch: t.TempDir(), stdout: &stdout}
	err = r.verify(t.Context(), folder)
	return stdout.String(), err
}

// built is the folder of the release that all tests share. They do not change it.
var built string

// artifacts returns the release that all tests share.
func artifacts(t *testing.T) string {
	t.Helper()
	if built == "" {
		folder := filepath.Join(shared, "artifacts")
		NewWithT(t).Expect(os.CopyFS(folder, os.DirFS(release(t, repository(t))))).To(Succeed())
		built = folder
	}
	return built
}

// shared is a folder that lives as long as the tests.
var shared string

func TestMain(m *testing.M) {
	var err error
	if shared, err = os.MkdirTemp("", "release-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(shared)
	os.Exit(code)
}

func TestReleaseIsReproducibleAndVerified(t *testing.T) {
	g := NewWithT(t)
	first, second := artifacts(t), release(t, repository(t))
	sums, err := sumFolder(first)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(sumFolder(second)).To(Equal(sums))
	g.Expect(filepath.Join(first, "kubectl-tocsin_v1.2.3_windows_amd64.zip")).To(BeAnExistingFile())

	said, err := verify(t, first, "abc")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(said).To(And(ContainSubstring("the image tocsin runs: it v1.2.3"),
		ContainSubstring("the image tocsin-archiver runs: it v1.2.3"),
		ContainSubstring("the image tocsin-page runs: it v1.2.3"),
		ContainSubstring("the image tocsin-plugin runs: it v1.2.3"),
		ContainSubstring("kubectl-tocsin_v1.2.3_linux_"+runtime.GOARCH+" runs: it v1.2.3")))

	install, err := os.ReadFile(filepath.Join(first, "install.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(install)).To(MatchRegexp(`image: ghcr\.io/somebody/tocsin:v1\.2\.3@sha256:[0-9a-f]{64}\n`))
	definitions, err := os.ReadFile(filepath.Join(first, "crds.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	kinds, err := filepath.Glob("../../config/crd/bases/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kinds).NotTo(BeEmpty())
	g.Expect(strings.Count(string(definitions), "kind: CustomResourceDefinition\n")).To(Equal(len(kinds)))
	g.Expect(string(definitions)).NotTo(ContainSubstring("kind: Deployment"))
	manifest, err := os.ReadFile(filepath.Join(first, krewName))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(manifest)).To(MatchRegexp(
		`uri: https://github\.com/Somebody/fork/releases/download/v1\.2\.3/kubectl-tocsin_v1\.2\.3_windows_amd64\.zip\n +sha256: "[0-9a-f]{64}"`))
	g.Expect(string(manifest)).NotTo(ContainSubstring("tocsin-dev"))
	chart, err := unpack(filepath.Join(first, chartName(testVersion)))
	g.Expect(err).NotTo(HaveOccurred())
	for name, file := range chart {
		g.Expect(string(file.Data)).NotTo(MatchRegexp(`tocsin:dev|[:"]tocsin"?$`), name)
	}
}

// packBundle packs the bundle with the manager's image by this digest.
func packBundle(t *testing.T, digest v1.Hash) func(*GomegaWithT, string) {
	t.Helper()
	return func(g *GomegaWithT, folder string) {
		at, err := locate("github.com/Somebody/fork", testVersion)
		g.Expect(err).NotTo(HaveOccurred())
		r := releaserOf(t, repository(t))
		r.folder = folder
		g.Expect(r.bundle(at.imageByDigest(testVersion, digest))).To(Succeed())
	}
}

// Each attack leaves a list of checksums that fits, so that the check behind it has to find the fault.
func TestVerifyFindsFaults(t *testing.T) {
	original := artifacts(t)
	linux := platform{"linux", runtime.GOARCH}
	replace := func(name string, change func(string) string) func(*GomegaWithT, string) {
		return func(g *GomegaWithT, folder string) {
			path := filepath.Join(folder, name)
			content, err := os.ReadFile(path)
			g.Expect(err).NotTo(HaveOccurred())
			changed := change(string(content))
			g.Expect(changed).NotTo(Equal(string(content)))
			g.Expect(os.WriteFile(path, []byte(changed), 0o600)).To(Succeed())
		}
	}
	copyOver := func(from, to string) func(*GomegaWithT, string) {
		return func(g *GomegaWithT, folder string) {
			content, err := os.ReadFile(filepath.Join(folder, from))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(os.WriteFile(filepath.Join(folder, to), content, 0o600)).To(Succeed())
		}
	}
	packChart := func(change func(fstest.MapFS)) func(*GomegaWithT, string) {
		return func(g *GomegaWithT, folder string) {
			path := filepath.Join(folder, chartName(testVersion))
			files, err := unpack(path)
			g.Expect(err).NotTo(HaveOccurred())
			change(files)
			packed, err := gzipped(files, time.Unix(0, 0))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(os.WriteFile(path, packed, 0o600)).To(Succeed())
		}
	}
	replaceIn := func(name, old, replacement string) func(fstest.MapFS) {
		return func(files fstest.MapFS) {
			files[name].Data = bytes.ReplaceAll(files[name].Data, []byte(old), []byte(replacement))
		}
	}
	for name, c := range map[string]struct {
		attack func(*GomegaWithT, string)
		want   string
	}{
		"a program of another platform": {
			copyOver(manager.archiveName(testVersion, other), manager.archiveName(testVersion, linux)),
			"it was not built with GOARCH=",
		},
		"another program than the bill of materials has": {
			copyOver(manager.archiveName(testVersion, linux), plugin.archiveName(testVersion, linux)), "has not the program",
		},
		"a bill of materials with another module": {
			replace(plugin.sbomName(testVersion, linux), func(s string) string {
				return strings.Replace(s, `"version": "go1`, `"version": "go2`, 1)
			}),
			"it is not that of the binary",
		},
		"a bill of materials of another binary": {
			copyOver(manager.sbomName(testVersion, other), manager.sbomName(testVersion, linux)), "it is not that of the binary",
		},
		"a manifest with another image": {
			replace("install.yaml", func(s string) string { return strings.Replace(s, "@sha256:", "@sha256:0", 1) }), "does not name the image",
		},
		"a chart with the development image in its annotation": {
			packChart(replaceIn(chartPath, "    - image: ghcr.io/somebody/tocsin:v1.2.3", "    - image: tocsin:dev")),
			"instead of \"    - image: ghcr.io/somebody/tocsin:v1.2.3",
		},
		"a chart with another image": {
			packChart(replaceIn("tocsin/values.yaml", "ghcr.io/somebody/tocsin", "tocsin")), "instead of \"  repository: ghcr.io/somebody/tocsin",
		},
		"a chart of another version": {packChart(replaceIn(chartPath, "version: 1.2.3", "version: 1.2.4")), "instead of \"version: 1.2.3"},
		"a bundle with another image": {packBundle(t, v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}),
			"instead of \"    containerImage: "},
		"another image as the bundle": {copyOver(manager.imageName(testVersion), bundleName(testVersion)), "there is no manifests/"},
		"the manager's image as the archiver's": {copyOver(manager.imageName(testVersion), archiver.imageName(testVersion)),
			"image of the archiver: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			g.Expect(os.CopyFS(folder, os.DirFS(original))).To(Succeed())
			c.attack(g, folder)
			_, err := verify(t, folder, "abc")
			g.Expect(err).To(MatchError(ContainSubstring("checksums: ")))
			g.Expect((&releaser{folder: folder}).checksums()).To(Succeed())
			_, err = verify(t, folder, "abc")
			g.Expect(err).To(MatchError(ContainSubstring(c.want)))
		})
	}
	g := NewWithT(t)
	_, err := verify(t, original, "def")
	g.Expect(err).To(MatchError(ContainSubstring("wrong version")))
}

func TestArchivesDependOnContentOnly(t *testing.T) {
	g := NewWithT(t)
	files := func() fstest.MapFS {
		return fstest.MapFS{"b": {Mode: 0o644, Data: []byte("2")}, "a/x": {Mode: 0o755, Data: []byte("1")}}
	}
	when := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, pack := range map[string]func(fstest.MapFS, time.Time) ([]byte, error){"x.tar.gz": gzipped, "x.zip": zipped} {
		first, err := pack(files(), when)
		g.Expect(err).NotTo(HaveOccurred())
		second, err := pack(files(), when.In(time.FixedZone("", -3600)))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(second).To(Equal(first))
		path := filepath.Join(t.TempDir(), name)
		g.Expect(os.WriteFile(path, first, 0o600)).To(Succeed())
		g.Expect(unpack(path)).To(Equal(files()))
	}
	g.Expect(os.CopyFS(t.TempDir(), fstest.MapFS{"../outside": {}})).NotTo(Succeed())
}

func TestLocations(t *testing.T) {
	g := NewWithT(t)
	at, err := locate("github.com/Tocsin-Dev/tocsin", "v0.1.0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(at.imageRepository(archiver)).To(Equal("ghcr.io/tocsin-dev/tocsin-archiver"))
	g.Expect(at.source).To(Equal("https://github.com/Tocsin-Dev/tocsin"))
	for _, wrong := range [][2]string{
		{"example.com/a/b", "v1.0.0"}, {"github.com/a", "v1.0.0"}, {"github.com/a/b", "1.0.0"}, {"github.com/a/b", "v1"},
	} {
		_, err := locate(wrong[0], wrong[1])
		g.Expect(err).To(HaveOccurred(), "%v", wrong)
	}
	g.Expect(tag("v0.1.0-dev+abc")).To(Equal("v0.1.0-dev_abc"))
}

func TestCommandLine(t *testing.T) {
	g := NewWithT(t)
	for _, args := range [][]string{nil, {"unknown"}, {"verify"}, {"verify", "--no-such-flag"}} {
		g.Expect(run(context.Background(), args, &bytes.Buffer{})).To(MatchError(errUsage), "%v", args)
	}
	g.Expect(run(context.Background(), []string{"build", "-date", "today"}, &bytes.Buffer{})).To(MatchError(ContainSubstring("flag -date")))
}
