package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/silences"
)

type showOptions struct {
	*plugin
	output outputFlag
}

func (p *plugin) showCommand() *cobra.Command {
	o := &showOptions{plugin: p, output: newOutputFlag()}
	command := &cobra.Command{
		Use:               "show NAME",
		Short:             "Show the details of an incident",
		Args:              oneName("incident"),
		ValidArgsFunction: firstArgument(p.completeIncidents()),
		RunE:              p.withCluster(o.run),
	}
	o.output.addFlag(command, "Output format: json, yaml, name, jsonpath=…, go-template=… Default: a description.")
	return command
}

func (o *showOptions) run(ctx context.Context, c *cluster, names []string) error {
	incident, err := c.incident(ctx, names[0])
	if err != nil {
		return err
	}
	if o.output.isSet() {
		return o.output.write(incident, o.Out)
	}
	d := o.describe(ctx, c, o.screen, incident)
	d.incident(incident)
	if hasUserNames(&incident.Status) {
		d.printf("\n%s\n", d.styled(dim, d.wrap(unverifiedNames, 0)))
	}
	return nil
}

const unverifiedNames = "The names of users are as written in AlertEvents; only the component admission-policy verifies them."

// hasUserNames reports whether a description of the Incident shows a name that an AlertEvent gave.
func hasUserNames(status *v1alpha1.IncidentStatus) bool {
	return status.Acknowledgement != nil && status.Acknowledgement.By != "" ||
		status.Resolution != nil && status.Resolution.By != "" || status.Assignee != nil ||
		status.Silence != nil && status.Silence.By != "" ||
		slices.ContainsFunc(status.Timeline, func(t v1alpha1.Transition) bool { return t.By != "" })
}

// description prints the details of an Incident.
type description struct {
	*screen
	now         time.Time
	integration v1alpha1.WebhookIntegration // of the Incident; empty if it cannot be read
}

// describe returns the description of an Incident. It does without an integration that was deleted or that the user may not
// read.
func (p *plugin) describe(ctx context.Context, c *cluster, s *screen, incident *v1alpha1.Incident) *description {
	d := &description{screen: s, now: p.now()}
	key := client.ObjectKey{Namespace: incident.Namespace, Name: incident.Spec.IntegrationName}
	if err := c.Get(ctx, key, &d.integration); err != nil {
		d.integration = v1alpha1.WebhookIntegration{}
	}
	return d
}

const (
	localTime  = "2006-01-02 15:04:05 MST"
	labelWidth = 14 // of the names of fields
)

func (d *description) incident(incident *v1alpha1.Incident) {
	alert := &incident.Status.Alert
	d.printf("%s\n\n", d.styled(bold, cmp.Or(safe(alert.Title), "(no title)")))
	d.field("Incident", incident.Namespace+"/"+incident.Name)
	for _, one := range d.facts(incident) {
		d.field(one.name, one.text)
	}
	d.field("Integration", incident.Spec.IntegrationName)
	d.field("Dedup key", safe(incident.Spec.DedupKey))
	d.field("Type", safe(alert.Type))
	d.field("Host", safe(alert.Hostname))
	d.field("Region", safe(alert.Region))
	d.field("Link", safe(alert.Link))
	if alert.Description != "" {
		d.section("Description")
		for _, line := range safeLines(alert.Description) {
			d.printf("  %s\n", line)
		}
	}
	bag(d, "Labels", alert.Labels, safeLines)
	bag(d, "Annotations", alert.Annotations, safeLines)
	bag(d, "Values", alert.Values, valueLines)
	bag(d, "Custom", alert.Custom, valueLines)
	d.timeline(incident.Status.Timeline)
}

// fact is a sentence about an Incident, empty if there is nothing to say.
type fact struct{ name, text string }

