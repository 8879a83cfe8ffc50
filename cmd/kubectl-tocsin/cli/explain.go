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
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/config/crd"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/webhookserver"
	"github.com/tocsin-dev/tocsin/webhookserver/heartbeat"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

type explainOptions struct {
	*plugin
	file        string
	integration string
	namespace   string // of the integration; empty for that of --namespace or the kubeconfig
	manifest    string
	preset      string
	presetFile  string
	headers     []string
	output      string
	strict      bool
}

func (p *plugin) explainCommand() *cobra.Command {
	o := &explainOptions{plugin: p}
	command := &cobra.Command{
		Use:   "explain -f PAYLOAD",
		Short: "Explain how a payload would be processed, without sending it",
		Args:  noArguments,
		RunE:  func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVarP(&o.file, "filename", "f", "", "File with the payload; - reads standard input.")
	flags.StringVarP(&o.integration, "integration", "i", "", "Integration in the cluster.")
	flags.StringVar(&o.manifest, "manifest", "", "File with a WebhookIntegration.")
	flags.StringVar(&o.preset, "preset", "", "Name of a preset, or auto.")
	flags.StringVar(&o.presetFile, "preset-file", "", "File with a preset that you are writing.")
	addHeaderFlag(flags, &o.headers)
	wordVar(flags, &o.output, "output", "o", "json or yaml",
		"Output format: json or yaml, as a dry run's response. Default: a description.")
	flags.BoolVar(&o.strict, "strict", false, "Exit with 1 also if there are other warnings.")
	command.MarkFlagsMutuallyExclusive("integration", "manifest", "preset", "preset-file")
	o.addReplay(command)
	command.AddCommand(p.explainIncidentCommand())
	return command
}

func (o *explainOptions) run(ctx context.Context) error {
	if o.file == "" {
		return errors.New("--filename is required")
	}
	body, err := o.readInput(o.file)
	if err != nil {
		return err
	}
	e, err := o.explain(ctx, body)
	if err != nil {
		return err
	}
	if o.output == "" {
		o.print(e.response, e.incidents)
	} else if err := o.printObject(e.answer, e.incidents); err != nil {
		return err
	}
	if len(e.failed) > 0 {
		return fmt.Errorf("%s of the mapping failed: %s", plural(len(e.failed), "expression"), strings.Join(e.failed, ", "))
	}
	if o.strict && len(e.Warnings) > 0 {
		return errors.New("there are warnings")
	}
	return nil
}

// explanation is how a payload would be processed.
type explanation struct {
	*response
	answer    []byte              // of a dry run
	incidents []v1alpha1.Incident // that the alerts would open
	failed    []string            // the fields of the mapping whose expressions failed
}

func (o *explainOptions) explain(ctx context.Context, body []byte) (*explanation, error) {
	header, err := parseHeaders(o.headers)
	if err != nil {
		return nil, err
	}
	reader, err := o.reader(ctx)
	if err != nil {
		return nil, err
	}
	integration := reader.WebhookIntegration
	if _, err := mapping.Compile(mapping.PresetOf(&integration.Spec), integration.Spec.Mapping); err != nil {
		return nil, fmt.Errorf("the mapping does not compile: %w", err)
	}
	code, answer, failures := webhookserver.Explain(ctx, reader, header, body)
	r, err := parseResponse(code, answer)
	if err != nil {
		return nil, fmt.Errorf("the payload would be %w", err)
	}
	e := &explanation{response: r, answer: answer}
	e.incidents = fold.Preview(r.event(integration), integration, mapping.PresetWindows{}, o.now())
	for _, failure := range failures {
		e.failed = append(e.failed, failure.Field)
	}
	return e, nil
}

// readerOf returns an integration as it reads payloads, with what features know of it in a cluster; nil: it is in none.
func readerOf(
	ctx context.Context, c client.Reader, integration *v1alpha1.WebhookIntegration,
) (reader webhookserver.Reader, err error) {
	reader.WebhookIntegration = integration
	reader.Features, err = heartbeat.List(ctx, c, client.ObjectKeyFromObject(integration))
	return reader, err
}

// reader returns what reads the payload: an integration of the cluster, or one that is made for it.
func (o *explainOptions) reader(ctx context.Context) (reader webhookserver.Reader, err error) {
	integration := &v1alpha1.WebhookIntegration{}
	integration.Name = "example"
	switch {
	case o.integration != "":
		c, err := o.cluster()
		if err != nil {
			return reader, err
		}
		c.namespace = cmp.Or(o.namespace, c.namespace)
		if integration, err = c.integration(ctx, o.integration); err != nil {
			return reader, err
		}
		return readerOf(ctx, c, integration)
	case o.manifest != "":
		if integration, err = readManifest(ctx, o.manifest); err != nil {
			return reader, err
		}
	case o.preset != "":
		if err := checkPreset(o.preset); err != nil {
			return reader, err
		}
		integration.Spec.Preset = o.preset
	case o.presetFile != "":
		text, err := os.ReadFile(o.presetFile)
		if err != nil {
			return reader, err
		}
		preset, err := mapping.UseDraft(text)
		if err != nil {
			return reader, fmt.Errorf("reading the preset in %s: %w", o.presetFile, err)
		}
		integration.Spec.Preset, integration.Spec.LateFiringWindow = preset.Name, preset.LateFiringWindow
	}
	namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace() // "default" without a kubeconfig
	if err != nil {
		return reader, err
	}
	integration.Namespace = cmp.Or(integration.Namespace, namespace)
	return readerOf(ctx, nil, integration)
}

func (r *response) event(integration *v1alpha1.WebhookIntegration) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{
		IntegrationName: integration.Name, Defaults: integration.Spec.Defaults,
	}}
	event.Namespace = integration.Namespace
	for _, alert := range r.Alerts {
		if !alert.Dropped {
			event.Alerts = append(event.Alerts, *alert.Alert)
		}
	}
	return event
}

