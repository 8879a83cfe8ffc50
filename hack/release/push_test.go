package main

import (
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"
)

// copyScript copies a script to its place below the root.
func copyScript(t *testing.T, root, name string) {
	t.Helper()
	script, err := os.ReadFile(name)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	write(t, root, filepath.Join("hack", "release", name), string(script))
}

// scriptTree returns a folder with the scripts and the programs that it calls. Those that would upload write down, in the
// file log, how they were called.
func scriptTree(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	tree := t.TempDir() // the script finds its programs from its own place
	log := filepath.Join(tree, "log")
	write(t, tree, "CHANGELOG.md", "## v1.2.3\n\n- It works.\n")
	copyScript(t, tree, "publish.sh")
	copyScript(t, tree, "notes.sh")
	for path, text := range map[string]string{
		"bin/gh": "#!/bin/sh\necho gh \"$@\" >>" + log + "\n" +
			"while [ $# -gt 0 ]; do [ \"$1\" != --notes-file ] || cat \"$2\" >>" + log + "; shift; done\n",
		"bin/tools/cosign": "#!/bin/sh\necho cosign \"$@\" >>" + log + "\n",
		"bin/docker":       "#!/bin/sh\necho docker \"$@\" \"$(cat)\" >>" + log + "\n",
	} {
		write(t, tree, path, text)
	}
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(tree, "bin", "release-tool"), ".").CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(output))
	return tree
}

// The script runs against a registry in this process.
func TestPublish(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New())
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	folder := t.TempDir() // a signature is added to it
	g.Expect(os.CopyFS(folder, os.DirFS(artifacts(t)))).To(Succeed())

	tree := scriptTree(t)
	log := filepath.Join(tree, "log")
	publish := func(version string) (string, error) {
		command := exec.CommandContext(t.Context(), filepath.Join(tree, "hack", "release", "publish.sh"))
		command.Env = append(os.Environ(), "PATH="+filepath.Join(tree, "bin")+":"+os.Getenv("PATH"), "VERSION="+version,
			"REPOSITORY=github.com/somebody/fork", "RELEASE="+folder, "REGISTRY="+address, "GITHUB_OUTPUT="+filepath.Join(tree, "outputs"),
			"REGISTRY_USER=me", "REGISTRY_TOKEN=secret")
		output, err := command.CombinedOutput()
		return string(output), err
	}
	said, err := publish("v1.2.3-dev+abc")
	g.Expect(err).To(HaveOccurred())
	g.Expect(said).To(ContainSubstring("is no release"))
	said, err = publish("v1.2.4")
	g.Expect(err).To(HaveOccurred())
	g.Expect(said).To(ContainSubstring("there is no section"))
	g.Expect(log).NotTo(BeAnExistingFile(), "a failure must come before the first upload")

	said, err = publish(testVersion)
	g.Expect(err).NotTo(HaveOccurred(), said)
	calls, err := os.ReadFile(log)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(calls)).To(MatchRegexp(`(?s)^docker login ghcr\.io --username me --password-stdin secret
cosign sign --yes .*/tocsin@sha256:\w{64}
cosign sign --yes .*/tocsin-archiver@sha256:\w{64}
cosign sign --yes .*/tocsin-page@sha256:\w{64}
cosign sign --yes .*/tocsin-plugin@sha256:\w{64}
cosign sign --yes .*/tocsin-bundle@sha256:\w{64}
cosign sign --yes .*/charts/tocsin@sha256:\w{64}
cosign sign-blob --yes --bundle .*/checksums\.txt\.sigstore\.json .*/checksums\.txt
gh release create v1\.2\.3 --repo somebody/fork --verify-tag --draft --title v1\.2\.3 --notes-file .*install\.yaml.*
- It works\.
gh release edit v1\.2\.3 --repo somebody/fork --draft=false
$`))
	g.Expect(said).NotTo(ContainSubstring("secret"))
	outputs, err := os.ReadFile(filepath.Join(tree, "outputs"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(outputs)).To(MatchRegexp(
		`(?s)^image=.*/tocsin\nimage-digest=sha256:\w+\narchiver=.*/tocsin-archiver\narchiver-digest=sha256:\w+\npage=.*/tocsin-page\npage-digest=sha256:\w+\nplugin=.*/tocsin-plugin\nplugin-digest=sha256:\w+\nbundle=.*/tocsin-bundle\nbundle-digest=sha256:\w+\nchart=.*/charts/tocsin\nchart-digest=sha256:\w+\n$`))

	reference, err := name.ParseReference(address + "/charts/tocsin:1.2.3")
	g.Expect(err).NotTo(HaveOccurred())
	chart, err := remote.Image(reference)
	g.Expect(err).NotTo(HaveOccurred())
	layers, err := chart.Layers()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(layers).To(HaveLen(1))
	reader, err := layers[0].Compressed()
	g.Expect(err).NotTo(HaveOccurred())
	pushed, err := io.ReadAll(reader)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.ReadFile(filepath.Join(folder, "tocsin-1.2.3.tgz"))).To(Equal(pushed))
	g.Expect(chart.RawConfigFile()).To(ContainSubstring(`"version":"1.2.3"`))
}
