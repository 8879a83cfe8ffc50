package cli

import (
	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// addAssignment adds the flags of "assign".
func (o *actOptions) addAssignment(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.Assignee, "to", "", "Name of the person. Default: your user name.")
	unassign := flags.Bool("unassign", false, "Withdraw the assignment.")
	command.MarkFlagsMutuallyExclusive("to", "unassign")
	command.PreRun = func(*cobra.Command, []string) {
		if *unassign {
			o.Status, o.verb = v1alpha1.AlertUnassigned, "Unassign"
		}
	}
}

// assigned describes who works on the Incident, since when, and who assigned it.
func (d *description) assigned(status *v1alpha1.IncidentStatus) string {
	name := safe(fold.AssigneeOf(status))
	if name == "" {
		return ""
	}
	text := "to " + name + ", since " + d.time(&status.Assignee.Time)
	if by := safe(status.Assignee.By); by != "" && by != name {
		text += ", by " + by
	}
	return text + "."
}
