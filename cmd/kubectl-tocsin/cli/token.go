package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

func (p *plugin) tokenCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "token",
		Short: "Create, list, rotate and revoke tokens of an integration",
	}, p.tokenCreateCommand(), p.tokenListCommand(), p.tokenRotateCommand(), p.tokenRevokeCommand())
}

type tokenCreateOptions struct {
	*plugin
	endpoint  string
	name      string
	expiresIn time.Duration
	quiet     bool
}

func (p *plugin) tokenCreateCommand() *cobra.Command {
	o := &tokenCreateOptions{plugin: p}
	command := &cobra.Command{
		Use:               "create INTEGRATION",
		Short:             "Create a token and print the webhook URL",
		Args:              oneName("integration"),
		ValidArgsFunction: firstArgument(p.completeIntegrations()),
		RunE:              p.withCluster(o.run),
	}
	flags := command.Flags()
	flags.StringVar(&o.name, "name", "", "Name of the token. Default: the current date, such as 2026-05-04.")
	o.addFlags(command)
	return command
}

// addFlags adds the flags that "integration create" has as well.
func (o *tokenCreateOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	durationVar(flags, &o.expiresIn, "expires-in", "Lifetime of the token, such as 12h or 90d. Default: unlimited.")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "Print the URL only.")
	addEndpointFlag(flags, &o.endpoint)
}

func (o *tokenCreateOptions) run(ctx context.Context, c *cluster, names []string) error {
	token, err := o.create(ctx, c, names[0])
	if err == nil {
		o.print(token)
	}
	return err
}

func (p *plugin) tokenRotateCommand() *cobra.Command {
	o := &tokenCreateOptions{plugin: p}
	command := &cobra.Command{
		Use:               "rotate INTEGRATION [NAME]",
		Short:             "Create a token that replaces another one",
		Args:              takes(1, 2, "an integration name, and the name of a token if there are several"),
		ValidArgsFunction: p.completeNamesIn(tokenNames),
		RunE:              p.withCluster(o.rotate),
	}
	command.Flags().StringVar(&o.name, "name", "", "Name of the new token. Default: the current date, such as 2026-05-04.")
	o.addFlags(command)
	return command
}

// rotate creates a token. The old one stays valid until somebody revokes it, since the sender still has it.
func (o *tokenCreateOptions) rotate(ctx context.Context, c *cluster, args []string) error {
	integration, err := c.integration(ctx, args[0])
	if err != nil {
		return err
	}
	names := slices.DeleteFunc(tokenNames(&integration.Spec), func(name string) bool { return len(args) > 1 && args[1] != name })
	switch {
	case len(names) == 0 && len(args) == 1:
		return fmt.Errorf("integration %q has no token", integration.Name)
	case len(names) == 0:
		return fmt.Errorf("integration %q has no token %q", integration.Name, args[1])
	case len(names) > 1:
		return fmt.Errorf("integration %q has several tokens: specify one of %s", integration.Name, strings.Join(names, ", "))
	}
	token, err := o.create(ctx, c, integration.Name)
	if err != nil {
		return err
	}
	o.print(token)
	if o.quiet {
		return nil
	}
	o.notef("Give the sender this URL. When \"kubectl tocsin token list %[1]s -n %[3]s\" shows that %[2]q is no longer used, "+
		"revoke it:\nkubectl tocsin token revoke %[1]s %[2]s -n %[3]s", integration.Name, names[0], c.namespace)
	return nil
}

func tokenNames(spec *v1alpha1.WebhookIntegrationSpec) (names []string) {
	for i := range spec.Tokens {
		names = append(names, spec.Tokens[i].Name)
	}
	return names
}

// newToken is a token that has just been created, with the URL that contains it.
type newToken struct {
	v1alpha1.Token
	url         string
	integration string
}

func (o *tokenCreateOptions) create(ctx context.Context, c *cluster, integration string) (newToken, error) {
	var token newToken
	err := c.editIntegration(ctx, integration, dryRunNone, func(i *v1alpha1.WebhookIntegration) (err error) {
		token, err = o.generate(c.namespace, integration, i.Spec.Tokens)
		i.Spec.Tokens = append(i.Spec.Tokens, token.Token)
		return err
	})
	return token, err
}

// generate returns a new token whose name is not among the existing tokens.
func (o *tokenCreateOptions) generate(namespace, integration string, existing []v1alpha1.Token) (newToken, error) {
	endpoint, err := resolveEndpoint(o.endpoint)
	if err != nil {
		return newToken{}, err
	}
	secret := tokens.New(namespace, integration)
	token := newToken{url: endpoint + webhookPath + "/" + secret, integration: integration}
	token.SHA256 = tokens.Hash(secret)
	if o.expiresIn > 0 {
		expires := v1alpha1.NewTimestamp(o.now().Add(o.expiresIn))
		token.ExpirationTime = &expires
	}
	token.Name = freeName(o.name, o.now(), func(name string) bool {
		return slices.ContainsFunc(existing, func(t v1alpha1.Token) bool { return t.Name == name })
	})
	if token.Name == "" {
		return token, fmt.Errorf("token %q already exists: revoke it first or choose another name", o.name)
	}
	return token, nil
}

