package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/webhookserver"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// explainOptions are those of "explain".
type explainOptions struct {
	*plugin
	file        string
	integration string
	manifest    string
	preset      string
	headers     []string
	output      string
}

func (p *plugin) explainCommand() *cobra.Command {
	o := &explainOptions{plugin: p}
	command := &cobra.Command{
		Use:   "explain -f PAYLOAD",
		Short: "Explain what would become of a payload, without sending it",
		Long: `Explain what would become of a payload: which alerts it holds, where each of their fields comes from, and which
incidents they would open. Nothing is sent and nothing is stored: the plugin reads the payload as the manager of
its own version would.

How it is read is up to an integration: that of the cluster with --integration, one in a manifest with
--manifest, or the one that a --preset makes. Only the first asks the cluster. Without any it is read by the
rules for payloads alone.`,
		Example: example(`
# As the integration "monitoring" of the cluster reads it
kubectl tocsin explain -f payload.json -i monitoring

# Try a mapping before it is applied
kubectl tocsin explain -f payload.json --manifest integration.yaml

# Try a preset on what a tool sends
curl -s https://tool.example.com/last-webhook | kubectl tocsin explain -f - --preset grafana`),
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVarP(&o.file, "filename", "f", "", "The file with the payload; - is standard input.")
	flags.StringVarP(&o.integration, "integration", "i", "", "Read it as this integration of the cluster.")
	flags.StringVar(&o.manifest, "manifest", "", "Read it as the WebhookIntegration in this file.")
	flags.StringVar(&o.preset, "preset", "", "Read it with this preset.")
	flags.StringArrayVarP(&o.headers, "header", "H", nil, `A header of the request, such as "X-GitHub-Event: push".`)
	flags.StringVarP(&o.output, "output", "o", "",
		"The format: json or yaml, as the endpoint answers a dry run. Default: for a person.")
	command.MarkFlagsMutuallyExclusive("integration", "manifest", "preset")
	err := errors.Join(
		command.MarkFlagRequired("filename"),
		command.RegisterFlagCompletionFunc("integration", p.completeIntegrations),
		command.RegisterFlagCompletionFunc("preset", completePresets),
		command.RegisterFlagCompletionFunc("output", fixedCompletions(outputJSON, outputYAML)),
	)
	if err != nil {
		panic(err) // the flags exist
	}
	return command
}

func (o *explainOptions) run(ctx context.Context) error {
	if err := checkAnswerFormat(o.output); err != nil {
		return err
	}
	header, err := parseHeaders(o.headers)
	if err != nil {
		return err
	}
	integration, err := o.reader(ctx)
	if err != nil {
		return err
	}
	if _, err := mapping.Compile(integration.Spec.Preset, integration.Spec.Mapping); err != nil {
		return fmt.Errorf("the mapping does not compile: %w", err)
	}
	body, err := o.readInput(o.file)
	if err != nil {
		return err
	}
	s, err := o.screen()
	if err != nil {
		return err
	}
	code, text := webhookserver.Explain(ctx, integration, header, body)
	a, err := parseAnswer(code, text)
	if err != nil {
		return fmt.Errorf("it would be %w", err)
	}
	a.Incidents = fold.Preview(a.event(integration), integration, mapping.LateFiringWindow, o.now())
	if o.output != "" {
		text, err := withIncidents(text, a.Incidents)
		if err != nil {
			return err
		}
		return writeAnswer(o.Out, o.output, text)
	}
	(&explanation{screen: s, answer: a}).tell()
	return s.err
}

// reader is the integration that reads the payload.
func (o *explainOptions) reader(ctx context.Context) (*v1alpha1.WebhookIntegration, error) {
	integration := &v1alpha1.WebhookIntegration{}
	integration.Name = "example"
	switch {
	case o.integration != "":
		c, err := o.cluster()
		if err != nil {
			return nil, err
		}
		return integration, c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: o.integration}, integration)
	case o.manifest != "":
		text, err := os.ReadFile(o.manifest)
		if err != nil {
			return nil, err
		}
		if err := yaml.UnmarshalStrict(text, integration); err != nil {
			return nil, fmt.Errorf("reading %s: %w", o.manifest, err)
		}
		if integration.Kind != "WebhookIntegration" {
			return nil, fmt.Errorf("%s has no WebhookIntegration, but kind %q", o.manifest, integration.Kind)
		}
	case o.preset != "":
		integration.Spec.Preset = o.preset
	}
	// It need not be where there is a cluster.
	integration.Namespace = cmp.Or(integration.Namespace, "default")
	return integration, nil
}

// event is the AlertEvent that would be stored.
func (a *answer) event(integration *v1alpha1.WebhookIntegration) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{}
	event.Namespace = integration.Namespace
	event.Spec.IntegrationName = integration.Name
	event.Spec.Defaults = integration.Spec.Defaults
	for _, alert := range a.Alerts {
		if alert.Alert != nil && !alert.Dropped {
			event.Spec.Alerts = append(event.Spec.Alerts, *alert.Alert)
		}
	}
	return event
}

// withIncidents adds what the alerts would open to the endpoint's answer.
func withIncidents(text []byte, incidents []v1alpha1.Incident) ([]byte, error) {
	object := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	added, err := json.Marshal(incidents)
	if err != nil {
		return nil, err
	}
	object["incidents"] = added
	return json.Marshal(object)
}

