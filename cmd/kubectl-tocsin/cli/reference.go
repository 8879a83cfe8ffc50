package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// WriteReference writes the help of every command as a page of Markdown.
func WriteReference(out io.Writer) error {
	root := newPlugin(genericiooptions.NewTestIOStreamsDiscard()).command()
	root.InitDefaultHelpCmd()
	var page strings.Builder
	page.WriteString("# Reference of kubectl tocsin\n\n" +
		"Generated from the commands by `make generate`: it is what `--help` says. [The kubectl plugin](kubectl-plugin.md)\n" +
		"explains them by examples.\n")
	for _, command := range everyCommand(root) {
		var help strings.Builder
		command.SetOut(&help)
		if err := command.Help(); err != nil {
			return err
		}
		fmt.Fprintf(&page, "\n## %s\n\n```text\n%s\n```\n", command.CommandPath(), strings.TrimSpace(help.String()))
	}
	_, err := io.WriteString(out, page.String())
	return err
}

// everyCommand is a command and those below it, without what cobra adds.
func everyCommand(command *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{command}
	for _, child := range command.Commands() {
		if child.IsAvailableCommand() && child.Name() != "completion" && child.Name() != "options" {
			all = append(all, everyCommand(child)...)
		}
	}
	return all
}
