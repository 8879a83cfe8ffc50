// Command checklinks finds links of the Markdown files that lead nowhere: to a file that does not exist, or
// to a heading that its file does not have. Addresses on the network are not tried. It also finds make targets and files
// of the project that a document, a manifest, a script or a comment names and that do not exist, and tests that a document
// names.
package main

import (
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	code    = regexp.MustCompile("`[^`\n]*`")
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func main() {
	dead, err := check(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "checklinks:", err)
		os.Exit(1)
	}
	for _, line := range dead {
		fmt.Fprintln(os.Stderr, line)
	}
	if len(dead) > 0 {
		os.Exit(1)
	}
}

// check returns a line for each dead link and reference in the files of the folder.
func check(root string) (dead []string, err error) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return nil, err
	}
	texts, err := read(root)
	if err != nil {
		return nil, err
	}
	exist := known(string(makefile), texts)
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		dead = append(dead, checkReferences(root, path, texts[path], exist)...)
		if filepath.Ext(path) == ".md" {
			dead = append(dead, checkLinks(path, texts[path])...)
		}
	}
	return dead, nil
}

// referring are the kinds of files that are checked.
var referring = []string{".go", ".md", ".sh", ".yaml", ".yml"}

// read returns the texts of the files that are checked, by their paths.
func read(root string) (map[string]string, error) {
	texts, files := map[string]string{}, os.DirFS(root)
	return texts, fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped(path, entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains(referring, filepath.Ext(path)):
			return nil
		}
		content, err := fs.ReadFile(files, path)
		texts[filepath.Join(root, path)] = string(content)
		return err
	})
}

// skipped reports whether a folder is not checked: hidden ones, built files, the tests' data, and this command's tests.
func skipped(path, name string) bool {
	built := path == "bin" || name == "testdata" || name == "node_modules"
	return path != "." && strings.HasPrefix(name, ".") || built || path == filepath.Join("hack", "checklinks")
}

// checkLinks returns a line for each link of a Markdown file that leads nowhere.
func checkLinks(path, text string) (dead []string) {
	for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), -1) {
		if reason := follow(path, match[1]); reason != "" {
			dead = append(dead, fmt.Sprintf("%s: %s: %s", path, match[1], reason))
		}
	}
	return dead
}

// follow says what is wrong with a link, or nothing.
func follow(from, to string) string {
	target, err := url.Parse(to)
	if err != nil {
		return "cannot be read"
	}
	if target.Scheme != "" || target.Host != "" {
		return ""
	}
	path := from
	if target.Path != "" {
		path = filepath.Join(filepath.Dir(from), filepath.FromSlash(target.Path))
	}
	info, err := os.Stat(path)
	if err != nil {
		return "there is no such file"
	}
	if target.Fragment == "" || info.IsDir() || filepath.Ext(path) != ".md" {
		return ""
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(content), ""), -1) {
		if anchor(match[1]) == target.Fragment {
			return ""
		}
	}
	return "there is no such heading"
}

// anchor is the fragment that a forge gives a heading.
func anchor(title string) string {
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}
