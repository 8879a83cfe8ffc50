package cli

import (
	"cmp"
	"context"
	"regexp"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/internal/page"
)

type uiOptions struct {
	*plugin
	archive     archiveFlag
	filter      filter
	port        int
	clusterName string
	command     *cobra.Command
}

func (p *plugin) uiCommand() *cobra.Command {
	o := &uiOptions{plugin: p}
	o.command = &cobra.Command{
		Use:   "ui",
		Short: "Show incidents in the browser",
		RunE:  p.withCluster(o.run),
	}
	o.archive.add(o.command)
	flags := o.command.Flags()
	flags.BoolVarP(&o.filter.allNamespaces, "all-namespaces", "A", false, "Show incidents of all namespaces.")
	flags.IntVar(&o.port, "port", 0, "Port on 127.0.0.1. Default: a free port.")
	flags.StringVar(&o.clusterName, "cluster-name", "",
		"Name of the cluster, for the header of the page. Default: its name in the kubeconfig.")
	return o.command
}

func (o *uiOptions) run(ctx context.Context, c *cluster, _ []string) error {
	if err := o.checkList(ctx, c, &o.filter); err != nil {
		return err
	}
	archive, err := o.archive.open(ctx)
	if err != nil {
		return err
	}
	defer archive.close()
	server, err := page.ForOwner(ctx, c, page.Options{
		Namespace: o.filter.namespace(c), Port: o.port, Command: o.sameCluster(),
		ClusterName: cmp.Or(o.clusterName, o.nameInKubeconfig()),
		Archive:     archive.Bucket,
	})
	if err != nil {
		return err
	}
	const hint = "Open this URL in a browser on this machine. It contains a key. Press Ctrl-C to stop."
	if o.screen.printf("%s\n%s\n", server.URL(), hint); o.screen.err != nil {
		return o.screen.err
	}
	return server.Run(ctx, logr.Discard())
}

// nameInKubeconfig returns the name of the cluster of the context; empty if there is none.
func (o *uiOptions) nameInKubeconfig() string {
	raw, err := o.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return ""
	}
	name := *o.config.ClusterName
	if used := raw.Contexts[cmp.Or(*o.config.Context, raw.CurrentContext)]; used != nil {
		name = cmp.Or(name, used.Cluster)
	}
	return name
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
