package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/buildinfo"
)

func (p *plugin) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of the plugin",
		Long:    `Print the version of the plugin, with the commit and the date that it was built from.`,
		Example: example(`kubectl tocsin version`),
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(p.Out, buildinfo.Line("kubectl-tocsin"))
			return err
		},
	}
}
