package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// checkOptions are those of "check".
type checkOptions struct {
	*plugin
	filter filter
	quiet  bool
}

func (p *plugin) checkCommand() *cobra.Command {
	o := &checkOptions{plugin: p}
	command := &cobra.Command{
		Use:   "check",
		Short: "Tell by the exit code whether incidents are open, for scripts",
		Long: `Tell by the exit code whether incidents are open, for scripts:

  0  none is open
  1  at least one is open
  2  could not be determined, or the namespace or an integration does not exist

It prints how many are open, and which.`,
		Example: example(`
# Go on with a roll-out only while nothing critical is open
kubectl tocsin check -n shop --severity critical,error && ./roll-out

# Is there anything that nobody has acknowledged?
kubectl tocsin check -A --unacknowledged --quiet`),
		Args:        cobra.NoArgs,
		Annotations: map[string]string{exitAnnotation: exitByCheck},
		RunE:        func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	o.filter.addFlags(command.Flags())
	o.filter.addCompletions(p, command)
	command.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "Print nothing but errors.")
	return command
}

func (o *checkOptions) run(ctx context.Context) error {
	if err := o.filter.complete(); err != nil {
		return err
	}
	o.filter.states = []string{string(v1alpha1.IncidentOpen)}
	c, err := o.cluster()
	if err != nil {
		return err
	}
	s, err := o.screen()
	if err != nil {
		return err
	}
	list, err := c.incidents(ctx, o.filter.listOptions(c)...)
	if err != nil {
		return err
	}
	open := wanted(list.Items, &o.filter)
	if err := o.verify(ctx, c, &o.filter, open); err != nil {
		return err
	}
	if !o.quiet {
		s.printf("%s\n", tally(open))
		for _, incident := range open {
			look := severityStyles[incident.Status.Alert.Severity]
			s.printf("%s/%s %s %s\n", incident.Namespace, incident.Name,
				s.styled(look, string(incident.Status.Alert.Severity)), safe(incident.Status.Alert.Title))
		}
	}
	if s.err == nil && len(open) > 0 {
		return exitError(exitFailure)
	}
	return s.err
}

// tally counts Incidents by severity, in a sentence.
func tally(open []*v1alpha1.Incident) string {
	switch len(open) {
	case 0:
		return "No incident is open."
	case 1:
		return "1 incident is open:"
	}
	counts := map[v1alpha1.Severity]int{}
	for _, incident := range open {
		counts[incident.Status.Alert.Severity]++
	}
	var parts []string
	for _, severity := range severities {
		if counts[severity] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[severity], severity))
		}
	}
	return fmt.Sprintf("%d incidents are open (%s):", len(open), strings.Join(parts, ", "))
}
