package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

var (
	usesLine   = regexp.MustCompile(`(?m)^[ -]*uses: *(.*)$`)
	pinned     = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+(\.\d+)*$`)
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	assignment = regexp.MustCompile(`^[A-Z_]+=[\w./:-]*$`)
)

// workflow is what the rules need of a workflow of GitHub.
type workflow struct {
	Permissions any
	Jobs        map[string]struct {
		Permissions    any
		TimeoutMinutes int `json:"timeout-minutes"`
		Uses           string
		Steps          []struct {
			Uses, Run string
			With      map[string]any
		}
	}
}

// checkWorkflow returns a sentence for every rule that the workflow breaks: actions are pinned by their digests, the
// default token can do nothing but read, jobs end, and a run step is one command that also runs without GitHub.
func checkWorkflow(root, text string) (problems []string) {
	var w workflow
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		return []string{err.Error()}
	}
	report := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if w.Permissions == nil || grantsWrites(w.Permissions) {
		report("permissions at the top must be set, and must not grant writes")
	}
	for _, match := range usesLine.FindAllStringSubmatch(text, -1) {
		if !pinned.MatchString(match[1]) {
			report("uses: %s: it must be pinned by 40 hexadecimal digits, with the version behind #", match[1])
		}
	}
	for name, j := range w.Jobs {
		if j.Permissions == nil {
			report("job %s: it must have permissions of its own", name)
		}
		if j.Uses == "" && j.TimeoutMinutes == 0 {
			report("job %s: it must have timeout-minutes", name)
		}
		for _, s := range j.Steps {
			if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false {
				report("job %s: checkout must have persist-credentials: false", name)
			}
			if s.Run == "" {
				continue
			}
			if problem := checkRun(root, s.Run); problem != "" {
				report("job %s: run: %s: %s", name, s.Run, problem)
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// grantsWrites tells whether permissions, a word or a map, allow more than to read.
func grantsWrites(permissions any) bool {
	if word, is := permissions.(string); is {
		return word != "read-all"
	}
	scopes, _ := permissions.(map[string]any)
	for _, level := range scopes {
		if level != "read" && level != "none" {
			return true
		}
	}
	return false
}

// checkRun returns what is wrong with the command of a run step. It is a make with targets and variables, or a script
// of the repository: a shell's syntax would be logic that nothing tests, and an expression of GitHub in it can inject
// commands.
func checkRun(root, command string) string {
	words := strings.Fields(command)
	if strings.Contains(strings.TrimSpace(command), "\n") || strings.ContainsAny(command, "|&;<>$`'\"") {
		return "it is more than one plain command"
	}
	if words[0] != "make" {
		if info, err := os.Stat(filepath.Join(root, words[0])); err != nil || info.Mode()&0o111 == 0 {
			return "it is neither make nor an executable file of the repository"
		}
		return ""
	}
	content, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err.Error()
	}
	var targets []string
	for _, match := range makeTarget.FindAllStringSubmatch(string(content), -1) {
		targets = append(targets, match[1])
	}
	for _, word := range words[1:] {
		if !assignment.MatchString(word) && !slices.Contains(targets, word) {
			return "there is no target " + word
		}
	}
	if len(words) == 1 {
		return "it names no target"
	}
	return ""
}

func TestWorkflowsOfTheProject(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("../../.github/workflows/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(checkWorkflow("../..", string(text))).To(BeEmpty(), file)
	}
}

const goodWorkflow = `on: push
permissions: {}
jobs:
  test:
    runs-on: ubuntu-24.04
    timeout-minutes: 10
    permissions:
      contents: write
    steps:
      - uses: actions/checkout@0123456789abcdef0123456789abcdef01234567 # v5.0.0
        with:
          persist-credentials: false
      - run: make test SOAK=3h
      - run: .ci/run
`

func TestWorkflowRules(t *testing.T) {
	root := t.TempDir()
	write(t, root, "Makefile", "test:\n\tgo test\n")
	write(t, root, ".ci/run", "#!/bin/sh\n")
	write(t, root, ".ci/plain", "text\n")
	NewWithT(t).Expect(checkWorkflow(root, goodWorkflow)).To(BeEmpty())
	for name, c := range map[string]struct{ old, changed, want string }{
		"no permissions":              {"permissions: {}\n", "", "permissions at the top"},
		"everything is permitted":     {"permissions: {}", "permissions: write-all", "permissions at the top"},
		"a write for all jobs":        {"permissions: {}", "permissions: {contents: write}", "permissions at the top"},
		"a job without permissions":   {"    permissions:\n      contents: write\n", "", "permissions of its own"},
		"a tag instead of a digest":   {"@0123456789abcdef0123456789abcdef01234567 # v5.0.0", "@v5", "must be pinned"},
		"a short digest":              {"@0123456789abcdef0123456789abcdef01234567", "@0123456789abcdef", "must be pinned"},
		"a digest without a version":  {" # v5.0.0", "", "must be pinned"},
		"an action of the repository": {"actions/checkout@0123456789abcdef0123456789abcdef01234567 # v5.0.0", "./own", "must be pinned"},
		"a job without an end":        {"    timeout-minutes: 10\n", "", "timeout-minutes"},
		"credentials that stay":       {"persist-credentials: false", "fetch-depth: 0", "persist-credentials"},
		"a target that is missing":    {"make test SOAK=3h", "make test tset", "there is no target tset"},
		"a make alone":                {"make test SOAK=3h", "make", "names no target"},
		"a script that is missing":    {".ci/run", ".ci/gone", "neither make nor an executable"},
		"a file that is no script":    {".ci/run", ".ci/plain", "neither make nor an executable"},
		"another program":             {"make test SOAK=3h", "go test ./...", "neither make nor an executable"},
		"two commands":                {"make test SOAK=3h", "make test && make test", "more than one"},
		"two lines":                   {"run: .ci/run", "run: |\n          .ci/run\n          .ci/run", "more than one"},
		"an expression":               {"make test SOAK=3h", "make test SOAK=${{ github.head_ref }}", "more than one"},
		"no YAML":                     {"on: push", "on: [", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := strings.Replace(goodWorkflow, c.old, c.changed, 1)
			NewWithT(t).Expect(checkWorkflow(root, broken)).To(ContainElement(ContainSubstring(c.want)))
		})
	}
}
