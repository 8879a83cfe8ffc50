package testenv

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// CommandLine is a command line, and what must come of it.
type CommandLine struct {
	Args           string // separated by spaces
	Code           int
	Stdout, Stderr string // parts of what is printed; of Stdout in lower case
}

// TestCommandLines runs command lines of a program, by sentences that describe them. What is printed never has the word "secret".
func TestCommandLines(t *testing.T, execute func(args []string, stdout, stderr io.Writer) int, lines map[string]CommandLine) {
	t.Helper()
	for sentence, line := range lines {
		t.Run(sentence, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := execute(strings.Fields(line.Args), &stdout, &stderr); code != line.Code {
				t.Errorf("exit code %d, not %d: %s", code, line.Code, &stderr)
			}
			if !strings.Contains(strings.ToLower(stdout.String()), line.Stdout) {
				t.Errorf("%q is not printed: %s", line.Stdout, &stdout)
			}
			if !strings.Contains(stderr.String(), line.Stderr) || strings.Contains(stderr.String(), "secret") {
				t.Errorf("no error with %q, or one with a secret: %s", line.Stderr, &stderr)
			}
		})
	}
}
