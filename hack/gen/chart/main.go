// Command chart writes the Helm chart from what kustomize builds, so that nothing is kept twice.
//
// What a chart's users set besides kustomize's patches is put in by a few replacements: the namespace, the image, the
// replicas, more arguments and environment variables, the resources, and components that only add objects. With its
// default values the chart renders the very objects of config/default, but for the Namespace, which is Helm's.
package main

import (
	"embed"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// namespace is the one of config/default.
const namespace = "tocsin-system"

// addOns are the components that only add objects, by the value that switches them on.
var addOns = []struct{ value, component string }{
	{"networkPolicy", "network-policy"},
	{"flowControl", "flow-control"},
	{"admissionPolicy", "admission-policy"},
	{"prometheus", "prometheus"},
	{"grafana", "grafana"},
}

// fixed are the parts of the chart that are written by hand.
//
//go:embed fixed
var fixed embed.FS

func main() {
	kustomize := flag.String("kustomize", "bin/tools/kustomize", "kustomize")
	folder := flag.String("out", "dist/chart", "the folder of the chart")
	flag.Parse()
	if err := write(*kustomize, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// write writes the whole chart. What was in the folder before is removed: an object that is gone must not stay.
func write(kustomize, folder string) error {
	files, err := templates(kustomize)
	if err != nil {
		return err
	}
	parts, err := fs.Sub(fixed, "fixed")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.CopyFS(folder, parts); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
