package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// outputWide is the value of -o that adds columns to the table.
const outputWide = "wide"

// getOptions are the options of "get" and "watch".
type getOptions struct {
	*plugin
	filter filter
	output outputFlag
	watch  bool
	sortBy string
}

func (p *plugin) getCommand() *cobra.Command {
	o := &getOptions{plugin: p, output: newOutputFlag()}
	command := &cobra.Command{
		Use:     "get [NAME...]",
		Aliases: []string{"list", "ls"},
		Short:   "List incidents, the most urgent first",
		Long: `List incidents, ordered by state, severity, acknowledgement and age: open, severe, unacknowledged and new
incidents come first.

NAME may be any unambiguous prefix of a name.`,
		Example: example(`
# List the open incidents of all namespaces
kubectl tocsin get -A --state Open

# List critical incidents that are not acknowledged
kubectl tocsin get --severity critical --unacknowledged

# Print incidents with an alert label in YAML
kubectl tocsin get -l team=storage -o yaml

# Choose the columns
kubectl tocsin get -o custom-columns=TITLE:.status.alert.title,HOST:.status.alert.hostname

# Watch incidents: a live table on a terminal, one line per change in a pipe
kubectl tocsin get -w`),
		ValidArgsFunction: p.completeIncidents,
		RunE:              p.withCluster(o.run),
	}
	o.addTableFlags(command)
	o.output.addFlag(command, "Output format: wide, json, yaml, name, custom-columns=…, jsonpath=…, go-template=… Default: a table.")
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "Watch for changes.")
	command.Flags().StringVar(&o.sortBy, "sort-by", "",
		"Sort by a JSONPath expression, such as .status.alertCount or .status.openedTime.")
	return command
}

func (p *plugin) watchCommand() *cobra.Command {
	o := &getOptions{plugin: p, output: newOutputFlag(), watch: true}
	command := &cobra.Command{
		Use:   "watch",
		Short: "Watch incidents in a live table",
		Long: `Watch incidents, the same as "get --watch".

On a terminal, it is a live table; q or Ctrl-C quits. In a pipe, it prints one line per incident and one per
change, and reports connection errors on stderr.`,
		Example: example(`
# Watch the open incidents of all namespaces
kubectl tocsin watch -A --state Open

# Process changes of critical incidents in a script
kubectl tocsin watch -A --severity critical | while read -r line; do …; done`),
		Args: noArguments,
		RunE: p.withCluster(o.run),
	}
	o.addTableFlags(command)
	command.Flags().StringVarP(o.output.OutputFormat, "output", "o", "", "Output format: wide, for more columns.")
	return command
}

func (o *getOptions) addTableFlags(command *cobra.Command) {
	o.filter.addFlags(o.plugin, command)
	o.filter.addStateFlag(command)
	command.Flags().BoolVar(&o.output.noHeaders, "no-headers", false, "Do not print column titles.")
}

func (o *getOptions) run(ctx context.Context, c *cluster, names []string) error {
	if err := o.filter.complete(); err != nil {
		return err
	}
	if err := o.validate(names); err != nil {
		return err
	}
	table := newIncidentTable(o.screen, o.now, tableOptions{
		namespaces: o.filter.allNamespaces, wide: *o.output.OutputFormat == outputWide, noHeaders: o.output.noHeaders,
	})
	if o.watch {
		return o.follow(ctx, c, table)
	}
	if len(names) == 0 && !o.printsObjects() && o.sortBy == "" {
		return o.printAll(ctx, c, table)
	}
	return o.printFound(ctx, c, table, names)
}

// printFound prints the Incidents with these names, or all in another format or order.
func (o *getOptions) printFound(ctx context.Context, c *cluster, table *incidentTable, names []string) error {
	incidents, notFound, err := o.find(ctx, c, names)
	if err != nil {
		return err
	}
	if err := o.verify(ctx, c, &o.filter, incidents); err != nil {
		return err
	}
	if o.sortBy != "" {
		if err := sortBy(incidents, o.sortBy); err != nil {
			return err
		}
	}
	switch {
	case o.printsObjects():
		err = o.output.write(objects(incidents, len(names) == 1), o.Out)
	case len(incidents) > 0:
		err = o.printTable(ctx, c, table, incidents)
	case !notFound:
		err = o.printNone(c)
	}
	if err == nil && notFound {
		return silentError{}
	}
	return err
}

