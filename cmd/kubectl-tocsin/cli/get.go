package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// outputWide is the value of -o that is ours: more columns.
const outputWide = "wide"

// listChunk is how many Incidents are asked for at a time: each may have up to 256 KiB.
const listChunk = 250

// getOptions are those of "get" and "watch".
type getOptions struct {
	*plugin
	filter filter
	output machineOutput
	watch  bool
	names  []string

	noHeaders bool
	sortBy    string
	missed    bool // a name
}

func (p *plugin) getCommand() *cobra.Command {
	o := &getOptions{plugin: p, output: newMachineOutput()}
	command := &cobra.Command{
		Use:     "get [NAME...]",
		Aliases: []string{"list", "ls"},
		Short:   "List incidents, open and severe ones first",
		Long: `List incidents: open before resolved ones, the severe before the mild, what nobody has acknowledged before
what somebody has, and then the newest.

A NAME may be shortened as long as only one incident begins like it.`,
		Example: example(`
# The open incidents of all namespaces
kubectl tocsin get -A --state Open

# Those that are critical and that nobody has acknowledged
kubectl tocsin get --severity critical --unacknowledged

# By a label that the alerts have, in YAML
kubectl tocsin get -l team=storage -o yaml

# Go on watching: a live table on a terminal, a line for each change in a pipe
kubectl tocsin get -w`),
		ValidArgsFunction: p.completeIncidents,
		RunE: func(command *cobra.Command, args []string) error {
			o.names = args
			return o.run(command.Context())
		},
	}
	o.addFlags(command)
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "Go on watching.")
	command.Flags().StringVar(&o.sortBy, "sort-by", "",
		"Sort by this JSONPath instead, such as .status.alertCount or .status.openedTime.")
	return command
}

