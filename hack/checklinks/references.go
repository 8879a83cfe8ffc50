package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
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

// known returns the targets of the Makefile, the tests, and the methods of each folder, which texts may name.
func known(makefile string, texts map[string]string) sets.Set[string] {
	exist := matches(target, makefile)
	for path, text := range texts {
		if filepath.Ext(path) == ".go" {
			maps.Copy(exist, matches(test, text))
			for _, match := range method.FindAllStringSubmatch(text, -1) {
				exist.Insert(fmt.Sprintf("%s.%s.%s", filepath.Base(filepath.Dir(path)), match[1], match[2]))
			}
		}
	}
	return exist
}

// matches returns the first groups of an expression's matches.
func matches(expression *regexp.Regexp, text string) sets.Set[string] {
	found := sets.New[string]()
	for _, match := range expression.FindAllStringSubmatch(text, -1) {
		found.Insert(match[1])
	}
	return found
}

// checkReferences returns a line for each target, file, test and method that a text names and that does not exist. Tests are
// looked for in documents only, methods in the guide for contributors, and files of the same folder in package comments.
func checkReferences(root, path, text string, exist sets.Set[string]) (missing []string) {
	kind := filepath.Ext(path)
	report := func(what string, mentions *regexp.Regexp, text string, exists func(name string) bool) {
		for name := range matches(mentions, text) {
			if !exists(name) {
				missing = append(missing, fmt.Sprintf("%s: %s: there is no such %s", path, name, what))
			}
		}
	}
	below := func(folder string) func(string) bool {
		return func(name string) bool {
			_, err := os.Stat(filepath.Join(folder, name))
			return err == nil
		}
	}
	report("target", mention, text, exist.Has)
	report("file", file, text, below(root))
	if kind == ".md" {
		report("test", testMention, text, exist.Has)
	}
	if filepath.Base(path) == "CONTRIBUTING.md" {
		report("method", methodMention, text, exist.Has)
	}
	if comment, _, found := strings.Cut(text, "\npackage "); found && kind == ".go" {
		report("file", neighbour, comment, below(filepath.Dir(path)))
	}
	return missing
}
