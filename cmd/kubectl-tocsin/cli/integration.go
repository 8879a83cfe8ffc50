package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/action"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// Values of --dry-run, as in kubectl, and what they add to the output.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

var dryRunNotes = map[string]string{dryRunNone: "", dryRunClient: " (dry run)", dryRunServer: " (server dry run)"}

func addDryRunFlag(flags *pflag.FlagSet, dryRun *string) {
	*dryRun = dryRunNone
	wordVar(flags, dryRun, "dry-run", "", "none, client or server",
		"Must be none, client (send no request) or server (do not store it).")
}

// writer returns the client that writes, unless it is a dry run of the client.
func (c *cluster) writer(dryRun string) client.Writer {
	if dryRun == dryRunServer {
		return client.NewDryRunClient(c)
	}
	return c
}

// freeName returns the wanted name, empty if it is taken. If none is wanted, it returns the date, with a number if that is taken.
func freeName(wanted string, now time.Time, taken func(string) bool) string {
	date := now.Format(time.DateOnly)
	name := cmp.Or(wanted, date)
	for number := 2; taken(name); number++ {
		if wanted != "" {
			return ""
		}
		name = fmt.Sprintf("%s-%d", date, number)
	}
	return name
}

type integrationOptions struct {
	*plugin
	token            tokenOptions // of the first token
	preset           string
	severity         string
	labels           map[string]string
	autoResolveAfter time.Duration
	retention        time.Duration
	noToken          bool
	dryRun           string
	output           outputFlag
	allNamespaces    bool

	createFlags *pflag.FlagSet
}

func (p *plugin) integrationCommand() *cobra.Command {
	o := &integrationOptions{plugin: p, token: tokenOptions{plugin: p}, output: newOutputFlag()}
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List integrations", RunE: p.withCluster(o.list)}
	list.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List integrations of all namespaces.")
	list.Flags().BoolVar(&o.output.noHeaders, "no-headers", false, "Do not print column titles.")
	o.output.addFlag(list, "Output format: json, yaml, name, custom-columns=…, jsonpath=…, go-template=… Default: a table.")
	return parent(&cobra.Command{
		Use:   "integration",
		Short: "Create and list integrations, which authorize senders",
	}, o.createCommand(), list)
}

func (o *integrationOptions) createCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an integration with a token and print the webhook URL",
		Args:  oneName("integration"),
		RunE:  o.withCluster(o.create),
	}
	flags := command.Flags()
	o.createFlags = flags
	flags.StringVar(&o.preset, "preset", "", "Preset for a tool's payloads, such as alertmanager, or auto. Default: none.")
	wordVar(flags, &o.severity, "default-severity", "", severityWords, "Severity of alerts without one. Default: warning.")
	flags.StringToStringVar(&o.labels, "default-label", nil, "Labels to add to all alerts as `KEY=VALUE`, such as team=storage.")
	durationVar(flags, &o.autoResolveAfter, "auto-resolve-after",
		"Resolve incidents after this time without alerts, such as 12h or 7d. Default: never.")
	durationVar(flags, &o.retention, "retention", "Delete resolved incidents after this time, such as 30d. Default: 7d.")
	flags.StringVar(&o.token.name, "token-name", "", "Name of the token. Default: the current date, such as 2026-05-04.")
	flags.BoolVar(&o.noToken, "no-token", false, "Create no token.")
	addDryRunFlag(flags, &o.dryRun)
	o.token.addFlags(command)
	o.output.addFlag(command, "Output format: json, yaml, name, jsonpath=…, go-template=… The URL is printed on stderr then.")
	return command
}

func (o *integrationOptions) create(ctx context.Context, c *cluster, names []string) error {
	if err := checkPreset(o.preset); err != nil {
		return err
	}
	if !o.noToken && o.dryRun != dryRunNone {
		return errors.New("a dry run creates no token: add --no-token")
	}
	integration := o.integration(c.namespace, names[0])
	var token newToken
	if !o.noToken {
		var err error
		if token, err = o.token.addTo(integration); err != nil {
			return err
		}
	}
	if o.dryRun != dryRunClient {
		if err := c.writer(o.dryRun).Create(ctx, integration, action.FieldManager); err != nil {
			return err
		}
	}
	if o.output.isSet() {
		if err := o.output.write(integration, o.Out); err != nil {
			return err
		}
		o.screen.out = o.ErrOut
	} else if !o.token.quiet {
		o.notef("webhookintegration.tocsin.dev/%s created%s", integration.Name, dryRunNotes[o.dryRun])
		if integrations.IsFromAlertmanager(integration.Spec.Preset) {
			o.notef("Its incidents are not forwarded to an Alertmanager, which has their alerts already. " +
				"To forward them, set spec.forward to Always.")
		}
	}
	if !o.noToken && o.dryRun == dryRunNone {
		o.token.printURL(integration.Name, token)
	}
	return nil
}

// integration returns the integration that the flags describe, without a token.
func (o *integrationOptions) integration(namespace, name string) *v1alpha1.WebhookIntegration {
	integration := &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.WebhookIntegrationSpec{Preset: o.preset},
	}
	integration.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookIntegration"))
	spec := &integration.Spec
	if o.severity != "" || len(o.labels) > 0 {
		spec.Defaults = &v1alpha1.AlertDefaults{Severity: v1alpha1.Severity(o.severity), Labels: labelValues(o.labels)}
	}
	if o.createFlags.Changed("auto-resolve-after") {
		spec.AutoResolveAfter = &metav1.Duration{Duration: o.autoResolveAfter}
	}
	if o.createFlags.Changed("retention") {
		spec.Retention = &metav1.Duration{Duration: o.retention}
	}
	return integration
}

