package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func commands() []*cobra.Command {
	return everyCommand(newPlugin(genericiooptions.NewTestIOStreamsDiscard()).command())
}

// everyCommand returns a command and its descendants, except those that cobra adds.
func everyCommand(command *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{command}
	for _, child := range command.Commands() {
		if child.IsAvailableCommand() && child.Name() != "completion" && child.Name() != "options" {
			all = append(all, everyCommand(child)...)
		}
	}
	return all
}

// TestThePageListsEveryCommand compares the table of docs/kubectl-plugin.md with the short helps.
func TestThePageListsEveryCommand(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile("../../../docs/kubectl-plugin.md")
	g.Expect(err).NotTo(HaveOccurred())
	for _, command := range commands() {
		if command.HasParent() && !command.HasSubCommands() {
			name := strings.TrimPrefix(command.CommandPath(), "kubectl tocsin ")
			g.Expect(string(page)).To(ContainSubstring("| `" + name + "` | " + command.Short + " |"))
		}
	}
}

func TestHelpIsOfOnePiece(t *testing.T) {
	for _, command := range commands() {
		t.Run(command.CommandPath(), func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(command.Short).To(MatchRegexp(`^[A-Z].*[^.]$`), "the short help is a phrase")
			g.Expect(len(command.Short)).To(BeNumerically("<=", 75))
			g.Expect(command.Long).To(HaveSuffix("."))
			g.Expect(command.Example).NotTo(BeEmpty())
			for line := range strings.Lines(command.Long) {
				g.Expect(len([]rune(line))).To(BeNumerically("<=", 121), line)
			}
			command.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				g.Expect(f.Usage).To(HaveSuffix("."), f.Name)
				first := []rune(f.Usage)[0]
				g.Expect(unicode.IsUpper(first)).To(BeTrue(), f.Usage)
			})
		})
	}
}

// TestExamples parses every example: its command, its flags and how many arguments it has.
func TestExamples(t *testing.T) {
	call := regexp.MustCompile(`kubectl tocsin ([^|)&>\n]*)`)
	tried := 0
	for _, command := range commands() {
		for _, match := range call.FindAllStringSubmatch(command.Example, -1) {
			t.Run(match[1], func(t *testing.T) {
				g := NewWithT(t)
				words := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(match[1], -1)
				root := newPlugin(genericiooptions.NewTestIOStreamsDiscard()).command()
				found, rest, err := root.Find(words)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(found).NotTo(Equal(root))
				g.Expect(found.ParseFlags(rest)).To(Succeed())
				g.Expect(found.ValidateArgs(found.Flags().Args())).To(Succeed())
				g.Expect(found.ValidateRequiredFlags()).To(Succeed())
				g.Expect(found.ValidateFlagGroups()).To(Succeed())
			})
			tried++
		}
	}
	NewWithT(t).Expect(tried).To(BeNumerically(">", 30))
}
