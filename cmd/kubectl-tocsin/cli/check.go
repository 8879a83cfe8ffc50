package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/heartbeats/states"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/tally"
)

// checkName is the name of the command whose errors have an exit code of their own.
const checkName = "check"

type checkOptions struct {
	*plugin
	filter filter
	quiet  bool
	output string
}

func (p *plugin) checkCommand() *cobra.Command {
	o := &checkOptions{plugin: p}
	command := &cobra.Command{
		Use:   checkName,
		Short: "Check for open incidents, with an exit code for scripts",
		RunE:  p.withCluster(o.run),
	}
	o.filter.addFlags(command)
	command.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "Print errors only.")
	wordVar(command.Flags(), &o.output, "output", "o", "json or yaml", "Output format: json or yaml. Default: a list for people.")
	command.MarkFlagsMutuallyExclusive("quiet", "output")
	return command
}

// open returns the open Incidents that the flags select. With prune, it keeps only what a table shows.
func (o *checkOptions) open(ctx context.Context, c *cluster, prune bool) ([]*v1alpha1.Incident, error) {
	if err := o.filter.complete(); err != nil {
		return nil, err
	}
	o.filter.states = []string{string(v1alpha1.IncidentOpen)}
	return o.incidents(ctx, c, &o.filter, prune, nil)
}

func (o *checkOptions) run(ctx context.Context, c *cluster, _ []string) error {
	open, err := o.open(ctx, c, false)
	if err != nil {
		return err
	}
	if len(open) == 0 {
		if why, err := o.notFolded(ctx, c, &o.filter); err != nil || why != "" {
			return cmp.Or(err, errors.New(why))
		}
	}
	s := o.screen
	switch {
	case o.output != "":
		if err := writeObject(o.Out, o.output, objects(open, false)); err != nil {
			return err
		}
	case !o.quiet:
		s.printf("%s\n", summarize(open))
		for _, incident := range open {
			look := severityStyles[incident.Status.Alert.Severity]
			s.printf("%s/%s %s %s\n", incident.Namespace, incident.Name,
				s.styled(look, string(incident.Status.Alert.Severity)), safe(incident.Status.Alert.Title))
		}
		for _, f := range features {
			o.listParts(f, o.parts(ctx, c, f))
		}
	}
	if s.err == nil && len(open) > 0 {
		return silentError{}
	}
	return s.err
}

// features are those whose objects are listed.
var features = []live.Feature{states.Heartbeats{}}

// parts returns the objects of a feature that belong to the selected integrations. They do not change the exit code: for one with
// which something is wrong, there is an Incident. So an error is no reason to fail.
func (o *checkOptions) parts(ctx context.Context, c *cluster, f live.Feature) []live.Part {
	all, err := f.List(ctx, c, o.filter.namespace(c))
	if err != nil {
		o.notef("%ss are not listed: %s.", f.Kind(), live.Sentence(err))
		return nil
	}
	if len(o.filter.Integrations) > 0 {
		all = slices.DeleteFunc(all, func(part live.Part) bool { return !slices.Contains(o.filter.Integrations, part.Integration) })
	}
	return all
}

func (o *checkOptions) listParts(f live.Feature, all []live.Part) {
	if len(all) == 0 {
		return
	}
	o.screen.printf("\n%ss: %s.\n", f.Kind(), f.Tally(all))
	t := &table[live.Part]{screen: o.screen, wide: true}
	t.add(strings.ToUpper(f.Kind()), 0, func(p live.Part) string { return p.Namespace + "/" + p.Integration + "/" + p.Name })
	t.addCells("STATE", 0, func(p live.Part) cell { return cell{p.State, troubleStyles[p.Trouble]} })
	t.add("LAST-SIGNAL", 0, func(p live.Part) string { return ago(p.Last, o.now()) })
	t.add("NEXT-DUE", 0, func(p live.Part) string { return fromNow(p.Due, o.now()) })
	_ = t.print(all) // the screen remembers it
}

var troubleStyles = map[live.Trouble]style{live.Unsettled: yellow, live.Broken: red}

// fromNow returns how long before or after now a time is, such as "in 5m" or "2h ago".
func fromNow(at *v1alpha1.Timestamp, now time.Time) string {
	switch {
	case at == nil:
		return "-"
	case at.After(now):
		return "in " + duration.HumanDuration(at.Sub(now))
	}
	return ago(at, now) + " ago"
}

func summarize(open []*v1alpha1.Incident) string {
	switch len(open) {
	case 0:
		return "No incident is open."
	case 1:
		return "1 incident is open:"
	}
	var counts tally.Counts
	for _, incident := range open {
		counts.Add(incident.Status.Alert.Severity)
	}
	return fmt.Sprintf("%d incidents are open (%s):", len(open), &counts)
}
