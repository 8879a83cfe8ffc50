package cli

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// foldPoll is how often to look whether an AlertEvent has been folded.
	foldPoll = 100 * time.Millisecond

	maxByChars      = 256  // of spec.alerts[].by
	maxCommentChars = 1024 // of spec.alerts[].comment
)

// actOptions are those of "ack" and "resolve".
type actOptions struct {
	*plugin
	status  v1alpha1.AlertStatus
	message string
	wait    bool
	timeout time.Duration
}

func (p *plugin) ackCommand() *cobra.Command {
	o := &actOptions{plugin: p, status: v1alpha1.AlertAcknowledged}
	command := &cobra.Command{
		Use:     "ack NAME...",
		Aliases: []string{"acknowledge"},
		Short:   "Acknowledge incidents: say that somebody is at it",
		Long: `Acknowledge incidents: they stay open, and everybody sees that somebody is at it.

Your user name, as the cluster knows it, and the message go into the timeline. It is done by creating an
AlertEvent, which takes the rights of "edit" in the namespace. A NAME may be shortened as long as only one
incident begins like it.`,
		Example: example(`kubectl tocsin ack monitoring-qf4t --message "looking into it"`),
	}
	return o.finish(command)
}

func (p *plugin) resolveCommand() *cobra.Command {
	o := &actOptions{plugin: p, status: v1alpha1.AlertResolved}
	command := &cobra.Command{
		Use:   "resolve NAME...",
		Short: "Resolve incidents: say that it is over",
		Long: `Resolve incidents: say that it is over. The next firing alert opens them again, unless it only repeats what is
over by saying that it began when that did.

Your user name, as the cluster knows it, and the message go into the timeline. It is done by creating an
AlertEvent, which takes the rights of "edit" in the namespace. A NAME may be shortened as long as only one
incident begins like it.`,
		Example: example(`kubectl tocsin resolve monitoring-qf4t --message "replaced the disk"`),
	}
	return o.finish(command)
}

func (o *actOptions) finish(command *cobra.Command) *cobra.Command {
	command.Args = cobra.MinimumNArgs(1)
	command.ValidArgsFunction = o.completeIncidents
	command.RunE = func(command *cobra.Command, args []string) error { return o.run(command.Context(), args) }
	flags := command.Flags()
	flags.StringVarP(&o.message, "message", "m", "", "What to say about it in the timeline.")
	flags.BoolVar(&o.wait, "wait", true, "Wait until Tocsin has carried it out.")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "How long to wait for each.")
	return command
}

func (o *actOptions) run(ctx context.Context, names []string) error {
	if utf8.RuneCountInString(o.message) > maxCommentChars {
		return fmt.Errorf("the message has more than %d characters", maxCommentChars)
	}
	c, err := o.cluster()
	if err != nil {
		return err
	}
	user, err := c.user(ctx)
	if err != nil {
		return err
	}
	// Find them all before anything is done: a mistyped name is no half of a command carried out.
	var incidents []*v1alpha1.Incident
	for _, name := range names {
		incident, err := c.incident(ctx, name)
		if err != nil {
			return err
		}
		if o.status == v1alpha1.AlertAcknowledged && incident.Status.State == v1alpha1.IncidentResolved {
			return fmt.Errorf("%s is resolved; there is nothing to acknowledge", incident.Name)
		}
		incidents = append(incidents, incident)
	}
	for _, incident := range incidents {
		if err := o.act(ctx, c, incident, user); err != nil {
			return err
		}
	}
	return nil
}

// act acknowledges or resolves one Incident and says what became of it.
func (o *actOptions) act(ctx context.Context, c *cluster, incident *v1alpha1.Incident, user string) error {
	say := func(what string) error {
		_, err := fmt.Fprintf(o.Out, "incident.tocsin.dev/%s %s\n", incident.Name, what)
		return err
	}
	if o.status == v1alpha1.AlertResolved && incident.Status.State == v1alpha1.IncidentResolved {
		return say("is resolved already")
	}
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: incident.Namespace, GenerateName: "kubectl-"},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: incident.Spec.IntegrationName,
			Alerts:          []v1alpha1.Alert{{Status: o.status, IncidentName: incident.Name, By: user, Comment: o.message}},
		},
	}
	if err := c.Create(ctx, event, fieldManager); err != nil {
		return err
	}
	if !o.wait {
		return say("will be " + string(o.status))
	}
	if err := o.await(ctx, c, event); err != nil {
		return err
	}
	return say(string(o.status))
}

// await waits until an AlertEvent is folded: then it is deleted.
func (o *actOptions) await(ctx context.Context, c *cluster, event *v1alpha1.AlertEvent) error {
	err := wait.PollUntilContextTimeout(ctx, foldPoll, o.timeout, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(event), &v1alpha1.AlertEvent{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the AlertEvent %s is stored, but Tocsin has not carried it out within %s; it will when it runs",
			event.Name, o.timeout)
	}
	return err
}

// user is the name of the user as the cluster knows it, which is not the one in the kubeconfig.
func (c *cluster) user(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "", fmt.Errorf("asking the API server for your user name: %w", err)
	}
	name := []rune(review.Status.UserInfo.Username)
	return string(name[:min(len(name), maxByChars)]), nil
}
