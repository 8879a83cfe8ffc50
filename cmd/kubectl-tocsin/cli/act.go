package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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
	filter  filter
	all     bool
	yes     bool
}

func (p *plugin) ackCommand() *cobra.Command {
	o := &actOptions{plugin: p, status: v1alpha1.AlertAcknowledged}
	command := &cobra.Command{
		Use:     "ack [NAME...]",
		Aliases: []string{"acknowledge"},
		Short:   "Acknowledge incidents: say that somebody is at it",
		Long: `Acknowledge incidents: they stay open, and everybody sees that somebody is at it.

Your user name, as the cluster knows it, and the message go into the timeline. It is done by creating an
AlertEvent, which takes the rights of "edit" in the namespace. A NAME may be shortened as long as only one
incident begins like it.

Instead of names, a filter chooses among the open incidents; the command lists them and asks before it goes on.`,
		Example: example(`
kubectl tocsin ack monitoring-qf4t --message "looking into it"

# All that are critical, after a question
kubectl tocsin ack --severity critical`),
	}
	return o.finish(command)
}

func (p *plugin) resolveCommand() *cobra.Command {
	o := &actOptions{plugin: p, status: v1alpha1.AlertResolved}
	command := &cobra.Command{
		Use:   "resolve [NAME...]",
		Short: "Resolve incidents: say that it is over",
		Long: `Resolve incidents: say that it is over. The next firing alert opens them again, unless it only repeats what is
over by saying that it began when that did.

Your user name, as the cluster knows it, and the message go into the timeline. It is done by creating an
AlertEvent, which takes the rights of "edit" in the namespace. A NAME may be shortened as long as only one
incident begins like it.

Instead of names, a filter chooses among the open incidents; the command lists them and asks before it goes on.`,
		Example: example(`
kubectl tocsin resolve monitoring-qf4t --message "replaced the disk"

# All of an integration, without a question
kubectl tocsin resolve --integration monitoring --yes`),
	}
	return o.finish(command)
}

func (o *actOptions) finish(command *cobra.Command) *cobra.Command {
	command.ValidArgsFunction = o.completeIncidents
	command.RunE = func(command *cobra.Command, args []string) error { return o.run(command.Context(), args) }
	flags := command.Flags()
	flags.StringVarP(&o.message, "message", "m", "", "What to say about it in the timeline.")
	flags.BoolVar(&o.wait, "wait", true, "Wait until Tocsin has carried it out.")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "How long to wait for each.")
	o.filter.addFlags(flags)
	o.filter.addCompletions(o.plugin, command)
	flags.BoolVar(&o.all, "all", false, "All open incidents of the namespace, or of all namespaces with -A.")
	flags.BoolVarP(&o.yes, "yes", "y", false, "Do not ask before handling the incidents of a filter.")
	return command
}

func (o *actOptions) run(ctx context.Context, names []string) error {
	if utf8.RuneCountInString(o.message) > maxCommentChars {
		return fmt.Errorf("the message has more than %d characters", maxCommentChars)
	}
	filtered := o.all || o.filter.unacknowledged || len(o.filter.severities)+len(o.filter.integrations)+len(o.filter.labels) > 0
	switch {
	case len(names) > 0 && (filtered || o.filter.allNamespaces):
		return errors.New("give either incident names or a filter, not both")
	case len(names) == 0 && !filtered:
		return errors.New("give an incident name, a filter such as --severity or --integration, or --all")
	}
	if err := o.filter.complete(); err != nil {
		return err
	}
	c, err := o.cluster()
	if err != nil {
		return err
	}
	user, err := c.user(ctx)
	if err != nil {
		return err
	}
	incidents, err := o.named(ctx, c, names)
	if filtered {
		incidents, err = o.matching(ctx, c)
	}
	if err != nil {
		return err
	}
	return o.handle(ctx, c, incidents, user)
}

// matching are the Incidents of the filter that there is something to be done about, after the user agreed.
func (o *actOptions) matching(ctx context.Context, c *cluster) ([]*v1alpha1.Incident, error) {
	o.filter.states = []string{string(v1alpha1.IncidentOpen)}
	o.filter.unacknowledged = o.filter.unacknowledged || o.status == v1alpha1.AlertAcknowledged
	list, err := c.incidents(ctx, o.filter.listOptions(c)...)
	if err != nil {
		return nil, err
	}
	incidents := wanted(list.Items, &o.filter)
	if err := o.verify(ctx, c, &o.filter, incidents); err != nil {
		return nil, err
	}
	if len(incidents) == 0 {
		_, err := fmt.Fprintln(o.ErrOut, "No open incident matches.")
		return nil, err
	}
	if o.yes {
		return incidents, nil
	}
	verb := map[v1alpha1.AlertStatus]string{v1alpha1.AlertAcknowledged: "Acknowledge", v1alpha1.AlertResolved: "Resolve"}[o.status]
	for _, incident := range incidents {
		_, _ = fmt.Fprintf(o.ErrOut, "%s/%s %s %s\n", incident.Namespace, incident.Name, incident.Status.Alert.Severity,
			safe(incident.Status.Alert.Title))
	}
	_, _ = fmt.Fprintf(o.ErrOut, "%s %s? [y/N] ", verb, plural(len(incidents), "incident"))
	answer, err := bufio.NewReader(o.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return incidents, nil
	}
	return nil, errors.New("not confirmed: nothing was done (--yes does not ask)")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// named are the Incidents of these names.
func (o *actOptions) named(ctx context.Context, c *cluster, names []string) ([]*v1alpha1.Incident, error) {
	// Find them all before anything is done: a mistyped name is no half of a command carried out.
	var incidents []*v1alpha1.Incident
	for _, name := range names {
		incident, err := c.incident(ctx, name)
		if err != nil {
			return nil, err
		}
		if o.status == v1alpha1.AlertAcknowledged && incident.Status.State == v1alpha1.IncidentResolved {
			return nil, fmt.Errorf("%s is resolved; there is nothing to acknowledge", incident.Name)
		}
		incidents = append(incidents, incident)
	}
	return incidents, nil
}

// handle acknowledges or resolves Incidents: it asks for all of it first, and then waits.
func (o *actOptions) handle(ctx context.Context, c *cluster, incidents []*v1alpha1.Incident, user string) error {
	events := make([]*v1alpha1.AlertEvent, len(incidents))
	for i, incident := range incidents {
		if o.status == v1alpha1.AlertResolved && incident.Status.State == v1alpha1.IncidentResolved {
			continue
		}
		events[i] = o.event(incident, user)
		if err := c.Create(ctx, events[i], fieldManager); err != nil {
			return err
		}
	}
	for i, incident := range incidents {
		done := string(o.status)
		switch {
		case events[i] == nil:
			done = "is resolved already"
		case !o.wait:
			done = "will be " + done
		default:
			if err := o.await(ctx, c, events[i]); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(o.Out, "incident.tocsin.dev/%s %s\n", incident.Name, done); err != nil {
			return err
		}
	}
	return nil
}

// event is the AlertEvent that acknowledges or resolves an Incident.
func (o *actOptions) event(incident *v1alpha1.Incident, user string) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: incident.Namespace, GenerateName: "kubectl-"},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: incident.Spec.IntegrationName,
			Alerts:          []v1alpha1.Alert{{Status: o.status, IncidentName: incident.Name, By: user, Comment: o.message}},
		},
	}
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
