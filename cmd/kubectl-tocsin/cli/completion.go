package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// completeTimeout bounds the wait of somebody who pressed Tab.
const completeTimeout = 3 * time.Second

// completions gives the words that may stand where the cursor is.
type completions = cobra.CompletionFunc

func fixedCompletions(words ...string) completions {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

// nothing completes to nothing, not to file names either.
func nothing([]string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeIncidents completes the names of Incidents with their titles.
func (p *plugin) completeIncidents(command *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, ctx, cancel, err := p.completing(command)
	if err != nil {
		return nothing(given)
	}
	defer cancel()
	list, err := c.incidents(ctx, client.InNamespace(c.namespace))
	if err != nil {
		return nothing(given)
	}
	words := []string{}
	for _, incident := range wanted(list.Items, &filter{}) {
		if !slices.Contains(given, incident.Name) {
			words = append(words, cobra.CompletionWithDesc(incident.Name,
				strings.Join([]string{string(incident.Status.State), safe(incident.Status.Alert.Title)}, ": ")))
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeIntegrations completes the names of WebhookIntegrations.
func (p *plugin) completeIntegrations(command *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.completeNames(command, given, v1alpha1.GroupVersion.WithKind("WebhookIntegrationList"), true)
}

func (p *plugin) completeNamespaces(command *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.completeNames(command, given, corev1.SchemeGroupVersion.WithKind("NamespaceList"), false)
}

func (p *plugin) completeContexts(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	config, err := p.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nothing(given)
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// completeNames completes the names of the objects of a kind.
func (p *plugin) completeNames(
	command *cobra.Command, given []string, kind schema.GroupVersionKind, namespaced bool,
) ([]string, cobra.ShellCompDirective) {
	c, ctx, cancel, err := p.completing(command)
	if err != nil {
		return nothing(given)
	}
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	options := []client.ListOption{}
	if namespaced {
		options = append(options, client.InNamespace(c.namespace))
	}
	if err := c.List(ctx, list, options...); err != nil {
		return nothing(given)
	}
	words := []string{}
	for i := range list.Items {
		words = append(words, list.Items[i].Name)
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completing connects to the cluster for a moment.
func (p *plugin) completing(command *cobra.Command) (*cluster, context.Context, context.CancelFunc, error) {
	c, err := p.cluster()
	if err != nil {
		return nil, nil, nil, err
	}
	parent := command.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTimeout)
	return c, ctx, cancel, nil
}
