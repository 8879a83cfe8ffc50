package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/action"
)

type actOptions struct {
	*plugin
	action.Action
	verb    string
	wait    bool
	timeout time.Duration
	filter  filter
	all     bool
	yes     bool
}

// actionCommand is a command that creates alerts of a status.
type actionCommand struct {
	status      v1alpha1.AlertStatus
	use         string
	aliases     []string
	verb, short string
	usageOfFor  string // of the flag --for; empty: there is none
	required    string // the flag that must be set; empty: none
}

// actionCommands returns the commands that create alerts of a status.
func (p *plugin) actionCommands() (commands []*cobra.Command) {
	for _, act := range []actionCommand{
		{v1alpha1.AlertAcknowledged, "ack [NAME...]", []string{"acknowledge"}, "Acknowledge",
			"Acknowledge incidents: mark them as being handled",
			"How long the acknowledgement lasts, such as 2h; from 1m to 30d. Default: as long as the integration says.", ""},
		{v1alpha1.AlertUnacknowledged, "unack [NAME...]", []string{"unacknowledge"}, "Unacknowledge",
			"Unacknowledge incidents: withdraw acknowledgements", "", ""},
		{v1alpha1.AlertAssigned, "assign [NAME...]", nil, "Assign", "Assign incidents to yourself or to somebody else", "", ""},
		{v1alpha1.AlertNoted, "note NAME...", nil, "Add the note to", "Add a note to the timeline of incidents", "", "message"},
		{v1alpha1.AlertSilenced, "silence [NAME...]", nil, "Silence", "Silence incidents in Alertmanager",
			"How long to silence, such as 90m, 12h or 7d; at most 30d. 0 ends the silence.", "for"},
		{v1alpha1.AlertSilenced, "unsilence [NAME...]", nil, "End the silence of",
			`End silences that were requested with "silence"`, "", ""},
		{v1alpha1.AlertResolved, "resolve [NAME...]", nil, "Resolve", "Resolve incidents", "", ""},
		{v1alpha1.AlertFiring, "reopen NAME...", nil, "Reopen", "Reopen incidents that were resolved by mistake", "", ""},
	} {
		commands = append(commands, p.newActionCommand(&act))
	}
	return commands
}

// newAct returns the options of an action without flags.
func (p *plugin) newAct(status v1alpha1.AlertStatus) *actOptions {
	o := &actOptions{plugin: p, Action: action.Action{Status: status}, wait: true}
	o.timeout = cmp.Or(o.Effect().Timeout(), 10*time.Second)
	return o
}

// lengthFlag returns the value of the flag --for.
func (o *actOptions) lengthFlag() pflag.Value {
	length := days{(*model.Duration)(&o.Length)}
	if o.Status == v1alpha1.AlertAcknowledged {
		return acknowledgementLength{length}
	}
	return length
}

// newActionCommand returns the command. That for reopening has no filter, and nothing of what follows it.
func (p *plugin) newActionCommand(act *actionCommand) *cobra.Command {
	o := p.newAct(act.status)
	o.verb = act.verb
	command := &cobra.Command{
		Use: act.use, Aliases: act.aliases, Short: act.short,
		ValidArgsFunction: o.completeIncidents(), RunE: o.withCluster(o.run),
	}
	flags := command.Flags()
	flags.StringVarP(&o.Message, "message", "m", "", "Message to record in the timeline.")
	flags.BoolVar(&o.wait, "wait", o.wait, "Wait until the command has had its effect.")
	durationVar(flags, &o.timeout, "timeout", "How long to wait for each incident.")
	if act.status == v1alpha1.AlertFiring { // those that are resolved are many, and nobody means all of them
		return command
	}
	o.filter.addFlags(command)
	flags.BoolVar(&o.all, "all", false, "Select all open incidents of the namespace, or of all namespaces with -A.")
	flags.BoolVarP(&o.yes, "yes", "y", false, "Skip the confirmation.")
	if act.status == v1alpha1.AlertSilenced || act.status == v1alpha1.AlertAssigned {
		flags.StringVar(&o.Message, "comment", "", "The same as --message.")
		command.MarkFlagsMutuallyExclusive("message", "comment")
	}
	if act.status == v1alpha1.AlertAssigned {
		o.addAssignment(command)
	}
	if act.usageOfFor != "" {
		flags.VarPF(o.lengthFlag(), "for", "", act.usageOfFor).DefValue = ""
	}
	if act.required != "" {
		_ = command.MarkFlagRequired(act.required)
	}
	return command
}