// facts returns what the Incident says and why.
func (d *description) facts(incident *v1alpha1.Incident) []fact {
	status := &incident.Status
	began, expiry, ignored := "", "", ""
	if status.Episode != nil {
		began = d.time(&status.Episode.StartTime)
	}
	if status.Expiry != nil && status.State == v1alpha1.IncidentOpen {
		expiry = fmt.Sprintf("%s after the last alert", duration.HumanDuration(status.Expiry.Duration))
	}
	if last := status.LastIgnored; last != nil {
		ignored = fmt.Sprintf("%s, at %s. %s", last.Reason, d.time(&last.Time), safe(last.Message))
	}
	return []fact{
		{"State", d.state(incident)},
		{"Severity", d.styled(severityCell(incident).look, string(status.Alert.Severity))},
		{"Acknowledged", d.acknowledged(incident)},
		{"Assigned", d.assigned(status)},
		{"Silenced", silences.Describe(incident, d.now, localTime, d.time)}, {"Silence", silences.Address(status)},
		{"Muted", d.muted(incident)},
		{"Forwarded", d.forwarded(incident)},
		{"Flapping", d.flapping(status)},
		{"Began", began},
		{"Last alert", d.time(status.LastAlertTime)},
		{"Expiry", expiry},
		{"Alerts", d.count(status)},
		{"Ignored", ignored},
	}
}

func (d *description) field(name, value string) {
	if value != "" {
		d.printf("%s%s\n", runewidth.FillRight(name+":", labelWidth), d.wrap(value, labelWidth))
	}
}

func (d *description) section(title string) { d.printf("\n%s\n", d.styled(bold, title+":")) }

// state describes the state and since when the Incident has it.
func (d *description) state(incident *v1alpha1.Incident) string {
	status := &incident.Status
	if status.State == "" {
		return "not folded yet"
	}
	if status.State == v1alpha1.IncidentOpen {
		text := d.styled(bold, stateCell(incident).text) + " since " + d.time(status.OpenedTime)
		if status.Episode != nil && status.Episode.Number > 1 {
			text += fmt.Sprintf(", in episode %d", status.Episode.Number)
		}
		return text
	}
	text := d.styled(green, "Resolved") + " since " + d.time(status.ResolvedTime)
	if status.OpenedTime != nil && status.ResolvedTime != nil {
		text += ", open for " + duration.HumanDuration(status.ResolvedTime.Sub(status.OpenedTime.Time))
	}
	if resolved := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionResolved); resolved != nil {
		text += ". " + safe(resolved.Message)
	}
	return text
}

// condition describes a condition: its answer, the time since when it has it, and its message.
func (d *description) condition(condition *metav1.Condition) string {
	answer, since := "no", v1alpha1.NewTimestamp(condition.LastTransitionTime.Time)
	if condition.Status == metav1.ConditionTrue {
		answer = "yes"
	}
	return answer + ", since " + d.time(&since) + ". " + safe(condition.Message)
}

// forwarded describes whether an Alertmanager tells people of the Incident, since when, and if not, why. It is empty if the
// operator forwards nothing.
func (d *description) forwarded(incident *v1alpha1.Incident) string {
	forwarding := incident.Status.Forwarding
	switch {
	case forwarding == nil && d.forwards() && incident.Status.State == v1alpha1.IncidentOpen:
		return "not yet. It takes some seconds after the first alert."
	case forwarding == nil:
		return ""
	}
	since := ", since " + d.time(&forwarding.Time) + "."
	accepted := fmt.Sprintf(" Posted with severity %s to %s.", forwarding.Severity, alertmanagers(forwarding.Alertmanagers))
	switch forwarding.Reason {
	case v1alpha1.ForwardingPosted:
		return "yes" + since + accepted
	case v1alpha1.ForwardingSilenced:
		return "yes, but a silence covers it" + since + accepted
	default:
		return "no: " + string(forwarding.Reason) + since + " " + safe(forwarding.Message)
	}
}

// flapping describes whether the Incident opens often, and when Alertmanager is told of an end that is kept back.
func (d *description) flapping(status *v1alpha1.IncidentStatus) string {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionFlapping)
	if condition == nil {
		return ""
	}
	text := d.condition(condition)
	if fold.EndIsKeptBack(status, d.now) {
		text += " Its end is forwarded at " + d.time(&status.Flapping.KeptFiring.EndTime) + " unless it opens again."
	}
	return text
}