// printAll prints all Incidents that match. Of many, it prints the open ones before it lists the others.
func (o *getOptions) printAll(ctx context.Context, c *cluster, table *incidentTable) error {
	shows := o.newProgress()
	defer shows.clear()
	l := &listing{cluster: c, filter: &o.filter, prune: true, progress: shows}
	incidents, rest, err := l.first(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(incidents, byUrgency)
	if rest == nil || len(incidents) > 0 {
		if err := o.verify(ctx, c, &o.filter, incidents); err != nil {
			return err
		}
	}
	shows.clear()
	if len(incidents) > 0 {
		if err := o.printTable(ctx, c, table, incidents); err != nil {
			return err
		}
	}
	if rest == nil {
		if len(incidents) == 0 {
			return o.printNone(c)
		}
		return nil
	}
	shows.reset()
	others, err := rest()
	if err != nil {
		return err
	}
	slices.SortFunc(others, byUrgency)
	shows.clear()
	switch {
	case len(incidents) > 0:
		table.printRows(others)
		return table.screen.err
	case len(others) > 0:
		return o.printTable(ctx, c, table, others)
	}
	if err := o.verify(ctx, c, &o.filter, nil); err != nil {
		return err
	}
	return o.printNone(c)
}

func (o *getOptions) printNone(c *cluster) error {
	message := "No incidents found.\n"
	if !o.filter.allNamespaces {
		message = fmt.Sprintf("No incidents found in namespace %s.\n", c.namespace)
	}
	_, err := fmt.Fprint(o.ErrOut, message)
	return err
}

// validate returns an error for flags that exclude each other.
func (o *getOptions) validate(names []string) error {
	switch {
	case o.watch && o.printsObjects():
		return errors.New("--watch prints a table only; for other formats use kubectl get incidents -w")
	case o.watch && len(names) > 0:
		return errors.New("--watch cannot be used with names")
	case o.watch && o.sortBy != "":
		return errors.New("--watch cannot be used with --sort-by")
	case len(names) > 0 && o.filter.allNamespaces:
		return errors.New("--all-namespaces cannot be used with names")
	}
	return nil
}

func (o *getOptions) printsObjects() bool {
	return o.output.isSet() && *o.output.OutputFormat != outputWide
}

// find returns the Incidents that match the filter, among all or among the names. If some of several names cannot be
// found, it prints their errors and returns the others.
func (o *getOptions) find(
	ctx context.Context, c *cluster, names []string,
) (incidents []*v1alpha1.Incident, notFound bool, err error) {
	if len(names) == 0 {
		incidents, err = c.incidents(ctx, &o.filter, o.newProgress())
		return incidents, false, err
	}
	var found []v1alpha1.Incident
	for _, name := range names {
		incident, err := c.incident(ctx, name)
		switch {
		case err == nil:
			found = append(found, *incident)
		case len(names) == 1:
			return nil, false, err
		default:
			notFound = true
			_, _ = fmt.Fprintln(o.ErrOut, errorMessage(err))
		}
	}
	return o.filter.apply(found), notFound, nil
}

// printTable prints Incidents. On a terminal it prints short names, which must be unambiguous among all Incidents of the
// namespaces, not only those that match the filter. If there are too many to list them all for that, it prints whole names.
func (o *getOptions) printTable(
	ctx context.Context, c *cluster, table *incidentTable, incidents []*v1alpha1.Incident,
) error {
	if table.screen.isTerminal() {
		namespaces := []string{""}
		if !o.filter.allNamespaces {
			namespaces = namespacesOf(incidents)
		}
		var all []types.NamespacedName
		for _, namespace := range namespaces {
			names, err := c.names(ctx, v1alpha1.GroupVersion.WithKind("IncidentList"), maxShortened, client.InNamespace(namespace))
			if err != nil {
				return fmt.Errorf("listing incidents: %w", err)
			}
			all = append(all, names...)
		}
		table.shorten(all)
	}
	table.print(incidents)
	return table.screen.err
}

func namespacesOf(incidents []*v1alpha1.Incident) []string {
	namespaces := map[string]bool{}
	for _, incident := range incidents {
		namespaces[incident.Namespace] = true
	}
	return slices.Collect(maps.Keys(namespaces))
}

// objects returns the only Incident if single is set, else a list.
func objects(incidents []*v1alpha1.Incident, single bool) runtime.Object {
	list := &v1alpha1.IncidentList{Items: make([]v1alpha1.Incident, 0, len(incidents))}
	for _, incident := range incidents {
		incident.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Incident"))
		list.Items = append(list.Items, *incident)
	}
	if single && len(incidents) == 1 {
		return incidents[0]
	}
	return list
}
