package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

var (
	// target matches a rule of the Makefile, and mention a command in quotes or as a line of its own.
	target  = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	mention = regexp.MustCompile("(?m)(?:[\"`]|^)make(?: [A-Z_]+=[^ \n]*)* ([a-z][a-z0-9-]+)")
	// file matches a path below one of the project's folders, from the root.
	file = regexp.MustCompile("(?:^|[\\s\"'(`])" +
		`((?:api|cmd|config|controllers|dist|docs|hack|internal|webhookserver)/[\w./-]*\.(?:go|md|sh|yaml|yml))\b`)
	// neighbour matches a comment's name for a file of its folder.
	neighbour = regexp.MustCompile(`(?m)^\s*//.*?[\s(]([a-z][a-z0-9_]*\.go)\b`)
	// method matches the declaration of one, and methodMention a document's name for one: package.type.method.
	method        = regexp.MustCompile(`(?m)^func \(\w* ?\*?(\w+)\) (\w+)\(`)
	methodMention = regexp.MustCompile("`([a-z]+\\.\\w+\\.\\w+)`")
	// test matches the declaration of a test, and testMention a document's name for one, perhaps with a subtest.
	test        = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	testMention = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)(?:/[^`\n]*)?`")
)

// referring are the kinds of files whose text names targets and files.
var referring = []string{".go", ".md", ".sh", ".yaml", ".yml"}

// names are what texts may name: the targets of the Makefile, the tests, and the methods of each folder.
type names struct {
	targets, tests, methods map[string]bool
}

// known returns the names that exist in the folder.
func known(root string) (names, error) {
	content, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return names{}, err
	}
	exist := names{targets: matches(target, content), tests: map[string]bool{}, methods: map[string]bool{}}
	return exist, walk(root, func(path string) error {
		if filepath.Ext(path) != ".go" {
			return nil
		}
		content, err := os.ReadFile(path)
		maps.Copy(exist.tests, matches(test, content))
		for _, match := range method.FindAllSubmatch(content, -1) {
			exist.methods[fmt.Sprintf("%s.%s.%s", filepath.Base(filepath.Dir(path)), match[1], match[2])] = true
		}
		return err
	})
}

// matches returns the first groups of an expression's matches.
func matches(expression *regexp.Regexp, content []byte) map[string]bool {
	found := map[string]bool{}
	for _, match := range expression.FindAllSubmatch(content, -1) {
		found[string(match[1])] = true
	}
	return found
}

// checkReferences returns a line for each target, file and test that a text names and that does not exist. Tests are looked for
// in documents only.
func checkReferences(root, path string, exist names) (missing []string, err error) {
	if !slices.Contains(referring, filepath.Ext(path)) {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for _, match := range mention.FindAllSubmatch(content, -1) {
		if name := string(match[1]); !exist.targets[name] {
			missing = append(missing, fmt.Sprintf("%s: make %s: there is no such target", path, name))
		}
	}
	for name := range matches(testMention, content) {
		if filepath.Ext(path) == ".md" && !exist.tests[name] {
			missing = append(missing, fmt.Sprintf("%s: %s: there is no such test", path, name))
		}
	}
	missing = append(missing, checkHouse(path, content, exist)...)
	for _, match := range file.FindAllSubmatch(content, -1) {
		if _, err := os.Stat(filepath.Join(root, string(match[1]))); err != nil {
			missing = append(missing, fmt.Sprintf("%s: %s: there is no such file", path, match[1]))
		}
	}
	return missing, nil
}

// checkHouse returns a line for each method that the guide for contributors names and for each file that a package comment names
// beside it, and that does not exist.
func checkHouse(path string, content []byte, exist names) (missing []string) {
	if filepath.Base(path) == "CONTRIBUTING.md" {
		for name := range matches(methodMention, content) {
			if !exist.methods[name] {
				missing = append(missing, fmt.Sprintf("%s: %s: there is no such method", path, name))
			}
		}
	}
	if comment, _, found := bytes.Cut(content, []byte("\npackage ")); found && filepath.Ext(path) == ".go" {
		for name := range matches(neighbour, comment) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), name)); err != nil {
				missing = append(missing, fmt.Sprintf("%s: %s: there is no such file", path, name))
			}
		}
	}
	return missing
}