// labelValues returns the labels of a flag as those of the API.
func labelValues(labels map[string]string) map[string]v1alpha1.LabelValue {
	values := make(map[string]v1alpha1.LabelValue, len(labels))
	for name, value := range labels {
		values[name] = v1alpha1.LabelValue(value)
	}
	return values
}

// editIntegration changes an integration. It retries conflicts with other writers.
func (c *cluster) editIntegration(ctx context.Context, name string, edit func(*v1alpha1.WebhookIntegration) error) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		integration, err := c.integration(ctx, name)
		if err != nil {
			return err
		}
		before := client.MergeFromWithOptions(integration.DeepCopy(), client.MergeFromWithOptimisticLock{})
		if err := edit(integration); err != nil {
			return err
		}
		return c.Patch(ctx, integration, before, action.FieldManager)
	})
}

func (o *integrationOptions) list(ctx context.Context, c *cluster, _ []string) error {
	f := filter{allNamespaces: o.allNamespaces}
	integrations, err := o.integrations(ctx, c, &f)
	switch {
	case err != nil:
		return err
	case o.output.isSet():
		return o.output.write(&v1alpha1.WebhookIntegrationList{Items: integrations}, o.Out)
	case len(integrations) == 0:
		o.notef("No integrations found%s.", f.place(c))
		return nil
	}
	parts := make([][]live.Part, len(features))
	for i, feature := range features {
		if parts[i], err = feature.List(ctx, c, f.namespace(c)); err != nil {
			o.notef("%ss are not counted: %s.", feature.Kind(), live.Sentence(err))
		}
	}
	t := o.newTable(parts)
	return t.print(integrations)
}

// integrations returns all integrations. If there are none, it returns a missingError for a namespace that does not exist.
func (p *plugin) integrations(ctx context.Context, c *cluster, f *filter) (all []v1alpha1.WebhookIntegration, err error) {
	for integration, err := range live.Integrations(ctx, c, f.namespace(c)) {
		if err != nil {
			return nil, err
		}
		integration.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookIntegration"))
		all = append(all, *integration)
	}
	if len(all) == 0 {
		return nil, p.verify(ctx, c, f, nil)
	}
	return all, nil
}

func (o *integrationOptions) newTable(parts [][]live.Part) *table[v1alpha1.WebhookIntegration] {
	t := &table[v1alpha1.WebhookIntegration]{screen: o.screen, noHeaders: o.output.noHeaders}
	if o.allNamespaces {
		t.add("NAMESPACE", 0, func(i v1alpha1.WebhookIntegration) string { return i.Namespace })
	}
	condition := func(kind string) func(v1alpha1.WebhookIntegration) cell {
		return func(i v1alpha1.WebhookIntegration) cell {
			found := meta.FindStatusCondition(i.Status.Conditions, kind)
			switch {
			case found == nil:
				return cell{}
			case found.Status == metav1.ConditionTrue:
				return cell{text: string(found.Status)}
			}
			return cell{safe(found.Reason), yellow}
		}
	}
	t.add("NAME", 0, func(i v1alpha1.WebhookIntegration) string { return i.Name })
	t.addCells("READY", 0, condition(v1alpha1.ConditionReady))
	t.addCells("FOLDED", 0, condition(v1alpha1.ConditionAlertsFolded))
	t.addCells("FORWARDED", 0, condition(v1alpha1.ConditionForwarded))
	for n, feature := range features {
		t.add(strings.ToUpper(feature.Kind())+"S", 0, func(i v1alpha1.WebhookIntegration) string {
			return feature.Tally(slices.DeleteFunc(slices.Clone(parts[n]), func(part live.Part) bool {
				return part.Namespace != i.Namespace || part.Integration != i.Name
			}))
		})
	}
	t.add("TOKENS", 0, func(i v1alpha1.WebhookIntegration) string { return strconv.Itoa(len(i.Spec.Tokens)) })
	t.add("LAST-RECEIVED", 0, func(i v1alpha1.WebhookIntegration) string { return ago(i.Status.LastReceivedTime, o.now()) })
	t.add("PRESET", 0, func(i v1alpha1.WebhookIntegration) string { return i.Spec.Preset })
	return t
}

// checkPreset returns an error for a preset that does not exist, with the name that was probably meant, as cobra suggests
// commands: it begins with the same letters, or at most two of them are wrong.
func checkPreset(name string) error {
	names := mapping.PresetNames()
	if name == "" || slices.Contains(names, name) {
		return nil
	}
	presets := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, preset := range names {
		presets.AddCommand(&cobra.Command{Use: preset, Run: func(*cobra.Command, []string) {}})
	}
	if similar := presets.SuggestionsFor(name); len(similar) > 0 {
		return fmt.Errorf("preset %q does not exist; did you mean %q?", name, slices.Min(similar))
	}
	return fmt.Errorf("preset %q does not exist; available presets: %s", name, strings.Join(names, ", "))
}