func (o *actOptions) run(ctx context.Context, c *cluster, names []string) error {
	if utf8.RuneCountInString(o.Message) > v1alpha1.MaxCommentChars {
		return fmt.Errorf("the message has more than %d characters", v1alpha1.MaxCommentChars)
	}
	filtered := o.all || o.filter.isSet()
	switch {
	case len(names) > 0 && (filtered || o.filter.allNamespaces):
		return errors.New("specify either incident names or a filter, not both")
	case len(names) == 0 && o.Status == v1alpha1.AlertFiring:
		return errors.New("specify the names of incidents")
	case len(names) == 0 && !filtered:
		return errors.New("specify an incident name, a filter such as --severity or --integration, or --all")
	}
	if err := errors.Join(o.Effect().CheckLength(), o.CheckAssignee(), o.filter.complete()); err != nil {
		return err
	}
	user, err := action.User(ctx, c)
	if err != nil {
		return err
	}
	o.Assignee = cmp.Or(o.Assignee, user)
	var incidents []*v1alpha1.Incident
	if filtered {
		incidents, err = o.confirmed(ctx, c)
	} else {
		incidents, err = o.named(ctx, c, names)
	}
	if err != nil {
		return err
	}
	return o.apply(ctx, c, incidents, user)
}

// confirmed returns the open Incidents that match the filter, after the user has confirmed.
func (o *actOptions) confirmed(ctx context.Context, c *cluster) ([]*v1alpha1.Incident, error) {
	o.filter.states = []string{string(v1alpha1.IncidentOpen)}
	if o.Status == v1alpha1.AlertAcknowledged && o.Length == 0 {
		o.filter.Unacknowledged = true // a length is for all: it sets anew when an acknowledgement expires
	}
	incidents, err := o.incidents(ctx, c, &o.filter, false, o.newProgress())
	if err != nil {
		return nil, err
	}
	incidents = slices.DeleteFunc(incidents, func(i *v1alpha1.Incident) bool { return o.Unneeded(i) != "" })
	if len(incidents) == 0 {
		o.notef("No open incident matches.")
		return nil, nil
	}
	if o.yes {
		return incidents, nil
	}
	for _, incident := range incidents {
		alert := &incident.Status.Alert
		o.notef("%s/%s %s %s", incident.Namespace, incident.Name, alert.Severity, safe(alert.Title))
	}
	_, _ = fmt.Fprintf(o.ErrOut, "%s %s? [y/N] ", o.verb, plural(len(incidents), "incident"))
	answer, err := readLine(ctx, o.In)
	switch {
	case ctx.Err() != nil:
		o.notef("\nInterrupted, nothing was changed.")
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	}
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return nil, errors.New("not confirmed, nothing was changed; use --yes to skip the confirmation")
	}
	return o.reread(ctx, c, incidents)
}

// reread reads Incidents again after the question. It leaves out those of which the user has not seen the current episode.
func (o *actOptions) reread(ctx context.Context, c *cluster, seen []*v1alpha1.Incident) ([]*v1alpha1.Incident, error) {
	var incidents []*v1alpha1.Incident
	for _, before := range seen {
		incident := &v1alpha1.Incident{}
		err := c.Get(ctx, client.ObjectKeyFromObject(before), incident)
		switch {
		case apierrors.IsNotFound(err):
			o.notef("%s/%s was left out: it has been deleted meanwhile.", before.Namespace, before.Name)
		case err != nil:
			return nil, err
		case incident.UID != before.UID || episodeOf(incident) != episodeOf(before):
			o.notef("%s/%s was left out: it has opened again meanwhile.", before.Namespace, before.Name)
		default:
			incidents = append(incidents, incident)
		}
	}
	return incidents, nil
}

// episodeOf returns the number of the current or last episode, 0 before the first one.
func episodeOf(incident *v1alpha1.Incident) int64 {
	if incident.Status.Episode == nil {
		return 0
	}
	return incident.Status.Episode.Number
}

