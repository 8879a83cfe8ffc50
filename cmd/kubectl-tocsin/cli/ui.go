package cli

import (
	"context"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/ui"
)

type uiOptions struct {
	archiveOptions
	port    int
	command *cobra.Command
}

func (p *plugin) uiCommand() *cobra.Command {
	o := &uiOptions{archiveOptions: archiveOptions{plugin: p}}
	command := &cobra.Command{
		Use:   "ui",
		Short: "Show incidents in the browser",
		RunE:  p.withCluster(o.run),
	}
	o.command = command
	o.addArchiveFlag(command)
	command.Flags().BoolVarP(&o.filter.allNamespaces, "all-namespaces", "A", false, "Show incidents of all namespaces.")
	command.Flags().IntVar(&o.port, "port", 0, "Port on 127.0.0.1. Default: a free port.")
	return command
}

func (o *uiOptions) run(ctx context.Context, c *cluster, _ []string) error {
	if err := o.checkList(ctx, c, &o.filter); err != nil {
		return err
	}
	archive, err := o.openBucket(ctx)
	if err != nil {
		return err
	}
	if archive != nil {
		defer func() { _ = archive.Close() }()
	}
	server, err := ui.Listen(ctx, c, ui.Options{
		Namespace: o.filter.namespace(c), Port: o.port, Command: o.sameCluster(), Archive: archive,
	})
	if err != nil {
		return err
	}
	const hint = "Open this URL in a browser on this machine. It contains a key. Press Ctrl-C to stop."
	if o.screen.printf("%s\n%s\n", server.URL(), hint); o.screen.err != nil {
		return o.screen.err
	}
	return server.Run(ctx)
}

// sameCluster returns the beginning of a command line for the same cluster and user. It omits flags with secrets.
func (o *uiOptions) sameCluster() string {
	line := []string{"kubectl tocsin"}
	for _, name := range []string{"kubeconfig", "context", "cluster", "user", "server", "as", "as-uid"} {
		if flag := o.command.Flags().Lookup(name); flag != nil && flag.Changed {
			line = append(line, "--"+name+"="+quote(flag.Value.String()))
		}
	}
	return strings.Join(line, " ")
}

// quote quotes a text for a shell if necessary.
func quote(text string) string {
	if regexp.MustCompile(`^[\w./:@%+=,-]+$`).MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
