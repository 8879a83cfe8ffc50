package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing/fstest"
)

// manifests writes install.yaml, with the image by its digest, and the CustomResourceDefinitions of it by themselves.
func (r *releaser) manifests(image string) error {
	content, err := os.ReadFile(filepath.Join(r.root, "dist", "install.yaml"))
	if err != nil {
		return err
	}
	install := fstest.MapFS{"install.yaml": {Data: content}}
	if _, err := setLines(install, []setting{{"install.yaml", `image: tocsin:dev\n`, "image: " + image + "\n"}}); err != nil {
		return err
	}
	content = install["install.yaml"].Data
	const separator = "---\n"
	var definitions []string
	for document := range strings.SplitSeq(string(content), separator) {
		if strings.Contains(document, "\nkind: CustomResourceDefinition\n") {
			definitions = append(definitions, document)
		}
	}
	return errors.Join(r.write("install.yaml", content), r.write("crds.yaml", []byte(strings.Join(definitions, separator))))
}

// chart packs the Helm chart with the release's version and image.
func (r *releaser) chart() error {
	files, err := collect(os.DirFS(filepath.Join(r.root, "dist", "chart")), "tocsin")
	if err != nil {
		return err
	}
	if _, err := setLines(files, chartSettings(r.version, r.locations)); err != nil {
		return err
	}
	packed, err := gzipped(files, r.date)
	if err != nil {
		return err
	}
	return r.write(chartName(r.version), packed)
}

// chartPath is the chart's description in its archive.
const chartPath = "tocsin/Chart.yaml"

// chartSettings returns what a release sets in the chart.
func chartSettings(version string, at locations) []setting {
	repository := at.imageRepository(manager)
	settings := []setting{
		{chartPath, `^version: .*\n`, "version: " + strings.TrimPrefix(version, "v") + "\n"},
		{chartPath, `^appVersion: .*\n`, "appVersion: " + tag(version) + "\n"},
		{"tocsin/values.yaml", `^  repository: .*\n`, "  repository: " + repository + "\n"},
		{"tocsin/values.schema.json", `"default": "(\S+/)?tocsin"`, `"default": "` + repository + `"`},
		{"tocsin/README.md", "^\\| `image.repository` \\| `.*?`", "| `image.repository` | `\"" + repository + "\"`"},
	}
	for _, p := range products {
		image := "    - image: " + at.imageRepository(p) + ":" + tag(version) + "\n"
		settings = append(settings, setting{chartPath, `^    - image: (\S+/)?` + p.image + `:\S+\n`, image})
	}
	return settings
}

// setting is what a release writes in the place of a text that matches a regular expression, of which ^ begins a line. For
// checkLines, it also matches what is written.
type setting struct{ file, old, replacement string }

// setLines replaces texts in the files. Each has to be there once: the text is not what this program knows otherwise. It returns
// a sentence for each text that was another one.
func setLines(files fstest.MapFS, settings []setting) (changes []string, err error) {
	for _, s := range settings {
		file, err := find(files, s.file)
		if err != nil {
			return nil, err
		}
		old := regexp.MustCompile("(?m)" + s.old)
		found := old.FindAll(file.Data, -1)
		if len(found) != 1 {
			return nil, fmt.Errorf("%s has %d lines like %q instead of one", s.file, len(found), s.old)
		}
		if text := string(found[0]); text != s.replacement {
			changes = append(changes, fmt.Sprintf("%s has %q instead of %q", s.file, text, s.replacement))
		}
		file.Data = old.ReplaceAllLiteral(file.Data, []byte(s.replacement))
	}
	return changes, nil
}

// checkLines checks that setLines would change nothing.
func checkLines(files fstest.MapFS, settings []setting) error {
	changes, err := setLines(files, settings)
	if len(changes) > 0 {
		return errors.New(strings.Join(changes, "; "))
	}
	return err
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
func (r *releaser) krew() error {
	template, err := os.ReadFile(filepath.Join(r.root, ".krew.yaml"))
	if err != nil {
		return err
	}
	sums, err := sumFolder(r.folder)
	if err != nil {
		return err
	}
	text := strings.NewReplacer("{{ .TagName }}", r.version, home, r.locations.source).Replace(string(template))
	text = addURIAndSha.ReplaceAllStringFunc(text, func(action string) string {
		url := addURIAndSha.FindStringSubmatch(action)[1]
		return fmt.Sprintf("uri: %s\n    sha256: %q", url, cmp.Or(sums[path.Base(url)], strings.Repeat("0", 64)))
	})
	return r.write(krewName, []byte(text))
}