// readLine reads a line, or what there is before the end of the input. It returns when ctx ends although a read cannot be
// cancelled; its goroutine then stays until the input has a line or the process ends.
func readLine(ctx context.Context, in io.Reader) (string, error) {
	var line string
	var err error
	read := make(chan struct{})
	go func() {
		line, err = bufio.NewReader(in).ReadString('\n')
		close(read)
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-read:
	}
	if errors.Is(err, io.EOF) {
		return line, nil
	}
	return line, err
}

// needOpen are what cannot be said of a Resolved Incident.
var needOpen = []v1alpha1.AlertStatus{
	v1alpha1.AlertAcknowledged, v1alpha1.AlertUnacknowledged, v1alpha1.AlertAssigned, v1alpha1.AlertUnassigned,
}

// named returns the Incidents with these names. It finds all before the command changes any, so that a mistyped name
// does not leave the command half done.
func (o *actOptions) named(ctx context.Context, c *cluster, names []string) ([]*v1alpha1.Incident, error) {
	var incidents []*v1alpha1.Incident
	for _, name := range names {
		incident, err := c.incident(ctx, name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(needOpen, o.Status) && incident.Status.State == v1alpha1.IncidentResolved {
			return nil, fmt.Errorf("%s is resolved and cannot be %s", incident.Name, o.Status)
		}
		incidents = append(incidents, incident)
	}
	return incidents, nil
}

// apply creates an AlertEvent for each Incident, and then waits for all of them. It creates none if one cannot have its
// effect. If it ends early, it prints which AlertEvents it has created, since these take effect nevertheless.
func (o *actOptions) apply(ctx context.Context, c *cluster, incidents []*v1alpha1.Incident, user string) (err error) {
	effect := o.Effect()
	for _, incident := range incidents {
		if err := effect.Check(ctx, c, incident); err != nil {
			return err
		}
	}
	events := make([]*v1alpha1.AlertEvent, len(incidents))
	var submitted []string // whose effect was not awaited
	defer func() {
		if err != nil && len(submitted) > 0 {
			o.notef("Submitted, but not awaited: %s will be %s.", strings.Join(submitted, ", "), o.result())
		}
	}()
	for i, incident := range incidents {
		if o.Unneeded(incident) != "" {
			continue
		}
		event := o.Event(incident, user)
		if err := c.Create(ctx, event, action.FieldManager); err != nil {
			return err
		}
		events[i], submitted = event, append(submitted, c.nameOf(incident))
	}
	for i, incident := range incidents {
		result := o.result()
		switch {
		case events[i] == nil:
			result = o.Unneeded(incident)
		case !o.wait:
			result = "will be " + result
		default:
			if result, err = o.outcome(ctx, c, events[i], incident); err != nil {
				return err
			}
			submitted = submitted[1:]
		}
		o.screen.printf("%s %s\n", c.resultNameOf(incident), result)
	}
	return nil
}

// outcome waits for the effect of an AlertEvent, and describes it.
func (o *actOptions) outcome(
	ctx context.Context, c *cluster, event *v1alpha1.AlertEvent, before *v1alpha1.Incident,
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, action.Poll, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(event), &v1alpha1.AlertEvent{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err) // it is deleted once it has been folded
	})
	switch {
	case isTimeout(ctx, err):
		return "", fmt.Errorf("timed out after %s; AlertEvent %s is stored and takes effect when Tocsin processes it",
			o.timeout, event.Name)
	case err != nil:
		return o.result(), err
	}
	but, err := o.Effect().AwaitOne(ctx, c, before, o.timeout)
	return o.result() + but, err
}

// isTimeout reports whether a call failed because the deadline of its context passed.
func isTimeout(ctx context.Context, err error) bool {
	return err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// result describes what the command has done to an Incident.
func (o *actOptions) result() string {
	switch {
	case o.Status == v1alpha1.AlertFiring:
		return "reopened"
	case o.Status == v1alpha1.AlertAcknowledged && o.Length > 0:
		return "acknowledged for " + model.Duration(o.Length).String()
	case o.Status == v1alpha1.AlertAssigned:
		return "assigned to " + safe(o.Assignee)
	default:
		return cmp.Or(o.Effect().Done(), string(o.Status))
	}
}
