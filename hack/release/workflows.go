package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// workflow is what the rules need of a workflow of GitHub.
type workflow struct {
	Permissions any            `json:"permissions"`
	Jobs        map[string]job `json:"jobs"`
}

type job struct {
	Permissions    any    `json:"permissions"`
	TimeoutMinutes int    `json:"timeout-minutes"`
	Uses           string `json:"uses"`
	Steps          []step `json:"steps"`
}

type step struct {
	Uses string         `json:"uses"`
	Run  string         `json:"run"`
	With map[string]any `json:"with"`
}

var (
	usesLine   = regexp.MustCompile(`(?m)^[ -]*uses: *(.*)$`)
	pinned     = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+(\.\d+)*$`)
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	assignment = regexp.MustCompile(`^[A-Z_]+=[\w./:-]*$`)
)

func workflowsCommand(_ context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("workflows", flag.ContinueOnError)
	roots, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(roots[0], ".github", "workflows", "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no workflows", roots[0])
	}
	var problems []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, problem := range checkWorkflow(roots[0], string(content)) {
			problems = append(problems, file+": "+problem)
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("the workflows break the project's rules:\n%s", strings.Join(problems, "\n"))
	}
	_, err = fmt.Fprintf(stdout, "%d workflows follow the rules\n", len(files))
	return err
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