// print prints the URL on stdout, and an explanation on stderr.
func (o *tokenCreateOptions) print(token newToken) {
	if !o.quiet {
		expiry := "does not expire"
		if token.ExpirationTime != nil {
			expiry = "expires at " + token.ExpirationTime.Local().Format(localTime)
		}
		o.notef("Created token %q of integration %q, which %s. The webhook URL is shown only once:",
			token.Name, token.integration, expiry)
	}
	o.screen.printf("%s\n", token.url)
}

type tokenListOptions struct {
	*plugin
	output string
}

func (p *plugin) tokenListCommand() *cobra.Command {
	o := &tokenListOptions{plugin: p}
	command := &cobra.Command{
		Use:               "list INTEGRATION",
		Aliases:           []string{"ls"},
		Short:             "List the tokens of an integration",
		Args:              oneName("integration"),
		ValidArgsFunction: firstArgument(p.completeIntegrations()),
		RunE:              p.withCluster(o.run),
	}
	wordVar(command.Flags(), &o.output, "output", "o", "json or yaml",
		"Output format: json or yaml, a list as in spec.tokens. Default: a table.")
	return command
}

func (o *tokenListOptions) run(ctx context.Context, c *cluster, names []string) error {
	integration, err := c.integration(ctx, names[0])
	if err != nil {
		return err
	}
	if o.output != "" {
		return writeObject(o.Out, o.output, append([]v1alpha1.Token{}, integration.Spec.Tokens...))
	}
	if len(integration.Spec.Tokens) == 0 {
		o.notef("No tokens found in integration %q.", integration.Name)
		return nil
	}
	const hashChars = 12
	t := &table[v1alpha1.Token]{screen: o.screen}
	t.add("NAME", 0, func(token v1alpha1.Token) string { return token.Name })
	t.addCells("EXPIRES", 0, o.expiry)
	t.add("LAST-USED", 0, func(token v1alpha1.Token) string { return o.lastUse(integration.Status.Tokens, &token) })
	t.add("SHA256", 0, func(token v1alpha1.Token) string { return token.SHA256[:hashChars] + "…" })
	return t.print(integration.Spec.Tokens)
}

func (p *plugin) expiry(token v1alpha1.Token) cell {
	switch at, now := token.ExpirationTime, p.now(); {
	case at == nil || at.IsZero():
		return cell{text: "never"}
	case now.Before(at.Time):
		return cell{text: fromNow(at, now)}
	default:
		return cell{"expired " + ago(at, now), red}
	}
}

// lastUse is the age of a token's last use, which the operator updates at most once an hour.
func (p *plugin) lastUse(uses []v1alpha1.TokenUse, token *v1alpha1.Token) string {
	for i := range uses {
		if use := &uses[i]; use.Name == token.Name && use.SHA256 == token.SHA256 {
			return ago(&use.LastUsedTime, p.now()) + " ago"
		}
	}
	return "never"
}

type tokenRevokeOptions struct {
	*plugin
	expired bool
}

func (p *plugin) tokenRevokeCommand() *cobra.Command {
	o := &tokenRevokeOptions{plugin: p}
	command := &cobra.Command{
		Use:               "revoke INTEGRATION [NAME...]",
		Short:             "Revoke tokens of an integration",
		Args:              integrationFirst,
		ValidArgsFunction: p.completeNamesIn(tokenNames),
		RunE:              p.withCluster(o.run),
	}
	command.Flags().BoolVar(&o.expired, "expired", false, "Revoke all expired tokens.")
	return command
}

func (o *tokenRevokeOptions) run(ctx context.Context, c *cluster, args []string) error {
	integration, names := args[0], args[1:]
	if len(names) == 0 && !o.expired {
		return errors.New("specify a token name or --expired")
	}
	revoked, err := o.revoke(ctx, c, integration, names)
	switch {
	case err != nil:
		return err
	case len(revoked) == 0:
		o.screen.printf("No token has expired.\n")
	case len(revoked) == 1:
		o.screen.printf("Revoked token %q of integration %q.\n", revoked[0], integration)
	default:
		o.screen.printf("Revoked tokens \"%s\" of integration %q.\n", strings.Join(revoked, `", "`), integration)
	}
	return nil
}

// revoke removes the tokens with these names, and expired ones if --expired is set, and returns the names of all.
func (o *tokenRevokeOptions) revoke(
	ctx context.Context, c *cluster, integration string, names []string,
) (revoked []string, err error) {
	now := o.now()
	err = c.editIntegration(ctx, integration, dryRunNone, func(i *v1alpha1.WebhookIntegration) error {
		revoked = nil
		i.Spec.Tokens = slices.DeleteFunc(i.Spec.Tokens, func(token v1alpha1.Token) bool {
			isExpired := token.ExpirationTime != nil && !now.Before(token.ExpirationTime.Time)
			if (!o.expired || !isExpired) && !slices.Contains(names, token.Name) {
				return false
			}
			revoked = append(revoked, token.Name)
			return true
		})
		for _, name := range names {
			if !slices.Contains(revoked, name) {
				return fmt.Errorf("integration %q has no token %q; nothing was revoked", integration, name)
			}
		}
		return nil
	})
	return revoked, err
}
