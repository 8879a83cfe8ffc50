package cli

import (
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
