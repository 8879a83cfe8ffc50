package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

func (p *plugin) integrationCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "integration",
		Short: "Create integrations, each of which lets a sender in",
		Long: `Create integrations, each of which lets a sender in.

An integration is a resource: kubectl get, describe, edit and delete webhookintegrations do the rest.`,
		Example: example(`kubectl tocsin integration create monitoring --preset alertmanager`),
	}, p.integrationCreateCommand())
}

// What --dry-run may be, as kubectl has it.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// integrationCreateOptions are those of "integration create".
type integrationCreateOptions struct {
	tokenCreateOptions
	preset           string
	severity         string
	labels           map[string]string
	autoResolveAfter time.Duration
	retention        time.Duration
	noToken          bool
	dryRun           string
	output           machineOutput

	command *cobra.Command
}

func (p *plugin) integrationCreateCommand() *cobra.Command {
	o := &integrationCreateOptions{tokenCreateOptions: tokenCreateOptions{plugin: p}, output: newMachineOutput()}
	command := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an integration with a token, and print the address to post to",
		Long: `Create an integration with a first token, and print the address that the sender has to post to.

The token is in the address. It is printed once: the cluster holds only its SHA-256.`,
		Example: example(`
# For any tool that can post JSON
kubectl tocsin integration create backups

# For Alertmanager, whose payloads a preset reads
kubectl tocsin integration create monitoring --preset alertmanager

# Resolve what has been silent for a day; keep resolved incidents for a week
kubectl tocsin integration create cron --auto-resolve-after 24h --retention 168h

# A manifest for Git, without a token
kubectl tocsin integration create monitoring --no-token --dry-run=client -o yaml`),
		Args:              oneName("integration"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, args []string) error { return o.run(command.Context(), args[0]) },
	}
	o.command = command
	flags := command.Flags()
	flags.StringVar(&o.preset, "preset", "", "The tool whose payloads it reads, such as alertmanager. Default: none.")
	flags.StringVar(&o.severity, "default-severity", "", "The severity of alerts that do not tell one. Default: warning.")
	flags.StringToStringVar(&o.labels, "default-label", nil, "Labels for all its incidents as `KEY=VALUE`, such as team=storage.")
	flags.DurationVar(&o.autoResolveAfter, "auto-resolve-after", 0,
		"Resolve incidents that have been silent for so long. Default: never.")
	flags.DurationVar(&o.retention, "retention", 0, "How long to keep resolved incidents. Default: 168h.")
	flags.StringVar(&o.name, "token-name", "", "What to call the token. Default: the date, such as 2026-05-04.")
	flags.DurationVar(&o.expiresIn, "token-expires-in", 0, "For how long the token works, such as 720h. Default: for ever.")
	flags.BoolVar(&o.noToken, "no-token", false, "Make no token.")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "Print nothing but the address.")
	flags.StringVar(&o.dryRun, "dry-run", dryRunNone, "none, client (send nothing) or server (have it checked and not stored).")
	o.endpoint.addFlag(flags)
	o.output.AddFlags(command)
	flags.Lookup("output").Usage =
		"Print the integration: json, yaml, name, jsonpath=…, go-template=… The address goes to stderr then."
	for flag, values := range map[string]completions{
		"preset":           completePresets,
		"default-severity": fixedCompletions("critical", "error", "warning", "info"),
		"dry-run":          fixedCompletions(dryRunNone, dryRunClient, dryRunServer),
	} {
		if err := command.RegisterFlagCompletionFunc(flag, values); err != nil {
			panic(err) // the flag exists
		}
	}
	return command
}

