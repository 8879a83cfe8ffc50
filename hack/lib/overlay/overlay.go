// Package overlay lets programs of the project be built with patches, such as a manager with a seeded bug. Neither the
// tree nor the product's code knows of them: "go build -overlay" reads patched copies in place of the files.
package overlay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
)

// target finds the files that a patch adds or changes. Nothing else of a patch is supported.
var target = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)

// Write copies the files that the patches name from the project at root into an empty folder, applies the patches to the
// copies, in order, and writes the file for "go build -overlay". It returns that file's path and the patched packages, as
// "go build" takes them at root.
func Write(root, folder string, patches ...string) (file string, packages []string, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", nil, err
	}
	replaced := map[string]string{}
	for _, patch := range patches {
		text, err := os.ReadFile(patch)
		if err != nil {
			return "", nil, err
		}
		for _, match := range target.FindAllSubmatch(text, -1) {
			name := string(match[1])
			original, copied := filepath.Join(root, name), filepath.Join(folder, name)
			if replaced[original] == "" {
				if err := copyFile(original, copied); err != nil {
					return "", nil, err
				}
			}
			replaced[original] = copied
			packages = append(packages, "./"+path.Dir(name))
		}
		if err := apply(folder, text); err != nil {
			return "", nil, fmt.Errorf("applying %s: %w", patch, err)
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", nil, err
	}
	slices.Sort(packages)
	file = filepath.Join(folder, "overlay.json")
	return file, slices.Compact(packages), os.WriteFile(file, content, 0o600)
}

// copyFile copies a file, if it exists, and makes the folder of the copy.
func copyFile(original, copied string) error {
	if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
		return err
	}
	content, err := os.ReadFile(original)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the patch adds it, or else does not apply
	}
	if err != nil {
		return err
	}
	return os.WriteFile(copied, content, 0o600)
}

// apply applies a patch in a folder.
func apply(folder string, patch []byte) error {
	command := exec.Command("git", "apply", "-")
	command.Dir, command.Stdin = folder, bytes.NewReader(patch)
	// In a folder of a repository, git would take the paths for those of the repository.
	command.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w: %s", err, output)
	}
	return nil
}
