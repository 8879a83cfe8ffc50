package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

func compareCommand(_ context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	times := flags.String("times", "", "The file with the time that each artifact of the first build took.")
	folders, err := parse(flags, args, 2)
	if err != nil {
		return err
	}
	took := map[string]string{}
	if *times != "" {
		content, err := os.ReadFile(*times)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(content)) {
			name, seconds, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			took[name] = seconds
		}
	}
	return compare(stdout, folders[0], folders[1], took)
}

// compare prints a table of the artifacts in both folders, and returns an error if the folders differ. took has
// seconds by name.
func compare(w io.Writer, first, second string, took map[string]string) error {
	ours, err := sumFolder(first)
	if err != nil {
		return err
	}
	theirs, err := sumFolder(second)
	if err != nil {
		return err
	}
	others := map[string]string{}
	for _, s := range theirs {
		others[s.name] = s.digest
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "ARTIFACT\tBYTES\tSECONDS\tSHA-256 OF BUILD 1\tOF BUILD 2") // the flush fails instead
	var different []string
	for _, s := range ours {
		other, both := others[s.name]
		delete(others, s.name)
		verdict := "identical"
		if !both {
			verdict = "missing"
		} else if other != s.digest {
			verdict = other
		}
		if verdict != "identical" {
			different = append(different, s.name)
		}
		_, _ = fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", s.name, s.size, took[s.name], s.digest, verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for name := range others {
		different = append(different, name)
	}
	if len(different) > 0 || len(ours) == 0 {
		return fmt.Errorf("the two builds differ, or are empty: %s", strings.Join(different, ", "))
	}
	return nil
}