func (o *integrationCreateOptions) run(ctx context.Context, name string) error {
	endpoint, err := o.endpoint.base()
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	c, err := o.cluster()
	if err != nil {
		return err
	}
	integration := o.integration(c.namespace, name)
	var made newToken
	if !o.noToken {
		made, err = o.token(c.namespace, name)
		if err != nil {
			return err
		}
		integration.Spec.Tokens = []v1alpha1.Token{made.Token}
	}
	if err := o.create(ctx, c, integration); err != nil {
		return err
	}
	if o.output.wanted() {
		if err := o.output.write(integration, o.Out); err != nil {
			return err
		}
		o.Out = o.ErrOut
	} else if !o.quiet {
		if _, err := fmt.Fprintf(o.ErrOut, "webhookintegration.tocsin.dev/%s created%s\n", name, o.dryRunNote()); err != nil {
			return err
		}
	}
	if o.noToken || o.dryRun != dryRunNone {
		return nil
	}
	return o.tell(made, endpoint)
}

// check finds what the API server would not, or would say less clearly.
func (o *integrationCreateOptions) check() error {
	if _, found := mapping.PresetNamed(o.preset); o.preset != "" && !found {
		return fmt.Errorf("there is no preset %q; there are %s", o.preset, strings.Join(presetNames(), ", "))
	}
	o.severity = strings.ToLower(o.severity)
	if o.severity != "" && !slices.Contains(severities, v1alpha1.Severity(o.severity)) {
		return fmt.Errorf("--default-severity is one of critical, error, warning and info, not %q", o.severity)
	}
	if !slices.Contains([]string{dryRunNone, dryRunClient, dryRunServer}, o.dryRun) {
		return fmt.Errorf("--dry-run is none, client or server, not %q", o.dryRun)
	}
	if !o.noToken && o.dryRun != dryRunNone {
		return errors.New("a dry run makes no token: add --no-token")
	}
	if o.expiresIn < 0 {
		return errors.New("--token-expires-in is a time from now on, such as 720h")
	}
	return nil
}

// integration is what the flags describe.
func (o *integrationCreateOptions) integration(namespace, name string) *v1alpha1.WebhookIntegration {
	integration := &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.WebhookIntegrationSpec{Preset: o.preset},
	}
	integration.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookIntegration"))
	spec := &integration.Spec
	if o.severity != "" || len(o.labels) > 0 {
		spec.Defaults = &v1alpha1.AlertDefaults{Severity: v1alpha1.Severity(o.severity)}
		for label, value := range o.labels {
			if spec.Defaults.Labels == nil {
				spec.Defaults.Labels = map[string]v1alpha1.LabelValue{}
			}
			spec.Defaults.Labels[label] = v1alpha1.LabelValue(value)
		}
	}
	if o.command.Flags().Changed("auto-resolve-after") {
		spec.AutoResolveAfter = &metav1.Duration{Duration: o.autoResolveAfter}
	}
	if o.command.Flags().Changed("retention") {
		spec.Retention = &metav1.Duration{Duration: o.retention}
	}
	return integration
}

// token makes the first token.
func (o *integrationCreateOptions) token(namespace, integration string) (newToken, error) {
	made := o.newToken(namespace, integration)
	name, err := o.pickName(nil)
	made.Name = name
	return made, err
}

func (o *integrationCreateOptions) create(ctx context.Context, c *cluster, integration *v1alpha1.WebhookIntegration) error {
	switch o.dryRun {
	case dryRunClient:
		return nil
	case dryRunServer:
		return c.Create(ctx, integration, fieldManager, client.DryRunAll)
	default:
		return c.Create(ctx, integration, fieldManager)
	}
}

func (o *integrationCreateOptions) dryRunNote() string {
	switch o.dryRun {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	default:
		return ""
	}
}

// presetNames are the presets' names.
func presetNames() []string {
	presets, err := mapping.Presets()
	if err != nil {
		return nil // they are part of the binary
	}
	names := make([]string, 0, len(presets))
	for i := range presets {
		names = append(names, presets[i].Name)
	}
	return names
}

func completePresets(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	presets, err := mapping.Presets()
	if err != nil {
		return nothing(nil)
	}
	words := []string{}
	for i := range presets {
		words = append(words, cobra.CompletionWithDesc(presets[i].Name, presets[i].Title))
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
