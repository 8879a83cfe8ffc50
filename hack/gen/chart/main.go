// Command chart writes the Helm chart from its hand-written parts, and from what kustomize builds and prints to it, so that the
// CustomResourceDefinitions, the rules of the roles, the alerts and the dashboard are kept once.
//
// With its default values the chart renders the objects of config/default, but for the Namespace, which is Helm's. A test
// in config/ compares both, also with the components.
package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/tocsin-dev/tocsin/hack/gen/kustomize"
)

// fixed are the parts of the chart that are written by hand.
//
//go:embed all:fixed
var fixed embed.FS

// options are the flags.
type options struct {
	out       string // the folder of the chart
	image     string // the manager's image, REPOSITORY:TAG
	changelog string // the file with the changes of the chart's version
}

func main() {
	o := options{changelog: "CHANGELOG.md"}
	flag.StringVar(&o.out, "out", "dist/chart", "the folder of the chart")
	flag.StringVar(&o.image, "image", "tocsin:dev", "the image of the manager, REPOSITORY:TAG")
	flag.Parse()
	if err := o.write(); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// write writes the whole chart.
func (o options) write() error {
	files := map[string]string{}
	err := fs.WalkDir(fixed, "fixed", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fixed.ReadFile(path)
		files[strings.TrimPrefix(path, "fixed/")] = string(text)
		return err
	})
	if err != nil {
		return err
	}
	built, err := kustomize.Read(os.Stdin)
	if err != nil {
		return err
	}
	addObjects(files, built)
	if err := errors.Join(o.describe(files, built), o.addValues(files)); err != nil {
		return err
	}
	return kustomize.WriteFiles(o.out, files)
}
