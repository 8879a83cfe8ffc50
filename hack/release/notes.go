package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func notesCommand(_ context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("notes", flag.ContinueOnError)
	changelog := flags.String("changelog", "CHANGELOG.md", "The file with the changes of all versions.")
	rest, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(*changelog)
	if err != nil {
		return err
	}
	text, err := notes(string(content), rest[0])
	if err != nil {
		return fmt.Errorf("%s: %w", *changelog, err)
	}
	_, err = io.WriteString(stdout, text)
	return err
}

// notes returns the section of a version, without its heading. The heading is "## v0.1.0", "## [v0.1.0]" or either
// with a date behind it. A version that is under development, such as v0.1.0-dev, has the section Unreleased; any
// other one without a section is an error: a release needs notes.
func notes(changelog, version string) (string, error) {
	wanted := version
	if strings.Contains(version, "-dev") {
		wanted = "Unreleased"
	}
	var section strings.Builder
	found := false
	for line := range strings.Lines(changelog) {
		if title, heading := strings.CutPrefix(line, "## "); heading {
			if found {
				break
			}
			name, _, _ := strings.Cut(strings.TrimSpace(title), " ")
			found = strings.Trim(name, "[]") == wanted
			continue
		}
		if found {
			section.WriteString(line)
		}
	}
	text := strings.TrimSpace(section.String())
	if text == "" {
		return "", fmt.Errorf("there is no section \"## %s\" with text", wanted)
	}
	return text + "\n", nil
}