// printObject prints a response, to which it adds the Incidents that the alerts would open.
func (o *explainOptions) printObject(response []byte, incidents []v1alpha1.Incident) error {
	var object map[string]json.RawMessage
	err := json.Unmarshal(response, &object)
	if err != nil {
		return err
	}
	if object["incidents"], err = json.Marshal(incidents); err != nil {
		return err
	}
	return writeObject(o.Out, o.output, object)
}

func (o *explainOptions) print(r *response, incidents []v1alpha1.Incident) {
	o.screen.printf("The payload would be accepted: %s.\n", plural(len(r.Alerts), "alert"))
	if r.Preset != "" {
		o.screen.printf("Read with the preset %s.\n", safe(r.Preset))
	}
	for i := range r.Alerts {
		if alert := &r.Alerts[i]; alert.Dropped {
			o.screen.printf("\n%s\n", o.screen.styled(bold, fmt.Sprintf("Alert %d would be dropped: %s", i+1, alert.dropReason())))
		} else {
			alert.print(o.screen, incidents)
		}
	}
	r.printWarnings(o.screen)
}

// print prints the effect of an alert, and the origin of each of its fields.
func (a *alertResponse) print(s *screen, incidents []v1alpha1.Incident) {
	s.printf("\n%s\n", s.styled(bold, s.wrap(a.effect(), 0)))
	s.printFields(a.fields(incidents))
}

// fieldRow is a field with its value, as it was sent, and its origin.
type fieldRow struct{ field, value, origin string }

func (a *alertResponse) fields(incidents []v1alpha1.Incident) (rows []fieldRow) {
	fields := jsonFields(a.Alert)
	for _, source := range a.Sources {
		rows = append(rows, fieldRow{source.Field, valueText(fields[source.Field]), safe(source.String())})
	}
	at := slices.IndexFunc(incidents, func(i v1alpha1.Incident) bool { return i.Namespace+"/"+i.Name == a.Incident })
	for _, name := range []string{"title", "severity", "type"} {
		if at >= 0 && fields[name] == nil {
			rows = append(rows, fieldRow{name, valueText(jsonFields(incidents[at].Status.Alert)[name]), "default"})
		}
	}
	return rows
}

