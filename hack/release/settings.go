package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// checkUpdates compares the modules of the repository with those that Dependabot updates.
func checkUpdates(root string) (problems []string, err error) {
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	content, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return nil, err
	}
	var listed []string
	for _, update := range config.Updates {
		if update.Ecosystem == "gomod" {
			listed = append(listed, update.Directories...)
		}
	}
	modules, err := findModules(root)
	if err != nil {
		return nil, err
	}
	for _, module := range modules {
		if !slices.Contains(listed, module) {
			problems = append(problems, "dependabot.yml: the module in "+module+" is missing")
		}
	}
	for _, module := range listed {
		if !slices.Contains(modules, module) {
			problems = append(problems, "dependabot.yml: there is no module in "+module)
		}
	}
	return problems, nil
}

// findModules returns the folders with a go.mod, as paths from the root that begin with a slash.
func findModules(root string) (modules []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (d.Name() == "bin" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if d.Name() == "go.mod" {
			folder, err := filepath.Rel(root, filepath.Dir(path))
			modules = append(modules, filepath.Join("/", filepath.ToSlash(folder)))
			return err
		}
		return nil
	})
	return modules, err
}

var (
	ownerName     = regexp.MustCompile(`@[\w/-]+`)
	maintainerRow = regexp.MustCompile(`(?m)^\| [^|]+ \| (@[\w-]+) \|`)
)

// checkOwners compares the accounts of CODEOWNERS with those of MAINTAINERS.md.
func checkOwners(root string) (problems []string, err error) {
	owners, err := os.ReadFile(filepath.Join(root, ".github", "CODEOWNERS"))
	if err != nil {
		return nil, err
	}
	maintainers, err := os.ReadFile(filepath.Join(root, "MAINTAINERS.md"))
	if err != nil {
		return nil, err
	}
	owning := ownerName.FindAllString(string(owners), -1)
	var listed []string
	for _, match := range maintainerRow.FindAllStringSubmatch(string(maintainers), -1) {
		listed = append(listed, match[1])
		if !slices.Contains(owning, match[1]) {
			problems = append(problems, "CODEOWNERS: "+match[1]+" of MAINTAINERS.md is missing")
		}
	}
	for _, owner := range owning {
		if !slices.Contains(listed, owner) {
			problems = append(problems, "CODEOWNERS: "+owner+" is not in MAINTAINERS.md")
		}
	}
	return problems, nil
}
