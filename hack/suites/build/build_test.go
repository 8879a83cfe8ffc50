// Package build tests hack/build.sh: what it says while the go command builds, and when that fails.
package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// build runs the script with a go command of our own: what that does for "build" or "install" is a shell script, and "go list"
// lists three packages. Its messages come every so many seconds. It returns what is said, and whether the build succeeded.
func build(t *testing.T, seconds int, program string, arguments ...string) (said string, err error) {
	t.Helper()
	folder := t.TempDir()
	text := "#!/bin/sh\ncase $1 in list) echo a; echo b; echo c ;; env) echo /folder/of/$2 ;; *)\n" + program + "\nesac\n"
	NewWithT(t).Expect(os.WriteFile(filepath.Join(folder, "go"), []byte(text), 0o700)).To(Succeed())
	command := exec.CommandContext(context.Background(), filepath.Join(testenv.Root(), "hack", "build.sh"), arguments...)
	command.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), fmt.Sprintf("BUILD_QUIET=%d", seconds))
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestAShortBuildSaysNothing(t *testing.T) {
	g := NewWithT(t)
	g.Expect(build(t, 60, "echo example.com/package >&2", "build", "-o", "bin/manager", ".")).To(BeEmpty())
}

func TestALongBuildSaysHowFarItIs(t *testing.T) {
	g := NewWithT(t)
	said, err := build(t, 1, `echo 'go: downloading example.com/module v1.0.0'
echo 'go: downloading example.com/other v1.0.0'
sleep 2
echo example.com/module; printf example.com/
sleep 2
echo other`, "build", "-C", "somewhere", "-o", "bin/manager", ".")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(said).To(MatchRegexp(`(?m)^build: manager: downloaded 2 modules, after \d+ s$`))
	g.Expect(said).To(MatchRegexp(`(?m)^build: manager: compiled 1 of 3 packages, less those compiled before, after \d+ s$`))
	g.Expect(said).NotTo(ContainSubstring("example.com"), "nobody reads a wall of modules and packages")
}

func TestAFailureSaysWhatToDo(t *testing.T) {
	for sentence, c := range map[string]struct{ failure, want string }{
		"without a connection": {
			`go: example.com/module@v1.0.0: Get "https://proxy.example.com/": dial tcp: lookup proxy.example.com: no such host`,
			"Is there a connection, or a GOPROXY?",
		},
		"a full disk": {
			"compile: writing output: write _pkg_.a: no space left on device",
			"/folder/of/GOCACHE and /folder/of/GOMODCACHE",
		},
		"without memory": {"example.com/module: compile: signal: killed", "GOFLAGS=-p=1"},
		"an error":       {"./main.go:3:1: syntax error: unexpected EOF", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			said, err := build(t, 60, "echo '"+c.failure+"'; exit 3", "install", "./...")
			g.Expect(err).To(MatchError("exit status 3"))
			first, rest, _ := strings.Cut(said, "\n")
			g.Expect(first).To(Equal(c.failure))
			if c.want == "" {
				g.Expect(rest).To(BeEmpty())
			}
			g.Expect(rest).To(ContainSubstring(c.want))
		})
	}
}
