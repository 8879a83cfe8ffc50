package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
)

// outputWide is the value of -o that adds columns to the table.
const outputWide = "wide"

type getOptions struct {
	*plugin
	filter filter
	output outputFlag
	all    bool
	watch  bool
	sortBy string
}

func (p *plugin) getCommand() *cobra.Command {
	o := &getOptions{plugin: p, output: newOutputFlag()}
	command := &cobra.Command{
		Use:               "get [NAME...]",
		Aliases:           []string{"list", "ls"},
		Short:             "List incidents, the most urgent first",
		ValidArgsFunction: p.completeIncidents(),
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
		RunE:  p.withCluster(o.run),
	}
	o.addTableFlags(command)
	command.Flags().StringVarP(o.output.OutputFormat, "output", "o", "", "Output format: wide, for more columns.")
	return command
}

func (o *getOptions) addTableFlags(command *cobra.Command) {
	o.filter.addFlags(command)
	command.Flags().Var(wordValue{enumeration: "Open or Resolved", list: &o.filter.states}, "state",
		"Select incidents in one of these states: Open, Resolved. Default: Open, or all for incidents that are named.")
	command.Flags().BoolVar(&o.all, "all", false, "Select incidents in all states.")
	command.MarkFlagsMutuallyExclusive("all", "state")
	command.Flags().BoolVar(&o.output.noHeaders, "no-headers", false, "Do not print column titles.")
}

func (o *getOptions) run(ctx context.Context, c *cluster, names []string) error {
	if err := o.validate(names); err != nil {
		return err
	}
	switch {
	case o.watch:
		return o.follow(ctx, c)
	case len(names) > 0:
		return o.printNamed(ctx, c, names)
	default:
		prune := !o.printsObjects() && o.sortBy == ""
		incidents, err := o.incidents(ctx, c, &o.filter, prune, o.newProgress())
		if err != nil {
			return err
		}
		o.warnIfNotFolded(ctx, c, &o.filter, incidents)
		return o.print(c, incidents, false)
	}
}

// validate completes the flags, and returns an error for those that exclude each other.
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
	if len(names) == 0 && len(o.filter.states) == 0 && !o.all {
		o.filter.states = []string{string(v1alpha1.IncidentOpen)}
	}
	return o.filter.complete()
}

func (o *getOptions) printsObjects() bool {
	return o.output.isSet() && *o.output.OutputFormat != outputWide
}

// printNamed prints the Incidents with these names that match the filter. If some of several names cannot be found, it prints
// their errors and the others.
func (o *getOptions) printNamed(ctx context.Context, c *cluster, names []string) error {
	var found []*v1alpha1.Incident
	var notFound error
	for _, name := range names {
		incident, err := c.incident(ctx, name)
		switch {
		case err != nil && len(names) == 1:
			return err
		case err != nil:
			notFound = silentError{}
			o.notef("%s", errorMessage(err))
		case o.filter.matches(incident):
			found = append(found, incident)
		}
	}
	slices.SortFunc(found, live.ByUrgency)
	if len(found) == 0 && notFound != nil && !o.printsObjects() {
		return notFound
	}
	return cmp.Or(o.print(c, found, len(names) == 1), notFound)
}

// print prints Incidents in the format and the order of the flags: as a list, unless a single name was given.
func (o *getOptions) print(c *cluster, incidents []*v1alpha1.Incident, single bool) error {
	if o.sortBy != "" {
		if err := sortBy(incidents, o.sortBy); err != nil {
			return err
		}
	}
	if o.printsObjects() {
		return o.output.write(objects(incidents, single), o.Out)
	}
	if len(incidents) == 0 {
		switch {
		case o.filter.wants(v1alpha1.IncidentResolved):
			o.notef("No incidents found%s.", o.filter.place(c))
		case o.filter.allNamespaces:
			o.notef("No open incidents found; --all lists resolved ones.")
		default:
			o.notef("No open incidents found in namespace %s; -A and --all list others.", c.namespace)
		}
		return nil
	}
	t := o.newTable()
	if t.print(incidents) != nil {
		return t.err
	}
	if failing := failingForwards(incidents); failing != "" {
		o.notef("%s", newScreen(o.ErrOut, o.color).styled(boldRed, failing))
	}
	return nil
}

// failingForwards says of how many Incidents people are not told although they should be. It is empty for none.
func failingForwards(incidents []*v1alpha1.Incident) string {
	failing := 0
	for _, incident := range incidents {
		if live.Untold(incident) == v1alpha1.ForwardingFailing {
			failing++
		}
	}
	if failing == 0 {
		return ""
	}
	return "Nobody is told of " + plural(failing, "open incident") + ": no Alertmanager accepts what Tocsin forwards."
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
