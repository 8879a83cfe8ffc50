// Package readme takes the walkthrough out of the README, for tests that run it.
package readme

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// awaitIncident stands before the first look at the Incidents: a script looks sooner than a person does.
const (
	look          = "kubectl -n shop get incidents"
	awaitIncident = "until " + look + " 2>&1 | grep -q Open; do sleep 0.1; done\n"
)

// walkthroughTitle is the heading of the walkthrough.
const walkthroughTitle = "Five minutes on a cluster"

// shellBlock is a fenced block of commands.
var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// Walkthrough is a bash script of all the commands of the README's "Five minutes on a cluster".
func Walkthrough() (string, error) {
	readme, err := os.ReadFile(filepath.Join(testenv.Root(), "README.md"))
	if err != nil {
		return "", fmt.Errorf("reading the README: %w", err)
	}
	_, walkthrough, found := strings.Cut(string(readme), "## "+walkthroughTitle)
	if !found {
		return "", errors.New("the README has no walkthrough")
	}
	walkthrough, _, _ = strings.Cut(walkthrough, "\n## ")
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	for _, block := range shellBlock.FindAllStringSubmatch(walkthrough, -1) {
		script.WriteString(block[1])
	}
	return strings.Replace(script.String(), look, awaitIncident+look, 1), nil
}