// forwards reports whether the operator forwards Incidents.
func (d *description) forwards() bool {
	return meta.FindStatusCondition(d.integration.Status.Conditions, v1alpha1.ConditionForwarded) != nil
}

func alertmanagers(n int64) string {
	if n == 1 {
		return "one Alertmanager"
	}
	return fmt.Sprint(n, " Alertmanagers")
}

// acknowledged describes by whom and when the Incident was acknowledged or unacknowledged, and whether that covers it as it is
// now.
func (d *description) acknowledged(incident *v1alpha1.Incident) string {
	status := &incident.Status
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAcknowledged)
	switch {
	case condition == nil:
		return ""
	case condition.Status != metav1.ConditionTrue && condition.Reason == v1alpha1.ReasonNotAcknowledged:
		return "no"
	}
	text, given := d.condition(condition), status.Acknowledgement
	if given == nil || status.State != v1alpha1.IncidentOpen {
		return text
	}
	if live.HasAcknowledgement(incident) && !live.IsAcknowledged(incident) {
		text += fmt.Sprintf(" It was given at severity %s, and does not cover %s.", given.Severity, status.Alert.Severity)
	}
	if given.ExpirationTime != nil {
		text += " It expires at " + d.time(given.ExpirationTime) + "."
	}
	return text
}

func (d *description) count(status *v1alpha1.IncidentStatus) string {
	text := fmt.Sprint(status.AlertCount)
	if status.Episode != nil && status.Episode.Number > 1 {
		text += fmt.Sprintf(", %d in this episode", status.Episode.AlertCount)
	}
	return text
}

// time formats a time in the local time zone, with its age.
func (d *description) time(at *v1alpha1.Timestamp) string {
	if at == nil || at.IsZero() {
		return ""
	}
	if at.After(d.now) {
		return fmt.Sprintf("%s (in %s)", at.Local().Format(localTime), duration.HumanDuration(at.Sub(d.now)))
	}
	return fmt.Sprintf("%s (%s ago)", at.Local().Format(localTime), ago(at, d.now))
}

func bag[V any](d *description, title string, bag map[string]V, linesOf func(V) []string) {
	if len(bag) == 0 {
		return
	}
	d.section(title)
	const widest = 30
	width := 0
	for name := range bag {
		width = max(width, min(widest, runewidth.StringWidth(safe(name))))
	}
	for _, name := range slices.Sorted(maps.Keys(bag)) {
		lines := linesOf(bag[name])
		d.printf("  %s  %s\n", runewidth.FillRight(safe(name), width), lines[0])
		for _, line := range lines[1:] {
			d.printf("  %s  %s\n", strings.Repeat(" ", width), line)
		}
	}
}

// valueLines returns the lines of a JSON value. Long objects and lists are indented.
func valueLines(value json.RawMessage) []string {
	const long = 60
	text := valueText(value)
	var indented bytes.Buffer
	if text == string(value) && len(value) > long && json.Indent(&indented, value, "", "  ") == nil {
		text = indented.String()
	}
	return safeLines(text)
}

// valueText returns a JSON value for people: a string without quotes, any other value as it is.
func valueText(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

func (d *description) timeline(transitions []v1alpha1.Transition) {
	if len(transitions) == 0 {
		return
	}
	d.section("Timeline")
	for i := range transitions {
		at := &transitions[i].Time
		age := runewidth.FillRight(ago(at, d.now)+" ago", len("59m59s ago"))
		prefix := fmt.Sprintf("  %s  %s  ", at.Local().Format(time.DateTime), age)
		text := cmp.Or(safe(transitions[i].Message), string(transitions[i].Type))
		if comment := safe(transitions[i].Comment); comment != "" {
			text += ": " + comment
		}
		d.printf("%s%s\n", prefix, d.wrap(text, len(prefix)))
	}
}
