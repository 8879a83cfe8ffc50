package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// pluginPage is the page whose scripts a test of the plugin's runs.
const pluginPage = "docs/kubectl-plugin.md"

// historyScript tests the commands of docs/history.md.
const historyScript = "hack/suites/plugin/testdata/script/history.txtar"

// runElsewhere are commands that other tests run, each with a file of the test and what stands in it.
var runElsewhere = map[string]struct{ file, text string }{
	"kubectl get incidents": {walkthroughPage, "kubectl -n shop get incidents"},
	`curl -d '{"title":"Disk 97 % full","severity":"critical","dedup_key":"disk-db-1"}' "$url"`: {walkthroughPage,
		`curl -d '{"title":"Disk 97 % full","severity":"critical","hostname":"db-1","dedup_key":"disk-db-1"}'`},
	"kubectl get maintenancewindows":                            {"hack/suites/plugin/testdata/script/maintenance.txtar", "kubectl get maintenancewindows"},
	"kubectl tocsin ui -A --port 8090":                          {"hack/suites/plugin/testdata/script/ui.txtar", "kubectl tocsin ui"},
	"export TOCSIN_ARCHIVE=s3://incidents?region=eu-central-1":  {historyScript, "env TOCSIN_ARCHIVE="},
	"kubectl tocsin history -A --since 30d":                     {historyScript, "kubectl tocsin history -A --since 365d"},
	"kubectl tocsin report -A --since 30d":                      {historyScript, "kubectl tocsin report -A --from"},
	"kubectl tocsin report -A --since 30d -o html >report.html": {historyScript, "-o html"},
	"kubectl tocsin ui -A --archive s3://incidents?region=eu-central-1": {
		"hack/suites/browser/past_test.go", "Archive: "},
	"kubectl tocsin explain -f payload.json --preset-file=backups.yaml": {"hack/suites/plugin/testdata/script/explain.txtar",
		"kubectl-tocsin explain -f jobs.json --preset-file preset.yaml"},
	"kubectl tocsin explain --replay -f new.yaml": {"hack/suites/plugin/testdata/script/replay.txtar",
		"kubectl tocsin explain --replay -f new.yaml"},
	"kubectl tocsin explain --replay disks": {"hack/suites/plugin/testdata/script/replay.txtar",
		"kubectl tocsin explain --replay disks"},
	"kubectl get rcap prometheus -o jsonpath='{.spec.requests[-1].content}' | base64 -d | gzip -dc": {
		"hack/suites/plugin/testdata/script/replay.txtar", "| base64 -d | gzip -dc"},
	"kubectl tocsin explain incident monitoring-qf4t": {"hack/suites/plugin/testdata/script/explain.txtar",
		"kubectl tocsin explain incident"},
	"go test ./webhookserver/mapping -run '/^backups$'": {"webhookserver/mapping/presets_test.go",
		"t.Run(preset.Name, func(t *testing.T) { testPreset(t, preset) })"},
}

// commandBlock is a fenced block of commands: a script, or a session with what is printed.
type commandBlock struct {
	session  bool
	heading  string // the last one of the second level before it
	commands []string
}

// fence is a fenced block, or a heading.
var fence = regexp.MustCompile("(?ms)^ *```([a-z]+)([^\n]*)\n(.*?)^ *```$|^## ([^\n]+)$")

// commandBlocks are those of a page.
func commandBlocks(page string) []commandBlock {
	var blocks []commandBlock
	heading := ""
	for _, match := range fence.FindAllStringSubmatch(page, -1) {
		block := commandBlock{session: match[1] == "console", heading: heading}
		switch match[1] {
		case "":
			heading = match[4]
			continue
		case "sh":
			block.commands = strings.Split(strings.TrimRight(match[3], " \n"), "\n")
		case "console":
			for line := range strings.Lines(match[3]) {
				if command, is := strings.CutPrefix(strings.TrimSpace(line), "$ "); is {
					block.commands = append(block.commands, command)
				}
			}
		default:
			continue
		}
		blocks = append(blocks, block)
	}
	return blocks
}

// TestEveryCommandIsRun finds commands in the documents that no test runs.
func TestEveryCommandIsRun(t *testing.T) {
	g := NewWithT(t)
	makefile, err := os.ReadFile(filepath.Join(testenv.Root(), "Makefile"))
	g.Expect(err).NotTo(HaveOccurred())
	otherName := regexp.MustCompile("(?m)^ *```(bash|shell|zsh|[a-z]+-session)")
	found := 0
	for page, text := range documents(t) {
		g.Expect(otherName.FindString(text)).To(BeEmpty(), "%s: commands are sh or, with what they print, console", page)
		for _, block := range commandBlocks(text) {
			found++
			if runAsAWhole(page, block) {
				continue
			}
			for _, command := range block.commands {
				if problem := whyNotRun(command, string(makefile)); problem != "" {
					t.Errorf("%s: %s: %s", page, command, problem)
				}
			}
		}
	}
	g.Expect(found).To(BeNumerically(">", 60))
}

// runAsAWhole says whether a test runs all commands of a block.
func runAsAWhole(page string, block commandBlock) bool {
	switch {
	case slices.ContainsFunc(pages, func(pattern string) bool {
		is, _ := filepath.Match(pattern, page)
		return is
	}):
		return true
	case page == pluginPage:
		return !block.session
	case page == "docs/walkthrough.md": // by TestWalkthrough in hack/suites/plugin
		return block.session
	case page == walkthroughPage:
		return !block.session && block.heading == walkthroughTitle
	}
	return false
}

// whyNotRun says why no test runs a command; nothing when one does.
func whyNotRun(command, makefile string) string {
	if elsewhere, is := runElsewhere[command]; is {
		text, err := os.ReadFile(filepath.Join(testenv.Root(), filepath.FromSlash(elsewhere.file)))
		if err != nil || !strings.Contains(string(text), elsewhere.text) {
			return elsewhere.file + " should run it and does not"
		}
		return ""
	}
	// A target of the Makefile may take a cluster, or long: that there is one must do.
	if target, is := strings.CutPrefix(command, "make "); is {
		target, _, _ = strings.Cut(target, " ")
		if !strings.Contains(makefile, "\n"+target+":") {
			return "the Makefile has no such target"
		}
		return ""
	}
	return "no test runs it"
}

// documents are the Markdown files, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	g := NewWithT(t)
	texts := map[string]string{}
	skipped := []string{"bin", "node_modules", "testdata"}
	g.Expect(filepath.WalkDir(testenv.Root(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != testenv.Root() && (strings.HasPrefix(name, ".") || slices.Contains(skipped, name)) {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		relative, err := filepath.Rel(testenv.Root(), path)
		texts[filepath.ToSlash(relative)] = string(text)
		return err
	})).To(Succeed())
	return texts
}
