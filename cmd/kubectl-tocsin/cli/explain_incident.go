package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

type explainIncidentOptions struct {
	*plugin
	output string
}

func (p *plugin) explainIncidentCommand() *cobra.Command {
	o := &explainIncidentOptions{plugin: p}
	command := &cobra.Command{
		Use:               "incident NAME",
		Short:             "Explain which key or expression gave which field of an incident",
		Args:              oneName("incident"),
		ValidArgsFunction: firstArgument(p.completeIncidents()),
		RunE:              p.withCluster(o.run),
	}
	wordVar(command.Flags(), &o.output, "output", "o", "json or yaml", "Output format: json or yaml. Default: a description.")
	return command
}

// incidentExplanation is the output in JSON or YAML.
type incidentExplanation struct {
	Incident    string `json:"incident"` // namespace/name
	Integration string `json:"integration"`
	Known       bool   `json:"known"` // false: nothing is stored, and the rest is empty

	mapping.Explanation `json:",inline"`

	incident *v1alpha1.Incident
	warning  string // why less is known; empty if there is no reason
}

func (o *explainIncidentOptions) run(ctx context.Context, c *cluster, names []string) error {
	e, err := o.explainIncident(ctx, c, names[0])
	if err != nil {
		return err
	}
	if o.output != "" {
		return writeObject(o.Out, o.output, e)
	}
	o.print(e)
	if e.warning != "" {
		o.notef("%s", e.warning)
	}
	return nil
}

// explainIncident explains an Incident as its integration and the presets are now.
func (p *plugin) explainIncident(ctx context.Context, c *cluster, name string) (*incidentExplanation, error) {
	incident, err := c.incident(ctx, name)
	if err != nil {
		return nil, err
	}
	integration := &v1alpha1.WebhookIntegration{}
	key := client.ObjectKey{Namespace: incident.Namespace, Name: incident.Spec.IntegrationName}
	err = c.Get(ctx, key, integration)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, err
	}
	e := &incidentExplanation{
		Incident: incident.Namespace + "/" + incident.Name, Integration: incident.Spec.IntegrationName, incident: incident,
	}
	e.Explanation, e.Known = mapping.Explain(incident, integration.Spec.Mapping)
	isChanged := func(s mapping.Source) bool { return s.Changed && s.From == mapping.FromMapping }
	if err != nil && slices.ContainsFunc(e.Sources, isChanged) {
		e.warning = "Warning: the integration cannot be read, so its expressions are not known: " + safe(err.Error())
	}
	return e, nil
}

func (o *explainIncidentOptions) print(e *incidentExplanation) {
	d := &description{screen: o.screen, now: o.now()}
	status := &e.incident.Status
	d.printf("%s\n\n", d.styled(bold, cmp.Or(safe(status.Alert.Title), "(no title)")))
	d.field("Incident", e.Incident)
	d.field("Integration", e.Integration)
	d.field("Preset", safe(e.Preset))
	d.field("Last alert", d.time(status.LastAlertTime))
	d.printf("\n")
	if !e.Known {
		d.printf("%s\n", d.wrap(unknownOrigins, 0))
		return
	}
	d.printFields(e.rows())
	(&response{Warnings: e.Warnings}).printWarnings(d.screen)
}

// rows returns the fields of the Incident with their origins.
func (e *incidentExplanation) rows() (rows []fieldRow) {
	status := &e.incident.Status
	fields := jsonFields(status.Alert)
	fields["dedup_key"], fields["status"] = quoted(e.incident.Spec.DedupKey), quoted(string(status.State))
	if status.Expiry != nil {
		fields["expires_at"] = quoted(status.Expiry.Duration.String() + " after the last alert")
	}
	for _, source := range e.Sources {
		rows = append(rows, fieldRow{source.Field, valueText(fields[source.Field]), safe(source.String())})
	}
	return rows
}

const unknownOrigins = "The origin of the fields is not known: the newest alert was not read from a payload, but made by a " +
	"person or for a heartbeat, or stored by a version of Tocsin that did not record it."

// quoted returns a text as JSON.
func quoted(text string) json.RawMessage {
	encoded, _ := json.Marshal(text) // no string fails to encode
	return encoded
}
