package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func (p *plugin) silenceCommand() *cobra.Command {
	o := &actOptions{plugin: p, status: v1alpha1.AlertSilenced, verb: "Silence"}
	command := o.complete(&cobra.Command{
		Use:   "silence [NAME...]",
		Short: "Silence incidents in Alertmanager",
		Long: `Silence incidents in Alertmanager: Tocsin creates a silence there, so that nobody is notified about the incident. The
silence also applies if the incident is resolved and reopened. A silence is not an acknowledgement. It needs a Tocsin
that forwards incidents to Alertmanager.` + actionNotes,
		Example: example(`
# Silence an incident for two hours
kubectl tocsin silence monitoring-qf4t --for 2h --comment "replacing the disk"

# End the silence
kubectl tocsin silence monitoring-qf4t --for 0`),
	})
	durationVar(command.Flags(), &o.length, "for", "How long to silence, such as 90m, 12h or 7d; at most 30d. 0 ends the silence.")
	_ = command.MarkFlagRequired("for")
	o.addComment(command)
	return command
}

func (p *plugin) unsilenceCommand() *cobra.Command {
	o := &actOptions{plugin: p, status: v1alpha1.AlertSilenced, verb: "End the silence of"}
	command := o.complete(&cobra.Command{
		Use:   "unsilence [NAME...]",
		Short: "End silences that were requested with \"silence\"",
		Long: `End silences that were requested with "kubectl tocsin silence". Silences that were created in Alertmanager itself
stay.` + actionNotes,
		Example: example(`
# End the silence of an incident
kubectl tocsin unsilence monitoring-qf4t`),
	})
	o.addComment(command)
	return command
}

// addComment adds Alertmanager's name of the message.
func (o *actOptions) addComment(command *cobra.Command) {
	command.Flags().StringVar(&o.message, "comment", "", "The same as --message; the comment of the silence in Alertmanager.")
	run := command.RunE
	command.RunE = func(command *cobra.Command, names []string) error {
		if o.length > v1alpha1.MaxSilence {
			return fmt.Errorf("a silence has at most %s", v1alpha1.MaxSilence)
		}
		if command.Flags().Changed("message") && command.Flags().Changed("comment") {
			return errors.New("specify either --message or --comment")
		}
		return run(command, names)
	}
}

// result describes what the command has done to an Incident.
func (o *actOptions) result() string {
	switch {
	case o.status != v1alpha1.AlertSilenced:
		return string(o.status)
	case o.length == 0:
		return "unsilenced"
	default:
		return "silenced for " + o.length.Round(time.Second).String()
	}
}

// warnIfIneffective warns if the silence that was requested has no effect because Incidents are not forwarded.
func (o *actOptions) warnIfIneffective(ctx context.Context, c *cluster, incident *v1alpha1.Incident) {
	if o.status != v1alpha1.AlertSilenced || o.length == 0 {
		return
	}
	var now v1alpha1.Incident
	if c.Get(ctx, client.ObjectKeyFromObject(incident), &now) != nil {
		return
	}
	condition := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionSilenced)
	if condition != nil && condition.Reason == v1alpha1.ReasonForwardingDisabled {
		_, _ = fmt.Fprintf(o.ErrOut, "Warning: %s: %s\n", incident.Name, safe(condition.Message))
	}
}