// explanation prints what would become of a payload.
type explanation struct {
	*screen
	answer *answer
}

func (e *explanation) tell() {
	count := fmt.Sprintf("%d alerts.", len(e.answer.Alerts))
	if len(e.answer.Alerts) == 1 {
		count = "one alert."
	}
	e.printf("It would be accepted: %s\n", count)
	for i := range e.answer.Alerts {
		e.alert(i)
	}
	e.answer.warn(e.screen)
}

// alert prints one alert: what it would do, and its fields.
func (e *explanation) alert(i int) {
	alert := &e.answer.Alerts[i]
	if alert.Dropped {
		e.printf("\n%s\n", e.styled(bold, fmt.Sprintf("Alert %d would be dropped, as the mapping wants it.", i+1)))
		return
	}
	e.printf("\n%s\n", e.styled(bold, e.effect(alert)))
	const longest = 60
	rows := [][3]string{}
	widths := [2]int{}
	add := func(field, value, from string) {
		value = cut(safe(value), longest)
		rows = append(rows, [3]string{field, value, from})
		widths[0] = max(widths[0], len(field))
		widths[1] = max(widths[1], runewidth.StringWidth(value))
	}
	fields := alertFields(alert.Alert)
	for _, source := range alert.Sources {
		add(source.Field, fields[source.Field], origin(source))
	}
	for _, field := range e.filledIn(alert) {
		add(field[0], field[1], "default")
	}
	for _, row := range rows {
		if e.isTerminal() && 2+widths[0]+2+widths[1]+2+runewidth.StringWidth(row[2]) > e.width {
			e.inTwoLines(row, widths[0])
			continue
		}
		e.printf("  %s  %s  %s\n", pad(row[0], widths[0]), pad(row[1], widths[1]), e.styled(dim, row[2]))
	}
}

// inTwoLines prints a field whose line would be longer than the terminal is wide: where it comes from stands below.
func (e *explanation) inTwoLines(row [3]string, width int) {
	indent := 2 + width + 2
	e.printf("  %s  %s\n", pad(row[0], width), cut(row[1], max(1, e.width-indent)))
	e.printf("%s%s\n", strings.Repeat(" ", indent+2), e.styled(dim, cut(row[2], max(1, e.width-indent-2))))
}

// effect says what an alert would do.
func (e *explanation) effect(alert *answeredAlert) string {
	if alert.Alert == nil {
		return safe(alert.Incident)
	}
	switch alert.Alert.Status {
	case v1alpha1.AlertResolved:
		return "It would resolve " + alert.Incident + ", if that is open."
	case v1alpha1.AlertAcknowledged:
		return "It would acknowledge " + alert.Incident + ", if that is open."
	default:
		return "It would open " + alert.Incident + ", or be counted there."
	}
}

// filledIn are the fields that no alert tells and the defaults fill in.
func (e *explanation) filledIn(alert *answeredAlert) [][2]string {
	at := slices.IndexFunc(e.answer.Incidents, func(i v1alpha1.Incident) bool {
		return i.Namespace+"/"+i.Name == alert.Incident
	})
	if at < 0 || alert.Alert == nil {
		return nil
	}
	var filled [][2]string
	content := &e.answer.Incidents[at].Status.Alert
	said := alert.Alert.AlertContent
	for _, field := range []struct{ name, said, is string }{
		{"title", said.Title, content.Title},
		{"severity", string(said.Severity), string(content.Severity)},
		{"type", said.Type, content.Type},
	} {
		if field.said == "" {
			filled = append(filled, [2]string{field.name, field.is})
		}
	}
	return filled
}

// origin says where a field comes from.
func origin(source mapping.Source) string {
	switch {
	case source.Expression != "" && source.Preset != "":
		return "preset " + source.Preset + ": " + safe(source.Expression)
	case source.Expression != "":
		return "mapping: " + safe(source.Expression)
	case source.Key != "":
		return "key " + safe(source.Key)
	case source.Field == "custom":
		return "the other keys"
	case source.Field == "dedup_key":
		return "made anew"
	}
	return "not said"
}

// alertFields are the fields of an alert by their names in a payload, as texts.
func alertFields(alert *v1alpha1.Alert) map[string]string {
	if alert == nil {
		return nil
	}
	bag := func(b v1alpha1.Bag) string {
		encoded, err := json.Marshal(b)
		if err != nil {
			return ""
		}
		return string(encoded)
	}
	at := func(t *v1alpha1.Timestamp) string {
		if t == nil {
			return ""
		}
		return t.UTC().Format("2006-01-02T15:04:05Z")
	}
	return map[string]string{
		"title": alert.Title, "description": strings.ReplaceAll(alert.Description, "\n", " "),
		"severity": string(alert.Severity), "status": string(alert.Status), "dedup_key": alert.DedupKey,
		"type": alert.Type, "link": alert.Link, "hostname": alert.Hostname, "region": alert.Region,
		"starts_at": at(alert.StartsAt), "ends_at": at(alert.EndsAt),
		"labels": bag(alert.Labels), "annotations": bag(alert.Annotations), "values": bag(alert.Values), "custom": bag(alert.Custom),
	}
}
