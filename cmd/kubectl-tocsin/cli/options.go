package cli

import (
	"github.com/spf13/cobra"
)

// helpWidth is how wide the help is, in characters.
const helpWidth = 110

// optionsCommand lists the flags that all commands have, as "kubectl options" does.
func (p *plugin) optionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that all commands have",
		Long:  `List the flags that all commands have. Most are kubectl's own and say which cluster, namespace and user it is.`,
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			s, err := p.screen()
			if err != nil {
				return err
			}
			s.printf("These flags can be given to any command:\n\n%s", command.InheritedFlags().FlagUsagesWrapped(helpWidth))
			return s.err
		},
	}
}
