// Command senderpages is "make sender-pages": it posts the samples of every preset to a real manager and writes
// what kubectl then prints into the pages of docs/senders. Its test fails when a page is out of date.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

func main() {
	manager := flag.String("manager", filepath.Join(testenv.Root(), "bin", "manager"), "the manager")
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // what fails here is returned
	if err := execute(context.Background(), *manager); err != nil {
		fmt.Fprintln(os.Stderr, "senderpages:", err)
		os.Exit(1)
	}
}

// execute writes the pages whose blocks are not as printed, but for ages and times.
func execute(ctx context.Context, manager string) error {
	folder, err := os.MkdirTemp("", "tocsin-senderpages-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	printed, err := play(ctx, manager, folder)
	if err != nil {
		return err
	}
	for name, text := range printed {
		changed, err := update(name, text)
		if err != nil {
			return err
		}
		if changed {
			fmt.Println("wrote", name)
		}
	}
	return nil
}

// update writes the block of a page, if it differs.
func update(name, printed string) (bool, error) {
	path := pagePath(name)
	content, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	before, block, after, err := cut(string(content))
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if masked(block) == masked(printed) {
		return false, nil
	}
	return true, os.WriteFile(path, []byte(before+printed+after), 0o600)
}
