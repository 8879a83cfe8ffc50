package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// developmentImage is the image that the committed manifests name.
const developmentImage = "image: tocsin:dev\n"

// manifests writes install.yaml, with the image by its digest, and the CustomResourceDefinitions of it by themselves.
func (b *builder) manifests(digest v1.Hash) error {
	content, err := os.ReadFile(filepath.Join(b.root, "dist", "install.yaml"))
	if err != nil {
		return err
	}
	image := "image: " + b.locations.imageByDigest(b.version, digest) + "\n"
	install, err := replaceOnce(string(content), developmentImage, image)
	if err != nil {
		return fmt.Errorf("dist/install.yaml: %w", err)
	}
	if err := b.write("install.yaml", []byte(install)); err != nil {
		return err
	}
	const separator = "---\n"
	var definitions []string
	for document := range strings.SplitSeq(install, separator) {
		if strings.Contains(document, "\nkind: CustomResourceDefinition\n") {
			definitions = append(definitions, document)
		}
	}
	return b.write("crds.yaml", []byte(strings.Join(definitions, separator)))
}

// replaceOnce replaces the only occurrence of old. Any other number of them is an error: the text is not what this
// program knows.
func replaceOnce(text, old, replacement string) (string, error) {
	if n := strings.Count(text, old); n != 1 {
		return "", fmt.Errorf("%q occurs %d times instead of once", old, n)
	}
	return strings.Replace(text, old, replacement, 1), nil
}

// chart packs the Helm chart with the release's version and image.
func (b *builder) chart() error {
	entries, err := folderEntries(filepath.Join(b.root, "dist", "chart"), "tocsin")
	if err != nil {
		return err
	}
	repository := b.locations.imageRepository(manager)
	settings := []setting{
		{chartPath, regexp.MustCompile(`(?m)^version: .*$`), "version: " + strings.TrimPrefix(b.version, "v")},
		{chartPath, regexp.MustCompile(`(?m)^appVersion: .*$`), "appVersion: " + tag(b.version)},
		{"tocsin/values.yaml", regexp.MustCompile(`(?m)^  repository: tocsin$`), "  repository: " + repository},
		{"tocsin/values.schema.json", regexp.MustCompile(`(?m)^( *"default": )"tocsin"(,?)$`), `${1}"` + repository + `"${2}`},
		{"tocsin/README.md", regexp.MustCompile("(?m)^(\\| `image.repository` \\| )`\"tocsin\"`"), "${1}`\"" + repository + "\"`"},
	}
	for _, p := range products {
		line := regexp.MustCompile(`(?m)^    - image: ` + p.image + `:dev$`)
		settings = append(settings, setting{chartPath, line, "    - image: " + b.locations.imageRepository(p) + ":" + tag(b.version)})
	}
	if err := setLines(entries, settings); err != nil {
		return err
	}
	packed, err := gzipped(entries, b.date)
	if err != nil {
		return err
	}
	return b.write(chartName(b.version), packed)
}

// chartPath is the chart's description in its archive.
const chartPath = "tocsin/Chart.yaml"

// setting is a line of a file, and what a release writes in its place.
type setting struct {
	file        string
	line        *regexp.Regexp
	replacement string
}

// setLines replaces lines in the entries. Each has to be there once: the text is not what this program knows otherwise.
func setLines(entries []entry, settings []setting) error {
	for _, s := range settings {
		e, err := find(entries, s.file)
		if err != nil {
			return err
		}
		if found := len(s.line.FindAll(e.content, -1)); found != 1 {
			return fmt.Errorf("%s has %d lines like %q instead of one", s.file, found, s.line)
		}
		e.content = s.line.ReplaceAll(e.content, []byte(s.replacement))
	}
	return nil
}

// chartName returns the name that Helm gives the chart's archive.
func chartName(version string) string { return "tocsin-" + strings.TrimPrefix(version, "v") + ".tgz" }

// krewName is the name of the manifest for krew, which has to be the plugin's.
const krewName = "tocsin.yaml"

// krew renders the template of krew's release bot with the archives of this build.
func (b *builder) krew() error {
	text, err := os.ReadFile(filepath.Join(b.root, ".krew.yaml"))
	if err != nil {
		return err
	}
	sums, err := sumFolder(b.out)
	if err != nil {
		return err
	}
	rendered, err := renderKrew(string(text), b.version, b.locations, sums)
	if err != nil {
		return err
	}
	return b.write(krewName, []byte(rendered))
}

// home is the repository that .krew.yaml names, which the release bot reads as it is.
const home = "https://github.com/tocsin-dev/tocsin"

// renderKrew renders the template as the release bot does: addURIAndSha is given a URL, which is a template too, and
// prints it with the archive's checksum. Platforms that were not built keep a checksum of zeros.
func renderKrew(text, version string, at locations, sums []sum) (string, error) {
	data := struct{ TagName string }{version}
	execute := func(t *template.Template, text string) (string, error) {
		parsed, err := t.Parse(text)
		if err != nil {
			return "", err
		}
		var out bytes.Buffer
		err = parsed.Execute(&out, data)
		return out.String(), err
	}
	functions := template.FuncMap{"addURIAndSha": func(url, _ string) (string, error) {
		url, err := execute(template.New("url"), url)
		if err != nil {
			return "", err
		}
		digest := strings.Repeat("0", 64)
		for _, s := range sums {
			if strings.HasSuffix(url, "/"+s.name) {
				digest = s.digest
			}
		}
		return fmt.Sprintf("uri: %s\n    sha256: %q", url, digest), nil
	}}
	rendered, err := execute(template.New("krew").Funcs(functions), text)
	return strings.ReplaceAll(rendered, home, at.source), err
}
