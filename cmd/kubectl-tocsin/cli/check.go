package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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

func (o *checkOptions) run(ctx context.Context, c *cluster, _ []string) error {
	if err := o.filter.complete(); err != nil {
		return err
	}
	o.filter.states = []string{string(v1alpha1.IncidentOpen)}
	open, err := o.incidents(ctx, c, &o.filter, nil)
	if err != nil {
		return err
	}
	s := o.screen
	switch {
	case o.output != "":
		if err := writeObject(o.Out, o.output, objects(open, false)); err != nil {
			return err
		}
	case !o.quiet:
		s.printf("%s\n", tally(open))
		for _, incident := range open {
			look := severityStyles[incident.Status.Alert.Severity]
			s.printf("%s/%s %s %s\n", incident.Namespace, incident.Name,
				s.styled(look, string(incident.Status.Alert.Severity)), safe(incident.Status.Alert.Title))
		}
	}
	if s.err == nil && len(open) > 0 {
		return silentError{}
	}
	return s.err
}

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
