// Package kustomize reads what kustomize builds of config/, and writes what is made of it.
package kustomize

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing/fstest"

	"sigs.k8s.io/yaml"
)

// Object is one document: its kind, its name, and the YAML, also decoded.
type Object struct {
	Kind, Name, Text string
	Content          map[string]any
}

// Read reads the objects that kustomize prints.
func Read(built io.Reader) (objects []Object, err error) {
	stream, err := io.ReadAll(built)
	if err != nil {
		return nil, err
	}
	if len(stream) == 0 {
		return nil, errors.New("kustomize built nothing")
	}
	for document := range strings.SplitSeq(string(stream), "\n---\n") {
		o := Object{Text: strings.TrimSuffix(document, "\n") + "\n"}
		if err := yaml.Unmarshal([]byte(document), &o.Content); err != nil {
			return nil, fmt.Errorf("reading what kustomize built: %w", err)
		}
		o.Kind, _ = o.Content["kind"].(string)
		metadata, _ := o.Content["metadata"].(map[string]any)
		o.Name, _ = metadata["name"].(string)
		objects = append(objects, o)
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
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Mode: 0o644, Data: []byte(text)}
	}
	return errors.Join(os.RemoveAll(folder), os.CopyFS(folder, tree))
}
