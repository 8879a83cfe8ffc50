package cli

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

const completeTimeout = 3 * time.Second

// flagCompletions returns the completions of flags by their names. A wordValue has its own.
func (p *plugin) flagCompletions() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"context":     p.completeContexts,
		"integration": p.completeIntegrations(),
		"namespace":   p.completeNames(corev1.SchemeGroupVersion.WithKind("NamespaceList")),
		"preset":      completePresets,
	}
}

// firstArgument completes the first argument and no others.
func firstArgument(words cobra.CompletionFunc) cobra.CompletionFunc {
	return func(command *cobra.Command, given []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(command, given, begun)
	}
}

// completeOthers completes every argument, with words that were not given yet.
func (p *plugin) completeOthers(words cobra.CompletionFunc) cobra.CompletionFunc {
	return func(command *cobra.Command, given []string, begun string) ([]string, cobra.ShellCompDirective) {
		all, directive := words(command, given, begun)
		return slices.DeleteFunc(all, func(word string) bool { return slices.Contains(given, word) }), directive
	}
}

// fromCluster returns completions that read the cluster, given the arguments so far. If that fails, it completes what was read.
func (p *plugin) fromCluster(read func(context.Context, *cluster, []string) ([]string, error)) cobra.CompletionFunc {
	return func(command *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		c, err := p.cluster()
		if err != nil {
			return nil, directive
		}
		ctx, cancel := context.WithTimeout(command.Context(), completeTimeout)
		defer cancel()
		words, _ := read(ctx, c, given)
		return words, directive
	}
}

// completeIncidents completes names of Incidents, described by their states and titles.
func (p *plugin) completeIncidents() cobra.CompletionFunc {
	return p.fromCluster(func(ctx context.Context, c *cluster, given []string) (words []string, err error) {
		incidents, err := (&filter{}).list(ctx, c, true, nil)
		for _, incident := range incidents {
			if !slices.Contains(given, incident.Name) {
				description := string(incident.Status.State) + ": " + safe(incident.Status.Alert.Title)
				words = append(words, cobra.CompletionWithDesc(incident.Name, description))
			}
		}
		return words, err
	})
}

// completeNamesIn completes an integration, and then names that are in it.
func (p *plugin) completeNamesIn(names func(*v1alpha1.WebhookIntegrationSpec) []string) cobra.CompletionFunc {
	return p.fromCluster(func(ctx context.Context, c *cluster, given []string) ([]string, error) {
		if len(given) == 0 {
			return c.names(ctx, v1alpha1.GroupVersion.WithKind("WebhookIntegrationList"), client.InNamespace(c.namespace))
		}
		integration, err := c.integration(ctx, given[0])
		if err != nil {
			return nil, err
		}
		isGiven := func(name string) bool { return slices.Contains(given[1:], name) }
		return slices.DeleteFunc(names(&integration.Spec), isGiven), nil
	})
}

func (p *plugin) completeIntegrations() cobra.CompletionFunc {
	return p.completeNames(v1alpha1.GroupVersion.WithKind("WebhookIntegrationList"))
}

// completeNames completes names of a kind's objects, in the namespace if they have one.
func (p *plugin) completeNames(list schema.GroupVersionKind) cobra.CompletionFunc {
	return p.fromCluster(func(ctx context.Context, c *cluster, _ []string) ([]string, error) {
		return c.names(ctx, list, client.InNamespace(c.namespace))
	})
}

func (p *plugin) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	config, err := p.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

func completePresets(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	presets, err := mapping.Presets()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words := []string{cobra.CompletionWithDesc(mapping.Auto, "The preset that recognizes a payload")}
	for i := range presets {
		words = append(words, cobra.CompletionWithDesc(presets[i].Name, presets[i].Title))
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
