// Package readme takes the first steps on a cluster out of the documents, for tests that run them.
package readme

import (
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

// walkthroughPage and walkthroughTitle are the page of the walkthrough and its heading.
const (
	walkthroughPage  = "docs/getting-started.md"
	walkthroughTitle = "Five minutes on a cluster"
)

// shellBlock is a fenced block of commands.
var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// Walkthrough is a bash script of all the commands of "Five minutes on a cluster".
func Walkthrough() (string, error) {
	page, err := os.ReadFile(filepath.Join(testenv.Root(), walkthroughPage))
	if err != nil {
		return "", fmt.Errorf("reading the walkthrough: %w", err)
	}
	_, walkthrough, found := strings.Cut(string(page), "## "+walkthroughTitle)
	if !found {
		return "", fmt.Errorf("%s has no section %q", walkthroughPage, walkthroughTitle)
	}
	walkthrough, _, _ = strings.Cut(walkthrough, "\n## ")
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	for _, block := range shellBlock.FindAllStringSubmatch(walkthrough, -1) {
		script.WriteString(block[1])
	}
	return strings.Replace(script.String(), look, awaitIncident+look, 1), nil
}
