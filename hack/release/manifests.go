package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// manifests writes install.yaml, with the image by its digest, and the CustomResourceDefinitions of it by themselves.
func (b *builder) manifests(image string) error {
	content, err := os.ReadFile(filepath.Join(b.root, "dist", "install.yaml"))
	if err != nil {
		return err
	}
	install := []entry{{"install.yaml", 0o644, content}}
	if err := setLines(install, []setting{{"install.yaml", `image: tocsin:dev\n`, "image: " + image + "\n"}}); err != nil {
		return err
	}
	if err := b.write("install.yaml", install[0].content); err != nil {
		return err
	}
	const separator = "---\n"
	var definitions []string
	for document := range strings.SplitSeq(string(install[0].content), separator) {
		if strings.Contains(document, "\nkind: CustomResourceDefinition\n") {
			definitions = append(definitions, document)
		}
	}
	return b.write("crds.yaml", []byte(strings.Join(definitions, separator)))
}

// chart packs the Helm chart with the release's version and image.
func (b *builder) chart() error {
	entries, err := folderEntries(filepath.Join(b.root, "dist", "chart"), "tocsin")
	if err != nil {
		return err
	}
	if err := setLines(entries, chartSettings(b.version, b.locations)); err != nil {
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

// chartSettings returns what a release sets in the chart.
func chartSettings(version string, at locations) []setting {
	repository := at.imageRepository(manager)
	settings := []setting{
		{chartPath, `^version: .*\n`, "version: " + strings.TrimPrefix(version, "v") + "\n"},
		{chartPath, `^appVersion: .*\n`, "appVersion: " + tag(version) + "\n"},
		{"tocsin/values.yaml", `^  repository: tocsin\n`, "  repository: " + repository + "\n"},
		{"tocsin/values.schema.json", `"default": "tocsin"`, `"default": "` + repository + `"`},
		{"tocsin/README.md", "`image.repository` \\| `\"tocsin\"`", "`image.repository` | `\"" + repository + "\"`"},
	}
	for _, p := range products {
		image := "    - image: " + at.imageRepository(p) + ":" + tag(version) + "\n"
		settings = append(settings, setting{chartPath, `^    - image: ` + p.image + `:dev\n`, image})
	}
	return settings
}

// setting is what a release writes in the place of a text that matches a regular expression, of which ^ begins a line.
type setting struct{ file, old, replacement string }

// setLines replaces texts in the entries. Each has to be there once: the text is not what this program knows otherwise.
func setLines(entries []entry, settings []setting) error {
	for _, s := range settings {
		e, err := find(entries, s.file)
		if err != nil {
			return err
		}
		old := regexp.MustCompile("(?m)" + s.old)
		if found := len(old.FindAll(e.content, -1)); found != 1 {
			return fmt.Errorf("%s has %d lines like %q instead of one", s.file, found, s.old)
		}
		e.content = old.ReplaceAllLiteral(e.content, []byte(s.replacement))
	}
	return nil
}

// checkLines checks that the entries have what setLines wrote, and nothing else that matches its expressions.
func checkLines(entries []entry, settings []setting) error {
	for _, s := range settings {
		e, err := find(entries, s.file)
		if err != nil {
			return err
		}
		if !bytes.Contains(e.content, []byte(s.replacement)) {
			return fmt.Errorf("%s has no line %q", s.file, s.replacement)
		}
		for _, line := range regexp.MustCompile("(?m)"+s.old).FindAll(e.content, -1) {
			if string(line) != s.replacement {
				return fmt.Errorf("%s has the line %q as well as %q", s.file, line, s.replacement)
			}
		}
	}
	return nil
}

// chartName returns the name that Helm gives the chart's archive.
func chartName(version string) string { return "tocsin-" + strings.TrimPrefix(version, "v") + ".tgz" }

// krewName is the name of the manifest for krew, which has to be the plugin's.
const krewName = "tocsin.yaml"

// home is the repository that .krew.yaml names, which the release bot reads as it is.
const home = "https://github.com/tocsin-dev/tocsin"

// addURIAndSha matches the action of krew's release bot that prints a URL with the archive's checksum.
var addURIAndSha = regexp.MustCompile(`{{addURIAndSha "(.*)" .*}}`)

// krew renders the template of krew's release bot with the archives of this build. Platforms that were not built keep a
// checksum of zeros.
func (b *builder) krew() error {
	template, err := os.ReadFile(filepath.Join(b.root, ".krew.yaml"))
	if err != nil {
		return err
	}
	sums, err := sumFolder(b.out)
	if err != nil {
		return err
	}
	text := strings.NewReplacer("{{ .TagName }}", b.version, home, b.locations.source).Replace(string(template))
	text = addURIAndSha.ReplaceAllStringFunc(text, func(action string) string {
		url, digest := addURIAndSha.FindStringSubmatch(action)[1], strings.Repeat("0", 64)
		for _, s := range sums {
			if s.name == path.Base(url) {
				digest = s.digest
			}
		}
		return fmt.Sprintf("uri: %s\n    sha256: %q", url, digest)
	})
	return b.write(krewName, []byte(text))
}
