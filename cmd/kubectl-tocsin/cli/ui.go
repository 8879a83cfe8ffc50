package cli

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/ui"
)

// uiOptions are those of "ui".
type uiOptions struct {
	*plugin
	allNamespaces bool
	port          int
	command       *cobra.Command
}

func (p *plugin) uiCommand() *cobra.Command {
	o := &uiOptions{plugin: p}
	command := &cobra.Command{
		Use:   "ui",
		Short: "Show incidents in the browser, on a page of your own",
		Long: `Show incidents in the browser: what is open, live, with search, each incident with its timeline, and how many
were open over time.

The page is served on 127.0.0.1 while the command runs, with your own kubeconfig and your own rights, and only to
who has the key in the address that is printed. It changes nothing. Ctrl-C ends it.`,
		Example: example(`
# The incidents of the namespace
kubectl tocsin ui

# Those of all namespaces, always on the same port
kubectl tocsin ui -A --port 8090`),
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	o.command = command
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Look at all namespaces.")
	command.Flags().IntVar(&o.port, "port", 0, "The port on 127.0.0.1. Default: a free one.")
	return command
}

func (o *uiOptions) run(ctx context.Context) error {
	c, err := o.cluster()
	if err != nil {
		return err
	}
	namespace := c.namespace
	if o.allNamespaces {
		namespace = ""
	}
	// What does not work at all is an error now, not a page that never shows anything.
	if err := live.Check(ctx, c, namespace); err != nil {
		return fmt.Errorf("listing incidents: %w", err)
	}
	if err := o.verify(ctx, c, &filter{allNamespaces: o.allNamespaces}, nil); err != nil {
		return err
	}
	server, err := ui.Listen(ctx, c, ui.Options{Namespace: namespace, Port: o.port, Command: o.sameCluster()})
	if err != nil {
		return err
	}
	const hint = "Open this address in a browser of this machine; it has a key in it. Ctrl-C ends the page."
	_, err = fmt.Fprintf(o.Out, "%s\n%s\n", server.URL(), hint)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// sameCluster is how a command line begins that reaches the same cluster as the same user: with the flags that say
// so. A token or a password among them stays out of the page.
func (o *uiOptions) sameCluster() string {
	line := []string{"kubectl tocsin"}
	for _, name := range []string{"kubeconfig", "context", "cluster", "user", "server", "as", "as-uid"} {
		if flag := o.command.Flags().Lookup(name); flag != nil && flag.Changed {
			line = append(line, "--"+name+"="+quote(flag.Value.String()))
		}
	}
	return strings.Join(line, " ")
}

// quote makes a text one word of a shell's.
func quote(text string) string {
	if regexp.MustCompile(`^[\w./:@%+=,-]+$`).MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