func (s *screen) printFields(rows []fieldRow) {
	const maxValueCells = 60
	fieldWidth, valueWidth := 0, 0
	for i := range rows {
		row := &rows[i]
		row.value = cut(safe(row.value), maxValueCells)
		fieldWidth, valueWidth = max(fieldWidth, len(row.field)), max(valueWidth, runewidth.StringWidth(row.value))
	}
	for _, row := range rows {
		field := "  " + runewidth.FillRight(row.field, fieldWidth) + "  "
		value := runewidth.FillRight(row.value, valueWidth) + "  "
		if indent := len(field); s.isTerminal() && runewidth.StringWidth(field+value+row.origin) > s.width {
			value = cut(row.value, max(1, s.width-indent)) + "\n" + strings.Repeat(" ", indent+2)
			row.origin = cut(row.origin, max(1, s.width-indent-2))
		}
		s.printf("%s%s%s\n", field, value, s.styled(dim, row.origin))
	}
}

func (a *alertResponse) effect() string {
	switch a.Alert.Status {
	case v1alpha1.AlertResolved:
		return "Would resolve " + a.Incident + " if it is open."
	case v1alpha1.AlertAcknowledged:
		return "Would acknowledge " + a.Incident + " if it is open."
	default:
		return "Would open " + a.Incident + ", or update it if it is open."
	}
}

// jsonFields returns the fields of an alert as JSON, by their names in a payload.
func jsonFields(alert any) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	encoded, err := json.Marshal(alert)
	if err != nil || json.Unmarshal(encoded, &fields) != nil {
		return nil
	}
	fields["dedup_key"], fields["starts_at"], fields["ends_at"] = fields["dedupKey"], fields["startTime"], fields["endTime"]
	return fields
}

// readManifest reads a WebhookIntegration from a file. It returns an error where the API server would reject the object or,
// with kubectl's strict field validation, would drop a field of it.
func readManifest(ctx context.Context, name string) (*v1alpha1.WebhookIntegration, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	manifest := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(text, manifest); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	const kind = "WebhookIntegration"
	if manifest.GroupVersionKind() != v1alpha1.GroupVersion.WithKind(kind) {
		return nil, fmt.Errorf("%s contains %s %s, not a %s of %s", name, manifest.GetAPIVersion(), manifest.GetKind(), kind,
			v1alpha1.GroupVersion)
	}
	mistakes, err := validateIntegration(ctx, manifest.Object)
	if err != nil {
		return nil, fmt.Errorf("reading the CustomResourceDefinition: %w", err)
	}
	if len(mistakes) > 0 {
		return nil, fmt.Errorf("%s is not a valid %s: %s", name, kind, strings.Join(mistakes, "; "))
	}
	integration := &v1alpha1.WebhookIntegration{}
	return integration, runtime.DefaultUnstructuredConverter.FromUnstructured(manifest.Object, integration)
}

// validateIntegration validates a WebhookIntegration by the schema of its CustomResourceDefinition, including CEL rules and
// list types, and returns what is wrong with it.
func validateIntegration(ctx context.Context, object map[string]any) (mistakes []string, err error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(crd.WebhookIntegration, definition); err != nil {
		return nil, err
	}
	properties := &apiextensions.JSONSchemaProps{}
	err = apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema, properties, nil)
	if err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(properties)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(properties)
	if err != nil {
		return nil, err
	}
	unknown := pruning.PruneWithOptions(object, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		mistakes = append(mistakes, fmt.Sprintf("unknown field %q", path))
	}
	wrong := validation.ValidateCustomResource(nil, object, validator)
	wrong = append(wrong, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
	if len(wrong) == 0 { // as in the API server, rules see only objects with valid types
		rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
		wrong, _ = rules.Validate(ctx, nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
	}
	for _, mistake := range wrong {
		mistakes = append(mistakes, mistake.Error())
	}
	return mistakes, nil
}
