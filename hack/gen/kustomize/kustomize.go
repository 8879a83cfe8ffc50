// Package kustomize reads what kustomize builds of config/, and writes what is made of it.
package kustomize

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// Object is one document: its kind, its name, and the YAML.
type Object struct {
	Kind, Name, Text string
}

// Build has the program kustomize build a folder of config/, with components of config/components.
func Build(program, resources string, components ...string) ([]Object, error) {
	folder, err := os.MkdirTemp("", "tocsin-kustomize-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	config, err := filepath.Rel(folder, filepath.Join(testenv.Root(), "config"))
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "resources:\n  - %s/%s\ncomponents:\n", config, resources)
	for _, component := range components {
		fmt.Fprintf(&text, "  - %s/components/%s\n", config, component)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	command := exec.Command(program, "build", folder)
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kustomize: %w: %s", err, stderr.String())
	}
	return split(string(output))
}

// split splits a stream of objects.
func split(stream string) ([]Object, error) {
	var objects []Object
	for document := range strings.SplitSeq(stream, "\n---\n") {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return nil, fmt.Errorf("reading what kustomize built: %w", err)
		}
		objects = append(objects, Object{head.Kind, head.Metadata.Name, strings.TrimSuffix(document, "\n") + "\n"})
	}
	return objects, nil
}

// SplitImage splits the name of an image, REPOSITORY:TAG.
func SplitImage(image string) (repository, tag string, err error) {
	colon := strings.LastIndex(image, ":")
	if colon <= strings.LastIndex(image, "/") {
		return "", "", fmt.Errorf("the image %q has no tag", image)
	}
	return image[:colon], image[colon+1:], nil
}

// WriteFiles writes the texts of files, by their names. It removes the folder first: a file whose source is gone must not stay.
func WriteFiles(folder string, files map[string]string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