func (p *plugin) watchCommand() *cobra.Command {
	o := &getOptions{plugin: p, output: newMachineOutput(), watch: true}
	command := &cobra.Command{
		Use:   "watch",
		Short: "Watch incidents, in a live table on a terminal",
		Long: `Watch incidents, the same as "get --watch".

On a terminal it is a table that keeps itself up to date, open and severe incidents first; q or Ctrl-C ends it.
In a pipe it is a line for each incident there is, and one for each change; stderr tells when the API server is gone,
and when it is back.`,
		Example: example(`
# What is open, everywhere
kubectl tocsin watch -A --state Open

# A line for each change of a critical incident, for another program
kubectl tocsin watch -A --severity critical | while read -r line; do …; done`),
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	o.addFilterFlags(command)
	command.Flags().StringVarP(o.output.OutputFormat, "output", "o", "", "The format: wide, for more columns.")
	return command
}

func (o *getOptions) addFilterFlags(command *cobra.Command) {
	o.filter.addFlags(command.Flags())
	o.filter.addStateFlag(command.Flags())
	o.filter.addCompletions(o.plugin, command)
	command.Flags().BoolVar(&o.noHeaders, "no-headers", false, "Print no line of column titles.")
}

func (o *getOptions) addFlags(command *cobra.Command) {
	o.addFilterFlags(command)
	o.output.AddFlags(command)
	command.Flags().Lookup("output").Usage =
		"The format: wide (more columns), json, yaml, name, jsonpath=…, go-template=… Default: a table."
}

func (o *getOptions) run(ctx context.Context) error {
	if err := o.filter.complete(); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	c, err := o.cluster()
	if err != nil {
		return err
	}
	s, err := o.screen()
	if err != nil {
		return err
	}
	table := newIncidentTable(s, o.now, tableOptions{
		namespaces: o.filter.allNamespaces, wide: *o.output.OutputFormat == outputWide, noHeaders: o.noHeaders,
	})
	if o.watch {
		return o.follow(ctx, c, table)
	}
	list, err := o.list(ctx, c)
	if err != nil {
		return err
	}
	incidents := wanted(list.Items, &o.filter)
	if err := o.verify(ctx, c, &o.filter, incidents); err != nil {
		return err
	}
	if o.sortBy != "" {
		if err := sortBy(incidents, o.sortBy); err != nil {
			return err
		}
	}
	if err := o.print(ctx, c, table, list, incidents); err != nil || !o.missed {
		return err
	}
	return exitError(exitFailure)
}

// validate finds flags that do not go together.
func (o *getOptions) validate() error {
	switch {
	case o.watch && o.machine():
		return errors.New("--watch prints a table; kubectl get incidents -w prints other formats")
	case o.watch && len(o.names) > 0:
		return errors.New("--watch takes no names")
	case o.watch && o.sortBy != "":
		return errors.New("--watch does not go with --sort-by")
	case len(o.names) > 0 && o.filter.allNamespaces:
		return errors.New("a name is one of a namespace: it does not go with --all-namespaces")
	}
	return nil
}

// machine says whether the output is for a program.
func (o *getOptions) machine() bool { return o.output.wanted() && *o.output.OutputFormat != outputWide }

// print prints Incidents in the format that -o asks for.
func (o *getOptions) print(
	ctx context.Context, c *cluster, table *incidentTable, list *v1alpha1.IncidentList, incidents []*v1alpha1.Incident,
) error {
	switch {
	case o.machine():
		return o.output.write(o.objects(incidents), o.Out)
	case len(incidents) == 0 && o.missed:
		return nil
	case len(incidents) == 0:
		_, err := fmt.Fprintln(o.ErrOut, o.filter.none(c))
		return err
	}
	if err := o.shortNames(ctx, c, table, list); err != nil {
		return err
	}
	table.print(incidents)
	return table.screen.err
}

// shortNames has a table on a terminal print short names. They are to be clear among all Incidents, not just those
// that a filter left.
func (o *getOptions) shortNames(ctx context.Context, c *cluster, table *incidentTable, list *v1alpha1.IncidentList) error {
	if !table.screen.isTerminal() {
		return nil
	}
	names := []types.NamespacedName{}
	namespaces := []string{o.filter.namespace(c)}
	for i := range list.Items {
		if len(o.names) > 0 && !slices.Contains(namespaces, list.Items[i].Namespace) {
			namespaces = append(namespaces, list.Items[i].Namespace)
		}
	}
	for _, namespace := range namespaces {
		found, err := c.incidentNames(ctx, namespace)
		if err != nil {
			return fmt.Errorf("listing incidents: %w", err)
		}
		names = append(names, found...)
	}
	table.shorten(names)
	return nil
}

// none says that there is nothing.
func (f *filter) none(c *cluster) string {
	if f.allNamespaces {
		return "No incidents found."
	}
	return fmt.Sprintf("No incidents found in namespace %s.", c.namespace)
}

// list are the named Incidents, or else all of the namespace that the API server finds by the filter.
func (o *getOptions) list(ctx context.Context, c *cluster) (*v1alpha1.IncidentList, error) {
	if len(o.names) == 0 {
		return c.incidents(ctx, o.filter.listOptions(c)...)
	}
	list := &v1alpha1.IncidentList{}
	for _, name := range o.names {
		incident, err := c.incident(ctx, name)
		switch {
		case err == nil:
			list.Items = append(list.Items, *incident)
		case len(o.names) == 1:
			return nil, err
		default: // the others are printed all the same
			o.missed = true
			_, _ = fmt.Fprintln(o.ErrOut, explainError(err))
		}
	}
	return list, nil
}

// incidents lists Incidents, a chunk at a time.
func (c *cluster) incidents(ctx context.Context, options ...client.ListOption) (*v1alpha1.IncidentList, error) {
	all := &v1alpha1.IncidentList{}
	for {
		list := &v1alpha1.IncidentList{}
		err := c.List(ctx, list, append(options, client.Limit(listChunk), client.Continue(all.Continue))...)
		if err != nil {
			return nil, fmt.Errorf("listing incidents: %w", err)
		}
		all.Items = append(all.Items, list.Items...)
		all.ListMeta = list.ListMeta
		if list.Continue == "" {
			return all, nil
		}
	}
}

// objects is what -o prints: the one Incident that was asked for by name, or else a list.
func (o *getOptions) objects(incidents []*v1alpha1.Incident) runtime.Object {
	list := &v1alpha1.IncidentList{Items: make([]v1alpha1.Incident, 0, len(incidents))}
	for _, incident := range incidents {
		list.Items = append(list.Items, *incident)
		list.Items[len(list.Items)-1].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Incident"))
	}
	if len(o.names) == 1 && len(list.Items) == 1 {
		return &list.Items[0]
	}
	return list
}
